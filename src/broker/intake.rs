//! Reads what clients send most straight from its bytes: a PUBLISH of MQTT 5 with which nothing is wrong, once through.
//!
//! All else, and whatever is wrong, is left to `strict.rs` and the codec's crate, which take longer and say why.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use super::codec::COPIED_BYTES_MAX;
use super::codec::detached;
use super::packet::Publish;
use super::publish::property;
use crate::protocol::message::{Message, PropertyText, Qos, known_name, known_value};

const PUBLISH: u8 = 0x30;

/// Takes the PUBLISH off the start of `input`, if there is a whole one and no fault in it; else takes nothing.
pub fn take(input: &mut BytesMut, bytes_max: u32) -> Option<Publish> {
    let (mut publish, payload) = read(input, bytes_max)?;
    let bytes = input.get(payload.clone())?;
    publish.message.payload = if bytes.len() <= COPIED_BYTES_MAX {
        let copy = Bytes::copy_from_slice(bytes);
        input.advance(payload.end);
        copy
    } else {
        let kept = input.capacity();
        let mut packet = input.split_to(payload.end).freeze();
        packet.advance(payload.start);
        detached(packet, kept)
    };
    Some(publish)
}

/// The PUBLISH at the start of some bytes, and where its payload is.
fn read(input: &[u8], bytes_max: u32) -> Option<(Publish, Range<usize>)> {
    let mut packet = Reader(input);
    let first = packet.byte()?;
    if first & 0xF0 != PUBLISH {
        return None;
    }
    let qos = match first & 0b0110 {
        0 if first & 0b1000 == 0 => Qos::AtMostOnce,
        0b0010 => Qos::AtLeastOnce,
        0b0100 => Qos::ExactlyOnce,
        _ => return None,
    };
    let length = packet.number()?;
    let mut body = Reader(packet.bytes(length)?);
    let end = input.len().saturating_sub(packet.0.len());
    if u32::try_from(end).ok()? > bytes_max {
        return None;
    }
    let topic = body.topic()?.to_owned();
    let packet_id = if qos > Qos::AtMostOnce { body.short().filter(|id| *id > 0)? } else { 0 };
    let length = body.number()?;
    let mut properties = Reader(body.bytes(length)?);
    let mut message = Message { topic, qos, retain: first & 1 != 0, ..Message::default() };
    let mut topic_alias = None;
    while let Some(name) = properties.byte() {
        match name {
            property::PAYLOAD_FORMAT => {
                let format = properties.byte().filter(|format| *format <= 1)?;
                put(&mut message.payload_format, format)?;
            }
            property::EXPIRY => put(&mut message.expiry_s, properties.long()?)?,
            property::CONTENT_TYPE => {
                put(&mut message.content_type, properties.word(known_value)?)?;
            }
            property::RESPONSE_TOPIC => {
                let topic = properties.topic().filter(|topic| !topic.is_empty())?;
                put(&mut message.response_topic, topic.to_owned())?;
            }
            property::CORRELATION => {
                put(&mut message.correlation, Bytes::copy_from_slice(properties.field()?))?;
            }
            property::TOPIC_ALIAS => {
                let alias = properties.short().filter(|alias| *alias > 0)?;
                put(&mut topic_alias, alias)?;
            }
            property::USER => {
                message.user_properties.push((properties.word(known_name)?, properties.word(known_value)?));
            }
            _ => return None,
        }
    }
    let payload = end.saturating_sub(body.0.len())..end;
    Some((Publish { packet_id, topic_alias, message, has_expired: false }, payload))
}

/// Sets what is not set yet: no property but one comes twice (MQTT 5, 2.2.2).
fn put<T>(place: &mut Option<T>, value: T) -> Option<()> {
    if place.is_some() {
        return None;
    }
    *place = Some(value);
    Some(())
}

/// What is left to be read. None wherever there is not as much as asked for, or something is wrong with it.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn short(&mut self) -> Option<u16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*bytes))
    }

    fn long(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A number of one to four bytes, in no more than it needs (MQTT 5, 1.5.5).
    fn number(&mut self) -> Option<usize> {
        let mut number = 0_usize;
        for shift in [0, 7, 14, 21_u32] {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return (byte > 0 || shift == 0).then_some(number);
            }
        }
        None
    }

    fn field(&mut self) -> Option<&'a [u8]> {
        let length = self.short()?;
        self.bytes(length.into())
    }

    /// A string of MQTT: UTF-8 without U+0000 (1.5.4).
    fn word(&mut self, known: fn(&[u8]) -> Option<&'static str>) -> Option<PropertyText> {
        let bytes = self.field()?;
        if let Some(word) = known(bytes) {
            return Some(word.into());
        }
        // Not until it is found, but whether it is there: so several bytes are looked at together.
        let is_wrong = bytes.iter().fold(false, |is_wrong, byte| is_wrong | (*byte == 0));
        if is_wrong { None } else { Some(std::str::from_utf8(bytes).ok()?.to_owned().into()) }
    }

    /// A string without wildcards.
    fn topic(&mut self) -> Option<&'a str> {
        let bytes = self.field()?;
        let is_wrong = bytes.iter().fold(false, |is_wrong, byte| is_wrong | matches!(*byte, 0 | b'+' | b'#'));
        if is_wrong { None } else { std::str::from_utf8(bytes).ok() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::codec::{Decoded, decode, decode_carefully};
    use super::super::dialect::Sending;
    use super::super::packet::Incoming;
    use super::super::publication::{Delivery, Publication};
    use super::super::publish::{encode, tests::message};
    use super::*;

    fn encoded(message: Message) -> BytesMut {
        let (qos, retain, expiry_s) = (message.qos, message.retain, message.expiry_s);
        let packet_id = (qos > Qos::AtMostOnce).then_some(258);
        let publication = std::sync::Arc::new(Publication::new(message, crate::clock::monotonic()));
        let delivery = Delivery { publication, qos, retain, subscription_ids: Vec::new(), group: None };
        let sending =
            Sending { delivery: &delivery, packet_id, dup: false, expiry_s, alias: None, bytes_max: None };
        let mut output = BytesMut::new();
        encode(sending, true, &mut output).unwrap();
        output
    }

    /// What the careful way makes of it: the packet and how much of the input it leaves.
    fn carefully(mut input: BytesMut, bytes_max: u32) -> Option<(Publish, usize)> {
        match decode_carefully(&mut input, bytes_max) {
            Ok(Decoded::Packet(Incoming::Publish(publish))) => Some((publish, input.len())),
            _ => None,
        }
    }

    fn at_once(mut input: BytesMut, bytes_max: u32) -> Option<(Publish, usize)> {
        let before = input.clone();
        let taken = take(&mut input, bytes_max);
        if taken.is_none() {
            assert_eq!(input, before);
        }
        taken.map(|publish| (publish, input.len()))
    }

    #[test]
    fn whatever_byte_is_changed_missing_or_too_much_the_careful_way_makes_the_same_of_it() {
        let properties = b"\x01\x01\x02\0\0\0\x09\x03\0\x02\xC3\xA4\x08\0\x03a/b\x09\0\x02\0\xFF\x23\0\x01\
            \x26\0\x04__ts\0\x031.0\x26\0\x05__per\0\0";
        let puback: &[u8] = b"\x40\x02\0\x01";
        let publish: &[u8] =
            &[b"\x33\x3E\0\x05$a/\xC3\xA4\0\x02\x30", &properties[..], b"\xFF\0p\x80"].concat();
        let alias: &[u8] = b"\x30\x08\0\0\x03\x23\0\x01\x80p";
        let is_whole =
            |sample: &&[u8]| matches!(decode(&mut (**sample).into(), 1000), Ok(Decoded::Packet(_)));
        assert!([puback, publish, alias].iter().all(is_whole));
        // Lengths in more bytes than they need.
        let long: [&[u8]; 3] = [b"\x30\x85\0\0\x01a\0p", b"\x30\x06\0\x01a\x80\0p", b"\x40\x82\0\0\x01"];
        let taken = |mut input: BytesMut, decode: fn(&mut BytesMut, u32) -> _, bytes_max| {
            let decoded: Result<Decoded, _> = decode(&mut input, bytes_max);
            (format!("{decoded:?}"), input)
        };
        for sample in [puback, publish, alias].into_iter().chain(long) {
            let length = sample.len();
            let cut = (0..length).map(|end| sample[..end].to_vec());
            let changed = (0..length).flat_map(|at| {
                (0..=255).flat_map(move |byte| {
                    let (before, rest) = sample.split_at(at);
                    [[before, &[byte], &rest[1..]].concat(), [before, &[byte], rest].concat()]
                })
            });
            let left_out = (0..length).map(|at| [&sample[..at], &sample[at + 1..]].concat());
            for input in cut.chain(changed).chain(left_out) {
                for bytes_max in [length - 1, length, 1000] {
                    let (input, bytes_max) = (BytesMut::from(&input[..]), u32::try_from(bytes_max).unwrap());
                    let careful = taken(input.clone(), decode_carefully, bytes_max);
                    assert_eq!(taken(input.clone(), decode, bytes_max), careful, "{input:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_packet_is_read_at_once_if_and_only_if_the_careful_way_takes_it_and_as_the_same(
            message in message(),
            trailing in prop::collection::vec(any::<u8>(), 0..4),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in prop::option::of(any::<prop::sample::Index>()),
            spare in 0_u32..3,
        ) {
            let mut input = encoded(message);
            let bytes_max = u32::try_from(input.len()).unwrap() + spare - 1;
            input.extend_from_slice(&trailing);
            // The head is where the changes tell.
            let head = input.len().min(200);
            for (at, byte) in changes {
                let at = at.index(head);
                input[at] = byte;
            }
            if let Some(cut) = cut {
                input.truncate(cut.index(input.len()) + 1);
            }
            let (slow, quick) = (carefully(input.clone(), bytes_max), at_once(input, bytes_max));
            prop_assert_eq!(format!("{quick:?}"), format!("{slow:?}"));
        }

        #[test]
        fn any_properties_are_read_as_the_careful_way_reads_them(
            first in 0x30_u8..0x40,
            properties in prop::collection::vec(prop_oneof![
                any::<u8>().prop_map(|format| vec![0x01, format % 3]),
                Just(vec![0x02, 0, 0, 0, 9]),
                Just(vec![0x0B, 5]),
                (0..3_u8).prop_map(|alias| vec![0x23, 0, alias]),
                (prop::sample::select(vec![0x03_u8, 0x08, 0x09, 0x1F]), "[a-c+#\0ä]{0,3}").prop_map(|(name, text)| {
                    [&[name, 0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
                }),
                Just(b"\x26\0\x04__ts\0\x031.0".to_vec()),
                Just(b"\x26\0\0\0\x01\xFF".to_vec()),
            ], 0..4),
            topic in "[ab/+#\0]{0,3}",
        ) {
            let properties = properties.concat();
            let lengths = [topic.len(), properties.len()].map(|length| u8::try_from(length).unwrap());
            let mut body = [&[0, lengths[0]], topic.as_bytes()].concat();
            if first & 0b0110 != 0 {
                body.extend([0, 1]);
            }
            body.extend([&[lengths[1]], &properties[..], b"payload"].concat());
            let input = [&[first, u8::try_from(body.len()).unwrap()], &body[..]].concat();
            let input = BytesMut::from(&input[..]);
            let (slow, quick) = (carefully(input.clone(), u32::MAX), at_once(input, u32::MAX));
            prop_assert_eq!(format!("{quick:?}"), format!("{slow:?}"));
        }
    }
}
