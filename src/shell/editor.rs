//! The line editor, on a thread of its own; the only file that names `rustyline`.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint as Shown, Hinter};
use rustyline::history::{MemHistory, SearchDirection};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, CompletionType, Config, Context, Editor, ExternalPrinter, Helper};
use tokio::sync::{mpsc, watch};

use super::hint::{self, cut};
use super::line::is_open;
use crate::commands::interrupt_this_process;
use crate::render::style::{Paint, paint};
use crate::shell::dumb_terminal::Plain;
use crate::shell::printer::Streams;
use crate::shell::shared_state::Live;

/// How far back a hint is looked for, in lines.
const HINTS_MAX: usize = 2_000;

/// What became of a line.
#[derive(Debug)]
pub enum Typed {
    /// It was entered.
    Line(String),
    /// Ctrl-C has cleared it.
    Cleared,
    /// It is no text.
    Garbled,
    /// Ctrl-D: there will be no other.
    End,
    /// The terminal is gone, or makes trouble.
    Broken,
}

/// The line editor, seen from the loop.
#[derive(Debug)]
pub struct Lines {
    asks: blocking::Sender<()>,
    typed: mpsc::UnboundedReceiver<Typed>,
    begun: Arc<watch::Sender<bool>>,
    /// Reads in place of the editor where the terminal is one in which no line can be edited.
    plain: Option<Arc<Plain>>,
}

/// Prints above the line that is being typed.
pub type Above = Box<dyn FnMut(String) -> io::Result<()> + Send>;

impl Lines {
    /// Starts the editor; where the terminal can do it, also gives what prints above the line.
    ///
    /// # Errors
    /// There is no terminal, or no thread.
    pub fn start(
        live: Arc<Live>,
        earlier: Vec<String>,
        streams: Streams,
        color: bool,
    ) -> io::Result<(Self, Option<Above>)> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            // The prompt on the screen changes through the highlighter, which paints only where it may.
            .color_mode(ColorMode::Forced)
            .max_history_size(HINTS_MAX)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map_err(of_editor)?
            .build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(of_editor)?;
        for line in earlier {
            editor.add_history_entry(line).map_err(of_editor)?;
        }
        let above = editor
            .create_external_printer()
            .ok()
            .map(|mut printer| -> Above { Box::new(move |text| printer.print(text).map_err(of_editor)) });
        let begun = Arc::new(watch::Sender::new(false));
        editor.set_helper(Some(Aid { live: Arc::clone(&live), begun: Arc::clone(&begun), color }));
        // Where a line cannot be edited nothing can be printed above it.
        let plain = above.is_none().then(|| Arc::new(Plain::new(Arc::clone(&live), streams)));
        let (asks, asked) = blocking::channel();
        let (told, typed) = mpsc::unbounded_channel();
        let (in_place, read_plainly) = (plain.clone(), Arc::clone(&begun));
        thread::Builder::new().name("editor".to_owned()).spawn(move || {
            while asked.recv().is_ok() {
                let columns = editor.dimensions().map_or(80, |(columns, _)| usize::from(columns));
                let line = match &in_place {
                    None => read(&mut editor, &live, columns),
                    Some(plain) => {
                        let line = plain.read(columns);
                        read_plainly.send_replace(true);
                        line
                    }
                };
                if told.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok((Self { asks, typed, begun, plain }, above))
    }

    /// Asks for a line.
    pub fn ask(&self) {
        self.begun.send_replace(false);
        // An editor that is gone says so in `next`.
        let _ = self.asks.send(());
    }

    /// The line that was asked for. May be dropped at any time.
    pub async fn next(&mut self) -> Typed {
        self.typed.recv().await.unwrap_or(Typed::Broken)
    }

    /// Whether a SIGINT that is heard now came when the line had been entered: the editor has had the terminal since it
    /// was asked, and while it has it, all SIGINT are its own. Without an editor the line must have been read.
    pub fn is_entered(&self) -> bool {
        *self.begun.borrow()
    }

    /// Clears a line at a Ctrl-C of which no editor has heard.
    pub fn clear(&self) {
        if let Some(plain) = &self.plain {
            plain.begin_again();
        }
    }

    /// Has the editor that was asked for a line give the terminal back.
    pub async fn wake(&mut self) {
        if self.plain.is_some() {
            // It has taken nothing, and hears nothing but the end of a line.
            return;
        }
        let mut begun = self.begun.subscribe();
        tokio::select! {
            _ = self.next() => {}
            // Before that it would not hear it.
            _ = begun.wait_for(|begun| *begun) => {
                interrupt_this_process();
                self.next().await;
            }
        }
    }
}

fn read(editor: &mut Editor<Aid, MemHistory>, live: &Live, columns: usize) -> Typed {
    let prompt = live.begin_prompt(columns);
    live.set_editing(true);
    let read = editor.readline(&prompt);
    live.set_editing(false);
    match read {
        Ok(line) => {
            if !line.starts_with(char::is_whitespace) {
                let _ = editor.add_history_entry(line.as_str());
            }
            Typed::Line(line)
        }
        Err(ReadlineError::Interrupted) => Typed::Cleared,
        Err(ReadlineError::Eof) => Typed::End,
        Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => Typed::Garbled,
        Err(_) => Typed::Broken,
    }
}

fn of_editor(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        ReadlineError::Errno(errno) => errno.into(),
        other => io::Error::other(other.to_string()),
    }
}

/// What the editor asks while a line is typed.
struct Aid {
    live: Arc<Live>,
    begun: Arc<watch::Sender<bool>>,
    color: bool,
}

impl fmt::Debug for Aid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Aid").finish_non_exhaustive()
    }
}

impl Helper for Aid {}

impl Completer for Aid {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let completion = self.live.complete(line.get(..at).unwrap_or(line));
        let pairs = completion
            .replacements
            .into_iter()
            .map(|word| Pair { display: word.shown, replacement: word.typed });
        Ok((completion.start, pairs.collect()))
    }
}

/// A hint, cut to the room that there is.
struct Grey {
    shown: String,
    typed: Option<String>,
}

impl Shown for Grey {
    fn display(&self) -> &str {
        &self.shown
    }

    fn completion(&self) -> Option<&str> {
        self.typed.as_deref()
    }
}

impl Hinter for Aid {
    type Hint = Grey;

    fn hint(&self, line: &str, at: usize, context: &Context<'_>) -> Option<Grey> {
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
        let hint = hint::hint(line, self.live.definition(), earlier)?;
        let shown = cut(&hint.shown, self.live.room_behind(line));
        Some(Grey { typed: hint.is_text.then_some(hint.shown), shown })
    }
}

impl Validator for Aid {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let goes_on = is_open(context.input().as_bytes());
        Ok(if goes_on { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Highlighter for Aid {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, is_own: bool) -> Cow<'b, str> {
        if !is_own {
            return Cow::Borrowed(prompt);
        }
        // The prompt is painted first of all, when the terminal and SIGINT have been taken over.
        self.begun.send_if_modified(|begun| !std::mem::replace(begun, true));
        Cow::Owned(self.live.current_prompt(self.color))
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(paint(hint, Paint::Dim, self.color))
    }
}
