//! Events of the connection with an external broker, with their texts.

use std::fmt;
use std::sync::Arc;

use crate::broker::event::{Shown, Subject, client_subject, shortened};

/// An event of the connection with an external broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalEvent {
    /// The store has connected, and receives requests.
    Connected {
        target: String,
        /// Whether the broker has kept the session. Otherwise requests may be lost, which their clients see as timeouts.
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

impl ExternalEvent {
    /// Whether the event reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Connected { is_resumed, .. } => !is_resumed,
            Self::WatchEnded { .. } => false,
            Self::TooManyWatchers { .. }
            | Self::Lost { .. }
            | Self::NoClient { .. }
            | Self::NotPublished { .. }
            | Self::Dropped { .. } => true,
        }
    }

    /// Returns what the event is about, if there may be any number of events about it.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self {
            Self::Connected { .. } | Self::Lost { .. } => Subject::Other("connections to the broker"),
            Self::NoClient { .. } => Subject::Other("requests without a client"),
            Self::NotPublished { .. } => Subject::Other("messages that the broker did not accept"),
            Self::WatchEnded { client_id, .. }
            | Self::TooManyWatchers { client_id }
            | Self::Dropped { client_id } => client_subject(client_id),
        }
    }

    /// Returns the name of the kind of event in the JSON log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connected { .. } => "broker-connected",
            Self::Lost { .. } => "broker-lost",
            Self::NoClient { .. } => "no-client",
            Self::WatchEnded { .. } => "watch-ended",
            Self::TooManyWatchers { .. } => "too-many-watchers",
            Self::NotPublished { .. } => "not-published",
            Self::Dropped { .. } => "notification-dropped",
        }
    }

    /// Returns the fields of the JSON log. Values from the network are not escaped.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Connected { target, is_resumed } => {
                vec![("target", target.clone()), ("resumed", is_resumed.to_string())]
            }
            Self::Lost { target, reason } => vec![("target", target.clone()), ("reason", shortened(reason))],
            Self::NoClient { topic, reason } => {
                vec![("topic", shortened(topic)), ("reason", shortened(reason))]
            }
            Self::NotPublished { reason } => vec![("reason", shortened(reason))],
            Self::WatchEnded { client_id, key } => {
                vec![("client_id", shortened(client_id)), ("key", shortened(key))]
            }
            Self::TooManyWatchers { client_id } | Self::Dropped { client_id } => {
                vec![("client_id", shortened(client_id))]
            }
        }
    }
}

impl fmt::Display for ExternalEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { target, is_resumed: true } => {
                write!(out, "connected to {target} again; its session has continued")
            }
            Self::Connected { target, is_resumed: false } => {
                write!(out, "connected to {target} again without its session: requests may be lost")
            }
            Self::Lost { target, reason } => {
                write!(out, "no connection to {target}: {}; connecting again", Shown(reason))
            }
            Self::NoClient { topic, reason } => {
                write!(out, "request on {} is dropped: {}", Shown(topic), Shown(reason))
            }
            Self::WatchEnded { client_id, key } => write!(
                out,
                "{} has no subscription to the notifications of {}: its watch has ended",
                Shown(client_id),
                Shown(key)
            ),
            Self::TooManyWatchers { client_id } => {
                write!(out, "the watches of {} have ended: too many clients watch keys", Shown(client_id))
            }
            Self::NotPublished { reason } => {
                write!(out, "the broker did not accept a message: {}", Shown(reason))
            }
            Self::Dropped { client_id } => {
                write!(
                    out,
                    "a notification for {} was dropped: too many messages wait for the broker",
                    Shown(client_id)
                )
            }
        }
    }
}
