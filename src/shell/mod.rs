//! The prompt: one session kept open, verbs run over it line by line, and what runs in its background.

mod complete;
pub mod definition;
mod flood;
mod hint;
mod line;
mod meta;
mod prompt;
mod redact;
