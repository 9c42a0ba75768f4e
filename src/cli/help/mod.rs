//! Help: of the program, of its verbs, and of topics; on the terminal, as manual pages and as Markdown.

pub mod manual;
pub mod markdown;
mod page;
mod program;
pub mod show;
pub mod terminal;
mod text;
pub mod topics;
