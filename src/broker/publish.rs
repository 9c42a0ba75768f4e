//! Writes PUBLISH packets, straight from the message that all receivers share: most of what a broker sends.

use bytes::{BufMut, BytesMut};

use super::codec::Unsendable;
use super::dialect::Sending;

/// The longest remaining length (MQTT 5, 1.5.5).
const LENGTH_MAX: usize = 268_435_455;

/// The properties of a PUBLISH (MQTT 5, 3.3.2.3).
pub(super) mod property {
    pub const PAYLOAD_FORMAT: u8 = 0x01;
    pub const EXPIRY: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION: u8 = 0x09;
    pub const SUBSCRIPTION_ID: u8 = 0x0B;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const USER: u8 = 0x26;
}

/// Writes a PUBLISH; with its properties from MQTT 5 on.
///
/// # Errors
///
/// [`Unsendable`]; then nothing is written.
pub fn encode(sending: Sending<'_>, has_properties: bool, output: &mut BytesMut) -> Result<(), Unsendable> {
    let Sending { delivery, packet_id, dup, alias, bytes_max, .. } = sending;
    let message = &delivery.publication.message;
    let topic = if alias.is_none_or(|alias| alias.is_new) { message.topic.as_str() } else { "" };
    let mut properties = Length::default();
    if has_properties {
        put_properties(sending, &mut properties);
    }
    let mut length = Length::default();
    length.text(topic.as_bytes());
    length.bytes(if packet_id.is_some() { 2 } else { 0 });
    if has_properties {
        length.varint(properties.bytes);
    }
    length.bytes(properties.bytes);
    length.bytes(message.payload.len());
    let mut packet = Length::default();
    packet.bytes(1);
    packet.varint(length.bytes);
    packet.bytes(length.bytes);
    let bytes_max = bytes_max.and_then(|bytes_max| usize::try_from(bytes_max).ok()).unwrap_or(usize::MAX);
    let is_too_long = length.bytes > LENGTH_MAX || packet.bytes > bytes_max;
    if is_too_long || length.is_unsendable || properties.is_unsendable {
        return Err(Unsendable);
    }
    output.reserve(packet.bytes);
    output.put_u8(0x30 | u8::from(dup) << 3 | (delivery.qos as u8) << 1 | u8::from(delivery.retain));
    output.varint(length.bytes);
    output.text(topic.as_bytes());
    if let Some(packet_id) = packet_id {
        output.put_u16(packet_id);
    }
    if has_properties {
        output.varint(properties.bytes);
        put_properties(sending, output);
    }
    output.put_slice(&message.payload);
    Ok(())
}

fn put_properties(sending: Sending<'_>, sink: &mut impl Sink) {
    let Sending { delivery, expiry_s, alias, .. } = sending;
    let message = &delivery.publication.message;
    if let Some(format) = message.payload_format {
        sink.raw([property::PAYLOAD_FORMAT, format]);
    }
    if let Some([a, b, c, d]) = expiry_s.map(u32::to_be_bytes) {
        sink.raw([property::EXPIRY, a, b, c, d]);
    }
    if let Some([a, b]) = alias.map(|alias| alias.number.to_be_bytes()) {
        sink.raw([property::TOPIC_ALIAS, a, b]);
    }
    if let Some(topic) = &message.response_topic {
        sink.named(property::RESPONSE_TOPIC, topic.as_bytes());
    }
    if let Some(correlation) = &message.correlation {
        sink.named(property::CORRELATION, correlation);
    }
    for (name, value) in &message.user_properties {
        sink.named(property::USER, name.as_bytes());
        sink.text(value.as_bytes());
    }
    for id in &delivery.subscription_ids {
        sink.raw([property::SUBSCRIPTION_ID]);
        sink.varint(usize::try_from(*id).unwrap_or(usize::MAX));
    }
    if let Some(content_type) = &message.content_type {
        sink.named(property::CONTENT_TYPE, content_type.as_bytes());
    }
}

/// Where the parts of a packet go: into the output, or to be measured.
trait Sink {
    /// Some bytes as they are.
    fn raw<const N: usize>(&mut self, bytes: [u8; N]);
    /// At most 65,535 bytes, with their length before them.
    fn text(&mut self, text: &[u8]);
    /// The same with the name of a property before it.
    fn named(&mut self, name: u8, text: &[u8]) {
        self.raw([name]);
        self.text(text);
    }
    /// A number in as many bytes as it needs, at most four.
    fn varint(&mut self, number: usize);
}

/// How long it becomes, and whether it can become anything.
#[derive(Default)]
struct Length {
    bytes: usize,
    is_unsendable: bool,
}

impl Length {
    fn bytes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Sink for Length {
    fn raw<const N: usize>(&mut self, _: [u8; N]) {
        self.bytes(N);
    }

    fn text(&mut self, text: &[u8]) {
        self.is_unsendable |= u16::try_from(text.len()).is_err();
        self.bytes(text.len().saturating_add(2));
    }

    fn varint(&mut self, number: usize) {
        self.is_unsendable |= number > LENGTH_MAX;
        self.bytes(match number {
            0..0x80 => 1,
            0x80..0x4000 => 2,
            0x4000..0x20_0000 => 3,
            _ => 4,
        });
    }
}

impl Sink for BytesMut {
    fn raw<const N: usize>(&mut self, bytes: [u8; N]) {
        self.put_slice(&bytes);
    }

    fn text(&mut self, text: &[u8]) {
        // Longer ones have been found unsendable.
        self.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
        self.put_slice(text);
    }

    /// At once.
    fn named(&mut self, name: u8, text: &[u8]) {
        let [high, low] = u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
        self.put_slice(&[name, high, low]);
        self.put_slice(text);
    }

    fn varint(&mut self, number: usize) {
        put_varint(number, self);
    }
}

/// Writes a number in as many bytes as it needs (MQTT 5, 1.5.5).
pub fn put_varint(mut number: usize, output: &mut BytesMut) {
    loop {
        let low = u8::try_from(number & 0x7F).unwrap_or(0);
        number >>= 7;
        output.put_u8(if number > 0 { low | 0x80 } else { low });
        if number == 0 {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::codec::{self, Decoded};
    use super::super::packet::Incoming;
    use super::super::publication::{Delivery, Publication};
    use super::*;
    use crate::broker::wire::topic_aliases::Alias;
    use crate::protocol::message::{Message, Qos};

    fn delivery(message: Message) -> Delivery {
        let (qos, retain) = (message.qos, message.retain);
        let publication = Arc::new(Publication::new(message, crate::clock::monotonic()));
        Delivery { publication, qos, retain, subscription_ids: Vec::new(), group: None }
    }

    fn sending(delivery: &Delivery) -> Sending<'_> {
        let packet_id = (delivery.qos > Qos::AtMostOnce).then_some(7);
        Sending { delivery, packet_id, dup: false, expiry_s: None, alias: None, bytes_max: None }
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[a-zä$]{0,20}", "[a-z]{120,140}", Just("x".repeat(65_535))]
    }

    fn some<T: Clone + std::fmt::Debug>(
        strategy: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = Option<T>> {
        prop::option::of(strategy)
    }

    prop_compose! {
        pub(in crate::broker) fn message()(
            topic in "[a-z/]{1,200}",
            payload in prop_oneof![0_usize..300, 16_000_usize..17_000],
            qos in prop_oneof![Just(Qos::AtMostOnce), Just(Qos::AtLeastOnce), Just(Qos::ExactlyOnce)],
            retain in any::<bool>(),
            response_topic in some("[a-z]{1,20}"),
            correlation in some(prop::collection::vec(any::<u8>(), 0..20)),
            content_type in some(text()),
            expiry_s in some(any::<u32>()),
            payload_format in some(0_u8..2),
            user_properties in prop::collection::vec((text(), text()), 0..4),
        ) -> Message {
            let (payload, correlation) = (vec![b'p'; payload].into(), correlation.map(Into::into));
            let content_type = content_type.map(Into::into);
            let pair = |(name, value): (String, String)| (name.into(), value.into());
            let user_properties = user_properties.into_iter().map(pair).collect();
            Message {
                topic, payload, qos, retain, response_topic, correlation, content_type, expiry_s, payload_format,
                user_properties,
            }
        }
    }

    proptest! {
        #[test]
        fn a_message_that_is_written_is_read_again(message in message(), dup in any::<bool>()) {
            let delivery = delivery(message.clone());
            let dup = dup && message.qos > Qos::AtMostOnce;
            let sending = Sending { dup, expiry_s: message.expiry_s, ..sending(&delivery) };
            let mut output = BytesMut::new();
            encode(sending, true, &mut output).unwrap();
            prop_assert_eq!(output[0] & 0b1000 != 0, dup);
            let decoded = codec::decode(&mut output, u32::MAX).unwrap();
            let Decoded::Packet(Incoming::Publish(publish)) = decoded else { panic!("{decoded:?}") };
            prop_assert_eq!(publish.packet_id, sending.packet_id.unwrap_or(0));
            prop_assert_eq!(publish.message, message);
            prop_assert!(output.is_empty());
        }

        #[test]
        fn what_fits_exactly_is_written_and_what_does_not_leaves_no_trace(message in message()) {
            let delivery = delivery(message);
            let mut output = BytesMut::from(&b"before"[..]);
            encode(sending(&delivery), true, &mut output).unwrap();
            let len = u32::try_from(output.len() - 6).unwrap();
            output.truncate(6);
            let too_small = Sending { bytes_max: Some(len - 1), ..sending(&delivery) };
            prop_assert_eq!(encode(too_small, true, &mut output), Err(Unsendable));
            prop_assert_eq!(&output[..], b"before");
            encode(Sending { bytes_max: Some(len), ..sending(&delivery) }, true, &mut output).unwrap();
        }
    }

    #[test]
    fn a_text_longer_than_any_cannot_be_sent() {
        let long = || "x".repeat(65_536);
        let property = vec![("".into(), long().into())];
        for message in [
            Message { topic: long(), ..Message::default() },
            Message { content_type: Some(long().into()), ..Message::default() },
            Message { correlation: Some(long().into()), ..Message::default() },
            Message { user_properties: property, ..Message::default() },
        ] {
            let mut output = BytesMut::from(&b"before"[..]);
            assert_eq!(encode(sending(&delivery(message)), true, &mut output), Err(Unsendable));
            assert_eq!(&output[..], b"before");
        }
    }

    #[test]
    fn aliases_and_identifiers_of_subscriptions_go_along() {
        let message = Message { topic: "t".to_owned(), qos: Qos::AtMostOnce, ..Message::default() };
        let delivery = Delivery { subscription_ids: vec![1, 268_435_455], ..delivery(message) };
        let mut output = BytesMut::new();
        for is_new in [true, false] {
            let alias = Some(Alias { number: 258, is_new });
            encode(Sending { alias, ..sending(&delivery) }, true, &mut output).unwrap();
        }
        let properties = b"\x0A\x23\x01\x02\x0B\x01\x0B\xFF\xFF\xFF\x7F";
        let expected = [b"\x30\x0E\0\x01t", &properties[..], b"\x30\x0D\0\0", properties].concat();
        assert_eq!(&output[..], expected);
    }
}
