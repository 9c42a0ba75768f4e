//! Files of users: the encoding of text, and writing that replaces a file as a whole.

pub mod replace;
pub mod text;
