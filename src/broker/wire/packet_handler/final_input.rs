//! What a client has said before its connection was lost.

use bytes::BytesMut;

use super::PacketHandler;
use crate::broker::session::connection_handle::CloseReason;
use crate::clock;
use crate::mqtt::{Decoded, decode};

impl PacketHandler {
    /// Handles what came in and was not handled yet, where nobody is left to read an answer. Nothing else is taken from
    /// what waits for the client: it has not been sent. Returns whether more input can be handled: after a malformed
    /// packet it is unknown where the next one starts.
    ///
    /// # Errors
    ///
    /// How the connection ends, if not as it has.
    pub fn handle_final_input(&mut self, input: &mut BytesMut) -> Result<bool, CloseReason> {
        let now = clock::monotonic();
        while self.handle.close_reason().is_none() {
            self.output.clear();
            let (packet, has_expired) = match self.deferred.pop(now) {
                Some(deferred) => deferred,
                None => match decode::decode(self.version, input, self.broker.settings().packet_bytes_max) {
                    Ok(Decoded::Packet(packet)) => (packet, false),
                    Ok(Decoded::Missing(_)) => return Ok(true),
                    Err(_) => return Ok(false),
                },
            };
            self.handle_packet(packet, has_expired)?;
        }
        Ok(false)
    }
}
