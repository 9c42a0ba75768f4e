//! What the prompt gets from the process edge: the definition, the parser, sessions, streams.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use clap::Command as Definition;

use super::contexts::{ActiveContext, ListContexts};
use super::streams::Streams;
use super::trace::TraceOutput;
use crate::client::Tracer;
use crate::commands::lines::words::Word;
use crate::commands::{Command, CommandError, Session};
use crate::render::Style;

/// Settings and functions of the process that the prompt runs in.
pub struct Setup {
    /// Without the verbs and options that a line cannot have: they are hidden.
    pub definition: Definition,
    /// Parses the words of a line; the style is the session's.
    pub parse: Box<dyn Fn(Vec<Word>, Style) -> Result<ParsedLine, CommandError>>,
    pub open: Box<OpenSession>,
    pub contexts: ListContexts,
    pub streams: Streams,
    pub style: Style,
    /// Whether no output format was set, so that a pipe or a file gets bare values.
    pub is_auto: bool,
    pub history: Option<PathBuf>,
    /// The program that `\!` without a command starts.
    pub login_shell: OsString,
    /// Returns the command of the pager for a text, or None if the text fits on the screen.
    pub pager: fn(&str) -> Option<Vec<u8>>,
    /// Switched by `\trace`.
    pub tracer: Tracer,
    pub trace_output: TraceOutput,
}

/// Opens a session: with the broker of the command line, or with a context or URL.
pub type OpenSession = dyn Fn(Option<&str>) -> Result<OpenedSession, CommandError>;

#[derive(Debug)]
pub enum ParsedLine {
    Run {
        command: Box<Command>,
        style: Style,
        /// Whether the line sets an output format.
        is_formatted: bool,
        /// Whether the line allows a write in a read-only context.
        is_forced: bool,
    },
    /// Print a text.
    Show(String),
    /// Print the help of the prompt.
    Help,
}

/// A session that is not yet connected.
pub struct OpenedSession {
    pub session: Session,
    /// The broker's short name, for the prompt.
    pub broker: String,
    pub context: Option<ActiveContext>,
    /// One line about the broker or the embedded store, printed once it is connected.
    pub about: String,
    /// The URL that `\c` takes to return to it; `None` for an embedded store.
    pub url: Option<String>,
    /// Whether the keys are lost when the session ends.
    pub is_transient: bool,
    /// Stops what was started for the session; called after it was closed.
    pub close: Box<dyn FnOnce() -> CloseFuture>,
}

/// Resolves when everything has stopped.
pub type CloseFuture = Pin<Box<dyn Future<Output = ()>>>;

impl fmt::Debug for Setup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Setup").finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenedSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OpenedSession").field("broker", &self.broker).finish_non_exhaustive()
    }
}
