//! Formats one record in the format of standard output.

use super::format::{Format, Rendered, Style};
use super::{Widths, json, raw, text};
use crate::commands::Output;

/// Formats a record that is not part of a bulk result.
#[must_use]
pub fn output(output: &Output, style: &Style, widths: &mut Widths) -> Rendered {
    match style.format {
        Format::Json => json::output(output, style.quiet),
        Format::Text => text::output(output, style, widths),
        Format::Lines | Format::Raw | Format::Hex | Format::Base64 => {
            raw::output(output, style).unwrap_or_else(|| text::lines(output, style))
        }
    }
}
