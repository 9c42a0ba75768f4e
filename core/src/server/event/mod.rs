//! Events of the server for its operator, with their rows.

mod broker;
mod cluster;
pub mod exchange;
pub mod external;
pub mod row;
mod shown;

use std::fmt;
use std::sync::Arc;

use self::exchange::ExchangeEvent;
use self::external::ExternalEvent;
use self::row::{Row, Subject, Value, failure, note};
use self::shown::{As, Shown};
use crate::broker::Event as BrokerEvent;
use crate::net::certificate::expiry_text;
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::server::cluster::event::ClusterEvent;

/// Receives every event. Called from any thread, also under load: it must return quickly.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event for the operator. Its row is what the log shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Broker(BrokerEvent),
    Exchange(ExchangeEvent),
    External(ExternalEvent),
    Cluster(ClusterEvent),
    /// A changed file with users or tokens is invalid; its last valid content stays in force.
    IdentityFile {
        /// The error, with the name of the file.
        reason: String,
    },
    /// A client lacks the permission to read or write a key.
    KeyNotAuthorized {
        client_id: Arc<str>,
        /// User and certificate, if the client has authenticated.
        principal: Option<String>,
        /// The operation: a verb.
        what: &'static str,
        /// The key, as text.
        key: String,
    },
    /// A property of the client is not inserted into a rule, because the rule would reach beyond the client.
    TemplateSkipped {
        client_id: Arc<str>,
        /// A topic, a key or a pattern with placeholders.
        template: String,
        /// The placeholder of the property.
        placeholder: String,
    },
    /// The rules have been reloaded.
    Rules {
        /// The number of rules, or why the earlier rules stay in force.
        outcome: Result<usize, String>,
    },
    /// The files with users and tokens have been reloaded, and connections with removed ones are closed.
    Credentials {
        /// The number of closed connections.
        closed: usize,
        /// Why the last valid content of one or both files stays in force.
        outcome: Result<(), String>,
    },
    /// The TLS files have been reloaded: new connections use them.
    Certificates {
        /// The server's certificate, if it can be parsed.
        own: Option<CertificateInUse>,
        /// Whether the log has it in any case: no operator has requested it, or an error of the files was logged before.
        is_shown: bool,
    },
    /// The TLS files cannot be used: the earlier ones stay in force.
    CertificatesKept {
        reason: String,
    },
    /// The server's certificate is expired, or not valid yet.
    OutOfTime {
        /// The certificate, and which of both.
        reason: String,
    },
    /// The server's certificate expires soon.
    ExpiresSoon {
        file: String,
        days_left: i64,
    },
    /// A request to the state store lacks what an answer needs.
    Unanswerable {
        client_id: Arc<str>,
        reason: String,
    },
    /// Replies were forgotten for lack of room, although their writes may be delivered again.
    RepliesForgotten {
        /// Their number since the last report.
        count: u64,
        /// The owner that holds the most, and so loses the next ones.
        owner: Arc<str>,
    },
    /// A write to the disk has failed: requests that must be persisted are refused until it works again.
    NotPersisted {
        reason: String,
    },
    /// Writes to the disk work again.
    PersistedAgain,
    /// A snapshot could not be written: the log grows until one is.
    SnapshotFailed {
        reason: String,
    },
    /// The system clock was set far ahead. Versions do not follow it unless that lasts.
    ClockAhead {
        by_ms: u64,
    },
    /// The system clock has stayed far ahead, and versions follow it.
    ClockFollowed {
        by_ms: u64,
    },
    /// The system clock is behind the time of the last write to the store.
    ClockBehind {
        by_ms: u64,
    },
    /// Events were left out because there were too many with the same subject.
    LeftOut {
        subject: Subject,
        count: u32,
        /// Whether the events report failures.
        is_failure: bool,
    },
}

/// The certificate that a server presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInUse {
    /// Its subject, or its alternative names if the subject is empty.
    pub name: String,
    /// The whole days until it expires, negative once it has.
    pub days_left: i64,
}

impl From<BrokerEvent> for Event {
    fn from(event: BrokerEvent) -> Self {
        Self::Broker(event)
    }
}

impl From<ExchangeEvent> for Event {
    fn from(event: ExchangeEvent) -> Self {
        Self::Exchange(event)
    }
}

impl From<ExternalEvent> for Event {
    fn from(event: ExternalEvent) -> Self {
        Self::External(event)
    }
}

impl From<ClusterEvent> for Event {
    fn from(event: ClusterEvent) -> Self {
        Self::Cluster(event)
    }
}

impl Event {
    /// Returns all that the log shows of the event.
    #[must_use]
    pub fn row(&self) -> Row<'_> {
        match self {
            Self::Broker(event) => broker::row(event),
            Self::Exchange(event) => exchange::row(event),
            Self::External(event) => external::row(event),
            Self::Cluster(event) => cluster::row(event),
            Self::IdentityFile { reason } => failure("identity-file")
                .text("reason", reason)
                .line_of(reason, "its last valid content stays in force"),
            Self::KeyNotAuthorized { client_id, principal, what, key } => {
                let principal = principal.as_deref();
                let row = failure("not-authorized").about_client(client_id);
                row.text("what", *what).shown("key", key).principal(principal).line(move |out| {
                    let (client_id, key) = (Shown(client_id), Shown(key));
                    write!(out, "{client_id}{} may not {what} the key {key}: no rule allows it", As(principal))
                })
            }
            Self::TemplateSkipped { client_id, template, placeholder } => {
                let row = failure("template-skipped").about_client(client_id);
                row.text("template", template).text("placeholder", placeholder).line(move |out| {
                    let (template, placeholder) = (template.escape_debug(), placeholder.escape_debug());
                    let client_id = Shown(client_id);
                    write!(out, "the rule for {template} does not apply to {client_id}: ")?;
                    write!(out, "the value of {placeholder} has a separator or is reserved")
                })
            }
            Self::Rules { outcome: Ok(count) } => {
                note("rules").display("rules", count).line(move |out| write!(out, "rules reloaded: {count}"))
            }
            Self::Rules { outcome: Err(reason) } => failure("rules")
                .text("reason", reason)
                .line_of(reason, "the previous rules stay in force"),
            Self::Credentials { closed, outcome: Ok(()) } => note("credentials")
                .display("closed", closed)
                .line(move |out| write!(out, "users and tokens reloaded, connections closed: {closed}")),
            Self::Credentials { closed, outcome: Err(reason) } => {
                let row = failure("credentials").text("reason", reason).display("closed", closed);
                row.line(move |out| {
                    write!(out, "{reason}; the last valid content stays in force, connections closed: {closed}")
                })
            }
            Self::Certificates { own, is_shown } => {
                let row = note("certificates").failure_if(*is_shown);
                let Some(CertificateInUse { name, days_left }) = own else {
                    return row.words("certificates reloaded");
                };
                row.shown("subject", name).with("days_left", Value::Signed(*days_left)).line(move |out| {
                    let expiry = expiry_text(*days_left);
                    write!(out, "certificates reloaded: the server's, {}, {expiry}", Shown(name))
                })
            }
            Self::CertificatesKept { reason } => failure("certificates")
                .text("reason", reason)
                .line_of(reason, "the previous certificates stay in force"),
            Self::ExpiresSoon { file, days_left } => failure("expires-soon")
                .text("file", file)
                .with("days_left", Value::Signed(*days_left))
                .line(move |out| {
                    let expiry = expiry_text(*days_left);
                    write!(out, "{file} contains a certificate that {expiry}: renew it")
                }),
            Self::OutOfTime { reason } => failure("out-of-time")
                .text("reason", reason)
                .line(move |out| write!(out, "{reason}: no client will trust it")),
            Self::Unanswerable { client_id, reason } => {
                let row = failure("unanswerable").about_client(client_id);
                row.text("reason", reason).line(move |out| {
                    let (client_id, reason) = (Shown(client_id), Shown(reason));
                    write!(out, "request of {client_id} cannot be answered: {reason}")
                })
            }
            // One in a minute at most.
            Self::RepliesForgotten { count, owner } => {
                let row = failure("replies-forgotten").display("count", count).shown("owner", owner);
                row.line(move |out| {
                    write!(out, "recorded replies take too much memory, and {count} were forgotten: ")?;
                    out.write_str("if their writes are delivered again, they are applied twice; ")?;
                    write!(out, "most of this memory is held by {}", Shown(owner))
                })
            }
            // On a disk that is nearly full, each change that is too large causes both events.
            Self::NotPersisted { reason } => {
                let row = failure("not-persisted").about(PERSISTENT_WRITES).text("reason", reason);
                row.line(move |out| {
                    write!(out, "persistent writes are refused until the disk works again: {reason}")
                })
            }
            Self::PersistedAgain => failure("persisted-again")
                .about(PERSISTENT_WRITES)
                .words("the disk works again: persistent writes are accepted"),
            // One in a minute at most, after the first ones.
            Self::SnapshotFailed { reason } => {
                failure("snapshot-failed").text("reason", reason).line(move |out| {
                    out.write_str("the snapshot of the store could not be written, and the log grows until it is: ")?;
                    out.write_str(reason)
                })
            }
            Self::ClockAhead { by_ms } => failure("clock-ahead").display("by_ms", by_ms).line(move |out| {
                write!(out, "the system clock was set {} ahead: versions follow it if ", seconds(*by_ms))?;
                out.write_str("that lasts for 60 s; until then, requests whose timestamps are more than 60 s ahead are refused")
            }),
            Self::ClockFollowed { by_ms } => failure("clock-followed").display("by_ms", by_ms).line(move |out| {
                let by = seconds(*by_ms);
                write!(out, "the system clock has stayed {by} ahead: versions follow it now")
            }),
            Self::ClockBehind { by_ms } => {
                failure("clock-behind").display("by_ms", by_ms).line(move |out| clock_behind(*by_ms, out))
            }
            Self::LeftOut { subject, count, is_failure } => {
                let of = if matches!(subject, Subject::Address(_)) { "from" } else { "of" };
                let row = note("left-out").failure_if(*is_failure).display("subject", subject);
                row.with("count", Value::Number(u64::from(*count))).line(move |out| {
                    let subject = subject.to_string();
                    write!(out, "… and {count} more {of} {} within 10 s", subject.escape_debug())
                })
            }
        }
    }
}

const PERSISTENT_WRITES: Subject = Subject::Machine("persistent writes");

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.row().fmt(out)
    }
}

fn clock_behind(by_ms: u64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "the system clock is {} behind the time of the last write to the store: ", seconds(by_ms))?;
    out.write_str("versions continue from the greatest one, and keys may live longer")?;
    if by_ms <= SKEW_MAX_MS {
        return Ok(());
    }
    out.write_str(
        "; clients refuse versions that are more than 60 s ahead: if the clock is right now, stop the server and run \
         `mqkv data lower-versions DIR`, or restart a store in memory",
    )
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms.div_euclid(1_000), ms.rem_euclid(1_000))
}
