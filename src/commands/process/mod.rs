//! Child processes, signals, files, standard streams and the environment.

pub mod child;
pub mod context;
pub mod editor;
pub mod file;
pub mod signal;
pub mod stdin;
pub mod stdout;
