//! Formats records and errors as bytes for the standard streams (pure).

mod bench;
mod bulk;
mod configured;
pub mod cut;
mod doctor;
pub mod error;
pub mod escape;
mod exchange;
mod format;
mod frame;
mod json;
mod lock;
pub mod log;
mod log_field;
mod message;
mod milliseconds;
mod monitor;
mod raw;
mod record;
pub mod style;
pub mod table;
mod text;
mod time;
pub mod trace;
mod watch;
mod widths;
mod wrap;

pub use format::{Format, Rendered, Style, Zone};
pub use message::negative;
pub use milliseconds::ms_text;
pub use widths::Widths;

use crate::commands::Output;

/// Formats a record; `widths` are those of the records before it on the same terminal.
#[must_use]
pub fn output(output: &Output, style: &Style, widths: &mut Widths) -> Rendered {
    bulk::output(output, style).unwrap_or_else(|| record::output(output, style, widths))
}
