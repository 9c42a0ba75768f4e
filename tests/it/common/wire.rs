//! MQTT 5 packets, encoded and decoded independently of the product.
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // a panic here is a failed test

/// A packet: its first byte, and the bytes after the Remaining Length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub first: u8,
    pub body: Vec<u8>,
}

/// The fields of a PUBLISH that tests use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    pub topic: String,
    pub packet_id: u16,
    pub response_topic: String,
    pub correlation: Vec<u8>,
    pub user_properties: Vec<(String, String)>,
    pub payload: Vec<u8>,
}

/// The fields of a received CONNECT that identify the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    pub client_id: String,
    pub username: Option<String>,
    pub password: Option<Vec<u8>>,
    pub method: Option<String>,
    pub data: Option<Vec<u8>>,
}

impl Packet {
    /// Returns the name of the packet type.
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

    /// Returns the first packet of these bytes and its length; `None` if it is incomplete or no MQTT packet.
    pub fn split(bytes: &[u8]) -> Option<(Self, usize)> {
        let (length_bytes, len) = variable(bytes.get(1..)?)?;
        let (start, end) = (1 + length_bytes, 1 + length_bytes + len);
        Some((Self { first: bytes[0], body: bytes.get(start..end)?.to_vec() }, end))
    }

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

    /// Returns the packet identifier at the beginning of the body, as of SUBSCRIBE, SUBACK and PUBACK.
    pub fn packet_id(&self) -> u16 {
        u16::from_be_bytes([self.body[0], self.body[1]])
    }
}

pub fn packet(first: u8, body: Vec<u8>) -> Vec<u8> {
    Packet { first, body }.encode()
}

/// Encodes CONNECT with Clean Start and no Keep Alive.
pub fn connect(client_id: &str) -> Vec<u8> {
    let mut body = text("MQTT");
    body.extend([5, 0x02, 0, 0, 0]);
    body.extend(text(client_id));
    packet(0x10, body)
}

impl Connect {
    /// Decodes a CONNECT without a Will Message.
    pub fn decode(packet: &Packet) -> Self {
        assert_eq!(packet.name(), "CONNECT");
        let mut rest = packet.body.as_slice();
        assert_eq!(take_text(&mut rest), "MQTT");
        let [_, flags, _, _] = *take(&mut rest, 4) else { panic!("CONNECT is too short") };
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

/// The fields of a CONNECT with credentials.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions<'a> {
    pub client_id: &'a str,
    pub user: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    pub method: Option<&'a str>,
    pub data: Option<&'a [u8]>,
    /// Resumes the session, with a Session Expiry Interval of an hour.
    pub keeps_session: bool,
}

impl ConnectOptions<'_> {
    /// Encodes CONNECT without Keep Alive, and with Clean Start unless it resumes the session.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = if self.keeps_session { 0 } else { 0x02 };
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
        if self.keeps_session {
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

pub fn auth(reason: u8, method: Option<&str>, data: Option<&[u8]>) -> Vec<u8> {
    let properties = authentication(method, data);
    let mut body = vec![reason];
    body.extend(length(properties.len()));
    body.extend(properties);
    packet(0xF0, body)
}

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

/// Encodes CONNACK with encoded properties.
pub fn connack(reason: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = vec![0, reason, u8::try_from(properties.len()).unwrap()];
    body.extend_from_slice(properties);
    packet(0x20, body)
}

/// Encodes SUBSCRIBE to one filter with QoS 1.
pub fn subscribe(packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    body.extend(text(filter));
    body.push(1);
    packet(0x82, body)
}

/// Encodes SUBACK for one filter.
pub fn suback(packet_id: u16, reason: u8) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    packet(0x90, vec![high, low, 0, reason])
}

pub fn puback(packet_id: u16, reason: u8) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    packet(0x40, vec![high, low, reason, 0])
}

/// Encodes PUBLISH with QoS 0 and no properties.
pub fn publish_qos_0(topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = text(topic);
    body.push(0);
    body.extend_from_slice(payload);
    packet(0x30, body)
}

pub fn disconnect(reason: u8) -> Vec<u8> {
    packet(0xE0, vec![reason, 0])
}

impl Publish {
    pub fn user_property(&self, name: &str) -> Option<&str> {
        self.user_properties.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Encodes PUBLISH with QoS 1.
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

    /// Decodes a PUBLISH with QoS 1.
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

/// Encodes a UTF-8 string with its length.
pub fn text(text: &str) -> Vec<u8> {
    binary(text.as_bytes())
}

fn binary(bytes: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

/// Encodes a Variable Byte Integer.
pub fn length(len: usize) -> Vec<u8> {
    // The Remaining Length of a packet: all between its first byte and its body.
    let whole = packet(0, vec![0; len]);
    whole[1..whole.len() - len].to_vec()
}

/// Decodes a Variable Byte Integer: how many bytes it takes, and its value. `None` if it is incomplete or longer than
/// four bytes.
pub fn variable(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(4).enumerate() {
        number |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((place + 1, number));
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(len);
    *rest = left;
    taken
}

fn take_length(rest: &mut &[u8]) -> usize {
    let (length_bytes, len) = variable(rest).unwrap();
    take(rest, length_bytes);
    len
}

fn take_binary<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let len = take(rest, 2);
    take(rest, usize::from(u16::from_be_bytes([len[0], len[1]])))
}

fn take_text(rest: &mut &[u8]) -> String {
    String::from_utf8(take_binary(rest).to_vec()).unwrap()
}
