//! Requests to bytes: a packet of which only what differs between the requests of a session is written anew.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::client::outgoing_request::OutgoingRequest;
use crate::mqtt::ProtocolVersion;
use crate::mqtt::encode::{self, Unsendable};
use crate::mqtt::packet::OutgoingPublish;
use crate::protocol::Timestamp;
use crate::protocol::message::{Message, Qos};
use crate::protocol::timestamp::{COUNTER_USUAL_MAX, MS_USUAL_MAX, USUAL_DIGITS};

/// The encoded message of a request without its fixed header and payload.
///
/// A message is mostly topics and user properties that all requests of a session have. Building it and encoding each property
/// takes ten times as long as copying the bytes of the last one.
pub(super) struct RequestTemplate {
    bytes: Vec<u8>,
    packet_id: Range<usize>,
    expiry: Range<usize>,
    correlation: Range<usize>,
    /// Milliseconds and counter of the timestamp.
    clock: Range<usize>,
}

impl RequestTemplate {
    /// Returns the template of requests like this one.
    ///
    /// Two requests are encoded that differ in every byte of what varies: so the places need not be known here.
    pub(super) fn of(request: &OutgoingRequest) -> Option<Self> {
        let like = |expiry_s, correlation, clock| OutgoingRequest {
            requester: Arc::clone(&request.requester),
            payload: Bytes::new(),
            correlation,
            expiry_s: Some(expiry_s),
            clock,
            properties: None,
        };
        let least = body(0x0101, &like(0, [0; 16], (0, 0)))?;
        let greatest = like(u32::MAX, [0xFF; 16], (MS_USUAL_MAX, COUNTER_USUAL_MAX));
        let greatest = body(0xFEFE, &greatest)?;
        let mut places = differences(&least, &greatest).into_iter();
        let mut place = |bytes: usize| places.next().filter(|place| place.len() == bytes);
        let (packet_id, expiry, correlation) = (place(2)?, place(4)?, place(16)?);
        let (ms, counter) = (places.next()?, places.next()?);
        let clock = ms.start..counter.end;
        let is_whole = clock.len() == USUAL_DIGITS && places.next().is_none();
        is_whole.then_some(Self { bytes: least, packet_id, expiry, correlation, clock })
    }

    /// Appends a request to the output. None: the request is not like the others.
    pub(super) fn put(
        &mut self,
        packet_id: u16,
        request: &OutgoingRequest,
        bytes_max: Option<u32>,
        output: &mut BytesMut,
    ) -> Option<Result<(), Unsendable>> {
        let OutgoingRequest { payload, correlation, expiry_s, clock: (ms, counter), properties, .. } =
            request;
        if properties.is_some() {
            return None;
        }
        let clock = Timestamp::usual_digits(*ms, *counter)?;
        self.bytes.get_mut(self.packet_id.clone())?.copy_from_slice(&packet_id.to_be_bytes());
        self.bytes.get_mut(self.expiry.clone())?.copy_from_slice(&(*expiry_s)?.to_be_bytes());
        self.bytes.get_mut(self.correlation.clone())?.copy_from_slice(correlation);
        self.bytes.get_mut(self.clock.clone())?.copy_from_slice(&clock);
        Some(encode::publish_encoded(&self.bytes, payload, bytes_max, output))
    }
}

/// Returns an encoded request without its fixed header.
fn body(packet_id: u16, request: &OutgoingRequest) -> Option<Vec<u8>> {
    let mut packet = BytesMut::new();
    encode::publish(ProtocolVersion::V5, &publish(packet_id, &request.message()), &mut packet).ok()?;
    // The remaining length ends with the first byte without the continuation bit.
    let last = packet.iter().skip(1).position(|byte| byte & 0x80 == 0)?;
    packet.get(last.checked_add(2)?..).map(<[u8]>::to_vec)
}

/// Returns the PUBLISH of a message with QoS 1, of any length.
pub(super) fn publish(packet_id: u16, message: &Message) -> OutgoingPublish<'_> {
    OutgoingPublish {
        message,
        qos: Qos::AtLeastOnce,
        retain: message.retain,
        dup: false,
        packet_id: Some(packet_id),
        expiry_s: message.expiry_s,
        alias: None,
        subscription_ids: &[],
        bytes_max: None,
    }
}

/// Returns where two packets of the same length differ.
fn differences(one: &[u8], other: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in one.iter().zip(other).enumerate().filter(|(_, (one, other))| one != other) {
        let end = at.saturating_add(1);
        match found.last_mut().filter(|last| last.end == at) {
            Some(last) => last.end = end,
            None => found.push(at..end),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client::outgoing_request::Requester;
    use crate::client::request::RequestProperties;
    use crate::protocol::topic;

    fn request(client_id: &str) -> OutgoingRequest {
        let requester = Requester {
            client_id: client_id.to_owned(),
            response_topic: topic::response(client_id),
            clock: Timestamp::zero("node".to_owned()).unwrap(),
        };
        OutgoingRequest {
            requester: Arc::new(requester),
            payload: Bytes::from_static(b"*1\r\n$4\r\nPING\r\n"),
            correlation: [7; 16],
            expiry_s: Some(10),
            clock: (1_795_205_105_140, 0),
            properties: None,
        }
    }

    proptest! {
        #[test]
        fn a_request_has_the_bytes_of_its_message(
            client_id in "[a-z0-9]{0,300}",
            payload in prop_oneof![0..4_usize, 100..300_usize, 20_000..20_001_usize],
            packet_id in 1_u16..,
            correlation: [u8; 16],
            expiry_s: u32,
            clock in (prop_oneof![0..=MS_USUAL_MAX, Just(MS_USUAL_MAX)], 0..=COUNTER_USUAL_MAX),
        ) {
            let like = request(&client_id);
            let mut template = RequestTemplate::of(&like).unwrap();
            let request = OutgoingRequest {
                payload: vec![b'x'; payload].into(), correlation, expiry_s: Some(expiry_s), clock, ..like
            };
            let mut output = BytesMut::from(&b"before"[..]);
            template.put(packet_id, &request, None, &mut output).unwrap().unwrap();
            let mut expected = BytesMut::from(&b"before"[..]);
            encode::publish(ProtocolVersion::V5, &publish(packet_id, &request.message()), &mut expected).unwrap();
            prop_assert_eq!(output, expected);
        }
    }

    #[test]
    fn a_request_with_options_or_an_unusual_clock_is_not_like_the_others() {
        let like = request("me");
        let mut template = RequestTemplate::of(&like).unwrap();
        let mut output = BytesMut::new();
        let persist = RequestProperties { persist: true, ..RequestProperties::default() };
        for other in [
            OutgoingRequest { properties: persist.shared(), ..like.clone() },
            OutgoingRequest { clock: (0, COUNTER_USUAL_MAX + 1), ..like.clone() },
            OutgoingRequest { clock: (MS_USUAL_MAX + 1, 0), ..like.clone() },
            OutgoingRequest { expiry_s: None, ..like.clone() },
        ] {
            assert!(template.put(1, &other, None, &mut output).is_none(), "{other:?}");
        }
        assert!(template.put(1, &like, Some(20), &mut output).unwrap().is_err());
        assert!(output.is_empty());
    }
}
