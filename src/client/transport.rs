//! An MQTT connection: encodes and decodes the session's packets with the MQTT crate.

mod trace_packets;

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rumqttc::mqttbytes::{self, QoS, v5};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout_at;

use super::authentication::{Credentials, FileRead};
use super::connect;
use super::error::{Error, LossCause, ReasonCode, io_error_text};
use super::packet::{ConnectionLimits, Incoming, Outgoing};
use super::probe::{ConnackProperties, ConnectionStep};
use super::settings::Settings;
use super::trace::{self, Packet, TraceEvent, Tracer};
use crate::net::TlsError;
use crate::protocol::connection::K8S_SAT;
use crate::protocol::message::{Message, PropertyText, Qos};
use trace_packets::{connack_code, suback_code, traced_auth, traced_connack, traced_connect};

/// The most that the input buffer grows at once. It grows with the received bytes, not to the announced length of a packet:
/// otherwise a broker could make the client allocate 256 MiB with five bytes.
const INPUT_STEP: usize = 256 * 1024;

/// The least room in the input buffer for a read.
const READ_BYTES_MIN: usize = 2048;

/// An MQTT 5 connection that the broker has accepted.
pub(super) struct Connection {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    input: BytesMut,
    output: BytesMut,
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
    tracer: Option<Tracer>,
}

/// A request that is larger than the broker accepts. Sizes in bytes of the packet.
pub(super) struct TooLarge {
    pub(super) packet_id: u16,
    pub(super) size: usize,
    pub(super) max: usize,
}

impl Connection {
    /// Connects and waits for CONNACK.
    pub(super) async fn open(settings: &Settings) -> Result<(Self, ConnectionLimits), Error> {
        let after = settings.connect_timeout;
        let deadline = connect::deadline(after);
        let target = settings.target.to_string();
        let tracer = settings.tracer.clone();
        trace::emit(tracer.as_ref(), || TraceEvent::Connecting { target: target.clone() });
        let mut credentials = settings.authentication.read(&settings.secret_reader, after).await?;
        let stream = connect::open_stream(settings, deadline).await?;
        trace::emit(tracer.as_ref(), || TraceEvent::Connected {
            address: stream.address.map(|address| address.to_string()),
            tls: stream.tls,
        });
        let mut connection = Self {
            reader: stream.reader,
            writer: stream.writer,
            input: BytesMut::with_capacity(4096),
            output: BytesMut::with_capacity(1024),
            incoming_max: settings.packet_bytes_max,
            outgoing_max: None,
            tls: stream.tls,
            is_buffered: stream.is_buffered,
            needs_flush: false,
            token: None,
            tracer,
        };
        let late = |_| Error::NoConnack { target: target.clone(), after };
        let exchange = connection.exchange_connect(settings, &credentials, &target);
        let limits = timeout_at(deadline.into(), exchange).await.map_err(late)??;
        if let Credentials::Token(token) = std::mem::replace(&mut credentials, Credentials::None) {
            connection.token = Some(Box::new(token));
        }
        Ok((connection, limits))
    }

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

    /// Sends CONNECT and waits for CONNACK. Clean start and session expiry 0: the broker stores no session for this client.
    async fn exchange_connect(
        &mut self,
        settings: &Settings,
        credentials: &Credentials,
        target: &str,
    ) -> Result<ConnectionLimits, Error> {
        let (method, token) = match credentials {
            Credentials::Token(token) => (Some(K8S_SAT.to_owned()), Some(token)),
            Credentials::None | Credentials::Password { .. } => (None, None),
        };
        let connect = v5::Connect {
            // The longest keep-alive that MQTT has, 18 hours, is the nearest to a longer one.
            keep_alive: u16::try_from(settings.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id: settings.client_id.clone(),
            clean_start: true,
            properties: Some(v5::ConnectProperties {
                session_expiry_interval: Some(0),
                max_packet_size: Some(settings.packet_bytes_max),
                authentication_method: method,
                authentication_data: token.map(|token| Bytes::copy_from_slice(token.secret.bytes())),
                ..v5::ConnectProperties::default()
            }),
        };
        let not_mqtt = |cause: String| Error::NotMqtt { target: target.to_owned(), cause };
        let keep_alive = connect.keep_alive;
        self.trace(|| TraceEvent::Sent(Packet::Connect(traced_connect(&connect, credentials))));
        v5::Packet::Connect(connect, None, login(credentials))
            .write(&mut self.output, None)
            .map_err(|error| not_mqtt(error.to_string()))?;
        loop {
            match detect_non_mqtt(&self.input) {
                None => {}
                Some(NonMqtt::Tls) => return Err(connect::tls_error(settings, TlsError::Required)),
                Some(NonMqtt::Other(cause)) => return Err(not_mqtt(cause)),
            }
            if let Some(packet) = self.decode().map_err(|error| not_mqtt(error.to_string()))? {
                return match packet {
                    v5::Packet::ConnAck(connack) => self.handle_connack(connack, keep_alive, settings),
                    other => Err(not_mqtt(format!("{:?} instead of CONNACK", other.packet_type()))),
                };
            }
            if let Err(error) = self.transfer(true).await {
                return Err(self.connect_error(settings, error).await);
            }
        }
    }

    /// Returns the error of a connection that was lost before CONNACK. In TLS 1.3 the broker verifies the client certificate
    /// after the client's handshake has ended. Its alert can be read even if writing has failed.
    async fn connect_error(&mut self, settings: &Settings, error: io::Error) -> Error {
        if let Some(tls) = &settings.tls
            && self.tls.is_some()
        {
            let mut cause = tls.tls_error(&error);
            while cause.is_none() {
                self.input.clear();
                match self.reader.read_buf(&mut self.input).await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => {
                        cause = tls.tls_error(&error);
                        break;
                    }
                }
            }
            if let Some(cause) = cause {
                return connect::tls_error(settings, cause);
            }
        }
        Error::Connect { target: settings.target.to_string(), cause: io_error_text(&error) }
    }

    fn handle_connack(
        &mut self,
        connack: v5::ConnAck,
        keep_alive: u16,
        settings: &Settings,
    ) -> Result<ConnectionLimits, Error> {
        self.trace(|| TraceEvent::Received(traced_connack(&connack)));
        let properties = connack.properties.as_ref();
        if connack.code != v5::ConnectReturnCode::Success {
            let text = properties.and_then(|properties| properties.reason_string.clone());
            let reason = ReasonCode { code: connack_code(connack.code), text };
            return Err(Error::Rejected { target: settings.target.to_string(), reason });
        }
        self.outgoing_max = properties.and_then(|properties| properties.max_packet_size);
        let keep_alive = properties.and_then(|properties| properties.server_keep_alive).unwrap_or(keep_alive);
        let receive_max =
            properties.and_then(|properties| properties.receive_max).unwrap_or(RECEIVE_MAX_DEFAULT);
        let limits = ConnectionLimits { receive_max, keep_alive: Duration::from_secs(keep_alive.into()) };
        settings.probe.observe(|| ConnectionStep::Accepted(Box::new(connack_properties(properties, limits))));
        Ok(limits)
    }

    /// Writes or, if `read` is set, reads some bytes, whichever is possible first. Cancel safe.
    ///
    /// # Errors
    /// The error of the stream; `UnexpectedEof` at its end.
    pub(super) async fn transfer(&mut self, read: bool) -> io::Result<()> {
        self.input.reserve(READ_BYTES_MIN);
        let writes = self.output.has_remaining() || self.needs_flush;
        let needs_flush = self.is_buffered.then_some(&mut self.needs_flush);
        tokio::select! {
            written = write(&mut self.writer, &mut self.output, needs_flush), if writes => written,
            read = self.reader.read_buf(&mut self.input), if read => {
                if read? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
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
            Outgoing::Publish { packet_id, message } => (packet_id, publish(packet_id, message)),
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
                (packet_id, v5::Packet::PubAck(v5::PubAck::new(packet_id, None)))
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
        let too_large = written.map(|_| ()).map_err(|error| match error {
            mqttbytes::Error::OutgoingPacketTooLarge { pkt_size, max } => {
                let (size, max) = (usize::try_from(pkt_size), usize::try_from(max));
                // Only for a message: neither conversion fails on a platform with 32 bits or more.
                TooLarge { packet_id, size: size.unwrap_or(usize::MAX), max: max.unwrap_or(usize::MAX) }
            }
            // The only other error: the packet is larger than MQTT can encode.
            _ => TooLarge { packet_id, size: packet.size(), max: MQTT_PACKET_BYTES_MAX },
        });
        if let Err(TooLarge { size, max, .. }) = too_large {
            self.trace(|| TraceEvent::TooLarge { size, max });
        }
        too_large
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
        let Some(packet) = self.decode().map_err(|error| format!("malformed packet: {error}"))? else {
            return Ok(None);
        };
        let incoming = match packet {
            v5::Packet::Publish(publish) => incoming_publish(publish)?,
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
                let text = disconnect.properties.and_then(|properties| properties.reason_string);
                return Err(self.disconnected(ReasonCode { code: disconnect.reason_code as u8, text }));
            }
            other => {
                let name = format!("{:?}", other.packet_type());
                self.trace(|| TraceEvent::Received(Packet::Other(name.to_uppercase())));
                return Err(format!("unexpected packet: {name}").into());
            }
        };
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

    /// Writes the queued packets and a DISCONNECT, and closes the stream.
    pub(super) async fn close(mut self) {
        let disconnect = v5::Disconnect::new(v5::DisconnectReasonCode::NormalDisconnection);
        if v5::Packet::Disconnect(disconnect).write(&mut self.output, None).is_ok() {
            let reason = ReasonCode { code: 0, text: None };
            self.trace(|| TraceEvent::Sent(Packet::Disconnect { reason }));
            let _ = self.writer.write_all_buf(&mut self.output).await;
            let _ = self.writer.shutdown().await;
        }
    }
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
/// The Receive Maximum of a CONNACK without this property (3.2.2.3.3).
const RECEIVE_MAX_DEFAULT: u16 = 65_535;
/// The first bytes of the packets that may follow a CONNECT.
const CONNACK: u8 = 0x20;
const DISCONNECT: u8 = 0xE0;
const AUTH: u8 = 0xF0;

/// The largest remaining length that four bytes can encode, and the fixed header.
const MQTT_PACKET_BYTES_MAX: usize = 268_435_455 + 5;

/// Returns what the other side speaks if its first bytes cannot be a response to CONNECT. Without this check the greetings
/// of many protocols would look like the beginning of a long packet, and the client would wait for the rest.
fn detect_non_mqtt(input: &[u8]) -> Option<NonMqtt> {
    const SHOWN_BYTES_MAX: usize = 32;
    const TLS_ALERT: u8 = 0x15;
    match input {
        [] => None,
        // A CONNACK without a property length: a broker that knows MQTT 3.1.1 only.
        [CONNACK, 2, ..] => Some(NonMqtt::Other("the broker supports older versions only".to_owned())),
        [CONNACK | DISCONNECT | AUTH, ..] => None,
        [TLS_ALERT, ..] => Some(NonMqtt::Tls),
        _ => {
            let shown = input.get(..SHOWN_BYTES_MAX).unwrap_or(input);
            Some(NonMqtt::Other(format!("received {}", shown.escape_ascii())))
        }
    }
}

/// A protocol other than MQTT 5.
enum NonMqtt {
    Tls,
    Other(String),
}

fn login(credentials: &Credentials) -> v5::ConnectAuth {
    match credentials {
        Credentials::None | Credentials::Token(_) => v5::ConnectAuth::None,
        Credentials::Password { username, password: None } => {
            v5::ConnectAuth::Username { username: username.clone() }
        }
        Credentials::Password { username, password: Some(password) } => v5::ConnectAuth::UsernamePassword {
            username: username.clone(),
            password: Bytes::copy_from_slice(password.bytes()),
        },
    }
}

fn publish(packet_id: u16, message: Message) -> v5::Packet {
    v5::Packet::Publish(v5::Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: message.retain,
        topic: message.topic.into(),
        pkid: packet_id,
        payload: message.payload,
        properties: Some(v5::PublishProperties {
            payload_format_indicator: message.payload_format,
            message_expiry_interval: message.expiry_s,
            topic_alias: None,
            response_topic: message.response_topic,
            correlation_data: message.correlation,
            user_properties: pairs(message.user_properties),
            subscription_identifiers: Vec::new(),
            content_type: message.content_type.map(PropertyText::into_owned),
        }),
    })
}

fn pairs<T: From<U>, U>(pairs: Vec<(U, U)>) -> Vec<(T, T)> {
    pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn incoming_publish(publish: v5::Publish) -> Result<Incoming, String> {
    let properties = publish.properties.unwrap_or_default();
    let topic = String::from_utf8(publish.topic.into()).map_err(|_| "topic is not UTF-8".to_owned())?;
    let qos = match publish.qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => return Err("message with QoS 2, which was not requested".to_owned()),
    };
    let message = Message {
        topic,
        payload: publish.payload,
        qos,
        retain: publish.retain,
        response_topic: properties.response_topic,
        correlation: properties.correlation_data,
        content_type: properties.content_type.map(Into::into),
        expiry_s: properties.message_expiry_interval,
        payload_format: properties.payload_format_indicator,
        user_properties: pairs(properties.user_properties),
    };
    Ok(Incoming::Publish { packet_id: (publish.pkid != 0).then_some(publish.pkid), message })
}

/// What a CONNACK grants.
fn connack_properties(
    properties: Option<&v5::ConnAckProperties>,
    limits: ConnectionLimits,
) -> ConnackProperties {
    let defaults = ConnackProperties {
        qos_max: 2,
        retain: true,
        packet_bytes_max: None,
        receive_max: limits.receive_max,
        session_expiry_s: 0,
        keep_alive: limits.keep_alive,
        assigned_id: None,
        topic_aliases_max: 0,
        wildcards: true,
        subscription_ids: true,
        shared_subscriptions: true,
    };
    let Some(properties) = properties else { return defaults };
    let is_available = |property: Option<u8>| property != Some(0);
    ConnackProperties {
        qos_max: properties.max_qos.unwrap_or(defaults.qos_max),
        retain: is_available(properties.retain_available),
        packet_bytes_max: properties.max_packet_size,
        session_expiry_s: properties.session_expiry_interval.unwrap_or(defaults.session_expiry_s),
        assigned_id: properties.assigned_client_identifier.clone(),
        topic_aliases_max: properties.topic_alias_max.unwrap_or(defaults.topic_aliases_max),
        wildcards: is_available(properties.wildcard_subscription_available),
        subscription_ids: is_available(properties.subscription_identifiers_available),
        shared_subscriptions: is_available(properties.shared_subscription_available),
        ..defaults
    }
}
