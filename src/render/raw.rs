//! Values and payloads as bytes, hexadecimal digits or base64.

use bytes::Bytes;

use super::{Format, Rendered, Style, watch};
use crate::commands::encoding::{to_base64, to_hex};
use crate::commands::output::{Got, Output};

/// The bytes that a record is about; none for a record that has no bytes of its own.
#[must_use]
pub fn output(output: &Output, style: &Style) -> Option<Rendered> {
    let format = style.format;
    let bytes = match (output, format) {
        (Output::Got { got, .. }, _) => match got {
            Got::Found(found) => &found.value,
            Got::Default(value) => value,
            Got::Written { .. } | Got::Missing => return Some(Rendered::default()),
        },
        // What is no value is no data here, but neither is it kept back.
        (Output::Watched { event, received_ms, .. }, Format::Raw | Format::Hex | Format::Base64) => {
            match watch::value(event) {
                Some(value) => value,
                None => return Some(watch::words(event, *received_ms, style)),
            }
        }
        (Output::Holder { found: Some(found), .. }, Format::Raw | Format::Hex | Format::Base64) => {
            &found.value
        }
        // A payload is no line unless asked for as bytes: `raw` shows its meaning in a pipe too.
        (Output::Response { payload, .. }, Format::Raw | Format::Hex | Format::Base64) => payload,
        _ => return None,
    };
    Some(Rendered::stdout(encode(bytes, format)))
}

fn encode(bytes: &Bytes, format: Format) -> Bytes {
    match format {
        Format::Hex => line(to_hex(bytes)),
        Format::Base64 => line(to_base64(bytes)),
        Format::Raw | Format::Lines | Format::Text | Format::Json => bytes.clone(),
    }
}

fn line(mut text: String) -> Bytes {
    text.push('\n');
    text.into()
}
