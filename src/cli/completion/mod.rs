//! Completion for the system's shells: the answers to the scripts.

pub mod answer;
mod bash_line;
mod stored;
