//! The end of a connection, and what it means for the client's session.

use std::sync::Arc;

use bytes::BytesMut;

use super::PacketHandler;
use crate::broker::event::Event;
use crate::broker::handle::SessionPhase;
use crate::broker::session::connection_handle::{CloseReason, NOT_READING};
use crate::mqtt::{ReasonCode, encode};

impl PacketHandler {
    /// Closes the connection; returns the last bytes to be written.
    #[must_use]
    pub fn close(mut self, close_reason: CloseReason) -> BytesMut {
        let sent = match &close_reason {
            CloseReason::ServerDisconnect { reason, text } => Some((*reason, &**text)),
            CloseReason::NotReading => Some((ReasonCode::QuotaExceeded, NOT_READING)),
            CloseReason::ClientDisconnect { .. } | CloseReason::ConnectionLost(_) => None,
        };
        if let Some((reason, text)) = sent {
            encode::disconnect(self.version, reason, text, self.packet_bytes_max, &mut self.output);
        }
        self.close_reason = close_reason;
        std::mem::take(&mut self.output)
    }

    /// Notes the end of a session that ends with its connection. If the connection was lost, or closed by the server, the
    /// client may not know yet.
    fn note_session_end(&mut self) {
        if self.close_reason.session_expiry_s().unwrap_or(self.session_expiry_s) > 0 {
            return;
        }
        self.peer.confirmed = self.peer.message_number;
        if matches!(self.close_reason, CloseReason::ClientDisconnect { .. }) {
            self.peer.session = SessionPhase::Ended;
        }
    }
}

impl Drop for PacketHandler {
    fn drop(&mut self) {
        self.traffic.add_to(self.broker.counters());
        self.note_session_end();
        self.broker.hooks().application.handle_disconnect(&self.broker, &self.peer);
        self.broker.detach(self.peer.connection, &self.close_reason);
        let client_id = Arc::clone(&self.peer.client_id);
        self.broker.report([Event::Disconnected { client_id, reason: self.close_reason.to_string() }]);
    }
}
