//! The handshake of a connection: CONNECT, packets that are sent together with it, and CONNACK.

use std::io;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rumqttc::mqttbytes::v5;
use tokio::io::AsyncReadExt;
use tokio::time::timeout_at;

use super::trace_packets::{connack_code, traced_connack, traced_connect};
use super::{AUTH, Connection, DISCONNECT, READ_BYTES_MIN, Requests, TooLarge, decoding_error};
use crate::client::authentication::Credentials;
use crate::client::connect;
use crate::client::error::{Error, ReasonCode, UnsuitableCause, io_error_text};
use crate::client::packet::{ConnectionLimits, Outgoing};
use crate::client::probe::{ConnackProperties, ConnectionStep};
use crate::client::settings::Settings;
use crate::client::trace::{self, Packet, TraceEvent};
use crate::net::TlsError;
use crate::protocol::connection::K8S_SAT;

/// A connection whose CONNECT is the first packet of the output, before its CONNACK.
pub(in crate::client) struct Handshake {
    connection: Connection,
    /// The keep-alive of the CONNECT, in seconds.
    keep_alive_s: u16,
    deadline: Instant,
}

impl Handshake {
    /// Connects the stream.
    pub(in crate::client) async fn start(settings: &Settings) -> Result<Self, Error> {
        let after = settings.connect_timeout;
        let deadline = connect::deadline(after);
        let tracer = settings.tracer.clone();
        trace::emit(tracer.as_ref(), || TraceEvent::Connecting { target: settings.target.to_string() });
        let credentials = settings.authentication.read_credentials(&settings.secret_reader, after).await?;
        if let Credentials::Token(token) = &credentials {
            let sent = || Box::new(settings.authentication.sent_token(token));
            settings.probe.observe(|| ConnectionStep::TokenRead(sent()));
        }
        let stream = connect::open_stream(settings, deadline).await?;
        trace::emit(tracer.as_ref(), || TraceEvent::Connected {
            address: stream.address.map(|address| address.to_string()),
            tls: stream.tls,
            is_resumed: stream.is_resumed,
        });
        let mut connection = Connection {
            reader: stream.reader,
            writer: stream.writer,
            input: BytesMut::with_capacity(4096),
            read_bytes: READ_BYTES_MIN,
            output: BytesMut::with_capacity(1024),
            requests: Requests::default(),
            incoming_max: settings.packet_bytes_max,
            outgoing_max: None,
            tls: stream.tls,
            is_buffered: stream.is_buffered,
            needs_flush: false,
            token: None,
            is_persistent: !settings.session.expiry.is_zero(),
            is_resumed: false,
            has_wildcards: true,
            tracer,
        };
        let keep_alive_s = connection.queue_connect(settings, &credentials)?;
        if let Credentials::Token(token) = credentials {
            connection.token = Some(Box::new(token));
        }
        Ok(Self { connection, keep_alive_s, deadline })
    }

    /// Queues a packet behind the CONNECT. Not if the client authenticates with a token: only AUTH and DISCONNECT may follow a
    /// CONNECT with an authentication method before CONNACK (MQTT 5, 3.1.2.11.9).
    pub(in crate::client) fn queue(&mut self, outgoing: Outgoing) -> Result<(), TooLarge> {
        self.connection.queue(outgoing)
    }

    /// Sends the queued packets and waits for CONNACK.
    pub(in crate::client) async fn finish(
        mut self,
        settings: &Settings,
    ) -> Result<(Connection, ConnectionLimits), Error> {
        let late =
            |_| Error::NoConnack { target: settings.target.to_string(), after: settings.connect_timeout };
        let accepted = self.connection.receive_connack(settings, self.keep_alive_s);
        let limits = timeout_at(self.deadline.into(), accepted).await.map_err(late)??;
        Ok((self.connection, limits))
    }
}

impl Connection {
    /// Queues CONNECT, and returns its keep-alive in seconds.
    fn queue_connect(&mut self, settings: &Settings, credentials: &Credentials) -> Result<u16, Error> {
        let (method, token) = match credentials {
            Credentials::Token(token) => (Some(K8S_SAT.to_owned()), Some(token)),
            Credentials::None | Credentials::Password { .. } => (None, None),
        };
        let session = settings.session;
        let connect = v5::Connect {
            // The longest keep-alive that MQTT has, 18 hours, is the nearest to a longer one.
            keep_alive: u16::try_from(settings.keep_alive.as_secs()).unwrap_or(u16::MAX),
            client_id: settings.client_id.clone(),
            clean_start: session.is_clean,
            properties: Some(v5::ConnectProperties {
                // The longest expiry interval that MQTT has is no expiry.
                session_expiry_interval: Some(u32::try_from(session.expiry.as_secs()).unwrap_or(u32::MAX)),
                receive_maximum: Some(session.receive_max.max(1)).filter(|max| *max != RECEIVE_MAX_DEFAULT),
                max_packet_size: Some(settings.packet_bytes_max),
                authentication_method: method,
                authentication_data: token.map(|token| Bytes::copy_from_slice(token.secret.bytes())),
                ..v5::ConnectProperties::default()
            }),
        };
        let keep_alive_s = connect.keep_alive;
        self.trace(|| TraceEvent::Sent(Packet::Connect(traced_connect(&connect, credentials))));
        v5::Packet::Connect(connect, None, login(credentials))
            .write(&mut self.output, None)
            .map_err(|error| not_mqtt(settings, error.to_string()))?;
        Ok(keep_alive_s)
    }

    async fn receive_connack(
        &mut self,
        settings: &Settings,
        keep_alive_s: u16,
    ) -> Result<ConnectionLimits, Error> {
        loop {
            match detect_non_mqtt(&self.input) {
                None => {}
                Some(NonMqtt::Tls) => return Err(connect::tls_error(settings, TlsError::Required)),
                Some(NonMqtt::OldVersion) => return Err(unsuitable(settings, UnsuitableCause::Version)),
                Some(NonMqtt::Other(cause)) => return Err(not_mqtt(settings, cause)),
            }
            let first = self.input.first().copied();
            if let Some(packet) =
                self.decode().map_err(|error| not_mqtt(settings, decoding_error(first, &error)))?
            {
                return match packet {
                    v5::Packet::ConnAck(connack) => self.handle_connack(connack, keep_alive_s, settings),
                    other => {
                        let name = format!("{:?}", other.packet_type()).to_uppercase();
                        Err(not_mqtt(settings, format!("{name} instead of CONNACK")))
                    }
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
        connect::connect_error(settings, io_error_text(&error))
    }

    fn handle_connack(
        &mut self,
        connack: v5::ConnAck,
        keep_alive_s: u16,
        settings: &Settings,
    ) -> Result<ConnectionLimits, Error> {
        self.trace(|| TraceEvent::Received(traced_connack(&connack)));
        let properties = connack.properties.as_ref();
        if connack.code != v5::ConnectReturnCode::Success {
            let text = properties.and_then(|properties| properties.reason_string.clone());
            let server = properties.and_then(|properties| properties.server_reference.clone());
            let reason = ReasonCode { code: connack_code(connack.code), text }.with_server(server);
            let target = settings.target.to_string();
            let client_id = || format!("client id {}", settings.client_id);
            let identity =
                settings.credentials().or_else(|| reason.is_by_rules().then(client_id)).map(Into::into);
            let token = self.token.as_ref().map(|token| Box::new(settings.authentication.sent_token(token)));
            return Err(Error::Rejected { target, reason, identity, token });
        }
        if connack.session_present && settings.session.is_clean {
            // The connection must be closed (MQTT-3.2.2-4).
            return Err(not_mqtt(settings, "its CONNACK has a session after a clean start".to_owned()));
        }
        self.outgoing_max = properties.and_then(|properties| properties.max_packet_size);
        self.has_wildcards =
            properties.is_none_or(|properties| properties.wildcard_subscription_available != Some(0));
        self.is_resumed = connack.session_present;
        let keep_alive =
            properties.and_then(|properties| properties.server_keep_alive).unwrap_or(keep_alive_s);
        let receive_max =
            properties.and_then(|properties| properties.receive_max).unwrap_or(RECEIVE_MAX_DEFAULT);
        let limits = ConnectionLimits { receive_max, keep_alive: Duration::from_secs(keep_alive.into()) };
        settings.probe.observe(|| ConnectionStep::Accepted(Box::new(connack_properties(properties, limits))));
        // A request of QoS 1 would be answered with a DISCONNECT (3.2.2.3.4), so its outcome would be unknown.
        match properties.and_then(|properties| properties.max_qos) {
            Some(0) => Err(unsuitable(settings, UnsuitableCause::Qos)),
            _ => Ok(limits),
        }
    }
}

fn not_mqtt(settings: &Settings, cause: String) -> Error {
    Error::NotMqtt { target: settings.target.to_string(), cause }
}

fn unsuitable(settings: &Settings, cause: UnsuitableCause) -> Error {
    Error::Unsuitable { target: settings.target.to_string(), cause }
}

/// The Receive Maximum of a CONNECT or CONNACK without this property (3.1.2.11.3, 3.2.2.3.3).
const RECEIVE_MAX_DEFAULT: u16 = 65_535;
/// The first byte of a CONNACK. DISCONNECT and AUTH may follow a CONNECT, too.
const CONNACK: u8 = 0x20;

/// Returns what the other side speaks if its first bytes cannot be a response to CONNECT. Without this check the greetings
/// of many protocols would look like the beginning of a long packet, and the client would wait for the rest.
fn detect_non_mqtt(input: &[u8]) -> Option<NonMqtt> {
    const SHOWN_BYTES_MAX: usize = 32;
    const TLS_ALERT: u8 = 0x15;
    match input {
        [] => None,
        // A CONNACK without a property length: a broker that knows MQTT 3.1.1 only.
        [CONNACK, 2, ..] => Some(NonMqtt::OldVersion),
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
    /// MQTT before version 5.
    OldVersion,
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
