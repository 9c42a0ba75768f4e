//! What `serve` tells its operator: in which shape, how much of it, and that one client does not fill the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::flood::{Flood, Untold};
use super::operations::LogFormat;
use crate::cli::log::{Log, Writer};
use crate::clock;
use crate::commands::CommandError;
use crate::render::escape::escape;
use crate::render::log::{Field, json};
use crate::server::Event;

/// How often is looked at whether a flood is over.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// That it serves, and what goes wrong.
    Troubles,
    /// Every connection too.
    Everything,
}

/// The way to the operator: cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Teller {
    log: Log,
    format: LogFormat,
    told: Told,
    flood: Arc<Mutex<Flood>>,
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
        Ok((Self { log, format, told, flood: Arc::default() }, writer))
    }

    /// Tells what the operator might want to change.
    pub fn warn(&self, message: &str) {
        if self.told >= Told::Troubles {
            self.log.tell(match self.format {
                LogFormat::Text => format!("warning: {message}"),
                LogFormat::Json => object("warning", [("message", Field::Text(message.to_owned()))]),
            });
        }
    }

    /// Tells that it serves, and where.
    pub fn ready(&self, message: String, fields: Vec<(&'static str, Field)>) {
        if self.told >= Told::Troubles {
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

    /// Tells of an event, if there have not been too many of the same client.
    pub fn event(&self, event: &Event) {
        let least = if event.is_trouble() { Told::Troubles } else { Told::Everything };
        if self.told < least {
            return;
        }
        if let Some(subject) = event.subject()
            && !self.flood().admit(subject, clock::monotonic())
        {
            return;
        }
        self.log.tell(match self.format {
            LogFormat::Text => event.to_string(),
            LogFormat::Json => {
                let message = ("message", Field::Text(event.to_string()));
                let fields = event.fields().into_iter().map(|(name, text)| (name, Field::Text(text)));
                object(event.name(), fields.chain([message]))
            }
        });
    }

    /// Tells, when a flood is over, how much of it was left out; for ever.
    pub async fn watch_floods(self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let untold = self.flood().poll(clock::monotonic());
            self.tell_untold(untold);
        }
    }

    /// Tells what was left out so far.
    pub fn end(&self) {
        let untold = self.flood().end();
        self.tell_untold(untold);
    }

    fn tell_untold(&self, untold: Vec<Untold>) {
        for Untold { subject, count } in untold {
            self.log.tell(match self.format {
                LogFormat::Text if subject.is_empty() => format!("and {count} more lines of others"),
                LogFormat::Text => format!("and {count} more lines of {}", escape(subject.as_bytes())),
                LogFormat::Json => {
                    object("more", [("subject", Field::Text(subject)), ("count", Field::Number(count))])
                }
            });
        }
    }

    fn flood(&self) -> std::sync::MutexGuard<'_, Flood> {
        self.flood.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn object(event: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    json(clock::wall_ms(), event, fields)
}
