//! An MQTT connection: encodes and decodes the session's packets, PUBLISH with `mqtt`, all others with the MQTT crate.

pub(super) mod handshake;
mod request_template;
mod trace_packets;

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use rumqttc::mqttbytes::{self, QoS, v5};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::authentication::FileRead;
use super::error::{LossCause, ReasonCode};
use super::outgoing_request::OutgoingRequest;
use super::packet::{Incoming, MalformedMessage, Outgoing};
use super::trace::{self, Packet, TraceEvent, Tracer};
use crate::mqtt::decode::SkippedPublish;
use crate::mqtt::packet::OutgoingPublish;
use crate::mqtt::{self, ProtocolVersion, decode, encode};
use crate::protocol::connection::K8S_SAT;
use crate::protocol::message::{Message, Qos};
use request_template::RequestTemplate;
use trace_packets::{suback_code, traced_auth};

/// The most that the input buffer grows at once. It grows with the received bytes, not to the announced length of a packet:
/// otherwise a broker could make the client allocate 256 MiB with five bytes.
const INPUT_STEP: usize = 256 * 1024;

/// The least room in the input buffer for a read; it grows as long as reads fill it.
const READ_BYTES_MIN: usize = 2048;
const READ_BYTES_MAX: usize = 64 * 1024;

/// An MQTT 5 connection that the broker has accepted.
pub(super) struct Connection {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    input: BytesMut,
    /// The room in the input buffer for the next read.
    read_bytes: usize,
    output: BytesMut,
    requests: Requests,
    /// The Maximum Packet Size of our CONNECT, in bytes.
    incoming_max: u32,
    /// The Maximum Packet Size of the broker's CONNACK, in bytes.
    outgoing_max: Option<u32>,
    tls: Option<&'static str>,
    /// Whether the stream buffers writes and must be flushed.
    is_buffered: bool,
    needs_flush: bool,
    /// The token of the CONNECT, until it is taken.
    token: Option<Box<FileRead>>,
    /// Whether the CONNECT requested a session that outlives the connection.
    is_persistent: bool,
    /// Whether the broker has resumed such a session.
    is_resumed: bool,
    /// Whether the broker accepts topic filters with wildcards.
    has_wildcards: bool,
    tracer: Option<Tracer>,
}

/// The requests of a connection so far. Many connections have one only, for which a template is not worth its making.
#[derive(Default)]
enum Requests {
    #[default]
    None,
    One,
    Many(Option<Box<RequestTemplate>>),
}

impl Requests {
    fn template(&mut self, request: &OutgoingRequest) -> Option<&mut RequestTemplate> {
        match self {
            Self::None => *self = Self::One,
            Self::One => *self = Self::Many(RequestTemplate::of(request).map(Box::new)),
            Self::Many(_) => {}
        }
        if let Self::Many(template) = self { template.as_deref_mut() } else { None }
    }
}

/// A packet of [`Connection::next_packet_or_malformed`].
pub(super) enum Received {
    Packet(Incoming),
    Malformed(MalformedMessage),
}

/// A request that is larger than the broker accepts. Sizes in bytes of the packet.
pub(super) struct TooLarge {
    pub(super) packet_id: u16,
    pub(super) size: usize,
    pub(super) max: usize,
}

impl Connection {
    /// Returns the token of the CONNECT, the first time that it is called.
    pub(super) fn take_token(&mut self) -> Option<FileRead> {
        self.token.take().map(|token| *token)
    }

    fn trace(&self, traced: impl FnOnce() -> TraceEvent) {
        trace::emit(self.tracer.as_ref(), traced);
    }

    /// Returns the TLS version; None without TLS.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        self.tls
    }

    /// Returns whether the broker has resumed a session of this client.
    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    pub(super) fn has_wildcards(&self) -> bool {
        self.has_wildcards
    }

    /// Returns the broker's Maximum Packet Size in bytes; None if it has no limit.
    pub(super) fn packet_bytes_max(&self) -> Option<u32> {
        self.outgoing_max
    }

    /// Writes or, if `read` is set, reads some bytes, whichever is possible first. Cancel safe.
    ///
    /// # Errors
    /// The error of the stream; `UnexpectedEof` at its end.
    pub(super) async fn transfer(&mut self, read: bool) -> io::Result<()> {
        self.input.reserve(self.read_bytes);
        let writes = self.output.has_remaining() || self.needs_flush;
        let needs_flush = self.is_buffered.then_some(&mut self.needs_flush);
        tokio::select! {
            written = write(&mut self.writer, &mut self.output, needs_flush), if writes => written,
            read = self.reader.read_buf(&mut self.input), if read => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if self.input.len() == self.input.capacity() {
                    self.read_bytes = self.read_bytes.saturating_mul(2).min(READ_BYTES_MAX);
                }
                Ok(())
            }
            else => std::future::pending().await,
        }
    }

    /// Returns whether another packet may be queued.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX
    }

    /// Encodes a packet to the output buffer.
    pub(super) fn queue(&mut self, outgoing: Outgoing) -> Result<(), TooLarge> {
        self.trace(|| TraceEvent::Sent(Packet::from(&outgoing)));
        let (packet_id, packet) = match outgoing {
            Outgoing::Request { packet_id, request } => return self.queue_request(packet_id, &request),
            Outgoing::Publish { packet_id, message } => {
                return self.queue_publish(packet_id, &message, false);
            }
            Outgoing::Subscribe { packet_id, filter } => {
                let filter = v5::SubscribeFilter::new(filter, QoS::AtLeastOnce);
                let subscribe = v5::Subscribe { pkid: packet_id, filters: vec![filter], properties: None };
                (packet_id, v5::Packet::Subscribe(subscribe))
            }
            Outgoing::Unsubscribe { packet_id, filter } => {
                let unsubscribe =
                    v5::Unsubscribe { pkid: packet_id, filters: vec![filter], properties: None };
                (packet_id, v5::Packet::Unsubscribe(unsubscribe))
            }
            Outgoing::PubAck { packet_id } => {
                encode::puback(ProtocolVersion::V5, packet_id, mqtt::ReasonCode::Success, &mut self.output);
                return Ok(());
            }
            Outgoing::Ping => (0, v5::Packet::PingReq),
            Outgoing::Authenticate { token } => {
                let properties = v5::AuthProperties {
                    method: Some(K8S_SAT.to_owned()),
                    data: Some(Bytes::copy_from_slice(token.bytes())),
                    ..v5::AuthProperties::default()
                };
                (0, v5::Packet::Auth(v5::Auth::new(v5::AuthReasonCode::ReAuthenticate, Some(properties))))
            }
        };
        let written = packet.write(&mut self.output, self.outgoing_max);
        written.map(|_| ()).map_err(|error| {
            let (size, max) = match error {
                mqttbytes::Error::OutgoingPacketTooLarge { pkt_size, max } => {
                    // Neither conversion fails on a platform with 32 bits or more.
                    (
                        usize::try_from(pkt_size).unwrap_or(usize::MAX),
                        usize::try_from(max).unwrap_or(usize::MAX),
                    )
                }
                // The only other error: the packet is larger than MQTT can encode.
                _ => (packet.size(), MQTT_PACKET_BYTES_MAX),
            };
            self.too_large(packet_id, size, max)
        })
    }

    /// Encodes a PUBLISH with QoS 1 to the output buffer. `is_duplicate`: it was sent before in this MQTT session.
    pub(super) fn queue_message(
        &mut self,
        packet_id: u16,
        message: &Message,
        is_duplicate: bool,
    ) -> Result<(), TooLarge> {
        self.trace(|| {
            TraceEvent::Sent(Packet::Publish { packet_id: Some(packet_id), message: message.clone() })
        });
        self.queue_publish(packet_id, message, is_duplicate)
    }

    fn queue_request(&mut self, packet_id: u16, request: &OutgoingRequest) -> Result<(), TooLarge> {
        let Self { requests, output, outgoing_max, .. } = self;
        match requests
            .template(request)
            .and_then(|template| template.put(packet_id, request, *outgoing_max, output))
        {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => self.queue_publish(packet_id, &request.message(), false),
        }
    }

    fn queue_publish(&mut self, packet_id: u16, message: &Message, dup: bool) -> Result<(), TooLarge> {
        let publish = request_template::publish(packet_id, message);
        let publish = OutgoingPublish { dup, bytes_max: self.outgoing_max, ..publish };
        encode::publish(ProtocolVersion::V5, &publish, &mut self.output).map_err(|_| {
            // Encoded without the limit, for its size. If that fails too, it is larger than MQTT can encode.
            let mut packet = BytesMut::new();
            let unlimited = OutgoingPublish { bytes_max: None, ..publish };
            let max = self.outgoing_max.and_then(|max| usize::try_from(max).ok());
            match encode::publish(ProtocolVersion::V5, &unlimited, &mut packet) {
                Ok(()) => self.too_large(packet_id, packet.len(), max.unwrap_or(MQTT_PACKET_BYTES_MAX)),
                Err(_) => self.too_large(packet_id, message.payload.len(), MQTT_PACKET_BYTES_MAX),
            }
        })
    }

    fn too_large(&self, packet_id: u16, size: usize, max: usize) -> TooLarge {
        self.trace(|| TraceEvent::TooLarge { size, max });
        TooLarge { packet_id, size, max }
    }

    /// Passes the responses on this topic at the start of the input to `handle`, then returns the next packet as
    /// [`Connection::next_packet`] does. That packet may be a response too, which is traced or has unusual properties.
    pub(super) fn next_packet_after_responses(
        &mut self,
        topic: &str,
        mut handle: impl FnMut(&decode::BorrowedResponse<'_>),
    ) -> Result<Option<Incoming>, LossCause> {
        while self.next_response(topic, &mut handle) {}
        self.next_packet()
    }

    /// Passes the response at the start of the input to `handle` and removes it. Returns whether there was one.
    fn next_response(&mut self, topic: &str, handle: impl FnOnce(&decode::BorrowedResponse<'_>)) -> bool {
        if self.tracer.is_some() {
            return false;
        }
        let Some(response) = decode::response_of_server(&self.input, topic, self.incoming_max) else {
            return false;
        };
        if response.payload.len() > RESPONSE_BYTES_MAX {
            return false;
        }
        handle(&response);
        let packet_bytes = response.packet_bytes;
        self.input.advance(packet_bytes);
        true
    }

    /// Returns the next packet that was received completely.
    ///
    /// # Errors
    /// The packet is malformed or unexpected, or the broker sent DISCONNECT.
    pub(super) fn next_packet(&mut self) -> Result<Option<Incoming>, LossCause> {
        // The crate's decoder rejects reason codes that it does not know.
        if let [DISCONNECT, 1..=0x7F, code, ..] = *self.input
            && v5::DisconnectReasonCode::try_from(code).is_err()
        {
            return Err(self.disconnected(ReasonCode { code, text: None }));
        }
        if decode::is_publish(&self.input) {
            return self.next_publish();
        }
        // That of a request: it succeeded, and has neither reason code nor properties.
        if let [PUBACK, 2, high, low, ..] = *self.input
            && let packet_id @ 1.. = u16::from_be_bytes([high, low])
        {
            self.input.advance(4);
            let incoming = Incoming::PubAck { packet_id, reason: ReasonCode { code: 0, text: None } };
            self.trace(|| TraceEvent::Received(Packet::from(&incoming)));
            return Ok(Some(incoming));
        }
        if let Some(puback) = self.unknown_puback()? {
            self.trace(|| TraceEvent::Received(Packet::from(&puback)));
            return Ok(Some(puback));
        }
        let first = self.input.first().copied();
        let Some(packet) = self.decode().map_err(|error| decoding_error(first, &error))? else {
            return Ok(None);
        };
        let incoming = match packet {
            v5::Packet::PubAck(ack) => {
                let text = ack.properties.and_then(|properties| properties.reason_string);
                Incoming::PubAck { packet_id: ack.pkid, reason: ReasonCode { code: ack.reason as u8, text } }
            }
            v5::Packet::SubAck(ack) => {
                let text = ack.properties.and_then(|properties| properties.reason_string);
                let code = ack.return_codes.first().map_or(0x80, |code| suback_code(*code));
                Incoming::SubAck { packet_id: ack.pkid, reason: ReasonCode { code, text } }
            }
            v5::Packet::UnsubAck(ack) => {
                let text = ack.properties.and_then(|properties| properties.reason_string);
                let code = ack.reasons.first().map_or(0x80, |reason| *reason as u8);
                Incoming::UnsubAck { packet_id: ack.pkid, reason: ReasonCode { code, text } }
            }
            v5::Packet::PingResp => Incoming::Pong,
            v5::Packet::Auth(auth) => {
                self.trace(|| TraceEvent::Received(traced_auth(&auth)));
                return match auth.code {
                    v5::AuthReasonCode::Success => Ok(Some(Incoming::Authenticated)),
                    // The method has one step: AUTH with "continue authentication" violates it.
                    _ => Err("unexpected authentication step".to_owned().into()),
                };
            }
            v5::Packet::Disconnect(disconnect) => {
                let properties = disconnect.properties;
                let (text, server) = properties.map_or((None, None), |properties| {
                    (properties.reason_string, properties.server_reference)
                });
                let reason = ReasonCode { code: disconnect.reason_code as u8, text }.with_server(server);
                return Err(self.disconnected(reason));
            }
            other => {
                let name = format!("{:?}", other.packet_type()).to_uppercase();
                self.trace(|| TraceEvent::Received(Packet::Other(name.clone())));
                return Err(format!("unexpected packet: {name}").into());
            }
        };
        self.trace(|| TraceEvent::Received(Packet::from(&incoming)));
        Ok(Some(incoming))
    }

    /// Returns a PUBACK whose reason code is none of this packet, and unknown to the crate's decoder. From 0x80 on, each is a
    /// failure (MQTT 5, 2.4), so the message has not been accepted. Of another one the effect is unknown.
    fn unknown_puback(&mut self) -> Result<Option<Incoming>, LossCause> {
        let [PUBACK, len @ 3..=0x7F, high, low, code, ..] = *self.input else { return Ok(None) };
        let (packet_id, bytes) = (u16::from_be_bytes([high, low]), usize::from(len).saturating_add(2));
        if packet_id == 0 || self.input.len() < bytes || v5::PubAckReason::try_from(code).is_ok() {
            return Ok(None);
        }
        let reason = ReasonCode { code, text: None };
        if code < FAILURE_MIN {
            return Err(format!("PUBACK with the unexpected reason code 0x{code:02X}").into());
        }
        self.input.advance(bytes);
        Ok(Some(Incoming::PubAck { packet_id, reason }))
    }

    /// As [`Connection::next_packet`], but skips a malformed PUBLISH whose topic and packet id can be read: a broker forwards
    /// properties that it does not look at, and would send the message again on the next connection.
    pub(super) fn next_packet_or_malformed(&mut self) -> Result<Option<Received>, LossCause> {
        let input_bytes = self.input.len();
        match self.next_packet() {
            Ok(incoming) => Ok(incoming.map(Received::Packet)),
            // A PUBLISH that cannot be decoded stays in the input. Other packets may have been removed.
            Err(LossCause::Other(text)) if self.input.len() == input_bytes => {
                let skipped = decode::skip_publish_of_server(&mut self.input, self.incoming_max);
                let Some(SkippedPublish { packet_id, topic }) = skipped else {
                    return Err(LossCause::Other(text));
                };
                self.trace(|| TraceEvent::Received(Packet::Other("PUBLISH".to_owned())));
                Ok(Some(Received::Malformed(MalformedMessage { packet_id, topic, text })))
            }
            Err(cause) => Err(cause),
        }
    }

    /// Decodes a PUBLISH. The MQTT crate copies each of its texts, which takes several times as long.
    fn next_publish(&mut self) -> Result<Option<Incoming>, LossCause> {
        let decoded = decode::publish_of_server(&mut self.input, self.incoming_max);
        let publish = match decoded.map_err(|error| format!("malformed packet: {}", error.text))? {
            Ok(publish) => publish,
            Err(missing) => {
                self.input.reserve(missing.min(INPUT_STEP));
                return Ok(None);
            }
        };
        if publish.message.qos == Qos::ExactlyOnce {
            return Err("message with QoS 2, which was not requested".to_owned().into());
        }
        let packet_id = (publish.packet_id != 0).then_some(publish.packet_id);
        let incoming = Incoming::Publish { packet_id, message: publish.message };
        self.trace(|| TraceEvent::Received(Packet::from(&incoming)));
        Ok(Some(incoming))
    }

    /// Traces a DISCONNECT and returns it as the cause of the loss.
    fn disconnected(&self, reason: ReasonCode) -> LossCause {
        self.trace(|| TraceEvent::Received(Packet::Disconnect { reason: reason.clone() }));
        LossCause::Disconnect(reason)
    }

    fn decode(&mut self) -> Result<Option<v5::Packet>, mqttbytes::Error> {
        // The crate requires a property length, which may be omitted (3.14.2.2.1).
        if let [DISCONNECT, 0x01, reason, ..] = *self.input {
            self.input.advance(3);
            let reason = v5::DisconnectReasonCode::try_from(reason)?;
            return Ok(Some(v5::Packet::Disconnect(v5::Disconnect::new(reason))));
        }
        // The crate requires a reason code, which may be omitted for success (3.15.2.1).
        if let [AUTH, 0x00, ..] = *self.input {
            self.input.advance(2);
            return Ok(Some(v5::Packet::Auth(v5::Auth::new(v5::AuthReasonCode::Success, None))));
        }
        match mqttbytes::check(self.input.iter(), Some(self.incoming_max)) {
            Ok(_) => {}
            Err(mqttbytes::Error::InsufficientBytes(missing)) => {
                self.input.reserve(missing.min(INPUT_STEP));
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        match v5::Packet::read(&mut self.input, Some(self.incoming_max)) {
            // The packet is complete, so a field of it is too long.
            Err(mqttbytes::Error::InsufficientBytes(_)) => Err(mqttbytes::Error::MalformedPacket),
            other => other.map(Some),
        }
    }

    /// Writes the queued packets and a DISCONNECT, which ends the session, and closes the stream.
    pub(super) async fn close(mut self) {
        let properties = self.is_persistent.then(|| v5::DisconnectProperties {
            session_expiry_interval: Some(0),
            reason_string: None,
            user_properties: Vec::new(),
            server_reference: None,
        });
        let reason_code = v5::DisconnectReasonCode::NormalDisconnection;
        let disconnect = v5::Disconnect { reason_code, properties };
        if v5::Packet::Disconnect(disconnect).write(&mut self.output, None).is_ok() {
            let reason = ReasonCode { code: 0, text: None };
            self.trace(|| TraceEvent::Sent(Packet::Disconnect { reason }));
            let _ = self.writer.write_all_buf(&mut self.output).await;
            let _ = self.writer.shutdown().await;
        }
    }
}

/// Returns the text of a decoder's error about a packet with this first byte. The crate's text for a reason code that the packet
/// does not have is about CONNACK, whatever the packet is.
fn decoding_error(first: Option<u8>, error: &mqttbytes::Error) -> String {
    let mqttbytes::Error::InvalidConnectReturnCode(code) = error else {
        return format!("malformed packet: {error}");
    };
    let name = match first.map(|first| first >> 4) {
        Some(2) => "CONNACK",
        Some(4) => "PUBACK",
        Some(5) => "PUBREC",
        Some(6) => "PUBREL",
        Some(7) => "PUBCOMP",
        Some(14) => "DISCONNECT",
        _ => "a packet",
    };
    format!("{name} with the unexpected reason code 0x{code:02X}")
}

/// Writes some bytes, and flushes a buffered stream. Cancel safe: `needs_flush` remembers an interrupted flush.
async fn write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    output: &mut BytesMut,
    needs_flush: Option<&mut bool>,
) -> io::Result<()> {
    if output.has_remaining() && writer.write_buf(output).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    if let Some(needs_flush) = needs_flush {
        *needs_flush = true;
        writer.flush().await?;
        *needs_flush = false;
    }
    Ok(())
}

/// The size of the output buffer at which no more packets are queued.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// The largest payload of a response that is passed on in place: [`Connection::next_packet`] may share the memory of a larger one.
const RESPONSE_BYTES_MAX: usize = 4096;
const PUBACK: u8 = 0x40;
/// The first reason code of a failure.
const FAILURE_MIN: u8 = 0x80;
/// The first bytes of packets whose decoding the crate gets wrong.
const DISCONNECT: u8 = 0xE0;
const AUTH: u8 = 0xF0;

/// The largest remaining length that four bytes can encode, and the fixed header.
const MQTT_PACKET_BYTES_MAX: usize = 268_435_455 + 5;
