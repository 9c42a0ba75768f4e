//! Line editor, on a thread of its own; the only file that names `rustyline`.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::{MemHistory, SearchDirection};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, ExternalPrinter, Helper};
use tokio::sync::mpsc;

use super::dumb_terminal::DumbTerminal;
use super::editor_control::{Edited, EditorControl, Leave};
use super::hint;
use super::input::Input;
use super::line::is_open;
use super::screen::LineOnScreen;
use super::shared_state::SharedState;
use super::streams::Streams;
use crate::platform::{
    JobSignal, JobSignals, KeyMode, interrupt_this_process, is_terminal_in_line_mode, stop_this_job,
};
use crate::render::cut::{cut, width_of};
use crate::render::style::{Paint, paint};

/// How many lines of the history are searched for a hint.
const HINTS_MAX: usize = 2_000;

/// The editor's thread, as the main loop sees it.
#[derive(Debug)]
pub struct LineEditor {
    requests: blocking::Sender<()>,
    inputs: mpsc::UnboundedReceiver<Input>,
    control: Arc<EditorControl>,
    /// Reads the lines if the terminal cannot be edited on.
    dumb_terminal: Option<Arc<DumbTerminal>>,
}

impl LineEditor {
    /// Starts the editor. Also returns the access to the line on the screen, if the terminal supports that.
    ///
    /// # Errors
    /// There is no terminal, or the system cannot create a thread or install a handler of signals.
    pub fn start(
        state: Arc<SharedState>,
        history: Vec<String>,
        streams: Streams,
        color: bool,
    ) -> io::Result<(Self, Option<LineOnScreen>)> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            // The highlighter repaints the prompt on the screen; it uses color only where `color` allows it.
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
        let control = Arc::new(EditorControl::default());
        let on_screen = editor.create_external_printer().ok().map(|mut printer| {
            let (control, print_control) = (Arc::clone(&control), Arc::clone(&control));
            LineOnScreen {
                print: Box::new(move |text| printer.print(text).map_err(io_error)),
                is_edited: Box::new(move || print_control.is_editing()),
                restart: Box::new(move || {
                    control.leave(Leave::Repaint);
                }),
            }
        });
        let helper = EditorHelper { state: Arc::clone(&state), control: Arc::clone(&control), color };
        editor.set_helper(Some(helper));
        // A terminal that cannot print above a line cannot edit one either.
        let dumb_terminal =
            on_screen.is_none().then(|| Arc::new(DumbTerminal::new(Arc::clone(&state), streams)));
        if let Some(signals) = JobSignals::new()? {
            tokio::spawn(follow_jobs(signals, Arc::clone(&control), dumb_terminal.clone()));
        }
        let (requests, requested) = blocking::channel();
        let (sender, inputs) = mpsc::unbounded_channel();
        let (reader, reader_control) = (dumb_terminal.clone(), Arc::clone(&control));
        thread::Builder::new().name("editor".to_owned()).spawn(move || {
            while requested.recv().is_ok() {
                let input = match &reader {
                    None => read(&mut editor, &state, &reader_control, streams),
                    Some(terminal) => {
                        let input = terminal.read(columns_of(&mut editor));
                        reader_control.has_begun.send_replace(true);
                        input
                    }
                };
                if sender.send(input).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self { requests, inputs, control, dumb_terminal }, on_screen))
    }

    pub fn request(&self) {
        self.control.prepare();
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
        *self.control.has_begun.borrow()
    }

    /// Returns whether a SIGINT that has arrived was for the editor, which had given the terminal back meanwhile.
    pub fn is_late_signal(&self) -> bool {
        self.control.is_late_signal()
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
        let mut has_begun = self.control.has_begun.subscribe();
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

/// Reads a line. If the editor has to leave the terminal meanwhile, it continues with the same line afterwards.
fn read(
    editor: &mut Editor<EditorHelper, MemHistory>,
    state: &SharedState,
    control: &EditorControl,
    streams: Streams,
) -> Input {
    // If the terminal is gone, the next read reports it.
    let write = |text: &str| drop((streams.data)(text.as_bytes(), true));
    let mut edited = Edited::default();
    let mut key_mode = KeyMode::set();
    loop {
        let prompt = state.begin_prompt(columns_of(editor));
        control.begin();
        let initial = edited.line.split_at_checked(edited.at).unwrap_or((&edited.line, ""));
        let result = editor.readline_with_initial(&prompt, initial);
        let was_interrupted = matches!(result, Err(ReadlineError::Interrupted));
        let (leave, has_hint) = control.end();
        if was_interrupted {
            edited = control.edited();
            // The cursor is in the first column of the row below the line.
            let (row, column) = state.end_of_line(&edited.line);
            if leave == Some(Leave::Repaint) {
                write(&format!("\x1b[{}A\x1b[J", row.saturating_add(1)));
            } else if has_hint {
                write(&format!("\x1b[A\x1b[{}G\x1b[K\n", column.saturating_add(1)));
            }
        }
        if leave == Some(Leave::Stop) {
            drop(key_mode);
            stop_this_job();
            key_mode = KeyMode::set();
        }
        return match result {
            Ok(line) => {
                if !line.starts_with(char::is_whitespace) {
                    let _ = editor.add_history_entry(line.as_str());
                }
                Input::Line(line)
            }
            Err(ReadlineError::Interrupted) if leave.is_some() => continue,
            Err(ReadlineError::Interrupted) => Input::Cleared,
            Err(ReadlineError::Eof) => Input::End,
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Input::InvalidUtf8,
            Err(_) => Input::Lost,
        };
    }
}

fn columns_of(editor: &mut Editor<EditorHelper, MemHistory>) -> usize {
    editor.dimensions().map_or(80, |(columns, _)| usize::from(columns))
}

/// Stops the process when the shell requests it, after the editor has given the terminal back, and takes the terminal again
/// when the process continues.
async fn follow_jobs(
    mut signals: JobSignals,
    control: Arc<EditorControl>,
    dumb_terminal: Option<Arc<DumbTerminal>>,
) {
    loop {
        match (signals.next().await, &dumb_terminal) {
            (JobSignal::Stop, _) => {
                if !control.leave(Leave::Stop) {
                    stop_this_job();
                }
            }
            (JobSignal::Continue, Some(terminal)) if !*control.has_begun.borrow() => terminal.restart(),
            (JobSignal::Continue, Some(_)) => {}
            // Also after a SIGSTOP, which cannot be handled.
            (JobSignal::Continue, None) => {
                if control.is_editing() && is_terminal_in_line_mode() {
                    control.leave(Leave::Resume);
                }
            }
        }
    }
}

fn io_error(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Completion, hints, validation and colors of the editor.
struct EditorHelper {
    state: Arc<SharedState>,
    control: Arc<EditorControl>,
    /// Without it there are no hints, which would look like typed text.
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
        self.control.set_hint(false);
        if at < line.len() || !self.color {
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
        let room = self.state.room_behind(line);
        if room == 0 {
            return None;
        }
        let shown = cut(&[(hint.shown.clone(), None)], room, false);
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
        self.control.set_searching(!is_default);
        if !is_default {
            return Cow::Borrowed(prompt);
        }
        // rustyline paints the prompt first, when it has already taken over the terminal and SIGINT.
        self.control.has_begun.send_if_modified(|has_begun| !std::mem::replace(has_begun, true));
        Cow::Owned(self.state.current_prompt(self.color))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        if self.control.is_searching() {
            // It is about the line, not about the search; blanks, because its columns are counted.
            return Cow::Owned(" ".repeat(width_of(hint)));
        }
        self.control.set_hint(true);
        Cow::Owned(paint(hint, Paint::Dim, self.color))
    }

    /// rustyline calls this at each change of the line and of the cursor's place.
    fn highlight_char(&self, line: &str, at: usize, _: CmdKind) -> bool {
        self.control.set_edited(line, at);
        false
    }
}
