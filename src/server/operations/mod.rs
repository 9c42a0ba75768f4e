//! Monitoring of a running server: metrics, `$SYS` topics, and an HTTP listener with a status page.

pub mod admin;
pub mod cluster_metrics;
pub mod metrics;
mod monitor;
mod page;
mod prometheus;
mod settings;
pub mod sys;

pub use monitor::{Phase, Rates, ServerMonitor};
pub use settings::{AdminSettings, OperationsSettings};
