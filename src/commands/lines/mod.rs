//! Input of many lines: words, records, and a pipeline of requests.

pub mod answered;
pub mod entry;
pub(super) mod error_policy;
pub(super) mod pipeline;
pub(super) mod processor;
pub(super) mod reader;
pub mod records;
mod window;
pub mod words;
