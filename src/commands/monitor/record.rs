//! Records of `monitor`.

use serde::Serialize;

use super::text;
use super::traffic_event::TrafficEvent;
use crate::render::json::{self, Json};
use crate::render::{Format, Record, Rendered, Style, Widths};

/// An event.
#[derive(Debug, Serialize)]
pub struct Traffic {
    #[serde(rename = "event")]
    name: &'static str,
    #[serde(rename = "received", serialize_with = "json::time")]
    at_ms: u64,
    /// Counts the records from 1; None for events that are not data.
    #[serde(rename = "seq", skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(flatten)]
    event: TrafficEvent,
    /// The width of the terminal, to which a line is cut.
    #[serde(skip)]
    columns_max: Option<usize>,
}

impl Traffic {
    /// Creates a record of an event at a time in Unix milliseconds.
    #[must_use]
    pub fn new(event: TrafficEvent, at_ms: u64, sequence: Option<u64>, columns_max: Option<usize>) -> Self {
        Self { name: event.name(), at_ms, sequence, event, columns_max }
    }
}

impl Record for Traffic {
    fn json(&self, json: &Json<'_>) -> Rendered {
        match self.event {
            TrafficEvent::Lost { .. } => json.message(self),
            _ => json.data(self),
        }
    }

    fn text(&self, style: &Style, widths: &mut Widths) -> Rendered {
        match style.format {
            Format::Text => text::text(&self.event, self.at_ms, self.columns_max, style, widths),
            _ => text::columns(&self.event, self.at_ms, style),
        }
    }
}
