//! Completion for the system's shells.

pub mod answer;
mod bash_line;
mod stored;
