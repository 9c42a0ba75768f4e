//! What the records of the verbs share: formats, escaping, tables, times, widths, JSON (pure).

pub mod cut;
pub mod duration;
pub mod encoding;
pub mod escape;
mod format;
pub mod frame;
pub mod json;
pub mod log;
mod message;
mod record;
pub mod style;
pub mod table;
pub mod time;
mod widths;
pub mod wrap;

pub use format::{Format, Rendered, Style, Zone};
pub use message::{
    confirmation, counted, detailed_line, hint, line, name, negative, not_found, notes, notice, warning,
};
#[cfg(test)]
pub use record::shown;
pub use record::{Progress, Record, rendered};
pub use widths::Widths;
