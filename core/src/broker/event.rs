//! Events of the broker for its operator.

use std::sync::Arc;

/// Receives every event. Called from any thread, also under load: it must return quickly.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event for the operator. Its texts are as they came from the network.
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
