//! Events of the broker for its operator.

use std::fmt;
use std::sync::Arc;

use super::address::address;

/// The most bytes of a text from the network in an event's text: a topic, a client id or a user name may have 65,535.
const SHOWN_BYTES_MAX: usize = 512;

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
        /// User and certificate, if the client has authenticated.
        principal: Option<String>,
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
        /// User and certificate, if the client has authenticated.
        principal: Option<String>,
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

/// A text from the network as it is shown: escaped, and no more of it than a log needs.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match beginning(self.0) {
            None => write!(f, "{}", self.0.escape_debug()),
            Some(start) => write!(f, "{}… ({} bytes)", start.escape_debug(), self.0.len()),
        }
    }
}

/// A client as it is shown: its id and, if it has authenticated, its user and certificate.
#[derive(Clone, Copy, Debug)]
pub struct ShownClient<'a>(pub &'a str, pub Option<&'a str>);

impl fmt::Display for ShownClient<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(self.0).fmt(f)?;
        self.1.map_or(Ok(()), |principal| write!(f, " as {}", Shown(principal)))
    }
}

/// Returns the field of the JSON log for a client's user and certificate.
#[must_use]
pub fn principal_field(principal: Option<&str>) -> Option<(&'static str, String)> {
    principal.map(|principal| ("principal", shortened(principal)))
}

/// Returns the text, or the beginning of a long one, not escaped.
#[must_use]
pub fn shortened(text: &str) -> String {
    match beginning(text) {
        None => text.to_owned(),
        Some(start) => format!("{start}… ({} bytes)", text.len()),
    }
}

/// Returns the part of a long text that is shown.
fn beginning(text: &str) -> Option<&str> {
    (text.len() > SHOWN_BYTES_MAX)
        .then(|| text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or_default())
}

/// Returns the subject of a client's events.
#[must_use]
pub fn client_subject(client_id: &Arc<str>) -> Subject {
    // Clients whose long ids have the same beginning share a limit, so that thousands of subjects take little memory.
    Subject::Client(beginning(client_id).map_or_else(|| Arc::clone(client_id), Into::into))
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
            | Self::Dropped { client_id, .. } => client_subject(client_id),
            // Without what a host can choose: the port and, with IPv6, 64 bits.
            Self::Denied { remote, .. } | Self::Refused { remote, .. } => Subject::Address(address(remote)),
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

    /// Returns the fields of the JSON log. Values from the network are shortened, and not escaped.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let client = |client_id: &Arc<str>| ("client_id", shortened(client_id));
        let topic = |topic: &str| ("topic", shortened(topic));
        let reason = |reason: &str| ("reason", shortened(reason));
        match self {
            Self::Connected { client_id, remote, principal, session_present } => {
                let session = if *session_present { "resumed" } else { "new" };
                let principal = principal_field(principal.as_deref());
                let fields = [client(client_id), ("remote", remote.clone()), ("session", session.to_owned())];
                fields.into_iter().chain(principal).collect()
            }
            Self::Reauthenticated { client_id } => vec![client(client_id)],
            Self::Denied { client_id, remote, principal, reason: text } => {
                let fields = [client(client_id), ("remote", remote.clone()), reason(text)];
                fields.into_iter().chain(principal_field(principal.as_deref())).collect()
            }
            Self::Disconnected { client_id, reason: text } => {
                vec![client(client_id), reason(text)]
            }
            Self::Refused { remote, reason: text } => vec![("remote", remote.clone()), reason(text)],
            Self::Dropped { client_id, topic: name, reason: text } => {
                vec![client(client_id), topic(name), reason(text)]
            }
            Self::NotAuthorized { client_id, principal, what, topic: name } => {
                let fields = [client(client_id), ("what", (*what).to_owned()), topic(name)];
                fields.into_iter().chain(principal_field(principal.as_deref())).collect()
            }
            Self::NotRetained { topic: name } => vec![topic(name)],
            Self::AcceptFailed { reason: text } => vec![reason(text)],
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { client_id, remote, principal, session_present } => {
                write!(f, "{} connected from {remote}", Shown(client_id))?;
                if let Some(principal) = principal {
                    write!(f, " as {}", Shown(principal))?;
                }
                f.write_str(if *session_present { ", session resumed" } else { ", new session" })
            }
            Self::Reauthenticated { client_id } => {
                write!(f, "{} authenticated again", Shown(client_id))
            }
            Self::Denied { client_id, remote, principal, reason } => {
                write!(f, "{} from {remote}", Shown(client_id))?;
                if let Some(principal) = principal {
                    write!(f, " as {}", Shown(principal))?;
                }
                write!(f, " rejected: {}", Shown(reason))
            }
            Self::Disconnected { client_id, reason } => {
                write!(f, "{} disconnected: {}", Shown(client_id), Shown(reason))
            }
            Self::Refused { remote, reason } => {
                write!(f, "connection from {remote} refused: {}", Shown(reason))
            }
            Self::NotAuthorized { client_id, principal, what, topic } => {
                let (client, topic) = (ShownClient(client_id, principal.as_deref()), Shown(topic));
                write!(f, "{client} may not {what} {topic}: no rule allows it")
            }
            Self::Dropped { client_id, topic, reason } => {
                let (client_id, topic) = (Shown(client_id), Shown(topic));
                write!(f, "message on {topic} for {client_id} dropped: {reason}")
            }
            Self::NotRetained { topic } => {
                write!(f, "message on {} not retained: too many retained messages", Shown(topic))
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

    #[test]
    fn a_client_without_permission_is_named_with_its_user() {
        let principal = Some("ann\n".to_owned());
        let (topic, remote) = ("t".to_owned(), "192.0.2.1:1024".to_owned());
        let events = [
            Event::NotAuthorized {
                client_id: "a".into(),
                principal: principal.clone(),
                what: "publish to",
                topic,
            },
            Event::Denied { client_id: "a".into(), remote, principal, reason: "no".to_owned() },
        ];
        let texts = events.each_ref().map(ToString::to_string);
        assert_eq!(
            texts,
            [
                "a as ann\\n may not publish to t: no rule allows it",
                "a from 192.0.2.1:1024 as ann\\n rejected: no"
            ]
        );
        for event in events {
            assert!(event.fields().contains(&("principal", "ann\n".to_owned())), "{event:?}");
        }
    }

    #[test]
    fn refused_connections_of_one_ipv6_network_have_one_subject() {
        let subject =
            |remote: &str| Event::Refused { remote: remote.to_owned(), reason: String::new() }.subject();
        assert_eq!(subject("[2001:db8::1]:1"), subject("[2001:db8::2]:2"));
        assert_ne!(subject("[2001:db8::1]:1"), subject("[2001:db8:0:1::1]:1"));
        assert_eq!(subject("192.0.2.1:1").to_string(), "192.0.2.1");
    }

    #[test]
    fn a_long_text_from_the_network_is_shortened_and_so_is_the_subject() {
        let long = "\u{e4}".repeat(30_000);
        let event = Event::Dropped { client_id: long.as_str().into(), topic: long.clone(), reason: "r" };
        let shown = format!("{}… (60000 bytes)", "\u{e4}".repeat(256));
        assert_eq!(event.to_string(), format!("message on {shown} for {shown} dropped: r"));
        assert!(event.fields().iter().all(|(name, text)| *text == shown || *name == "reason"));
        assert!(event.subject().to_string().len() <= SHOWN_BYTES_MAX);
    }
}
