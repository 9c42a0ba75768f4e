//! What an operator should hear of: one enum, with its text.

use std::fmt;
use std::sync::Arc;

use crate::net::certificate::expiry_text;

/// What the subject begins with if it is an address: no client id does, for it has the character 0.
const ADDRESS: &str = "\0";

/// Something worth telling the operator. Its text escapes whatever came from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has connected.
    Connected {
        /// Who.
        client_id: Arc<str>,
        /// Where from.
        remote: String,
        /// Who it has shown to be, in words; none if it has not.
        principal: Option<String>,
        /// Whether an earlier session goes on.
        session_present: bool,
    },
    /// A client has shown a new token within its session.
    Reauthenticated {
        /// Who.
        client_id: Arc<str>,
    },
    /// A client was not let in, or not let stay, for what it said of who it is, or for want of a rule.
    Denied {
        /// Who it said it is.
        client_id: Arc<str>,
        /// Where from.
        remote: String,
        /// Why; no secret.
        reason: String,
    },
    /// A file with users or tokens that was read again is no longer good; what was read before counts.
    IdentityFile {
        /// What is wrong with it, with its name.
        reason: String,
    },
    /// A connection that had been accepted is over.
    Gone {
        /// Who.
        client_id: Arc<str>,
        /// Why.
        reason: String,
    },
    /// A connection was not accepted.
    Refused {
        /// Where from.
        remote: String,
        /// Why.
        reason: String,
    },
    /// The rules do not let a client do what it has tried.
    NotAuthorized {
        /// Who.
        client_id: Arc<str>,
        /// What it has tried: a verb that its topic can follow.
        what: &'static str,
        /// The topic or filter.
        topic: String,
    },
    /// The rules do not let a client read or write a key.
    KeyNotAuthorized {
        /// Who.
        client_id: Arc<str>,
        /// What it has tried.
        what: &'static str,
        /// The key, as text.
        key: String,
    },
    /// The rules have been read again.
    Rules {
        /// How many there are now, or why those before stay in force.
        outcome: Result<usize, String>,
    },
    /// The files of TLS have been read again.
    Certificates {
        /// How many days are left to the server's certificate, where it says so; or why what was read before stays in
        /// force.
        outcome: Result<Option<i64>, String>,
    },
    /// The server's certificate is out of its time.
    OutOfTime {
        /// Which it is, and whether it has expired.
        reason: String,
    },
    /// A message did not go where it should have gone.
    Dropped {
        /// For whom it was, or whose it was.
        client_id: Arc<str>,
        /// The message's topic.
        topic: String,
        /// Why.
        reason: &'static str,
    },
    /// A retained message was not kept.
    NotRetained {
        /// The message's topic.
        topic: String,
    },
    /// A request to the state store that nothing could be answered to.
    Unanswerable {
        /// Who sent it.
        client_id: Arc<str>,
        /// What it lacked.
        reason: String,
    },
    /// The disk has failed: what must reach it is refused until it works again.
    NotPersisted {
        /// What was wrong with it.
        reason: String,
    },
    /// The disk works again.
    PersistedAgain,
    /// The machine's clock is behind what it was when the store was last written.
    ClockBehind {
        /// By how much, in milliseconds.
        by_ms: u64,
    },
    /// Events that were not told because there were so many of their kind.
    LeftOut {
        /// The client or the address that they were about.
        subject: Arc<str>,
        /// How many.
        count: u32,
        /// Whether they told of trouble.
        is_trouble: bool,
    },
    /// The system refused to hand over a connection; the listener goes on.
    AcceptFailed {
        /// What the system said.
        reason: String,
    },
}

impl Event {
    /// Whether something went wrong; what is left is everyday life.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        !matches!(
            self,
            Self::Connected { .. }
                | Self::Gone { .. }
                | Self::Reauthenticated { .. }
                | Self::Rules { outcome: Ok(_) }
                | Self::Certificates { outcome: Ok(_) }
                | Self::LeftOut { is_trouble: false, .. }
        )
    }

    /// The client or the address that has caused it, if one has: it may cause as many as it likes.
    pub(super) fn subject(&self) -> Option<Arc<str>> {
        match self {
            Self::Connected { client_id, .. }
            | Self::Reauthenticated { client_id }
            | Self::NotAuthorized { client_id, .. }
            | Self::KeyNotAuthorized { client_id, .. }
            | Self::Gone { client_id, .. }
            | Self::Dropped { client_id, .. }
            | Self::Unanswerable { client_id, .. } => Some(Arc::clone(client_id)),
            // Whoever is not let in may call itself what it likes.
            Self::Denied { remote, .. } | Self::Refused { remote, .. } => {
                let address = remote.rsplit_once(':').map_or(&**remote, |(address, _)| address);
                Some(format!("{ADDRESS}{address}").into())
            }
            Self::NotRetained { .. } => Some("messages that are not retained".into()),
            Self::AcceptFailed { .. } => Some("connections that could not be accepted".into()),
            // On a disk that is nearly full, each change that is too large makes two of them.
            Self::NotPersisted { .. } | Self::PersistedAgain => Some("changes that must be kept".into()),
            Self::IdentityFile { .. }
            | Self::Rules { .. }
            | Self::Certificates { .. }
            | Self::OutOfTime { .. }
            | Self::ClockBehind { .. }
            | Self::LeftOut { .. } => None,
        }
    }
}

impl Event {
    /// Its name, for programs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connected { .. } => "connected",
            Self::Reauthenticated { .. } => "reauthenticated",
            Self::Denied { .. } => "denied",
            Self::IdentityFile { .. } => "identity-file",
            Self::Gone { .. } => "disconnected",
            Self::Refused { .. } => "refused",
            Self::NotAuthorized { .. } | Self::KeyNotAuthorized { .. } => "not-authorized",
            Self::Rules { .. } => "rules",
            Self::Certificates { .. } => "certificates",
            Self::OutOfTime { .. } => "out-of-time",
            Self::Dropped { .. } => "dropped",
            Self::NotRetained { .. } => "not-retained",
            Self::Unanswerable { .. } => "unanswerable",
            Self::NotPersisted { .. } => "not-persisted",
            Self::PersistedAgain => "persisted-again",
            Self::ClockBehind { .. } => "clock-behind",
            Self::LeftOut { .. } => "left-out",
            Self::AcceptFailed { .. } => "accept-failed",
        }
    }

    /// What it says, by names for programs. What came from the network is as it came.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let client = |client_id: &Arc<str>| ("client_id", client_id.to_string());
        match self {
            Self::Connected { client_id, remote, principal, session_present } => {
                let session = if *session_present { "resumed" } else { "new" };
                let principal = principal.iter().map(|principal| ("principal", principal.clone()));
                let fields = [client(client_id), ("remote", remote.clone()), ("session", session.to_owned())];
                fields.into_iter().chain(principal).collect()
            }
            Self::Reauthenticated { client_id } => vec![client(client_id)],
            Self::Denied { client_id, remote, reason } => {
                vec![client(client_id), ("remote", remote.clone()), ("reason", reason.clone())]
            }
            Self::Gone { client_id, reason } | Self::Unanswerable { client_id, reason } => {
                vec![client(client_id), ("reason", reason.clone())]
            }
            Self::Refused { remote, reason } => vec![("remote", remote.clone()), ("reason", reason.clone())],
            Self::Dropped { client_id, topic, reason } => {
                vec![client(client_id), ("topic", topic.clone()), ("reason", (*reason).to_owned())]
            }
            Self::NotAuthorized { client_id, what, topic } => {
                vec![client(client_id), ("what", (*what).to_owned()), ("topic", topic.clone())]
            }
            Self::KeyNotAuthorized { client_id, what, key } => {
                vec![client(client_id), ("what", (*what).to_owned()), ("key", key.clone())]
            }
            Self::Rules { outcome: Ok(count) } => vec![("rules", count.to_string())],
            Self::Certificates { outcome: Ok(days_left) } => {
                days_left.iter().map(|days_left| ("days_left", days_left.to_string())).collect()
            }
            Self::Rules { outcome: Err(reason) } | Self::Certificates { outcome: Err(reason) } => {
                vec![("reason", reason.clone())]
            }
            Self::NotRetained { topic } => vec![("topic", topic.clone())],
            Self::PersistedAgain => Vec::new(),
            Self::ClockBehind { by_ms } => vec![("by_ms", by_ms.to_string())],
            Self::LeftOut { subject, count, .. } => {
                let subject = subject.strip_prefix(ADDRESS).unwrap_or(subject);
                vec![("subject", subject.to_owned()), ("count", count.to_string())]
            }
            Self::IdentityFile { reason }
            | Self::OutOfTime { reason }
            | Self::NotPersisted { reason }
            | Self::AcceptFailed { reason } => vec![("reason", reason.clone())],
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { client_id, remote, principal, session_present } => {
                write!(f, "{} connected from {remote}", client_id.escape_debug())?;
                if let Some(principal) = principal {
                    write!(f, " as {}", principal.escape_debug())?;
                }
                f.write_str(if *session_present { ", its session goes on" } else { ", new session" })
            }
            Self::Reauthenticated { client_id } => {
                write!(f, "{} has shown a new token", client_id.escape_debug())
            }
            Self::Denied { client_id, remote, reason } => {
                let (client_id, reason) = (client_id.escape_debug(), reason.escape_debug());
                write!(f, "{client_id} from {remote} is not let in: {reason}")
            }
            Self::IdentityFile { reason } => {
                write!(f, "{}; what it said before still counts", reason.escape_debug())
            }
            Self::Gone { client_id, reason } => {
                write!(f, "{} is gone: {}", client_id.escape_debug(), reason.escape_debug())
            }
            Self::Refused { remote, reason } => {
                write!(f, "connection from {remote} refused: {}", reason.escape_debug())
            }
            Self::NotAuthorized { client_id, what, topic } => {
                let (client_id, topic) = (client_id.escape_debug(), topic.escape_debug());
                write!(f, "{client_id} may not {what} {topic}: no rule allows it")
            }
            Self::KeyNotAuthorized { client_id, what, key } => {
                let (client_id, key) = (client_id.escape_debug(), key.escape_debug());
                write!(f, "{client_id} may not {what} the key {key}: no rule allows it")
            }
            Self::Rules { outcome: Ok(count) } => write!(f, "the rules were read again: {count}"),
            Self::Rules { outcome: Err(reason) } => {
                write!(f, "{}; the rules before stay in force", reason.escape_debug())
            }
            Self::Certificates { outcome: Ok(days_left) } => {
                f.write_str("the certificates were read again")?;
                days_left.map_or(Ok(()), |days| write!(f, ": the server's {}", expiry_text(days)))
            }
            Self::Certificates { outcome: Err(reason) } => {
                write!(f, "{}; the certificates before stay in force", reason.escape_debug())
            }
            Self::OutOfTime { reason } => write!(f, "{}: no client will trust it", reason.escape_debug()),
            Self::Dropped { client_id, topic, reason } => {
                let (client_id, topic) = (client_id.escape_debug(), topic.escape_debug());
                write!(f, "message on {topic} for {client_id} dropped: {reason}")
            }
            Self::NotRetained { topic } => {
                write!(f, "message on {} not retained: too many retained messages", topic.escape_debug())
            }
            Self::Unanswerable { client_id, reason } => {
                let (client_id, reason) = (client_id.escape_debug(), reason.escape_debug());
                write!(f, "request of {client_id} cannot be answered: {reason}")
            }
            Self::NotPersisted { reason } => {
                write!(f, "what must be kept is refused until the disk works again: {reason}")
            }
            Self::PersistedAgain => f.write_str("the disk works again: what must be kept is taken again"),
            Self::ClockBehind { by_ms } => write!(
                f,
                "this machine's clock is {}.{:03} s behind what it was when the store was last written: versions go on \
                 from the greatest one, and keys may live longer",
                by_ms.div_euclid(1_000),
                by_ms.rem_euclid(1_000),
            ),
            Self::LeftOut { subject, count, .. } => {
                let (of, subject) = match subject.strip_prefix(ADDRESS) {
                    Some(address) => ("from", address),
                    None => ("of", &**subject),
                };
                write!(f, "… and {count} more {of} {} within 10 s", subject.escape_debug())
            }
            Self::AcceptFailed { reason } => write!(f, "a connection could not be accepted: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_the_network_is_escaped() {
        let event = Event::Gone { client_id: "a\x1b[31m\n".into(), reason: "x\ry".to_owned() };
        assert_eq!(event.to_string(), "a\\u{1b}[31m\\n is gone: x\\ry");
    }
}
