//! Values and payloads as bytes, in hexadecimal or in base64.

use bytes::Bytes;

use super::{Format, Rendered, Style, watch};
use crate::commands::encoding::{to_base64, to_hex};
use crate::commands::output::{ExchangeRecord, Got, Output};

/// Formats the bytes of a record; None for a record without bytes.
#[must_use]
pub fn output(output: &Output, style: &Style) -> Option<Rendered> {
    let format = style.format;
    let bytes = match (output, format) {
        (Output::Got { got: Got::Missing, .. }, _) => return None,
        (Output::Got { got, .. }, _) => match got {
            Got::Found(found) => &found.value,
            Got::Default(value) => value,
            Got::Written { .. } | Got::Missing => return Some(Rendered::default()),
        },
        // Events without a value go to standard error.
        (Output::Watched { event, received_ms, .. }, Format::Raw | Format::Hex | Format::Base64) => {
            match watch::value(event) {
                Some(value) => value,
                None => return Some(watch::on_stderr(event, *received_ms, style)),
            }
        }
        (Output::Holder { found: Some(found), .. }, Format::Raw | Format::Hex | Format::Base64) => {
            &found.value
        }
        (Output::Exchange(record), _) => match &**record {
            ExchangeRecord::Value { value: Ok(value), .. } => value,
            _ => return None,
        },
        // By default `raw` shows the meaning of a payload, also in a pipe.
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
