//! Events of the connection with an external broker, with their rows.

use std::sync::Arc;

use super::row::{Row, Subject, failure, note};
use super::shown::Shown;

/// An event of the connection with an external broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalEvent {
    /// The store has connected, and receives requests.
    Connected {
        target: String,
        /// Whether the broker still had the session. Otherwise requests may be lost, which their clients see as timeouts.
        is_resumed: bool,
    },
    /// The connection was lost, or could not be established again.
    Lost { target: String, reason: String },
    /// A message on the topic of requests does not name its client, or names two.
    NoClient { topic: String, reason: String },
    /// The broker reports that no subscription matches the notification of a key for this client: its watch has ended.
    WatchEnded { client_id: Arc<str>, key: String },
    /// There are too many clients that watch keys: the watches of this one have ended.
    TooManyWatchers { client_id: Arc<str> },
    /// A message was not accepted by the broker.
    NotPublished { reason: String },
    /// A notification was dropped, because too many wait for the broker.
    Dropped { client_id: Arc<str> },
}

pub(super) fn row(event: &ExternalEvent) -> Row<'_> {
    match event {
        ExternalEvent::Connected { target, is_resumed } => {
            let row = note("broker-connected").failure_if(!is_resumed).about(CONNECTIONS);
            let session = match is_resumed {
                true => "; its session has continued",
                false => " without its session: requests may be lost",
            };
            row.text("target", target)
                .display("resumed", is_resumed)
                .line(move |out| write!(out, "connected to {target} again{session}"))
        }
        ExternalEvent::Lost { target, reason } => {
            let row = failure("broker-lost").about(CONNECTIONS);
            row.text("target", target).shown("reason", reason).line(move |out| {
                write!(out, "no connection to {target}: {}; connecting again", Shown(reason))
            })
        }
        ExternalEvent::NoClient { topic, reason } => {
            let row = failure("no-client").about(Subject::Other("requests without a client"));
            row.shown("topic", topic)
                .shown("reason", reason)
                .line(move |out| write!(out, "request on {} is dropped: {}", Shown(topic), Shown(reason)))
        }
        ExternalEvent::WatchEnded { client_id, key } => {
            let row = note("watch-ended").about_client(client_id);
            row.shown("key", key).line(move |out| {
                let (client_id, key) = (Shown(client_id), Shown(key));
                write!(
                    out,
                    "{client_id} has no subscription to the notifications of {key}: its watch has ended"
                )
            })
        }
        ExternalEvent::TooManyWatchers { client_id } => {
            let row = failure("too-many-watchers").about_client(client_id);
            row.line(move |out| {
                write!(out, "the watches of {} have ended: too many clients watch keys", Shown(client_id))
            })
        }
        ExternalEvent::NotPublished { reason } => failure("not-published")
            .about(Subject::Other("messages that the broker did not accept"))
            .shown("reason", reason)
            .line_with("the broker did not accept a message", reason),
        ExternalEvent::Dropped { client_id } => {
            let row = failure("notification-dropped").about_client(client_id);
            row.line(move |out| {
                let client_id = Shown(client_id);
                write!(
                    out,
                    "a notification for {client_id} was dropped: too many messages wait for the broker"
                )
            })
        }
    }
}

const CONNECTIONS: Subject = Subject::Other("connections to the broker");
