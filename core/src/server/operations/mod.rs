//! Monitoring of a running server: `/metrics`, `$SYS` topics, and an HTTP listener with a status page.

pub mod admin;
mod monitor;
mod page;
mod prometheus;
pub mod sys;

pub use monitor::{Phase, Rates, ServerMonitor};
