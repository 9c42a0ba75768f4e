//! MQTT 5 packets as bytes, by hand: what a broker of the tests says, and what it hears.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

/// A whole packet: its first byte, and what follows the remaining length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub first: u8,
    pub body: Vec<u8>,
}

/// What a PUBLISH says, as far as the tests care.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    pub topic: String,
    pub packet_id: u16,
    pub response_topic: String,
    pub correlation: Vec<u8>,
    pub user_properties: Vec<(String, String)>,
    pub payload: Vec<u8>,
}

/// What a CONNECT says of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    pub client_id: String,
    pub username: Option<String>,
    pub password: Option<Vec<u8>>,
    pub method: Option<String>,
    pub data: Option<Vec<u8>>,
}

impl Packet {
    /// Its name in the standard.
    pub fn name(&self) -> &'static str {
        const NAMES: [&str; 16] = [
            "RESERVED",
            "CONNECT",
            "CONNACK",
            "PUBLISH",
            "PUBACK",
            "PUBREC",
            "PUBREL",
            "PUBCOMP",
            "SUBSCRIBE",
            "SUBACK",
            "UNSUBSCRIBE",
            "UNSUBACK",
            "PINGREQ",
            "PINGRESP",
            "DISCONNECT",
            "AUTH",
        ];
        NAMES[usize::from(self.first >> 4)]
    }

    /// The first packet in these bytes and how many they are; none if it has not come whole.
    pub fn split(bytes: &[u8]) -> Option<(Self, usize)> {
        let (mut len, mut at) = (0usize, 1);
        loop {
            let byte = *bytes.get(at)?;
            len |= usize::from(byte & 0x7F) << (7 * (at - 1));
            at += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let body = bytes.get(at..at + len)?.to_vec();
        Some((Self { first: bytes[0], body }, at + len))
    }

    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.first];
        let mut len = self.body.len();
        loop {
            let more = if len > 0x7F { 0x80 } else { 0 };
            bytes.push(u8::try_from(len & 0x7F).unwrap() | more);
            len >>= 7;
            if more == 0 {
                break;
            }
        }
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The identifier at the beginning of a SUBSCRIBE's, SUBACK's or PUBACK's body.
    pub fn packet_id(&self) -> u16 {
        u16::from_be_bytes([self.body[0], self.body[1]])
    }
}

/// A whole packet.
pub fn packet(first: u8, body: Vec<u8>) -> Vec<u8> {
    Packet { first, body }.encode()
}

/// CONNECT of a client with these properties: clean start, no keep-alive.
pub fn connect(client_id: &str) -> Vec<u8> {
    let mut body = text("MQTT");
    body.extend([5, 0x02, 0, 0, 0]);
    body.extend(text(client_id));
    packet(0x10, body)
}

impl Connect {
    /// Reads a CONNECT without a will.
    pub fn decode(packet: &Packet) -> Self {
        assert_eq!(packet.name(), "CONNECT");
        let mut rest = packet.body.as_slice();
        assert_eq!(take_text(&mut rest), "MQTT");
        let [_, flags, _, _] = *take(&mut rest, 4) else { panic!("a short CONNECT") };
        let len = take_length(&mut rest);
        let mut properties = take(&mut rest, len);
        let mut connect = Self { client_id: take_text(&mut rest), ..Self::default() };
        connect.username = (flags & 0x80 != 0).then(|| take_text(&mut rest));
        connect.password = (flags & 0x40 != 0).then(|| take_binary(&mut rest).to_vec());
        assert_eq!(rest, b"");
        while !properties.is_empty() {
            match take(&mut properties, 1)[0] {
                0x11 | 0x27 => drop(take(&mut properties, 4)),
                0x15 => connect.method = Some(take_text(&mut properties)),
                0x16 => connect.data = Some(take_binary(&mut properties).to_vec()),
                other => panic!("property {other:#x}"),
            }
        }
        connect
    }
}

/// CONNECT with what says who the client is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hello<'a> {
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub method: Option<&'a str>,
    pub data: Option<&'a [u8]>,
    /// Goes on with the session that there is, which is to live for an hour.
    pub is_lasting: bool,
}

impl Hello<'_> {
    /// The bytes of it: clean start if it is not lasting, no keep-alive.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = if self.is_lasting { 0 } else { 0x02 };
        let mut rest = text(self.client_id);
        if let Some(user) = self.user {
            flags |= 0x80;
            rest.extend(text(user));
        }
        if let Some(password) = self.password {
            flags |= 0x40;
            rest.extend(binary(password));
        }
        let mut properties = authentication(self.method, self.data);
        if self.is_lasting {
            properties.extend([0x11, 0, 0, 0x0E, 0x10]);
        }
        let mut body = text("MQTT");
        body.extend([5, flags, 0, 0]);
        body.extend(length(properties.len()));
        body.extend(properties);
        body.extend(rest);
        packet(0x10, body)
    }
}

/// AUTH.
pub fn auth(reason: u8, method: Option<&str>, data: Option<&[u8]>) -> Vec<u8> {
    let properties = authentication(method, data);
    let mut body = vec![reason];
    body.extend(length(properties.len()));
    body.extend(properties);
    packet(0xF0, body)
}

/// PINGREQ.
pub const PINGREQ: [u8; 2] = [0xC0, 0];

fn authentication(method: Option<&str>, data: Option<&[u8]>) -> Vec<u8> {
    let mut properties = Vec::new();
    if let Some(method) = method {
        properties.push(0x15);
        properties.extend(text(method));
    }
    if let Some(data) = data {
        properties.push(0x16);
        properties.extend(binary(data));
    }
    properties
}

/// CONNACK with a reason and properties as bytes.
pub fn connack(reason: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = vec![0, reason, u8::try_from(properties.len()).unwrap()];
    body.extend_from_slice(properties);
    packet(0x20, body)
}

/// SUBSCRIBE to one filter, QoS 1.
pub fn subscribe(packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    body.extend(text(filter));
    body.push(1);
    packet(0x82, body)
}

/// SUBACK for one filter.
pub fn suback(packet_id: u16, reason: u8) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    packet(0x90, vec![high, low, 0, reason])
}

/// PUBACK.
pub fn puback(packet_id: u16, reason: u8) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    packet(0x40, vec![high, low, reason, 0])
}

/// PUBLISH of QoS 0 without properties.
pub fn publish_qos_0(topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = text(topic);
    body.push(0);
    body.extend_from_slice(payload);
    packet(0x30, body)
}

/// DISCONNECT.
pub fn disconnect(reason: u8) -> Vec<u8> {
    packet(0xE0, vec![reason, 0])
}

impl Publish {
    /// A user property's value.
    pub fn user_property(&self, name: &str) -> Option<&str> {
        self.user_properties.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The bytes of it, QoS 1.
    pub fn encode(&self) -> Vec<u8> {
        let mut properties = Vec::new();
        if !self.response_topic.is_empty() {
            properties.push(0x08);
            properties.extend(text(&self.response_topic));
        }
        properties.push(0x09);
        properties.extend(binary(&self.correlation));
        for (name, value) in &self.user_properties {
            properties.push(0x26);
            properties.extend(text(name));
            properties.extend(text(value));
        }
        let mut body = text(&self.topic);
        body.extend(self.packet_id.to_be_bytes());
        body.extend(length(properties.len()));
        body.extend(properties);
        body.extend_from_slice(&self.payload);
        packet(0x32, body)
    }

    /// Reads a PUBLISH of QoS 1.
    pub fn decode(packet: &Packet) -> Self {
        assert_eq!((packet.name(), packet.first & 0x06), ("PUBLISH", 0x02), "{packet:?}");
        let mut rest = packet.body.as_slice();
        let mut publish = Self { topic: take_text(&mut rest), ..Self::default() };
        publish.packet_id = u16::from_be_bytes([take(&mut rest, 1)[0], take(&mut rest, 1)[0]]);
        let len = take_length(&mut rest);
        let mut properties = take(&mut rest, len);
        publish.payload = rest.to_vec();
        while !properties.is_empty() {
            match take(&mut properties, 1)[0] {
                0x01 => drop(take(&mut properties, 1)),
                0x02 => drop(take(&mut properties, 4)),
                0x03 => drop(take_text(&mut properties)),
                0x08 => publish.response_topic = take_text(&mut properties),
                0x09 => publish.correlation = take_binary(&mut properties).to_vec(),
                0x26 => {
                    let name = take_text(&mut properties);
                    publish.user_properties.push((name, take_text(&mut properties)));
                }
                other => panic!("property {other:#x}"),
            }
        }
        publish
    }
}

/// A string with its length before it.
pub fn text(text: &str) -> Vec<u8> {
    binary(text.as_bytes())
}

fn binary(bytes: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

/// A length, of properties or of a packet.
pub fn length(len: usize) -> Vec<u8> {
    // The same code as a packet's remaining length: whatever precedes its body but the first byte.
    let whole = packet(0, vec![0; len]);
    whole[1..whole.len() - len].to_vec()
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(len);
    *rest = left;
    taken
}

fn take_length(rest: &mut &[u8]) -> usize {
    let mut len = 0;
    for shift in [0, 7, 14, 21] {
        let byte = take(rest, 1)[0];
        len |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    len
}

fn take_binary<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let len = take(rest, 2);
    take(rest, usize::from(u16::from_be_bytes([len[0], len[1]])))
}

fn take_text(rest: &mut &[u8]) -> String {
    String::from_utf8(take_binary(rest).to_vec()).unwrap()
}
