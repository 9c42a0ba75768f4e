//! Fixed header of a packet.

use super::error::Cause;
use super::error::DecodeError;
use super::reason::ReasonCode;
use super::version::ProtocolVersion;

/// Bytes of the shortest packet: its type and flags, and a length of 0.
const PACKET_BYTES_MIN: usize = 2;

/// Fixed header (MQTT 5, 2.1.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedHeader {
    /// Packet type and flags.
    pub first: u8,
    /// Bytes of the header.
    pub header_bytes: usize,
    /// Bytes of the packet, with the header.
    pub packet_bytes: usize,
    /// Whether the length has no more bytes than it needs.
    pub is_minimal: bool,
}

/// Start of the input, as far as it has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) enum Framing {
    /// All bytes of the packet have arrived.
    Whole(FixedHeader),
    /// At least so many bytes are missing; more than 0.
    Missing(usize),
}

/// Reads the fixed header at the start of the input.
///
/// # Errors
///
/// The length has more than four bytes, or the packet exceeds `bytes_max`, even if it has not arrived yet: a packet
/// that is refused is never buffered.
#[inline]
pub(super) fn read(input: &[u8], bytes_max: u32, version: ProtocolVersion) -> Result<Framing, DecodeError> {
    let Some((first, rest)) = input.split_first() else { return Ok(Framing::Missing(PACKET_BYTES_MIN)) };
    let mut length = 0_usize;
    for (byte, (header_bytes, shift)) in rest.iter().zip([(2_usize, 0_u32), (3, 7), (4, 14), (5, 21)]) {
        length |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 != 0 {
            continue;
        }
        // Cannot overflow: the length has 28 bits.
        let packet_bytes = header_bytes.saturating_add(length);
        if u32::try_from(packet_bytes).map_or(true, |bytes| bytes > bytes_max) {
            return Err(too_large(packet_bytes, bytes_max, version));
        }
        if input.len() < packet_bytes {
            return Ok(Framing::Missing(packet_bytes.saturating_sub(input.len())));
        }
        let is_minimal = *byte > 0 || shift == 0;
        return Ok(Framing::Whole(FixedHeader { first: *first, header_bytes, packet_bytes, is_minimal }));
    }
    if rest.len() < 4 { Ok(Framing::Missing(1)) } else { Err(Cause::IntegerTooLong.error(version)) }
}

#[cold]
fn too_large(packet_bytes: usize, bytes_max: u32, version: ProtocolVersion) -> DecodeError {
    let text = format!("packet of {packet_bytes} bytes exceeds the maximum of {bytes_max} bytes").into();
    DecodeError { reason: ReasonCode::PacketTooLarge, text, version }
}
