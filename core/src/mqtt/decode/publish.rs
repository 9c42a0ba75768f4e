//! Decoding of PUBLISH, the packet that a broker receives most.

use bytes::{Buf, Bytes, BytesMut};

use crate::mqtt::error::Cause;
use crate::mqtt::header::FixedHeader;
use crate::mqtt::packet::Publish;
use crate::mqtt::property;
use crate::mqtt::reader::{Reader, qos};
use crate::mqtt::version::ProtocolVersion;
use crate::protocol::message::Qos;

const RETAIN: u8 = 0b0001;
const DUP: u8 = 0b1000;

/// Payloads up to this size are copied out of the read buffer, so that it can be used again at once.
const COPIED_BYTES_MAX: usize = 4096;

/// A larger payload is copied as well if it is less than this part of the read buffer: a message that is kept must not
/// keep much more than its own bytes alive.
const COPIED_PART: usize = 4;

/// The side that sends a PUBLISH.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// Returns whether the first byte is that of a PUBLISH.
pub(super) fn is_type(first: u8) -> bool {
    first & 0xF0 == 0x30
}

/// Decodes all but the payload into `publish`, which must be `Publish::default()`: fields that the packet does not have are not
/// reset. It is an argument because a result would be moved twice. Returns the position in the packet at which the payload
/// starts. The subscription identifiers of a server are skipped.
#[inline]
pub(super) fn decode(
    sender: Sender,
    version: ProtocolVersion,
    header: FixedHeader,
    mut body: Reader<'_>,
    publish: &mut Publish,
) -> Result<usize, Cause> {
    let is_v5 = version == ProtocolVersion::V5;
    let qos = qos(header.first >> 1 & 0b11).ok_or(Cause::QosReserved)?;
    if qos == Qos::AtMostOnce && header.first & DUP != 0 {
        return Err(Cause::DuplicateAtQos0);
    }
    let topic = body.topic_name()?;
    // In MQTT 5 a topic alias may stand for it; the connection knows which it has.
    if topic.is_empty() && !is_v5 {
        return Err(Cause::TopicEmpty);
    }
    publish.packet_id = if qos > Qos::AtMostOnce { body.packet_id()? } else { 0 };
    let Publish { topic_alias, message, .. } = publish;
    (message.topic, message.qos, message.retain) = (topic, qos, header.first & RETAIN != 0);
    if is_v5 {
        property::read_each(&mut body, |id, value| match id {
            property::TOPIC_ALIAS => match value.u16()? {
                0 => Err(Cause::TopicAliasZero),
                alias => property::set(topic_alias, id, alias),
            },
            property::SUBSCRIPTION_ID if sender == Sender::Server => value.varint().map(drop),
            property::SUBSCRIPTION_ID => Err(Cause::SubscriptionIdFromClient),
            _ => property::read_of_message(id, value, message),
        })?;
    }
    // The rest of the packet is the payload, so this cannot go below 0.
    Ok(header.packet_bytes.saturating_sub(body.len()))
}

/// Removes the packet from the input and gives the PUBLISH its payload.
#[inline]
pub(super) fn take(publish: &mut Publish, payload_start: usize, header: FixedHeader, input: &mut BytesMut) {
    let payload = input.get(payload_start..header.packet_bytes).unwrap_or_default();
    publish.message.payload = if is_copied(payload.len(), input.capacity()) {
        let copy = Bytes::copy_from_slice(payload);
        input.advance(header.packet_bytes);
        copy
    } else {
        let mut packet = input.split_to(header.packet_bytes).freeze();
        packet.advance(payload_start);
        packet
    };
}

/// Returns whether a payload is copied out of a read buffer of this capacity instead of sharing it.
fn is_copied(payload_bytes: usize, buffer_bytes: usize) -> bool {
    payload_bytes <= COPIED_BYTES_MAX || payload_bytes.saturating_mul(COPIED_PART) < buffer_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_keeps_little_more_than_its_own_bytes_alive() {
        assert!(is_copied(COPIED_BYTES_MAX, COPIED_BYTES_MAX));
        assert!(is_copied(24_999, 100_000));
        assert!(!is_copied(25_000, 100_000));
        assert!(!is_copied(COPIED_BYTES_MAX + 1, 8_192));
    }

    #[test]
    fn a_large_payload_shares_the_buffer_and_a_small_one_leaves_it() {
        for (payload_bytes, is_shared) in [(COPIED_BYTES_MAX, false), (COPIED_BYTES_MAX + 1, true)] {
            let body_bytes = payload_bytes + 4;
            let low = u8::try_from(body_bytes & 0x7F).unwrap() | 0x80;
            let high = u8::try_from(body_bytes >> 7).unwrap();
            let mut input = BytesMut::from(&[0x30, low, high, 0, 1, b'a', 0][..]);
            input.resize(input.len() + payload_bytes, b'p');
            let range = input.as_ptr_range();
            let decoded = crate::mqtt::decode::decode(ProtocolVersion::V5, &mut input, u32::MAX).unwrap();
            let crate::mqtt::Decoded::Packet(crate::mqtt::Incoming::Publish(publish)) = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!(publish.message.payload.len(), payload_bytes);
            assert_eq!(range.contains(&publish.message.payload.as_ptr()), is_shared);
        }
    }
}
