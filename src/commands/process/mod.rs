//! Child processes, signals and files.

pub mod child;
pub mod file;
pub mod signal;
