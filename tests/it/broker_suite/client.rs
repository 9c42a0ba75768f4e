//! An MQTT 5 client that sends and receives one packet at a time.

use std::collections::VecDeque;

use crate::common::wire::{self, Packet, length, packet, text};
use crate::common::{Place, RawClient, Server};

pub const CLEAN: u8 = 0x02;
pub const RETAIN: u8 = 0x01;
pub const DUP: u8 = 0x08;

pub fn serve() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    (place, server)
}

pub struct Client {
    pub raw: RawClient,
    next_id: u16,
    /// Packets that arrived before an awaited one.
    pending: VecDeque<Packet>,
}

/// A received PUBLISH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub flags: u8,
    pub topic: String,
    pub id: u16,
    pub properties: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Message {
    pub fn qos(&self) -> u8 {
        self.flags >> 1 & 3
    }
}

impl Client {
    /// Connects with encoded properties and the encoded fields of a will.
    pub fn connect_with(server: &Server, id: &str, flags: u8, properties: &[u8], will: &[u8]) -> Self {
        let mut raw = RawClient::connect(server.port());
        let head = [&text("MQTT")[..], &[5, flags, 0, 0], &length(properties.len()), properties].concat();
        raw.send(&packet(0x10, [&head[..], &text(id), will].concat()));
        let connack = raw.receive().unwrap();
        assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
        Self { raw, next_id: 1, pending: VecDeque::new() }
    }

    pub fn connect(server: &Server, id: &str) -> Self {
        Self::connect_with(server, id, CLEAN, b"", b"")
    }

    /// Connects without Clean Start and with a Session Expiry Interval of an hour.
    pub fn resume(server: &Server, id: &str) -> Self {
        Self::connect_with(server, id, 0, b"\x11\0\0\x0e\x10", b"")
    }

    pub fn receive(&mut self) -> Packet {
        self.pending.pop_front().unwrap_or_else(|| self.raw.receive().unwrap())
    }

    /// Waits for the PUBREL of a message and keeps the packets before it.
    pub fn receive_pubrel(&mut self, id: u16) {
        loop {
            let packet = self.raw.receive().unwrap();
            if packet.name() == "PUBREL" {
                return assert_eq!(packet.packet_id(), id);
            }
            self.pending.push_back(packet);
        }
    }

    pub fn receive_publish(&mut self) -> Message {
        let packet = self.receive();
        assert_eq!(packet.name(), "PUBLISH", "{packet:?}");
        let (flags, body) = (packet.first & 0x0F, &packet.body[..]);
        let field = usize::from(u16::from_be_bytes([body[0], body[1]]));
        let (topic, mut rest) = (String::from_utf8(body[2..2 + field].to_vec()).unwrap(), &body[2 + field..]);
        let mut id = 0;
        if flags & 6 != 0 {
            id = u16::from_be_bytes([rest[0], rest[1]]);
            rest = &rest[2..];
        }
        let (properties, payload) = rest[1..].split_at(usize::from(rest[0]));
        Message { flags, topic, id, properties: properties.to_vec(), payload: payload.to_vec() }
    }

    /// Waits for messages, acknowledges them and returns their payloads.
    pub fn receive_payloads(&mut self, count: usize) -> Vec<String> {
        let mut payloads = Vec::new();
        for _ in 0..count {
            let message = self.receive_publish();
            self.acknowledge(&message);
            payloads.push(String::from_utf8(message.payload).unwrap());
        }
        payloads
    }

    pub fn acknowledge(&mut self, message: &Message) {
        let id = message.id.to_be_bytes();
        match message.qos() {
            0 => {}
            1 => self.raw.send(&packet(0x40, id.to_vec())),
            _ => {
                self.raw.send(&packet(0x50, id.to_vec()));
                self.receive_pubrel(message.id);
                self.raw.send(&packet(0x70, id.to_vec()));
            }
        }
    }

    /// Asserts that no packet is in flight: PINGRESP is the next one.
    pub fn expect_nothing(&mut self) {
        self.raw.send(&[0xC0, 0]);
        assert_eq!(self.receive().name(), "PINGRESP");
    }

    pub fn id(&mut self) -> [u8; 2] {
        self.next_id += 1;
        self.next_id.to_be_bytes()
    }

    pub fn send_publish(&mut self, flags: u8, topic: &str, properties: &[u8], payload: &[u8]) {
        let mut body = text(topic);
        if flags & 6 != 0 {
            body.extend(self.id());
        }
        body.extend(length(properties.len()));
        body.extend([properties, payload].concat());
        self.raw.send(&packet(0x30 | flags, body));
    }

    /// Publishes a message at QoS 2 and completes its handshake.
    pub fn publish(&mut self, topic: &str, payload: &str) {
        self.send_publish(4, topic, b"", payload.as_bytes());
        let pubrec = self.receive();
        assert_eq!(pubrec.name(), "PUBREC");
        self.raw.send(&packet(0x62, pubrec.body[..2].to_vec()));
        assert_eq!(self.receive().name(), "PUBCOMP");
    }

    /// Subscribes to a filter, at this QoS.
    pub fn subscribe(&mut self, filter: &str, qos: u8) {
        let id = self.id();
        self.raw.send(&packet(0x82, [&id[..], &[0], &text(filter), &[qos]].concat()));
        let suback = self.receive();
        assert_eq!((suback.name(), &suback.body[..]), ("SUBACK", &[id[0], id[1], 0, qos][..]));
    }

    /// Sends DISCONNECT and waits until the broker has closed the connection.
    pub fn disconnect(mut self) {
        self.raw.send(&wire::disconnect(0));
        assert_eq!(self.raw.receive(), None);
    }
}
