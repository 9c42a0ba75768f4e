//! What `serve` tells its operator: in which shape, and how much of it.

use std::path::Path;

use super::operations::LogFormat;
use crate::cli::log::{Log, Writer};
use crate::cli::permissions;
use crate::clock;
use crate::commands::CommandError;
use crate::render::log::{Field, json};
use crate::server::Event;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// That it serves, and what goes wrong.
    ErrorPolicy,
    /// Every connection too.
    Everything,
}

/// The way to the operator: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Teller {
    log: Log,
    format: LogFormat,
    told: Told,
}

impl Teller {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system starts no other thread.
    pub fn start(format: LogFormat, told: Told) -> Result<(Self, Writer), CommandError> {
        let unread: fn(u64) -> String = match format {
            LogFormat::Text => Log::unread,
            LogFormat::Json => |count| object("unread", [("count", Field::Number(count))]),
        };
        let (log, writer) = Log::start(unread)?;
        Ok((Self { log, format, told }, writer))
    }

    /// Tells what the operator might want to change.
    pub fn warn(&self, message: &str) {
        if self.told >= Told::ErrorPolicy {
            self.log.tell(match self.format {
                LogFormat::Text => format!("warning: {message}"),
                LogFormat::Json => object("warning", [("message", Field::Text(message.to_owned()))]),
            });
        }
    }

    /// Warns of a file with a secret in it that others may use.
    pub fn warn_of_secret(&self, file: &Path) {
        if let Some(warning) = permissions::warning(file) {
            self.warn(warning.strip_prefix("warning: ").unwrap_or(&warning));
        }
    }

    /// Tells that it serves, and where.
    pub fn ready(&self, message: String, fields: Vec<(&'static str, Field)>) {
        if self.told >= Told::ErrorPolicy {
            self.log.tell(match self.format {
                LogFormat::Text => message,
                LogFormat::Json => {
                    let message = [("message", Field::Text(message))];
                    object("ready", message.into_iter().chain(fields))
                }
            });
        }
    }

    /// Tells that something goes its usual way, to who wants to know everything.
    pub fn note(&self, event: &'static str, message: String) {
        if self.told >= Told::Everything {
            self.log.tell(match self.format {
                LogFormat::Text => message,
                LogFormat::Json => object(event, [("message", Field::Text(message))]),
            });
        }
    }

    /// Tells of an event.
    pub fn event(&self, event: &Event) {
        let least = if event.is_failure() { Told::ErrorPolicy } else { Told::Everything };
        if self.told < least {
            return;
        }
        self.log.tell(match self.format {
            LogFormat::Text => event.to_string(),
            LogFormat::Json => {
                let message = ("message", Field::Text(event.to_string()));
                let field = |name, text: String| match event {
                    Event::LeftOut { count, .. } if name == "count" => Field::Number(u64::from(*count)),
                    Event::Certificates { outcome: Ok(Some(days)) } => Field::Signed(*days),
                    _ => Field::Text(text),
                };
                let fields = event.fields().into_iter().map(|(name, text)| (name, field(name, text)));
                object(event.name(), fields.chain([message]))
            }
        });
    }
}

fn object(event: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    json(clock::wall_ms(), event, fields)
}
