//! Help: of the program, of its verbs, and of topics; on the terminal and as manual pages.

pub mod manual;
mod page;
mod program;
pub mod request;
pub mod show;
pub mod terminal;
mod text;
pub mod topics;
