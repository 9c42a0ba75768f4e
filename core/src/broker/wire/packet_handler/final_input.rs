//! Input that was sent before the connection was lost.

use bytes::BytesMut;

use super::PacketHandler;
use super::unfinished::Unfinished;
use crate::broker::session::connection_handle::CloseReason;
use crate::clock;
use crate::mqtt::{Decoded, decode};

impl PacketHandler {
    /// Handles packets of a lost connection, and discards the answers. No queued message is taken: it cannot be sent.
    ///
    /// Returns whether more input can be handled: after a malformed packet it is unknown where the next one starts. An
    /// unfinished packet must be completed first, and a turn that is over must end: see [`PacketHandler::ends_turn`].
    ///
    /// # Errors
    ///
    /// The reason to close the connection, instead of its loss.
    pub fn handle_final_input(&mut self, input: &mut BytesMut) -> Result<bool, CloseReason> {
        let now = clock::monotonic();
        while self.handle.close_reason().is_none() {
            if self.unfinished.as_ref().is_some_and(Unfinished::outlasts_loss) {
                return Ok(true);
            }
            // Its answer cannot be sent.
            self.unfinished = None;
            self.output.clear();
            if !self.begin_packet() {
                return Ok(true);
            }
            let (packet, has_expired) = match self.deferred.pop(now) {
                Some(deferred) => deferred,
                None => match decode::decode(self.version, input, self.broker.settings().packet_bytes_max) {
                    Ok(Decoded::Packet(packet)) => (packet, false),
                    Ok(Decoded::Missing(_)) => return Ok(true),
                    Err(_) => return Ok(false),
                },
            };
            self.handle_packet(packet, has_expired, now)?;
        }
        Ok(false)
    }
}
