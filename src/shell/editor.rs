//! Line editor, on a thread of its own; the only file that names `rustyline`.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::{MemHistory, SearchDirection};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, ExternalPrinter, Helper};
use tokio::sync::{mpsc, watch};

use super::dumb_terminal::DumbTerminal;
use super::hint::{self, cut};
use super::input::Input;
use super::line::is_open;
use super::screen::PrintAbove;
use super::shared_state::SharedState;
use super::streams::Streams;
use crate::commands::interrupt_this_process;
use crate::render::style::{Paint, paint};

/// How many lines of the history are searched for a hint.
const HINTS_MAX: usize = 2_000;

/// The editor's thread, as the main loop sees it.
#[derive(Debug)]
pub struct LineEditor {
    requests: blocking::Sender<()>,
    inputs: mpsc::UnboundedReceiver<Input>,
    /// Whether the editor has taken the terminal for the requested line. From then on Ctrl-C is a key for the editor and
    /// no SIGINT, until it gives the terminal back.
    has_begun: Arc<watch::Sender<bool>>,
    /// Reads the lines if the terminal cannot be edited on.
    dumb_terminal: Option<Arc<DumbTerminal>>,
}

impl LineEditor {
    /// Starts the editor. Also returns what prints above the line, if the terminal supports that.
    ///
    /// # Errors
    /// There is no terminal, or the system cannot create a thread.
    pub fn start(
        state: Arc<SharedState>,
        history: Vec<String>,
        streams: Streams,
        color: bool,
    ) -> io::Result<(Self, Option<PrintAbove>)> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            // The highlighter repaints the prompt on the screen; it uses colour only where `color` allows it.
            .color_mode(ColorMode::Forced)
            .max_history_size(HINTS_MAX)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map_err(io_error)?
            .build();
        let memory = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, memory).map_err(io_error)?;
        for line in history {
            editor.add_history_entry(line).map_err(io_error)?;
        }
        let above = editor
            .create_external_printer()
            .ok()
            .map(|mut printer| -> PrintAbove { Box::new(move |text| printer.print(text).map_err(io_error)) });
        let has_begun = Arc::new(watch::Sender::new(false));
        let helper = EditorHelper { state: Arc::clone(&state), has_begun: Arc::clone(&has_begun), color };
        editor.set_helper(Some(helper));
        // A terminal that cannot print above a line cannot edit one either.
        let dumb_terminal = above.is_none().then(|| Arc::new(DumbTerminal::new(Arc::clone(&state), streams)));
        let (requests, requested) = blocking::channel();
        let (sender, inputs) = mpsc::unbounded_channel();
        let (reader, reader_begun) = (dumb_terminal.clone(), Arc::clone(&has_begun));
        thread::Builder::new().name("editor".to_owned()).spawn(move || {
            while requested.recv().is_ok() {
                let columns = editor.dimensions().map_or(80, |(columns, _)| usize::from(columns));
                let input = match &reader {
                    None => read(&mut editor, &state, columns),
                    Some(terminal) => {
                        let input = terminal.read(columns);
                        reader_begun.send_replace(true);
                        input
                    }
                };
                if sender.send(input).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self { requests, inputs, has_begun, dumb_terminal }, above))
    }

    /// Requests a line.
    pub fn request(&self) {
        self.has_begun.send_replace(false);
        // If the thread has ended, `next` returns `Lost`.
        let _ = self.requests.send(());
    }

    /// Returns the requested line. Cancel-safe.
    pub async fn next(&mut self) -> Input {
        self.inputs.recv().await.unwrap_or(Input::Lost)
    }

    /// Returns whether a SIGINT that arrives now was sent after the requested line was entered: before that the editor
    /// had the terminal, and Ctrl-C was a key. On a dumb terminal the line must have been read.
    pub fn is_entered(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Clears the line on a dumb terminal, where Ctrl-C is a SIGINT.
    pub fn clear(&self) {
        if let Some(terminal) = &self.dumb_terminal {
            terminal.restart();
        }
    }

    /// Makes the editor give the terminal back.
    pub async fn stop(&mut self) {
        if self.dumb_terminal.is_some() {
            // It has changed no mode of the terminal, and only the end of a line would wake it.
            return;
        }
        let mut has_begun = self.has_begun.subscribe();
        tokio::select! {
            _ = self.next() => {}
            // Before the editor has the terminal, the signal would not reach it.
            _ = has_begun.wait_for(|has_begun| *has_begun) => {
                interrupt_this_process();
                self.next().await;
            }
        }
    }
}

fn read(editor: &mut Editor<EditorHelper, MemHistory>, state: &SharedState, columns: usize) -> Input {
    let prompt = state.begin_prompt(columns);
    state.set_editing(true);
    let result = editor.readline(&prompt);
    state.set_editing(false);
    match result {
        Ok(line) => {
            if !line.starts_with(char::is_whitespace) {
                let _ = editor.add_history_entry(line.as_str());
            }
            Input::Line(line)
        }
        Err(ReadlineError::Interrupted) => Input::Cleared,
        Err(ReadlineError::Eof) => Input::End,
        Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Input::InvalidUtf8,
        Err(_) => Input::Lost,
    }
}

fn io_error(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        ReadlineError::Errno(errno) => errno.into(),
        other => io::Error::other(other.to_string()),
    }
}

/// Completion, hints, validation and colours of the editor.
struct EditorHelper {
    state: Arc<SharedState>,
    has_begun: Arc<watch::Sender<bool>>,
    color: bool,
}

impl fmt::Debug for EditorHelper {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EditorHelper").finish_non_exhaustive()
    }
}

impl Helper for EditorHelper {}

impl Completer for EditorHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let completion = self.state.complete(line.get(..at).unwrap_or(line));
        let pairs = completion
            .replacements
            .into_iter()
            .map(|word| Pair { display: word.shown, replacement: word.typed });
        Ok((completion.start, pairs.collect()))
    }
}

/// A hint, cut to the room behind the line.
struct LineHint {
    shown: String,
    /// What the Right key adds to the line.
    accepted: Option<String>,
}

impl Hint for LineHint {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        self.accepted.as_deref()
    }
}

impl Hinter for EditorHelper {
    type Hint = LineHint;

    fn hint(&self, line: &str, at: usize, context: &Context<'_>) -> Option<LineHint> {
        if at < line.len() {
            return None;
        }
        let history = context.history();
        let earlier: Vec<String> = (0..history.len())
            .rev()
            .filter_map(|index| history.get(index, SearchDirection::Reverse).ok().flatten())
            .map(|found| found.entry.into_owned())
            .collect();
        let earlier = earlier.iter().map(String::as_str);
        let hint = hint::hint(line, self.state.definition(), earlier)?;
        let shown = cut(&hint.shown, self.state.room_behind(line));
        Some(LineHint { accepted: hint.is_text.then_some(hint.shown), shown })
    }
}

impl Validator for EditorHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let is_unfinished = is_open(context.input().as_bytes());
        Ok(if is_unfinished { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Highlighter for EditorHelper {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, is_default: bool) -> Cow<'b, str> {
        if !is_default {
            return Cow::Borrowed(prompt);
        }
        // rustyline paints the prompt first, when it has already taken over the terminal and SIGINT.
        self.has_begun.send_if_modified(|has_begun| !std::mem::replace(has_begun, true));
        Cow::Owned(self.state.current_prompt(self.color))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(paint(hint, Paint::Dim, self.color))
    }
}
