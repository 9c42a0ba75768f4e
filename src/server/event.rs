//! Events of the server for its operator, with their texts.

use std::fmt;
use std::sync::Arc;

use crate::broker;
use crate::broker::event::{Shown, ShownClient, Subject, client_subject, principal_field, shortened};
use crate::net::certificate::expiry_text;
use crate::protocol::timestamp::SKEW_MAX_MS;
use crate::server::cluster::event::ClusterEvent;
use crate::server::exchange::event::ExchangeEvent;
use crate::server::external::event::ExternalEvent;

/// Receives every event. Called from any thread, also under load: it must return quickly.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event for the operator. Its text escapes everything that came from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Broker(broker::Event),
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
    },
    /// The TLS files have been reloaded.
    Certificates {
        /// The days until the server's certificate expires, if it has an end; or why the earlier files stay in force.
        outcome: Result<Option<i64>, String>,
    },
    /// The server's certificate is expired, or not valid yet.
    OutOfTime {
        /// The certificate, and which of both.
        reason: String,
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

impl From<broker::Event> for Event {
    fn from(event: broker::Event) -> Self {
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
    /// Whether the event reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Broker(event) => event.is_failure(),
            Self::Exchange(event) => event.is_failure(),
            Self::External(event) => event.is_failure(),
            Self::Cluster(event) => event.is_failure(),
            Self::LeftOut { is_failure, .. } => *is_failure,
            Self::Rules { outcome } => outcome.is_err(),
            Self::Certificates { outcome } => outcome.is_err(),
            Self::Credentials { .. } => false,
            Self::IdentityFile { .. }
            | Self::KeyNotAuthorized { .. }
            | Self::TemplateSkipped { .. }
            | Self::OutOfTime { .. }
            | Self::Unanswerable { .. }
            | Self::RepliesForgotten { .. }
            | Self::NotPersisted { .. }
            | Self::PersistedAgain
            | Self::SnapshotFailed { .. }
            | Self::ClockAhead { .. }
            | Self::ClockFollowed { .. }
            | Self::ClockBehind { .. } => true,
        }
    }

    /// Returns what the event is about, if there may be any number of events about it.
    pub(super) fn subject(&self) -> Option<Subject> {
        match self {
            Self::Broker(event) => Some(event.subject()),
            Self::Exchange(event) => event.subject(),
            Self::External(event) => Some(event.subject()),
            // Each ownership has one of these.
            Self::Cluster(event) if event.is_change_of_owner() => None,
            Self::Cluster(_) => Some(Subject::Other("the cluster")),
            Self::KeyNotAuthorized { client_id, .. }
            | Self::TemplateSkipped { client_id, .. }
            | Self::Unanswerable { client_id, .. } => Some(client_subject(client_id)),
            // On a disk that is nearly full, each change that is too large causes both events.
            Self::NotPersisted { .. } | Self::PersistedAgain => Some(Subject::Other("persistent writes")),
            Self::IdentityFile { .. }
            | Self::Rules { .. }
            | Self::Credentials { .. }
            | Self::Certificates { .. }
            | Self::OutOfTime { .. }
            // One in a minute at most, after the first ones.
            | Self::SnapshotFailed { .. }
            | Self::RepliesForgotten { .. }
            | Self::ClockAhead { .. }
            | Self::ClockFollowed { .. }
            | Self::ClockBehind { .. }
            | Self::LeftOut { .. } => None,
        }
    }

    /// Returns the name of the kind of event in the JSON log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Broker(event) => event.name(),
            Self::Exchange(event) => event.name(),
            Self::External(event) => event.name(),
            Self::Cluster(event) => event.name(),
            Self::IdentityFile { .. } => "identity-file",
            Self::KeyNotAuthorized { .. } => "not-authorized",
            Self::TemplateSkipped { .. } => "template-skipped",
            Self::Rules { .. } => "rules",
            Self::Credentials { .. } => "credentials",
            Self::Certificates { .. } => "certificates",
            Self::OutOfTime { .. } => "out-of-time",
            Self::Unanswerable { .. } => "unanswerable",
            Self::RepliesForgotten { .. } => "replies-forgotten",
            Self::NotPersisted { .. } => "not-persisted",
            Self::PersistedAgain => "persisted-again",
            Self::SnapshotFailed { .. } => "snapshot-failed",
            Self::ClockAhead { .. } => "clock-ahead",
            Self::ClockFollowed { .. } => "clock-followed",
            Self::ClockBehind { .. } => "clock-behind",
            Self::LeftOut { .. } => "left-out",
        }
    }

    /// Returns the fields of the JSON log. Values from the network are not escaped.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let client = |client_id: &Arc<str>| ("client_id", shortened(client_id));
        match self {
            Self::Broker(event) => event.fields(),
            Self::Exchange(event) => event.fields(),
            Self::External(event) => event.fields(),
            Self::Cluster(event) => event.fields(),
            Self::Unanswerable { client_id, reason } => {
                vec![client(client_id), ("reason", reason.clone())]
            }
            Self::KeyNotAuthorized { client_id, principal, what, key } => {
                let fields = [client(client_id), ("what", (*what).to_owned()), ("key", shortened(key))];
                fields.into_iter().chain(principal_field(principal.as_deref())).collect()
            }
            Self::TemplateSkipped { client_id, template, placeholder } => {
                let (template, placeholder) = (template.clone(), placeholder.clone());
                vec![client(client_id), ("template", template), ("placeholder", placeholder)]
            }
            Self::Rules { outcome: Ok(count) } => vec![("rules", count.to_string())],
            Self::Credentials { closed } => vec![("closed", closed.to_string())],
            Self::Certificates { outcome: Ok(days_left) } => {
                days_left.iter().map(|days_left| ("days_left", days_left.to_string())).collect()
            }
            Self::Rules { outcome: Err(reason) } | Self::Certificates { outcome: Err(reason) } => {
                vec![("reason", reason.clone())]
            }
            Self::RepliesForgotten { count, owner } => {
                vec![("count", count.to_string()), ("owner", shortened(owner))]
            }
            Self::PersistedAgain => Vec::new(),
            Self::ClockAhead { by_ms } | Self::ClockFollowed { by_ms } | Self::ClockBehind { by_ms } => {
                vec![("by_ms", by_ms.to_string())]
            }
            Self::LeftOut { subject, count, .. } => {
                vec![("subject", subject.to_string()), ("count", count.to_string())]
            }
            Self::IdentityFile { reason }
            | Self::OutOfTime { reason }
            | Self::NotPersisted { reason }
            | Self::SnapshotFailed { reason } => {
                vec![("reason", reason.clone())]
            }
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broker(event) => event.fmt(f),
            Self::Exchange(event) => event.fmt(f),
            Self::External(event) => event.fmt(f),
            Self::Cluster(event) => event.fmt(f),
            Self::IdentityFile { reason } => {
                write!(f, "{reason}; its last valid content stays in force")
            }
            Self::KeyNotAuthorized { client_id, principal, what, key } => {
                let (client, key) = (ShownClient(client_id, principal.as_deref()), Shown(key));
                write!(f, "{client} may not {what} the key {key}: no rule allows it")
            }
            Self::TemplateSkipped { client_id, template, placeholder } => write!(
                f,
                "the rule for {} does not apply to {}: the value of {} has a separator or is reserved",
                template.escape_debug(),
                Shown(client_id),
                placeholder.escape_debug(),
            ),
            Self::Rules { outcome: Ok(count) } => write!(f, "rules reloaded: {count}"),
            Self::Rules { outcome: Err(reason) } => {
                write!(f, "{reason}; the previous rules stay in force")
            }
            Self::Credentials { closed } => {
                write!(f, "users and tokens reloaded, connections closed: {closed}")
            }
            Self::Certificates { outcome: Ok(days_left) } => {
                f.write_str("certificates reloaded")?;
                days_left.map_or(Ok(()), |days| write!(f, ": the server's {}", expiry_text(days)))
            }
            Self::Certificates { outcome: Err(reason) } => {
                write!(f, "{reason}; the previous certificates stay in force")
            }
            Self::OutOfTime { reason } => write!(f, "{reason}: no client will trust it"),
            Self::Unanswerable { client_id, reason } => {
                let (client_id, reason) = (Shown(client_id), Shown(reason));
                write!(f, "request of {client_id} cannot be answered: {reason}")
            }
            Self::RepliesForgotten { count, owner } => write!(
                f,
                "recorded replies take too much memory, and {count} were forgotten: if their writes are delivered again, they \
                 are applied twice; most of this memory is held by {}",
                Shown(owner),
            ),
            Self::NotPersisted { reason } => {
                write!(f, "persistent writes are refused until the disk works again: {reason}")
            }
            Self::SnapshotFailed { reason } => {
                write!(
                    f,
                    "the snapshot of the store could not be written, and the log grows until it is: {reason}"
                )
            }
            Self::PersistedAgain => f.write_str("the disk works again: persistent writes are accepted"),
            Self::ClockAhead { by_ms } => write!(
                f,
                "the system clock was set {} ahead: versions follow it if that lasts for 60 s; until then, requests whose \
                 timestamps are more than 60 s ahead are refused",
                seconds(*by_ms),
            ),
            Self::ClockFollowed { by_ms } => {
                write!(f, "the system clock has stayed {} ahead: versions follow it now", seconds(*by_ms))
            }
            Self::ClockBehind { by_ms } => {
                write!(
                    f,
                    "the system clock is {} behind the time of the last write to the store: versions continue from the \
                     greatest one, and keys may live longer",
                    seconds(*by_ms),
                )?;
                if *by_ms <= SKEW_MAX_MS {
                    return Ok(());
                }
                f.write_str(
                    "; clients refuse versions that are more than 60 s ahead: if the clock is right now, stop the server and \
                     run `mqkv data lower-versions DIR`, or restart a store in memory",
                )
            }
            Self::LeftOut { subject, count, .. } => {
                let of = if matches!(subject, Subject::Address(_)) { "from" } else { "of" };
                write!(f, "… and {count} more {of} {} within 10 s", subject.to_string().escape_debug())
            }
        }
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms.div_euclid(1_000), ms.rem_euclid(1_000))
}
