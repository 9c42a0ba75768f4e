//! Bytes of a connection to and from the session's packets; with what is below, all that names the MQTT crate on this
//! side.

mod traced;

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rumqttc::mqttbytes::{self, QoS, v5};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout_at;

use super::authentication::{Credentials, FileRead, SecretFiles};
use super::dial::{self, explain};
use super::error::{Error, LossCause, ReasonCode};
use super::packet::{Granted, Incoming, Outgoing};
use super::settings::Settings;
use super::trace::{self, Packet, Traced, Tracer};
use crate::client::probe::{ConnackProperties, ConnectionStep};
use crate::net::TlsError;
use crate::protocol::connection::K8S_SAT;
use crate::protocol::message::{Message, PropertyText, Qos};
use traced::{auth_seen, connack_code, connack_seen, connect_seen, suback_code};

/// How much the input may grow ahead of the bytes that have come: an announced length is not yet a reason to allocate.
const INPUT_STEP: usize = 256 * 1024;

/// The least room for a read.
const READ_BYTES_MIN: usize = 2048;

/// An MQTT 5 connection that the broker has accepted.
pub(super) struct Connection {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    input: BytesMut,
    output: BytesMut,
    /// The largest packet that we announced to take, in bytes.
    incoming_max: u32,
    /// The largest packet that the broker takes, in bytes.
    outgoing_max: Option<u32>,
    tls: Option<&'static str>,
    /// Whether the stream keeps what the socket does not take at once.
    holds_back: bool,
    is_held_back: bool,
    /// The token that the broker was shown.
    token: Option<Box<FileRead>>,
    tracer: Option<Tracer>,
}

/// A request larger than the broker takes.
pub(super) struct TooLarge {
    pub(super) packet_id: u16,
    pub(super) size: usize,
    pub(super) max: usize,
}

impl Connection {
    /// Connects and waits for the broker's word.
    pub(super) async fn open(settings: &Settings, files: &SecretFiles) -> Result<(Self, Granted), Error> {
        let after = settings.connect_timeout;
        let deadline = dial::deadline(after);
        let target = settings.target.to_string();
        let tracer = settings.tracer.clone();
        trace::tell(tracer.as_ref(), || Traced::Connecting { target: target.clone() });
        let mut credentials = settings.authentication.read(files, after).await?;
        let line = dial::dial(settings, deadline).await?;
        trace::tell(tracer.as_ref(), || Traced::Connected {
            address: line.address.map(|address| address.to_string()),
            tls: line.tls,
        });
        let mut connection = Self {
            reader: line.reader,
            writer: line.writer,
            input: BytesMut::with_capacity(4096),
            output: BytesMut::with_capacity(1024),
            incoming_max: settings.packet_bytes_max,
            outgoing_max: None,
            tls: line.tls,
            holds_back: line.holds_back,
            is_held_back: false,
            token: None,
            tracer,
        };
        let late = |_| Error::NoConnack { target: target.clone(), after };
        let introduction = connection.introduce(settings, &credentials, &target);
        let granted = timeout_at(deadline.into(), introduction).await.map_err(late)??;
        if let Credentials::Token(token) = std::mem::replace(&mut credentials, Credentials::None) {
            connection.token = Some(Box::new(token));
        }
        Ok((connection, granted))
    }

    /// The token that the broker was shown, if any.
    pub(super) fn take_token(&mut self) -> Option<FileRead> {
        self.token.take().map(|token| *token)
    }

    fn tell(&self, traced: impl FnOnce() -> Traced) {
        trace::tell(self.tracer.as_ref(), traced);
    }

    /// The version of TLS on this connection, if any.
    pub(super) fn tls_version(&self) -> Option<&'static str> {
        self.tls
    }

    /// CONNECT and CONNACK. Clean start and session expiry 0: the broker keeps nothing of us.
    async fn introduce(
        &mut self,
        settings: &Settings,
        credentials: &Credentials,
        target: &str,
    ) -> Result<Granted, Error> {
        let (method, token) = match credentials {
            Credentials::Token(token) => (Some(K8S_SAT.to_owned()), Some(token)),
            Credentials::None | Credentials::Password { .. } => (None, None),
        };
        let connect = v5::Connect {
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
        self.tell(|| Traced::Sent(Packet::Connect(connect_seen(&connect, credentials))));
        v5::Packet::Connect(connect, None, login(credentials))
            .write(&mut self.output, None)
            .map_err(|error| not_mqtt(error.to_string()))?;
        loop {
            match stranger(&self.input) {
                None => {}
                Some(Stranger::Tls) => {
                    return Err(dial::of_tls(settings, TlsError::Required));
                }
                Some(Stranger::Other(cause)) => return Err(not_mqtt(cause)),
            }
            if let Some(packet) = self.decode().map_err(|error| not_mqtt(error.to_string()))? {
                return match packet {
                    v5::Packet::ConnAck(connack) => self.accept(connack, keep_alive, settings),
                    other => Err(not_mqtt(format!("it answered CONNECT with {:?}", other.packet_type()))),
                };
            }
            if let Err(error) = self.turn(true).await {
                return Err(self.failure(settings, error).await);
            }
        }
    }

    /// What ended the connection before CONNACK. In TLS 1.3 the handshake is over for a client before the broker has
    /// seen its certificate; what the broker says of it can be read, even where writing has failed.
    async fn failure(&mut self, settings: &Settings, error: io::Error) -> Error {
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
                return dial::of_tls(settings, cause);
            }
        }
        Error::Connect { target: settings.target.to_string(), cause: explain(&error) }
    }

    fn accept(
        &mut self,
        connack: v5::ConnAck,
        keep_alive: u16,
        settings: &Settings,
    ) -> Result<Granted, Error> {
        self.tell(|| Traced::Received(connack_seen(&connack)));
        let properties = connack.properties.as_ref();
        if connack.code != v5::ConnectReturnCode::Success {
            let text = properties.and_then(|properties| properties.reason_string.clone());
            let reason = ReasonCode { code: connack_code(connack.code), text };
            return Err(Error::Rejected { target: settings.target.to_string(), reason });
        }
        self.outgoing_max = properties.and_then(|properties| properties.max_packet_size);
        let keep_alive = properties.and_then(|properties| properties.server_keep_alive).unwrap_or(keep_alive);
        let receive_max = properties.and_then(|properties| properties.receive_max).unwrap_or(u16::MAX);
        let granted = Granted { receive_max, keep_alive: Duration::from_secs(keep_alive.into()) };
        settings.probe.observe(|| ConnectionStep::Accepted(Box::new(terms(properties, granted))));
        Ok(granted)
    }

    /// Writes or, if asked to, reads some bytes, whichever comes first. May be dropped at any time.
    ///
    /// # Errors
    /// Whatever ended the connection; its end is an `UnexpectedEof`.
    pub(super) async fn turn(&mut self, read: bool) -> io::Result<()> {
        self.input.reserve(READ_BYTES_MIN);
        let writes = self.output.has_remaining() || self.is_held_back;
        let held_back = self.holds_back.then_some(&mut self.is_held_back);
        tokio::select! {
            written = write(&mut self.writer, &mut self.output, held_back), if writes => written,
            read = self.reader.read_buf(&mut self.input), if read => {
                if read? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
            }
            else => std::future::pending().await,
        }
    }

    /// Whether more packets may be queued before some are written.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < OUTPUT_BYTES_MAX
    }

    /// Puts a packet behind those that wait to be written.
    pub(super) fn queue(&mut self, outgoing: Outgoing) -> Result<(), TooLarge> {
        self.tell(|| Traced::Sent(Packet::from(&outgoing)));
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
                TooLarge { packet_id, size: size.unwrap_or(usize::MAX), max: max.unwrap_or(usize::MAX) }
            }
            // What is left is more than MQTT itself can carry.
            _ => TooLarge { packet_id, size: packet.size(), max: MQTT_PACKET_BYTES_MAX },
        });
        if let Err(TooLarge { size, max, .. }) = too_large {
            self.tell(|| Traced::TooLarge { size, max });
        }
        too_large
    }

    /// The next packet that has come whole, if any.
    ///
    /// # Errors
    /// What is wrong with the broker's bytes, or why it ended the connection.
    pub(super) fn next_packet(&mut self) -> Result<Option<Incoming>, LossCause> {
        // The crate does not know all the reasons that a broker may have.
        if let [DISCONNECT, 1..=0x7F, code, ..] = *self.input
            && v5::DisconnectReasonCode::try_from(code).is_err()
        {
            return Err(self.ended(ReasonCode { code, text: None }));
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
                self.tell(|| Traced::Received(auth_seen(&auth)));
                return match auth.code {
                    v5::AuthReasonCode::Success => Ok(Some(Incoming::Authenticated)),
                    // A token is all that there is to say.
                    _ => Err("the broker wants more than a token".to_owned().into()),
                };
            }
            v5::Packet::Disconnect(disconnect) => {
                let text = disconnect.properties.and_then(|properties| properties.reason_string);
                return Err(self.ended(ReasonCode { code: disconnect.reason_code as u8, text }));
            }
            other => {
                let name = format!("{:?}", other.packet_type());
                self.tell(|| Traced::Received(Packet::Other(name.to_uppercase())));
                return Err(format!("unexpected packet: {name}").into());
            }
        };
        self.tell(|| Traced::Received(Packet::from(&incoming)));
        Ok(Some(incoming))
    }

    /// What a DISCONNECT means.
    fn ended(&self, reason: ReasonCode) -> LossCause {
        self.tell(|| Traced::Received(Packet::Disconnect { reason: reason.clone() }));
        LossCause::Ended(reason)
    }

    fn decode(&mut self) -> Result<Option<v5::Packet>, mqttbytes::Error> {
        // The crate wants a property length even where MQTT lets it be left out (3.14.2.2.1).
        if let [DISCONNECT, 0x01, reason, ..] = *self.input {
            self.input.advance(3);
            let reason = v5::DisconnectReasonCode::try_from(reason)?;
            return Ok(Some(v5::Packet::Disconnect(v5::Disconnect::new(reason))));
        }
        // Nor does it let success be said by saying nothing (3.15.2.1).
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
            // The packet has come whole: what is missing within it will never come.
            Err(mqttbytes::Error::InsufficientBytes(_)) => Err(mqttbytes::Error::MalformedPacket),
            other => other.map(Some),
        }
    }

    /// Says goodbye, after everything that waits to be written.
    pub(super) async fn close(mut self) {
        let disconnect = v5::Disconnect::new(v5::DisconnectReasonCode::NormalDisconnection);
        if v5::Packet::Disconnect(disconnect).write(&mut self.output, None).is_ok() {
            let reason = ReasonCode { code: 0, text: None };
            self.tell(|| Traced::Sent(Packet::Disconnect { reason }));
            let _ = self.writer.write_all_buf(&mut self.output).await;
            let _ = self.writer.shutdown().await;
        }
    }
}

/// Writes some bytes; what the stream holds back goes out, too. May be dropped at any time.
async fn write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    output: &mut BytesMut,
    held_back: Option<&mut bool>,
) -> io::Result<()> {
    if output.has_remaining() && writer.write_buf(output).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    if let Some(is_held_back) = held_back {
        *is_held_back = true;
        writer.flush().await?;
        *is_held_back = false;
    }
    Ok(())
}

/// How much may wait to be written before no more is queued.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// The first bytes of the packets that may answer CONNECT.
const CONNACK: u8 = 0x20;
const DISCONNECT: u8 = 0xE0;
const AUTH: u8 = 0xF0;

/// What four bytes of remaining length can say, and the fixed header.
const MQTT_PACKET_BYTES_MAX: usize = 268_435_455 + 5;

/// What speaks there, if its first bytes cannot begin an answer to CONNECT. Many a greeting looks like the beginning of
/// a packet that never ends.
fn stranger(input: &[u8]) -> Option<Stranger> {
    /// As much of a greeting as says whose it is.
    const SHOWN_BYTES_MAX: usize = 32;
    const TLS_ALERT: u8 = 0x15;
    match input {
        [] => None,
        // Without a property length: a broker that answers MQTT 5 in its own older words.
        [CONNACK, 2, ..] => Some(Stranger::Other("it speaks an older MQTT only".to_owned())),
        [CONNACK | DISCONNECT | AUTH, ..] => None,
        [TLS_ALERT, ..] => Some(Stranger::Tls),
        _ => {
            let shown = input.get(..SHOWN_BYTES_MAX).unwrap_or(input);
            Some(Stranger::Other(format!("it says {}", shown.escape_ascii())))
        }
    }
}

/// Whoever answers CONNECT with something else.
enum Stranger {
    Tls,
    Other(String),
}

/// User name and password of a CONNECT.
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
    let topic =
        String::from_utf8(publish.topic.into()).map_err(|_| "a topic that is not UTF-8".to_owned())?;
    let qos = match publish.qos {
        QoS::AtMostOnce => Qos::AtMostOnce,
        QoS::AtLeastOnce => Qos::AtLeastOnce,
        QoS::ExactlyOnce => return Err("a message of QoS 2, which nobody asked for".to_owned()),
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
fn terms(properties: Option<&v5::ConnAckProperties>, granted: Granted) -> ConnackProperties {
    let unsaid = ConnackProperties {
        qos_max: 2,
        retain: true,
        packet_bytes_max: None,
        receive_max: granted.receive_max,
        session_expiry_s: 0,
        keep_alive: granted.keep_alive,
        assigned_id: None,
        topic_aliases_max: 0,
        wildcards: true,
        subscription_ids: true,
        shared_subscriptions: true,
    };
    let Some(properties) = properties else { return unsaid };
    let is_available = |property: Option<u8>| property != Some(0);
    ConnackProperties {
        qos_max: properties.max_qos.unwrap_or(unsaid.qos_max),
        retain: is_available(properties.retain_available),
        packet_bytes_max: properties.max_packet_size,
        session_expiry_s: properties.session_expiry_interval.unwrap_or(unsaid.session_expiry_s),
        assigned_id: properties.assigned_client_identifier.clone(),
        topic_aliases_max: properties.topic_alias_max.unwrap_or(unsaid.topic_aliases_max),
        wildcards: is_available(properties.wildcard_subscription_available),
        subscription_ids: is_available(properties.subscription_identifiers_available),
        shared_subscriptions: is_available(properties.shared_subscription_available),
        ..unsaid
    }
}
