//! Formats records and errors as bytes for the standard streams (pure).

mod bulk;
mod configured;
mod cut;
mod doctor;
pub mod error;
pub mod escape;
mod format;
mod frame;
mod json;
mod lock;
pub mod log;
mod log_field;
mod milliseconds;
mod monitor;
mod raw;
mod record;
pub mod style;
mod text;
mod time;
pub mod trace;
mod watch;

pub use format::{Format, Rendered, Style, Zone};

use crate::commands::Output;

/// Formats a record.
#[must_use]
pub fn output(output: &Output, style: &Style) -> Rendered {
    bulk::output(output, style).unwrap_or_else(|| record::output(output, style))
}
