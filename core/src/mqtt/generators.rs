//! Random packets of clients, for the property tests of this folder.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

use super::property as id;
use super::version::ProtocolVersion;

/// Packet before its fixed header is complete: first byte and body.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub first: u8,
    pub body: Vec<u8>,
}

impl Raw {
    /// Returns the packet with its fixed header.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.first];
        put_varint(self.body.len(), &mut bytes);
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn put_varint(mut number: usize, output: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(number & 0x7F).unwrap();
        number >>= 7;
        output.push(if number > 0 { low | 0x80 } else { low });
        if number == 0 {
            return;
        }
    }
}

fn field(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/$ä]{0,6}", select(vec!["__ts", "1.0", "MQTT", "+/#", ""]).prop_map(str::to_owned)]
}

fn topic() -> impl Strategy<Value = String> {
    "[a-z/$ä]{1,6}"
}

/// One property with a value that is valid in every packet that may have the property.
fn property(id: u8) -> BoxedStrategy<Vec<u8>> {
    let value = match id {
        id::PAYLOAD_FORMAT | id::REQUEST_PROBLEM_INFORMATION | id::REQUEST_RESPONSE_INFORMATION => {
            (0..2_u8).prop_map(|flag| vec![flag]).boxed()
        }
        id::RECEIVE_MAXIMUM | id::TOPIC_ALIAS_MAXIMUM | id::TOPIC_ALIAS | id::SERVER_KEEP_ALIVE => {
            (1..=u16::MAX).prop_map(|number| number.to_be_bytes().to_vec()).boxed()
        }
        id::MESSAGE_EXPIRY | id::SESSION_EXPIRY | id::WILL_DELAY | id::MAXIMUM_PACKET_SIZE => {
            (1..=u32::MAX).prop_map(|number| number.to_be_bytes().to_vec()).boxed()
        }
        id::SUBSCRIPTION_ID => (1..0x1000_0000_usize)
            .prop_map(|number| {
                let mut value = Vec::new();
                put_varint(number, &mut value);
                value
            })
            .boxed(),
        id::RESPONSE_TOPIC => topic().prop_map(|topic| field(topic.as_bytes())).boxed(),
        id::CORRELATION_DATA | id::AUTHENTICATION_DATA => {
            vec(any::<u8>(), 0..5).prop_map(|bytes| field(&bytes)).boxed()
        }
        id::USER_PROPERTY => (text(), text())
            .prop_map(|(name, value)| [field(name.as_bytes()), field(value.as_bytes())].concat())
            .boxed(),
        _ => text().prop_map(|text| field(text.as_bytes())).boxed(),
    };
    value.prop_map(move |value| [&[id], &value[..]].concat()).boxed()
}

/// Properties with their length: each at most once and in any order, and any number of user properties.
fn properties(allowed: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    // Not by `prop_flat_map`, which makes the strategies, with their regular expressions, for each case.
    let values: Vec<_> = allowed.iter().map(|id| property(*id)).collect();
    let chosen = subsequence((0..allowed.len()).collect::<Vec<_>>(), 0..=allowed.len());
    (values, chosen, vec(property(id::USER_PROPERTY), 0..3))
        .prop_map(|(values, chosen, user)| {
            [chosen.iter().map(|at| values[*at].clone()).collect(), user].concat()
        })
        .prop_shuffle()
        .prop_map(|properties| {
            let properties = properties.concat();
            let mut bytes = Vec::new();
            put_varint(properties.len(), &mut bytes);
            [bytes, properties].concat()
        })
        .boxed()
}

/// Nothing in MQTT 3.1.1, which has no properties.
fn properties_of(version: ProtocolVersion, allowed: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    match version {
        ProtocolVersion::V5 => properties(allowed),
        ProtocolVersion::V311 => Just(Vec::new()).boxed(),
    }
}

prop_compose! {
    fn will(version: ProtocolVersion)(
        properties in properties_of(version, &[
            id::WILL_DELAY, id::PAYLOAD_FORMAT, id::MESSAGE_EXPIRY, id::CONTENT_TYPE, id::RESPONSE_TOPIC,
            id::CORRELATION_DATA,
        ]),
        topic in topic(),
        payload in vec(any::<u8>(), 0..5),
    ) -> Vec<u8> {
        [properties, field(topic.as_bytes()), field(&payload)].concat()
    }
}

prop_compose! {
    fn connect(version: ProtocolVersion)(
        clean in any::<bool>(),
        is_bridge in any::<bool>(),
        keep_alive in any::<u16>(),
        properties in properties_of(version, &[
            id::SESSION_EXPIRY, id::RECEIVE_MAXIMUM, id::MAXIMUM_PACKET_SIZE, id::TOPIC_ALIAS_MAXIMUM,
            id::REQUEST_RESPONSE_INFORMATION, id::REQUEST_PROBLEM_INFORMATION, id::AUTHENTICATION_METHOD,
            id::AUTHENTICATION_DATA,
        ]),
        client_id in "[a-z]{1,4}",
        will in prop::option::of((will(version), 0..3_u8, any::<bool>())),
        username in prop::option::of(text()),
        password in prop::option::of(vec(any::<u8>(), 0..5)),
    ) -> Raw {
        let is_v5 = version == ProtocolVersion::V5;
        let password = password.filter(|_| is_v5 || username.is_some());
        let mut flags = u8::from(clean) << 1 | u8::from(username.is_some()) << 7 | u8::from(password.is_some()) << 6;
        if let Some((_, qos, retain)) = &will {
            flags |= 0b100 | qos << 3 | u8::from(*retain) << 5;
        }
        let body = [
            field(b"MQTT"),
            vec![if is_v5 { 5 } else if is_bridge { 0x84 } else { 4 }, flags],
            keep_alive.to_be_bytes().to_vec(),
            properties,
            field(client_id.as_bytes()),
            will.map(|(will, ..)| will).unwrap_or_default(),
            username.map(|username| field(username.as_bytes())).unwrap_or_default(),
            password.map(|password| field(&password)).unwrap_or_default(),
        ];
        Raw { first: 0x10, body: body.concat() }
    }
}

prop_compose! {
    fn publish(version: ProtocolVersion)(
        qos in 0..3_u8,
        dup in any::<bool>(),
        retain in any::<bool>(),
        topic in topic(),
        packet_id in 1..=u16::MAX,
        properties in properties_of(version, &[
            id::TOPIC_ALIAS, id::PAYLOAD_FORMAT, id::MESSAGE_EXPIRY, id::CONTENT_TYPE, id::RESPONSE_TOPIC,
            id::CORRELATION_DATA,
        ]),
        payload in prop_oneof![vec(any::<u8>(), 0..10), Just(vec![b'p'; 130]), Just(vec![b'p'; 5_000])],
    ) -> Raw {
        let first = 0x30 | u8::from(dup && qos > 0) << 3 | qos << 1 | u8::from(retain);
        let packet_id = if qos > 0 { packet_id.to_be_bytes().to_vec() } else { Vec::new() };
        Raw { first, body: [field(topic.as_bytes()), packet_id, properties, payload].concat() }
    }
}

fn acknowledgement(version: ProtocolVersion) -> BoxedStrategy<Raw> {
    let kind = prop_oneof![
        (select(vec![0x40_u8, 0x50]), select(vec![0x00_u8, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])),
        (select(vec![0x62_u8, 0x70]), select(vec![0x00_u8, 0x92])),
    ];
    (kind, 1..=u16::MAX, 0..3_u8, properties(&[id::REASON_STRING]))
        .prop_map(move |((first, reason), packet_id, parts, properties)| {
            let mut body = packet_id.to_be_bytes().to_vec();
            if version == ProtocolVersion::V5 && parts > 0 {
                body.push(reason);
                if parts > 1 {
                    body.extend(properties);
                }
            }
            Raw { first, body }
        })
        .boxed()
}

prop_compose! {
    fn subscribe(version: ProtocolVersion)(
        packet_id in 1..=u16::MAX,
        properties in properties_of(version, &[id::SUBSCRIPTION_ID]),
        filters in vec((text(), 0..3_u8, 0..4_u8, 0..3_u8), 1..4),
    ) -> Raw {
        let filter = |(filter, qos, flags, retain_handling): (String, u8, u8, u8)| {
            let options = match version {
                ProtocolVersion::V5 => retain_handling << 4 | flags << 2 | qos,
                ProtocolVersion::V311 => qos,
            };
            [field(filter.as_bytes()), vec![options]].concat()
        };
        let filters = filters.into_iter().map(filter).collect::<Vec<_>>().concat();
        Raw { first: 0x82, body: [packet_id.to_be_bytes().to_vec(), properties, filters].concat() }
    }
}

prop_compose! {
    fn unsubscribe(version: ProtocolVersion)(
        packet_id in 1..=u16::MAX,
        properties in properties_of(version, &[]),
        filters in vec(text(), 1..4),
    ) -> Raw {
        let filters = filters.iter().map(|filter| field(filter.as_bytes())).collect::<Vec<_>>().concat();
        Raw { first: 0xA2, body: [packet_id.to_be_bytes().to_vec(), properties, filters].concat() }
    }
}

fn disconnect(version: ProtocolVersion) -> BoxedStrategy<Raw> {
    let reason = select(vec![0x00_u8, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x99, 0xA2]);
    let allowed = &[id::SESSION_EXPIRY, id::REASON_STRING, id::SERVER_REFERENCE];
    (reason, 0..3_u8, properties(allowed))
        .prop_map(move |(reason, parts, properties)| {
            let mut body = Vec::new();
            if version == ProtocolVersion::V5 && parts > 0 {
                body.push(reason);
                if parts > 1 {
                    body.extend(properties);
                }
            }
            Raw { first: 0xE0, body }
        })
        .boxed()
}

prop_compose! {
    fn auth()(
        reason in select(vec![0x00_u8, 0x18, 0x19]),
        properties in properties(&[id::AUTHENTICATION_METHOD, id::AUTHENTICATION_DATA, id::REASON_STRING]),
    ) -> Raw {
        Raw { first: 0xF0, body: [vec![reason], properties].concat() }
    }
}

/// A valid packet of a client.
pub(super) fn packet(version: ProtocolVersion) -> BoxedStrategy<Raw> {
    let auth = match version {
        ProtocolVersion::V5 => auth().boxed(),
        ProtocolVersion::V311 => Just(Raw { first: 0xC0, body: Vec::new() }).boxed(),
    };
    prop_oneof![
        2 => connect(version),
        3 => publish(version),
        1 => acknowledgement(version),
        1 => subscribe(version),
        1 => unsubscribe(version),
        1 => disconnect(version),
        1 => auth,
    ]
    .boxed()
}

/// A packet whose body, and then perhaps whose fixed header, was damaged: bytes changed, inserted, removed, repeated,
/// cut off.
pub(super) fn damaged(version: ProtocolVersion) -> BoxedStrategy<Vec<u8>> {
    let change = || (any::<Index>(), 0..6_u8, prop_oneof![any::<u8>(), 0..0x30_u8]);
    let changes = (vec(change(), 0..3), prop::option::weighted(0.3, change()));
    (packet(version), changes)
        .prop_map(|(mut packet, (of_body, of_packet))| {
            for change in of_body {
                damage(&mut packet.body, change);
            }
            let mut bytes = packet.bytes();
            if let Some(change) = of_packet {
                damage(&mut bytes, change);
            }
            bytes
        })
        .boxed()
}

fn damage(bytes: &mut Vec<u8>, (index, kind, byte): (Index, u8, u8)) {
    // The fields are at the start; behind them is at most a long payload.
    let at = index.index(bytes.len().min(60) + 1);
    match kind {
        0 => bytes.insert(at, byte),
        1 => bytes.truncate(at),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 if at < bytes.len() => bytes[at] = bytes[at].wrapping_add(if byte & 1 == 0 { 1 } else { 0xFF }),
        4 => bytes.extend_from_within(at..),
        _ if at < bytes.len() => bytes[at] = byte,
        _ => bytes.push(byte),
    }
}
