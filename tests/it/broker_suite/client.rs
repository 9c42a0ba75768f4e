//! A client that keeps to MQTT 5, for the steps of the suite.

use std::collections::VecDeque;

use crate::common::wire::{Packet, length, packet, text};
use crate::common::{Place, RawClient, Server};

pub const CLEAN: u8 = 0x02;
pub const RETAIN: u8 = 0x01;
pub const DUP: u8 = 0x08;

pub const NO_LOCAL: u8 = 0x04;
pub const RETAIN_AS_PUBLISHED: u8 = 0x08;
pub const RETAINED_IF_NEW: u8 = 0x10;
pub const RETAINED_NEVER: u8 = 0x20;

pub fn serve() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    (place, server)
}

/// A client that says and hears one packet after the other.
pub struct Client {
    pub raw: RawClient,
    next_id: u16,
    /// What came before what was waited for.
    heard: VecDeque<Packet>,
}

/// A PUBLISH that was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub flags: u8,
    pub topic: String,
    pub id: u16,
    pub properties: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Heard {
    pub fn qos(&self) -> u8 {
        self.flags >> 1 & 3
    }
}

impl Client {
    /// A client with these properties of its CONNECT, and a will's fields behind the client id; and its CONNACK's body.
    pub fn begin(server: &Server, id: &str, flags: u8, properties: &[u8], will: &[u8]) -> (Self, Vec<u8>) {
        let mut raw = RawClient::connect(server.port());
        let head = [&text("MQTT")[..], &[5, flags, 0, 0], &length(properties.len()), properties].concat();
        raw.send(&packet(0x10, [&head[..], &text(id), will].concat()));
        let connack = raw.receive().unwrap();
        assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
        (Self { raw, next_id: 1, heard: VecDeque::new() }, connack.body)
    }

    pub fn connect(server: &Server, id: &str) -> Self {
        Self::begin(server, id, CLEAN, b"", b"").0
    }

    /// With a session that lasts, and whether there was one.
    pub fn lasting(server: &Server, id: &str, properties: &[u8]) -> (Self, bool) {
        let properties = [b"\x11\0\0\x0e\x10", properties].concat();
        let (client, connack) = Self::begin(server, id, 0, &properties, b"");
        (client, connack[0] == 1)
    }

    pub fn receive(&mut self) -> Packet {
        self.heard.pop_front().unwrap_or_else(|| self.raw.receive().unwrap())
    }

    /// The PUBREL of a message, whatever comes before it.
    pub fn receive_pubrel(&mut self, id: u16) {
        loop {
            let packet = self.raw.receive().unwrap();
            if packet.name() == "PUBREL" {
                return assert_eq!(packet.packet_id(), id);
            }
            self.heard.push_back(packet);
        }
    }

    pub fn receive_publish(&mut self) -> Heard {
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
        Heard { flags, topic, id, properties: properties.to_vec(), payload: payload.to_vec() }
    }

    /// The payloads of the next messages, each acknowledged.
    pub fn receive_payloads(&mut self, count: usize) -> Vec<String> {
        let mut payloads = Vec::new();
        for _ in 0..count {
            let heard = self.receive_publish();
            self.acknowledge(&heard);
            payloads.push(String::from_utf8(heard.payload).unwrap());
        }
        payloads
    }

    pub fn acknowledge(&mut self, heard: &Heard) {
        let id = heard.id.to_be_bytes();
        match heard.qos() {
            0 => {}
            1 => self.raw.send(&packet(0x40, id.to_vec())),
            _ => {
                self.raw.send(&packet(0x50, id.to_vec()));
                self.receive_pubrel(heard.id);
                self.raw.send(&packet(0x70, id.to_vec()));
            }
        }
    }

    /// Nothing is on its way: the answer to a ping is the next packet.
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

    /// Publishes and waits until it is done.
    pub fn publish(&mut self, flags: u8, topic: &str, payload: &str) {
        self.send_publish(flags, topic, b"", payload.as_bytes());
        match flags >> 1 & 3 {
            0 => self.expect_nothing(),
            1 => assert_eq!(self.receive().name(), "PUBACK"),
            _ => {
                let pubrec = self.receive();
                assert_eq!(pubrec.name(), "PUBREC");
                self.raw.send(&packet(0x62, pubrec.body[..2].to_vec()));
                assert_eq!(self.receive().name(), "PUBCOMP");
            }
        }
    }

    /// The reason for a filter, with these options; an identifier of 0 is none.
    pub fn subscribe_with(&mut self, filter: &str, options: u8, identifier: u8) -> u8 {
        let id = self.id();
        let properties: &[u8] = if identifier == 0 { b"" } else { &[0x0B, identifier] };
        let body = [&id[..], &length(properties.len()), properties, &text(filter), &[options]].concat();
        self.raw.send(&packet(0x82, body));
        let suback = self.receive();
        assert_eq!((suback.name(), &suback.body[..3]), ("SUBACK", &[id[0], id[1], 0][..]));
        suback.body[3]
    }

    pub fn subscribe(&mut self, filter: &str, options: u8) {
        assert_eq!(self.subscribe_with(filter, options, 0), options & 3);
    }

    pub fn unsubscribe(&mut self, filter: &str) -> u8 {
        let id = self.id();
        self.raw.send(&packet(0xA2, [&id[..], &[0], &text(filter)].concat()));
        let unsuback = self.receive();
        assert_eq!((unsuback.name(), &unsuback.body[..3]), ("UNSUBACK", &[id[0], id[1], 0][..]));
        unsuback.body[3]
    }

    /// Says goodbye with these properties, and waits until the broker has closed.
    pub fn leave(mut self, properties: &[u8]) {
        self.raw.send(&packet(0xE0, [&[0][..], &length(properties.len()), properties].concat()));
        assert_eq!(self.raw.receive(), None);
    }

    /// The reason why the broker disconnects.
    pub fn disconnected(mut self) -> u8 {
        let packet = self.receive();
        assert_eq!((packet.name(), self.raw.receive()), ("DISCONNECT", None));
        packet.body[0]
    }
}
