//! Log of the server: its format, and which events it contains.

use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::operations::LogFormat;
use crate::cli::file_permissions;
use crate::cli::log::{Log, Writer};
use crate::clock;
use crate::commands::CommandError;
use crate::render::Style;
use crate::render::log::{json, sentence, text};
use crate::server::Event;
use crate::server::event::row::{Row, Value};

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
    pub fn start(format: LogFormat, level: LogLevel, style: Style) -> Result<(Self, Writer), CommandError> {
        let (log, writer) = Log::start(move |count| match format {
            LogFormat::Text => line(&Log::unread(count), &style),
            LogFormat::Json => object("unread", &Unread { count, message: Log::unread(count) }),
        })?;
        Ok((Self { log, format, level, style }, writer))
    }

    /// Logs a warning.
    pub fn warn(&self, message: &str) {
        self.write(LogLevel::Warnings, || match self.format {
            LogFormat::Text => sentence(clock::wall_ms(), &format!("warning: {message}"), &self.style),
            LogFormat::Json => object("warning", &MessageField { message }),
        });
    }

    /// Logs a warning if other users can read or write a file that contains a secret.
    pub fn warn_of_secret(&self, file: &Path) {
        if let Some(warning) = file_permissions::warning(file) {
            self.warn(warning.strip_prefix("warning: ").unwrap_or(&warning));
        }
    }

    /// Logs a warning if other users can write a file with settings or rules.
    pub fn warn_of_settings(&self, file: &Path) {
        if let Some(warning) = file_permissions::warning_of_settings(file) {
            self.warn(warning.strip_prefix("warning: ").unwrap_or(&warning));
        }
    }

    /// Logs a warning if other users can change the directory of a store, or read its files.
    pub fn warn_of_data(&self, directory: &Path) {
        if let Some(warning) = file_permissions::warning_of_data(directory) {
            self.warn(&warning);
        }
    }

    /// Logs that the server is ready: the URLs of its broker and of its status page.
    pub fn ready(&self, message: &str, brokers: &[String], admin: &[String]) {
        self.write(LogLevel::Warnings, || match self.format {
            LogFormat::Text => line(message, &self.style),
            LogFormat::Json => object("ready", &Ready { message, brokers, admin }),
        });
    }

    /// Logs a regular event.
    pub fn note(&self, event: &'static str, message: &str) {
        self.write(LogLevel::All, || match self.format {
            LogFormat::Text => line(message, &self.style),
            LogFormat::Json => object(event, &MessageField { message }),
        });
    }

    /// Logs an event of the server.
    pub fn event(&self, event: &Event) {
        let row = event.row();
        let level = if row.is_failure { LogLevel::Warnings } else { LogLevel::All };
        self.write(level, || match self.format {
            LogFormat::Text => line(&row.to_string(), &self.style),
            LogFormat::Json => object(row.name, &EventFields(&row)),
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

fn object(event: &str, fields: &impl Serialize) -> String {
    json(clock::wall_ms(), event, fields)
}

#[derive(Serialize)]
struct MessageField<'a> {
    message: &'a str,
}

#[derive(Serialize)]
struct Ready<'a> {
    message: &'a str,
    brokers: &'a [String],
    admin: &'a [String],
}

#[derive(Serialize)]
struct Unread {
    /// The number of lines that were dropped.
    count: u64,
    message: String,
}

/// The fields of an event, then its line of text.
struct EventFields<'a>(&'a Row<'a>);

impl Serialize for EventFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(row) = self;
        let mut members = serializer.serialize_map(None)?;
        for (name, value) in &row.fields {
            match value {
                Value::Text(text) => members.serialize_entry(name, text)?,
                Value::Number(number) => members.serialize_entry(name, number)?,
                Value::Signed(number) => members.serialize_entry(name, number)?,
            }
        }
        members.serialize_entry("message", &row.to_string())?;
        members.end()
    }
}
