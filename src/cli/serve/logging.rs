//! Log of the server: its format, and which events it contains.

use std::path::Path;

use super::operations::LogFormat;
use crate::cli::log::{Log, Writer};
use crate::cli::permissions;
use crate::clock;
use crate::commands::CommandError;
use crate::render::Style;
use crate::render::log::{Field, json, sentence, text};
use crate::server::Event;
use crate::server::event::row::Value;

/// The events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Off,
    /// The ready line, warnings and errors.
    Warnings,
    /// Also each connection and what it does.
    All,
}

/// Log of the server: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct EventLog {
    log: Log,
    format: LogFormat,
    level: LogLevel,
    style: Style,
}

impl EventLog {
    /// Starts the thread that writes the log.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(format: LogFormat, level: LogLevel, style: Style) -> Result<(Self, Writer), CommandError> {
        let (log, writer) = Log::start(move |count| match format {
            LogFormat::Text => line(&Log::unread(count), &style),
            LogFormat::Json => object("unread", [("count", Field::Number(count))]),
        })?;
        Ok((Self { log, format, level, style }, writer))
    }

    /// Logs a warning.
    pub fn warn(&self, message: &str) {
        self.write(LogLevel::Warnings, || match self.format {
            LogFormat::Text => sentence(clock::wall_ms(), &format!("warning: {message}"), &self.style),
            LogFormat::Json => object("warning", [("message", Field::Text(message.to_owned()))]),
        });
    }

    /// Logs a warning if other users can read or write a file that contains a secret.
    pub fn warn_of_secret(&self, file: &Path) {
        if let Some(warning) = permissions::warning(file) {
            self.warn(warning.strip_prefix("warning: ").unwrap_or(&warning));
        }
    }

    /// Logs a warning if other users can write a file with settings or rules.
    pub fn warn_of_settings(&self, file: &Path) {
        if let Some(warning) = permissions::warning_of_settings(file) {
            self.warn(warning.strip_prefix("warning: ").unwrap_or(&warning));
        }
    }

    /// Logs that the server is ready; `fields` are those of the JSON record.
    pub fn ready(&self, message: String, fields: Vec<(&'static str, Field)>) {
        self.write(LogLevel::Warnings, || match self.format {
            LogFormat::Text => line(&message, &self.style),
            LogFormat::Json => {
                let message = [("message", Field::Text(message))];
                object("ready", message.into_iter().chain(fields))
            }
        });
    }

    /// Logs a regular event.
    pub fn note(&self, event: &'static str, message: String) {
        self.write(LogLevel::All, || match self.format {
            LogFormat::Text => line(&message, &self.style),
            LogFormat::Json => object(event, [("message", Field::Text(message))]),
        });
    }

    /// Logs an event of the server.
    pub fn event(&self, event: &Event) {
        let row = event.row();
        let level = if row.is_failure { LogLevel::Warnings } else { LogLevel::All };
        self.write(level, || match self.format {
            LogFormat::Text => line(&row.to_string(), &self.style),
            LogFormat::Json => {
                let message = ("message", Field::Text(row.to_string()));
                let field = |value| match value {
                    Value::Text(text) => Field::Text(text.into_owned()),
                    Value::Number(number) => Field::Number(number),
                    Value::Signed(number) => Field::Signed(number),
                };
                let fields = row.fields.into_iter().map(|(name, value)| (name, field(value)));
                object(row.name, fields.chain([message]))
            }
        });
    }

    fn write(&self, level: LogLevel, line: impl FnOnce() -> String) {
        if self.level >= level {
            self.log.write(line());
        }
    }
}

fn line(message: &str, style: &Style) -> String {
    text(clock::wall_ms(), message, style)
}

fn object(event: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    json(clock::wall_ms(), event, fields)
}
