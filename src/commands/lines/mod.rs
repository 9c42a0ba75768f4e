//! Input of many lines: words, operators, records, and a pipeline of requests.

pub mod answered;
pub mod entry;
pub(super) mod error_policy;
pub mod operators;
pub(super) mod pipeline;
pub(super) mod processor;
pub(super) mod reader;
pub mod records;
mod window;
pub mod words;
