//! Interactive prompt: one session, verbs run over it line by line, watches and locks in its background; and the
//! completion engine of the prompt and of the system's shells.

mod backslash;
pub mod completion;
mod connection_status;
mod contexts;
pub mod definition;
mod dumb_terminal;
mod editor;
mod editor_control;
mod error_hints;
mod hint;
mod history;
mod input;
mod line;
mod locks;
mod main_loop;
mod printer;
mod prompt;
mod rate_limit;
mod redact;
mod redirection;
mod screen;
mod setup;
mod shared_state;
mod statements;
mod streams;
mod text;
mod trace;
mod watches;

pub use contexts::ActiveContext;
pub use main_loop::run;
pub use setup::{CloseFuture, OpenedSession, ParsedLine, Setup};
pub use streams::Streams;
pub use trace::TraceOutput;
