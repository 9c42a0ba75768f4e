//! Events of the broker for its operator.

use std::fmt;
use std::sync::Arc;

/// Receives every event. Called from any thread, also under load: it must return quickly.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event for the operator. Its text escapes everything that came from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has connected.
    Connected {
        client_id: Arc<str>,
        /// Its address.
        remote: String,
        /// User and certificate, if the client has authenticated.
        principal: Option<String>,
        session_present: bool,
    },
    /// A client has authenticated again within its session.
    Reauthenticated { client_id: Arc<str> },
    /// The client's authentication failed, or it lacks the permission to connect.
    Denied {
        client_id: Arc<str>,
        remote: String,
        /// Contains no secret.
        reason: String,
    },
    /// An accepted connection is closed.
    Disconnected { client_id: Arc<str>, reason: String },
    /// A connection was refused before its client was known.
    Refused { remote: String, reason: String },
    /// The client lacks the permission for an operation.
    NotAuthorized {
        client_id: Arc<str>,
        /// The operation: a verb phrase that the topic can follow.
        what: &'static str,
        /// A topic or a topic filter.
        topic: String,
    },
    /// A message was not delivered.
    Dropped {
        /// The receiver, or the sender of a message that no client receives.
        client_id: Arc<str>,
        topic: String,
        reason: &'static str,
    },
    /// A retained message was not stored.
    NotRetained { topic: String },
    /// The system refused a connection; the listener continues.
    AcceptFailed { reason: String },
}

/// What an event is about. One subject can cause any number of events, so they are limited per subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A client, by its id.
    Client(Arc<str>),
    /// The address of a client that was not accepted: such a client can choose any client id.
    Address(Arc<str>),
    /// Anything else, in words.
    Other(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(text) | Self::Address(text) => f.write_str(text),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Event {
    /// Whether the event reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        !matches!(self, Self::Connected { .. } | Self::Disconnected { .. } | Self::Reauthenticated { .. })
    }

    /// Returns what the event is about, for a limit of events.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self {
            Self::Connected { client_id, .. }
            | Self::Reauthenticated { client_id }
            | Self::NotAuthorized { client_id, .. }
            | Self::Disconnected { client_id, .. }
            | Self::Dropped { client_id, .. } => Subject::Client(Arc::clone(client_id)),
            Self::Denied { remote, .. } | Self::Refused { remote, .. } => {
                // Without the port, which differs with each connection.
                let address = remote.rsplit_once(':').map_or(&**remote, |(address, _)| address);
                Subject::Address(address.into())
            }
            Self::NotRetained { .. } => Subject::Other("messages that are not retained"),
            Self::AcceptFailed { .. } => Subject::Other("connections that could not be accepted"),
        }
    }

    /// Returns the name of the kind of event in the JSON log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connected { .. } => "connected",
            Self::Reauthenticated { .. } => "reauthenticated",
            Self::Denied { .. } => "denied",
            Self::Disconnected { .. } => "disconnected",
            Self::Refused { .. } => "refused",
            Self::NotAuthorized { .. } => "not-authorized",
            Self::Dropped { .. } => "dropped",
            Self::NotRetained { .. } => "not-retained",
            Self::AcceptFailed { .. } => "accept-failed",
        }
    }

    /// Returns the fields of the JSON log. Values from the network are not escaped.
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
            Self::Disconnected { client_id, reason } => {
                vec![client(client_id), ("reason", reason.clone())]
            }
            Self::Refused { remote, reason } => vec![("remote", remote.clone()), ("reason", reason.clone())],
            Self::Dropped { client_id, topic, reason } => {
                vec![client(client_id), ("topic", topic.clone()), ("reason", (*reason).to_owned())]
            }
            Self::NotAuthorized { client_id, what, topic } => {
                vec![client(client_id), ("what", (*what).to_owned()), ("topic", topic.clone())]
            }
            Self::NotRetained { topic } => vec![("topic", topic.clone())],
            Self::AcceptFailed { reason } => vec![("reason", reason.clone())],
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
                f.write_str(if *session_present { ", session resumed" } else { ", new session" })
            }
            Self::Reauthenticated { client_id } => {
                write!(f, "{} authenticated again", client_id.escape_debug())
            }
            Self::Denied { client_id, remote, reason } => {
                let (client_id, reason) = (client_id.escape_debug(), reason.escape_debug());
                write!(f, "{client_id} from {remote} rejected: {reason}")
            }
            Self::Disconnected { client_id, reason } => {
                write!(f, "{} disconnected: {}", client_id.escape_debug(), reason.escape_debug())
            }
            Self::Refused { remote, reason } => {
                write!(f, "connection from {remote} refused: {}", reason.escape_debug())
            }
            Self::NotAuthorized { client_id, what, topic } => {
                let (client_id, topic) = (client_id.escape_debug(), topic.escape_debug());
                write!(f, "{client_id} may not {what} {topic}: no rule allows it")
            }
            Self::Dropped { client_id, topic, reason } => {
                let (client_id, topic) = (client_id.escape_debug(), topic.escape_debug());
                write!(f, "message on {topic} for {client_id} dropped: {reason}")
            }
            Self::NotRetained { topic } => {
                write!(f, "message on {} not retained: too many retained messages", topic.escape_debug())
            }
            Self::AcceptFailed { reason } => write!(f, "a connection could not be accepted: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_the_network_is_escaped() {
        let event = Event::Disconnected { client_id: "a\x1b[31m\n".into(), reason: "x\ry".to_owned() };
        assert_eq!(event.to_string(), "a\\u{1b}[31m\\n disconnected: x\\ry");
    }
}
