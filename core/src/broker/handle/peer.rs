//! The client of a connection, as the application sees it.

use std::sync::Arc;

use crate::broker::event::Event;
use crate::broker::permissions::Permissions;
use crate::broker::principal::Principal;
use crate::broker::session::connection_handle::{ConnectionHandle, HeldAcknowledgement};
use crate::protocol::ConnectionId;

/// What is known of the session of a connection, as far as it decides what its client may deliver again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// It began with this connection: of what the client sent before, it delivers nothing again.
    New,
    /// It began with an earlier connection, or that is not known.
    Resumed,
    /// The client has ended it with the connection, by its DISCONNECT: it delivers nothing again.
    Ended,
}

/// The client at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The number of the connection. The client's next connection has another number.
    pub connection: ConnectionId,
    pub client_id: Arc<str>,
    pub principal: Principal,
    /// See [`Principal::identity`].
    pub identity: Arc<[u8]>,
    /// Whose memory it is that the client makes the application hold: see [`Principal::owner`].
    pub owner: Arc<str>,
    /// None if there are no rules: then the client may do everything.
    pub permissions: Option<Arc<dyn Permissions>>,
    pub session: SessionPhase,
    /// Number of the last message with QoS 1 among those of the connection, from 1 on.
    pub message_number: u64,
    /// How many of these messages the client is known to have received the acknowledgement of. It does not send these
    /// again.
    pub confirmed: u64,
    /// `None` for a client of another broker, and in tests.
    pub handle: Option<Arc<ConnectionHandle>>,
}

impl Peer {
    #[must_use]
    pub fn may_publish(&self, topic: &str) -> bool {
        self.permissions.as_ref().is_none_or(|permissions| permissions.may_publish(topic))
    }

    /// Holds back the acknowledgement of the message that is being handled, because an answer follows.
    #[must_use]
    pub fn hold_acknowledgement(&self) -> Option<HeldAcknowledgement> {
        self.handle.as_ref().map(ConnectionHandle::hold_acknowledgement)
    }

    /// Returns the event that reports a missing permission.
    #[must_use]
    pub fn not_authorized(&self, what: &'static str, topic: String) -> Event {
        let (client_id, principal) = (Arc::clone(&self.client_id), self.principal.describe());
        Event::NotAuthorized { client_id, principal, what, topic }
    }
}
