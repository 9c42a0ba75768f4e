//! Decoding of responses of the state store, of which a client with many requests in flight receives most.

use crate::mqtt::header::{self, Framing};
use crate::mqtt::packet::USER_PROPERTIES_MAX;
use crate::mqtt::property::{CONTENT_TYPE, CORRELATION_DATA, USER_PROPERTY};
use crate::mqtt::reader::Reader;
use crate::mqtt::version::ProtocolVersion;
use crate::protocol::ResponseProperties;

/// PUBLISH with QoS 1, neither a duplicate nor retained.
const PUBLISH: u8 = 0x32;

/// A response as it is in the input, which has no other properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowedResponse<'a> {
    pub packet_id: u16,
    pub correlation: &'a [u8],
    pub payload: &'a [u8],
    pub properties: ResponseProperties<'a>,
    /// The length of the packet in bytes.
    pub packet_bytes: usize,
}

/// Decodes a response on this topic at the start of the input, which it leaves there. What
/// [`publish_of_server`](super::publish_of_server) copies is borrowed: a response is used at once.
///
/// Returns None for all else: other packets, other properties, and whatever is incomplete or malformed.
#[must_use]
pub fn response_of_server<'a>(input: &'a [u8], topic: &str, bytes_max: u32) -> Option<BorrowedResponse<'a>> {
    if input.first() != Some(&PUBLISH) {
        return None;
    }
    let Ok(Framing::Whole(header)) = header::read(input, bytes_max, ProtocolVersion::V5) else { return None };
    let mut body = Reader::new(input.get(header.header_bytes..header.packet_bytes)?);
    if body.binary().ok()? != topic.as_bytes() {
        return None;
    }
    let packet_id = body.packet_id().ok()?;
    let length = usize::try_from(body.varint().ok()?).ok()?;
    let mut properties = Reader::new(body.bytes(length).ok()?);
    let (mut correlation, mut content_type) = (None, None);
    let mut noted = ResponseProperties::default();
    let mut user_properties = 0..USER_PROPERTIES_MAX;
    while !properties.is_empty() {
        match properties.u8().ok()? {
            CORRELATION_DATA if correlation.is_none() => correlation = Some(properties.binary().ok()?),
            CONTENT_TYPE if content_type.is_none() => content_type = Some(properties.ascii()?),
            USER_PROPERTY => {
                user_properties.next()?;
                let (name, value) = (properties.ascii()?, properties.ascii()?);
                noted.note(name, value);
            }
            _ => return None,
        }
    }
    Some(BorrowedResponse {
        packet_id,
        correlation: correlation?,
        payload: body.rest(),
        properties: noted,
        packet_bytes: header.packet_bytes,
    })
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;
    use crate::mqtt::decode::publish_of_server;
    use crate::mqtt::encode;
    use crate::mqtt::packet::OutgoingPublish;
    use crate::protocol::message;
    use crate::protocol::message::{Message, Qos};

    const TOPIC: &str = "clients/me/response";

    fn encoded(message: &Message, packet_id: u16, dup: bool) -> BytesMut {
        let publish = OutgoingPublish {
            message,
            qos: Qos::AtLeastOnce,
            retain: false,
            dup,
            packet_id: Some(packet_id),
            expiry_s: message.expiry_s,
            alias: None,
            subscription_ids: &[],
            bytes_max: None,
        };
        let mut packet = BytesMut::new();
        encode::publish(ProtocolVersion::V5, &publish, &mut packet).unwrap();
        packet
    }

    fn response() -> Message {
        Message {
            topic: TOPIC.into(),
            payload: Bytes::from_static(b"+OK\r\n"),
            correlation: Some(Bytes::from_static(&[7; 16])),
            content_type: Some(message::CONTENT_TYPE.into()),
            user_properties: [("__stat", "200"), ("__protVer", "1.0"), ("__ts", "1:0:n")]
                .into_iter()
                .collect(),
            ..Message::default()
        }
    }

    proptest! {
        #[test]
        fn a_response_is_decoded_like_a_message(
            topic in select(vec![TOPIC, "other"]),
            payload in vec(any::<u8>(), 0..200),
            correlation in option::of(vec(any::<u8>(), 0..20)),
            content_type in option::of(select(vec!["", "ä", message::CONTENT_TYPE])),
            user_properties in vec((
                select(vec!["__ts", "__stat", "__protVer", "mqkv-ttl", "mqkv-fence", "mqkv-limited", "mqkv-pending", "mqkv-prefix", "other", "ü"]),
                select(vec!["", "1", "200", "ä"]),
            ), 0..5),
            expiry_s in option::weighted(0.1, any::<u32>()),
            dup in prop::bool::weighted(0.1),
            packet_id in 1_u16..,
            change in option::weighted(0.5, (any::<Index>(), any::<u8>())),
            end in option::weighted(0.2, any::<Index>()),
        ) {
            let is_ascii = user_properties.iter().all(|(name, value)| name.is_ascii() && value.is_ascii())
                && content_type.is_none_or(str::is_ascii);
            let is_usual = topic == TOPIC && is_ascii && correlation.is_some() && expiry_s.is_none() && !dup;
            let message = Message {
                topic: topic.into(),
                payload: payload.into(),
                correlation: correlation.map(Bytes::from),
                content_type: content_type.map(Into::into),
                user_properties: user_properties.into_iter().collect(),
                expiry_s,
                ..Message::default()
            };
            let mut packet = encoded(&message, packet_id, dup);
            prop_assert_eq!(response_of_server(&packet, TOPIC, u32::MAX).is_some(), is_usual);
            if let Some((at, byte)) = change {
                *at.get_mut(&mut packet) = byte;
            }
            packet.truncate(end.map_or(packet.len(), |end| end.index(packet.len())));
            packet.extend_from_slice(b"next");
            let input = packet.clone();
            if let Some(response) = response_of_server(&input, TOPIC, u32::MAX) {
                let publish = publish_of_server(&mut packet, u32::MAX).unwrap().unwrap();
                let message = publish.message;
                prop_assert_eq!((publish.packet_id, &*message.topic), (response.packet_id, TOPIC));
                prop_assert_eq!(&message.payload[..], response.payload);
                prop_assert_eq!(message.correlation.as_deref(), Some(response.correlation));
                prop_assert_eq!(message.user_property(message::STATUS), response.properties.status);
                prop_assert_eq!(message.user_property(message::PROTOCOL_VERSION), response.properties.protocol_version);
                prop_assert_eq!(message.user_property(message::TIMESTAMP), response.properties.timestamp);
                prop_assert_eq!(message.user_property(message::TIME_TO_LIVE), response.properties.time_to_live);
                prop_assert_eq!(message.user_property(message::KEY_FENCE), response.properties.key_fence);
                prop_assert_eq!(message.user_property(message::LIMITED), response.properties.limited);
                prop_assert_eq!(message.user_property(message::PENDING), response.properties.pending);
                prop_assert_eq!(message.user_property(message::PREFIX), response.properties.prefix);
                prop_assert_eq!(input.len() - packet.len(), response.packet_bytes);
            }
        }
    }

    #[test]
    fn the_limits_of_a_packet_hold_for_a_response() {
        let packet = encoded(&response(), 1, false);
        let bytes = u32::try_from(packet.len()).unwrap();
        assert!(response_of_server(&packet, TOPIC, bytes).is_some());
        assert_eq!(response_of_server(&packet, TOPIC, bytes - 1), None);
        for (count, is_accepted) in [(USER_PROPERTIES_MAX, true), (USER_PROPERTIES_MAX + 1, false)] {
            let user_properties = std::iter::repeat_n(("a", ""), count).collect();
            let packet = encoded(&Message { user_properties, ..response() }, 1, false);
            assert_eq!(response_of_server(&packet, TOPIC, u32::MAX).is_some(), is_accepted);
        }
    }
}
