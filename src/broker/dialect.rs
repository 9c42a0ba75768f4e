//! The two versions of MQTT that are spoken here: whichever a client begins with, it goes on with.

use bytes::BytesMut;

use super::codec::{self, Accepted, Decoded, Unsendable};
use super::mqtt311;
use super::packet::Fault;
use super::publication::Delivery;
use super::publish;
use super::reason::Reason;
use crate::broker::wire::topic_aliases::Alias;
use crate::protocol::message::Qos;

/// A version of MQTT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtocolVersion {
    /// MQTT 5.
    #[default]
    Mqtt5,
    /// MQTT 3.1.1, without anything that came later.
    Mqtt311,
}

/// A PUBLISH as one connection sends it.
#[derive(Clone, Copy, Debug)]
pub struct Sending<'a> {
    /// What is sent.
    pub delivery: &'a Delivery,
    /// None for QoS 0.
    pub packet_id: Option<u16>,
    /// Whether it was sent before.
    pub dup: bool,
    /// What is left of its expiry interval, in seconds.
    pub expiry_s: Option<u32>,
    /// The alias to send it with.
    pub alias: Option<Alias>,
    /// The client's Maximum Packet Size, in bytes.
    pub bytes_max: Option<u32>,
}

impl ProtocolVersion {
    /// Takes the first packet off the start of `input`, whatever version it is of.
    ///
    /// # Errors
    ///
    /// As [`ProtocolVersion::decode`].
    pub fn decode_first(input: &mut BytesMut, bytes_max: u32) -> Result<Decoded, Fault> {
        if codec::missing(input, bytes_max)? == 0 && mqtt311::is_connect(input) {
            return Self::Mqtt311.decode(input, bytes_max);
        }
        Self::Mqtt5.decode(input, bytes_max)
    }

    /// Takes the packet off the start of `input`.
    ///
    /// # Errors
    ///
    /// A [`Fault`] when the bytes are no packet that a client may send, or one larger than `bytes_max`.
    pub fn decode(self, input: &mut BytesMut, bytes_max: u32) -> Result<Decoded, Fault> {
        match self {
            Self::Mqtt5 => codec::decode(input, bytes_max),
            Self::Mqtt311 => match codec::missing(input, bytes_max) {
                Ok(0) => {
                    let kept = input.capacity();
                    mqtt311::decode(input, |payload| codec::detached(payload, kept))
                }
                Ok(missing) => Ok(Decoded::Missing(missing)),
                Err(fault) => Err(Fault { dialect: self, ..fault }),
            },
        }
    }

    /// Writes the CONNACK of success.
    pub fn connack(self, accepted: Accepted, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_connack(accepted, output),
            Self::Mqtt311 => mqtt311::encode_connack(accepted.session_present, output),
        }
    }

    /// Writes the CONNACK of a refusal, with its reason in words where there is room for them.
    pub fn refusal(self, reason: Reason, text: &str, bytes_max: Option<u32>, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_refusal(reason, text, bytes_max, output),
            Self::Mqtt311 => mqtt311::encode_refusal(reason, output),
        }
    }

    /// Writes a PUBLISH.
    ///
    /// # Errors
    ///
    /// [`Unsendable`]; then nothing is written.
    pub fn publish(self, sending: Sending<'_>, output: &mut BytesMut) -> Result<(), Unsendable> {
        publish::encode(sending, self == Self::Mqtt5, output)
    }

    /// Writes a PUBACK.
    pub fn puback(self, packet_id: u16, reason: Reason, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_puback(packet_id, reason, output),
            Self::Mqtt311 => mqtt311::encode_acknowledgement(0x40, packet_id, output),
        }
    }

    /// Writes a PUBREC.
    pub fn pubrec(self, packet_id: u16, reason: Reason, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_pubrec(packet_id, reason, output),
            Self::Mqtt311 => mqtt311::encode_acknowledgement(0x50, packet_id, output),
        }
    }

    /// Writes a PUBREL; `is_known` is whether the packet id is under way.
    pub fn pubrel(self, packet_id: u16, is_known: bool, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_pubrel(packet_id, is_known, output),
            Self::Mqtt311 => mqtt311::encode_acknowledgement(0x62, packet_id, output),
        }
    }

    /// Writes a PUBCOMP; `is_known` is whether such a message had come in.
    pub fn pubcomp(self, packet_id: u16, is_known: bool, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_pubcomp(packet_id, is_known, output),
            Self::Mqtt311 => mqtt311::encode_acknowledgement(0x70, packet_id, output),
        }
    }

    /// Writes a SUBACK: per filter the granted QoS or why not.
    pub fn suback(self, packet_id: u16, results: &[Result<Qos, Reason>], output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_suback(packet_id, results, output),
            Self::Mqtt311 => mqtt311::encode_suback(packet_id, results, output),
        }
    }

    /// Writes an UNSUBACK: per filter what became of it.
    pub fn unsuback(self, packet_id: u16, results: &[Reason], output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_unsuback(packet_id, results, output),
            Self::Mqtt311 => mqtt311::encode_acknowledgement(0xB0, packet_id, output),
        }
    }

    /// Writes a DISCONNECT, where a server may send one.
    pub fn disconnect(self, reason: Reason, text: &str, bytes_max: Option<u32>, output: &mut BytesMut) {
        match self {
            Self::Mqtt5 => codec::encode_disconnect(reason, text, bytes_max, output),
            Self::Mqtt311 => {}
        }
    }
}
