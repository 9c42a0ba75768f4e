//! Output and errors to bytes: pure, told everything about the terminal.

mod bulk;
mod configured;
mod cut;
mod doctor;
pub mod error;
pub mod escape;
mod frame;
mod json;
mod lock;
pub mod log;
mod monitor;
mod raw;
pub mod style;
mod text;
pub mod trace;
mod watch;

use bytes::Bytes;

use crate::commands::Output;

/// The shape of what goes to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people at a terminal.
    Text,
    /// For a pipe: exact values, and nothing that a program would have to skip.
    Lines,
    /// Exact bytes, no line feed.
    Raw,
    /// Hexadecimal digits, a line a value.
    Hex,
    /// Base64, a line a value.
    Base64,
    /// One JSON object a line.
    Json,
}

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The shape of what goes to standard output.
    pub format: Format,
    /// Whether standard output takes colour.
    pub color_data: bool,
    /// Whether standard error takes colour.
    pub color_words: bool,
    /// Whether standard error is a terminal.
    pub words_on_terminal: bool,
    /// Say more.
    pub verbose: bool,
    /// Say no more than what was summary for, and errors.
    pub quiet: bool,
}

#[cfg(test)]
impl Style {
    /// Text without colour, for tests.
    pub const PLAIN: Self = Self {
        format: Format::Text,
        color_data: false,
        color_words: false,
        words_on_terminal: false,
        verbose: false,
        quiet: false,
    };
}

/// What one record looks like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// For standard output.
    pub data: Bytes,
    /// For standard error.
    pub words: String,
}

/// Renders one record.
#[must_use]
pub fn output(output: &Output, style: &Style) -> Rendered {
    if let Some(rendered) = bulk::output(output, style) {
        return rendered;
    }
    match style.format {
        Format::Json => json::output(output, style.quiet),
        Format::Text => text::output(output, style),
        Format::Lines | Format::Raw | Format::Hex | Format::Base64 => {
            raw::output(output, style).unwrap_or_else(|| text::lines(output, style))
        }
    }
}

impl Rendered {
    fn data(data: impl Into<Bytes>) -> Self {
        Self { data: data.into(), words: String::new() }
    }

    fn words(words: String) -> Self {
        Self { data: Bytes::new(), words }
    }
}
