//! Completion: the engine, which the system's shells use too, and what the prompt adds to it.

pub mod engine;
pub(super) mod keys;
pub(super) mod line;
pub(super) mod paths;
