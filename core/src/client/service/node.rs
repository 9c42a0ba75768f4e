//! The service at the end of a service connection.

use tokio::sync::Notify;

use crate::client::error::{Error, ReasonCode};
use crate::protocol::Message;

/// The service at the end of a [`ServiceConnection`](super::ServiceConnection).
///
/// Contract: the connection's task makes all calls, one at a time; each returns quickly. Messages are handed over and polled
/// only between [`ServiceNode::handle_connected`] and [`ServiceNode::handle_lost`]; while the connection is being closed, they are
/// polled without a connection, too. A node that has something new (a message to
/// publish, room for messages) signals [`ServiceNode::changed`].
pub trait ServiceNode: Send + Sync + 'static {
    /// A connection is established, and all filters are subscribed to.
    fn handle_connected(&self, accepted: &ServiceConnected);

    /// The connection is lost, or an attempt to establish one again has failed. Published messages without a PUBACK are sent
    /// again by the connection, before others.
    fn handle_lost(&self, cause: &Error);

    /// Handles a message of a subscription. Messages arrive in order, and again if the connection was lost before the PUBACK,
    /// which is sent after this returns.
    fn handle_message(&self, message: Message);

    /// Handles a message that cannot be decoded, or not without exceeding a limit. It is acknowledged and dropped. `topic` is None
    /// if it is not UTF-8; it may have any other characters.
    fn handle_malformed(&self, topic: Option<String>, text: String);

    /// Returns the next message to publish with QoS 1, with a tag for [`ServiceNode::handle_published`]. It is published at
    /// least once, and after those that were returned before.
    fn poll_message(&self) -> Option<(Message, u64)>;

    /// Handles the PUBACK of a message whose tag is not 0, or the reason why a message with any tag will not be delivered:
    /// [`Error::PublishRefused`], [`Error::TooLarge`], or [`Error::Lost`] if the connection was lost each time that the message was
    /// sent.
    fn handle_published(&self, tag: u64, result: Result<ReasonCode, Error>);

    /// Returns whether the node can handle another message. Meanwhile the connection holds back messages, in bounds, to be able
    /// to read the PUBACKs behind them.
    fn has_room(&self) -> bool;

    /// Signaled with `notify_one`, which is not lost while the task is busy. Not needed for what changes within these calls.
    fn changed(&self) -> &Notify;
}

/// The properties of an established service connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceConnected {
    /// Whether the broker has resumed the session: no message was lost. Otherwise those are lost that the broker or this
    /// connection had and the node had not handled, and those that were published before the subscriptions were in force again.
    pub is_resumed: bool,
    /// The most published messages without a PUBACK.
    pub receive_max: u16,
    /// The largest packet that the broker accepts, in bytes. None: no limit.
    pub packet_bytes_max: Option<u32>,
}
