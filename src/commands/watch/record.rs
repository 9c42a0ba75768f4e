//! Records of `watch`.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::client::WatchEvent;
use crate::protocol::{Details, Key, Timestamp, Value};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::style::{Paint, paint};
use crate::render::{Format, Record, Rendered, Style, Widths, name, notes, notice, time, warning};

/// The separator of columns in a pipe.
const TAB: &str = "\t";
/// The separator of columns on a terminal.
const GAP: &str = "  ";

/// The maximum width of the column of keys on a terminal; a longer key moves its value.
const KEY_WIDTH_MAX: usize = 32;

/// These keys are watched; with a prefix, more may follow.
#[derive(Debug)]
pub struct Watching {
    pub keys: Vec<Key>,
    pub prefix: Option<String>,
    /// The time after which new keys are found, unless the store notifies of them.
    pub interval: Option<Duration>,
}

/// An event.
#[derive(Debug)]
pub struct Watched {
    pub event: WatchEvent,
    /// Milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Counts the records from 1; None for events that are not data.
    pub sequence: Option<u64>,
}

/// A command that was run for a key has failed.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "command-ended")]
pub struct CommandEnded {
    #[serde(flatten, serialize_with = "json::key")]
    pub key: Key,
    #[serde(flatten)]
    pub ended: Ended,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// With an exit status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Ended {
    /// Returns the exit status of a shell that ran the command.
    #[must_use]
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl Record for Watching {
    fn json(&self, _: &Json<'_>) -> Rendered {
        Rendered::default()
    }

    fn text(&self, style: &Style, widths: &mut Widths) -> Rendered {
        if style.format == Format::Text {
            self.keys.iter().for_each(|key| widths.key.fit(&name(key), KEY_WIDTH_MAX));
        }
        let Some(prefix) = self.prefix.as_ref().map(|prefix| escape(prefix.as_bytes())) else {
            return Rendered::default();
        };
        let interval = self.interval.map(|interval| format!("; new keys within {} s", interval.as_secs()));
        match (self.keys.is_empty(), interval) {
            (true, interval) => {
                let interval = interval.unwrap_or_default();
                notice(&format!("no key that this client may read begins with {prefix} yet{interval}"), style)
            }
            (false, Some(interval)) => {
                notice(&format!("watching the keys that begin with {prefix}{interval}"), style)
            }
            (false, None) => Rendered::default(),
        }
    }
}

impl Record for CommandEnded {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.message(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let cause = match self.ended {
            Ended::Code(code) => format!("exit status {code}"),
            Ended::Signal(signal) => format!("ended by signal {signal}"),
        };
        warning(&format!("the command for {} failed: {cause}", name(&self.key)), style)
    }
}

/// An event about a key, as an object.
#[derive(Serialize)]
struct ChangeObject<'a> {
    event: &'static str,
    #[serde(flatten, serialize_with = "json::key")]
    key: &'a Key,
    /// Whether the key exists, of an event that is about its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<bool>,
    #[serde(flatten, serialize_with = "json::value")]
    value: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "json::version")]
    version: Option<&'a Timestamp>,
    #[serde(flatten, serialize_with = "json::details")]
    details: &'a Option<Box<Details>>,
    #[serde(rename = "received", serialize_with = "json::time")]
    received_ms: u64,
    #[serde(rename = "seq", skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}

/// An event about the connection or a message, as an object.
#[derive(Serialize)]
struct Notice<'a> {
    event: &'static str,
    #[serde(flatten)]
    about: About<'a>,
    #[serde(rename = "seq", skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum About<'a> {
    Lost {
        #[serde(rename = "since", serialize_with = "json::time")]
        since_ms: u64,
        cause: &'a str,
    },
    #[serde(serialize_with = "json::gap")]
    Gap {
        since_ms: u64,
        until_ms: u64,
    },
    Skipped {
        topic: &'a str,
        cause: &'a str,
    },
}

impl Watched {
    /// Returns the event as an object: about a key, or about something else.
    fn parts(&self) -> Result<ChangeObject<'_>, Notice<'_>> {
        let Self { event, received_ms, sequence } = self;
        let change = |event, key, found, value, version, details| {
            Ok(ChangeObject {
                event,
                key,
                found,
                value,
                version,
                details,
                received_ms: *received_ms,
                sequence: *sequence,
            })
        };
        let notice = |event, about| Err(Notice { event, about, sequence: *sequence });
        match event {
            WatchEvent::Current { key, found } | WatchEvent::Resync { key, found } => {
                let is_current = matches!(event, WatchEvent::Current { .. });
                let name = if is_current { "current" } else { "resync" };
                let value = found.as_ref().map(|found| &found.value);
                let version = found.as_ref().and_then(|found| found.version.as_ref());
                let details = found.as_ref().map_or(&None, |found| &found.details);
                change(name, key, Some(found.is_some()), value, version, details)
            }
            WatchEvent::Set { key, value, version, details } => {
                change("set", key, None, value.as_ref(), version.as_ref(), details)
            }
            WatchEvent::Delete { key, version } => change("delete", key, None, None, version.as_ref(), &None),
            WatchEvent::Lost { since_ms, cause } => {
                notice("lost", About::Lost { since_ms: *since_ms, cause })
            }
            WatchEvent::Gap { since_ms, until_ms } => {
                notice("gap", About::Gap { since_ms: *since_ms, until_ms: *until_ms })
            }
            WatchEvent::Skipped { topic, cause } => notice("skipped", About::Skipped { topic, cause }),
        }
    }
}

impl ChangeObject<'_> {
    /// Returns the name of the event in text.
    fn word(&self) -> String {
        self.event.to_ascii_uppercase()
    }

    /// Returns version, time to live and fencing token, if they are wanted.
    fn notes(&self, style: &Style) -> Vec<String> {
        if style.verbose { notes(self.version, self.details.as_deref()) } else { Vec::new() }
    }

    /// Formats the event for a terminal.
    fn text(&self, style: &Style, widths: &mut Widths) -> String {
        let dim = |text: &str| paint(text, Paint::Dim, style.color_stdout);
        let mut line = format!(
            "{}  {:<7}  {}",
            dim(&time::of_stream(self.received_ms, style.stdout_is_terminal, style)),
            self.word(),
            widths.key.pad(name(self.key), KEY_WIDTH_MAX)
        );
        match (self.value, self.event) {
            (Some(value), _) => line.extend([GAP, &escape(value)]),
            (None, "delete") => {}
            (None, "set") => line.extend([GAP, &dim("(unknown value)")]),
            (None, _) => line.extend([GAP, &dim("(key not found)")]),
        }
        line.extend(self.notes(style).into_iter().flat_map(|note| [GAP.to_owned(), dim(&note)]));
        line.truncate(line.trim_end_matches(' ').len());
        line.push('\n');
        line
    }

    /// Formats the event for a pipe: time, event, key, the value if there is one, and the version on request.
    fn columns(&self, style: &Style) -> String {
        let mut columns = vec![time::in_utc(self.received_ms), self.word(), name(self.key)];
        columns.extend(self.value.map(|value| escape(value)));
        let notes = self.notes(style);
        if !notes.is_empty() {
            columns.resize(4, String::new());
            columns.extend(notes);
        }
        columns.join(TAB) + "\n"
    }
}

impl Notice<'_> {
    /// Formats the event. A gap is printed even with --quiet, because changes may be missing.
    fn text(&self, received_ms: u64, style: &Style) -> Rendered {
        match self.about {
            About::Lost { cause, .. } => {
                notice(&format!("connection lost: {}; reconnecting", escape(cause.as_bytes())), style)
            }
            About::Skipped { topic, cause } => {
                let (topic, cause) = (escape(topic.as_bytes()), escape(cause.as_bytes()));
                warning(&format!("skipped a message on {topic}: {cause}"), style)
            }
            About::Gap { since_ms, until_ms } => {
                let is_data = self.sequence.is_some();
                // On standard error the format is always that of a terminal.
                let is_line = is_data && style.format != Format::Text;
                let color = if is_data { style.color_stdout } else { style.color_stderr };
                let is_terminal = match is_data {
                    true => !is_line && style.stdout_is_terminal,
                    false => style.stderr_is_terminal,
                };
                // The column of the key is empty; a key cannot be.
                let (separator, key) = if is_line { (TAB, TAB) } else { (GAP, "") };
                let word = if is_line { "GAP".to_owned() } else { format!("{:<7}", "GAP") };
                let columns = [
                    paint(&time::of_stream(received_ms, is_terminal, style), Paint::Dim, color),
                    paint(&word, Paint::Error, color),
                    format!("{key}{}", time::gap(since_ms, until_ms, is_terminal, style)),
                ];
                let line = columns.join(separator) + "\n";
                if is_data { Rendered::stdout(line) } else { Rendered::stderr(line) }
            }
        }
    }
}

impl Record for Watched {
    fn json(&self, json: &Json<'_>) -> Rendered {
        match self.parts() {
            Ok(change) => json.data(&change),
            Err(gap) if gap.sequence.is_some() => json.data(&gap),
            Err(gap @ Notice { about: About::Gap { .. }, .. }) => json.warning(&gap),
            Err(other) => json.message(&other),
        }
    }

    fn text(&self, style: &Style, widths: &mut Widths) -> Rendered {
        match (self.parts(), style.format) {
            // Only bytes of values are data then.
            (parts, Format::Raw | Format::Hex | Format::Base64) => self.on_stderr(&parts, style),
            (Ok(change), Format::Text) => Rendered::stdout(change.text(style, widths)),
            (Ok(change), _) => Rendered::stdout(change.columns(style)),
            (Err(notice), _) => notice.text(self.received_ms, style),
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        match &self.event {
            WatchEvent::Current { found, .. } | WatchEvent::Resync { found, .. } => {
                found.as_ref().map(|found| &found.value)
            }
            WatchEvent::Set { value, .. } => value.as_ref(),
            _ => None,
        }
    }

    fn key(&self) -> Option<&Key> {
        self.parts().ok().map(|change| change.key)
    }

    fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    fn is_connection_loss(&self) -> bool {
        matches!(self.event, WatchEvent::Lost { .. })
    }
}

impl Watched {
    /// Formats an event without bytes as for a terminal, on standard error.
    fn on_stderr(&self, parts: &Result<ChangeObject<'_>, Notice<'_>>, style: &Style) -> Rendered {
        let on_stderr = Style {
            format: Format::Text,
            color_stdout: style.color_stderr,
            stdout_is_terminal: style.stderr_is_terminal,
            ..*style
        };
        match parts {
            Ok(_) if style.quiet => Rendered::default(),
            Ok(change) => Rendered::stderr(change.text(&on_stderr, &mut Widths::default())),
            Err(notice) => {
                let Rendered { stdout, stderr } = notice.text(self.received_ms, &on_stderr);
                Rendered::stderr([&stderr, &*String::from_utf8_lossy(&stdout)].concat())
            }
        }
    }
}

#[cfg(test)]
mod tests;
