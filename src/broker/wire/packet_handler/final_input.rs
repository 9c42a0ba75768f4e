//! What a client has said before its connection was lost.

use bytes::BytesMut;

use super::PacketHandler;
use crate::broker::codec::Decoded;
use crate::broker::packet::Fault;
use crate::broker::session::connection_handle::CloseReason;
use crate::clock;

impl PacketHandler {
    /// Handles what came in and was not handled yet, where nobody is left to read an answer. Nothing else is taken from
    /// what waits for the client: it has not been sent.
    ///
    /// # Errors
    ///
    /// How the connection ends, if not as it has.
    pub fn handle_final_input(&mut self, input: &mut BytesMut) -> Result<(), CloseReason> {
        let now = clock::monotonic();
        while self.handle.close_reason().is_none() {
            self.output.clear();
            let packet = match self.deferred.pop(now) {
                Some(packet) => packet,
                None => match self.dialect.decode(input, self.broker.settings().packet_bytes_max) {
                    Ok(Decoded::Packet(packet)) => packet,
                    Ok(Decoded::Missing(_)) | Err(Fault { .. }) => return Ok(()),
                },
            };
            self.handle_packet(packet)?;
        }
        Ok(())
    }
}
