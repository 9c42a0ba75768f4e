//! Detection of the protocol on a port where the expected one failed: plain MQTT, of version 5 or before, or TLS.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::connect::{connect_tcp, deadline};
use super::error::{Error, UnsuitableCause};
use super::probe::ConnectionProbe;
use super::settings::{Settings, Target};
use crate::net::tls::client::HandshakeError;
use crate::net::tls::{ClientTls, TlsError, TlsOptions};

/// Time limit of the detection. The first error is useful without it.
const WITHIN: Duration = Duration::from_secs(3);
/// A CONNECT with clean start and an empty client id.
const CONNECT: &[u8] = b"\x10\x0D\0\x04MQTT\x05\x02\0\x0A\0\0\0";
/// The same of MQTT 3.1.1.
const CONNECT_3_1_1: &[u8] = b"\x10\x0C\0\x04MQTT\x04\x02\0\x0A\0\0";
const CONNACK: u8 = 0x20;
/// A DISCONNECT with the reason "normal disconnection".
const DISCONNECT: &[u8] = b"\xE0\0";

/// Returns a more precise error for a connection that was made and then closed, if the port speaks TLS where plain MQTT was
/// expected, or the other way round, or older versions of MQTT only. Otherwise returns `error`.
///
/// It makes further connections, because most brokers close the first one without an answer.
pub async fn detect_protocol(settings: &Settings, error: Error) -> Error {
    let Target::Tcp { host, port } = &settings.target else { return error };
    if settings.web_socket.is_some() {
        return error;
    }
    let settings = Settings { probe: ConnectionProbe::default(), ..settings.clone() };
    let within = WITHIN.min(settings.connect_timeout);
    let is_detected = |result: Result<Option<()>, _>| matches!(result, Ok(Some(())));
    match error {
        Error::Connect { ref target, .. } if settings.tls.is_none() => {
            let detection = detect_other_than_mqtt_5(host, *port, &settings, target.clone());
            timeout(within, detection).await.ok().flatten().unwrap_or(error)
        }
        Error::Tls { target, cause: TlsError::Interrupted(_), .. }
            if is_detected(timeout(within, detect_mqtt(host, *port, &settings, CONNECT)).await) =>
        {
            Error::Tls { target, cause: TlsError::NotTls, in_web_socket: false }
        }
        error => error,
    }
}

async fn detect_other_than_mqtt_5(
    host: &str,
    port: u16,
    settings: &Settings,
    target: String,
) -> Option<Error> {
    if detect_tls(host, port, settings).await.is_some() {
        return Some(Error::Tls { target, cause: TlsError::Required, in_web_socket: false });
    }
    // Both without credentials: a broker may reject those of the client without an answer.
    if detect_mqtt(host, port, settings, CONNECT).await.is_some() {
        return None;
    }
    detect_mqtt(host, port, settings, CONNECT_3_1_1).await?;
    Some(Error::Unsuitable { target, cause: UnsuitableCause::Version })
}

async fn detect_tls(host: &str, port: u16, settings: &Settings) -> Option<()> {
    // No data is sent on this connection, so any certificate will do.
    let tls = ClientTls::load(&TlsOptions { insecure: true, ..TlsOptions::default() }).ok()?;
    let stream = connect_tcp(host, port, settings, deadline(WITHIN)).await.ok()?;
    match tls.connect(host, stream).await {
        Ok(_) => Some(()),
        Err(HandshakeError::Tls(TlsError::NotTls | TlsError::Other(_)) | HandshakeError::Io(_)) => None,
        // An error about certificates: the other side speaks TLS.
        Err(HandshakeError::Tls(_)) => Some(()),
    }
}

/// Returns whether the port answers this CONNECT with a CONNACK.
async fn detect_mqtt(host: &str, port: u16, settings: &Settings, connect: &[u8]) -> Option<()> {
    let mut stream = connect_tcp(host, port, settings, deadline(WITHIN)).await.ok()?;
    stream.write_all(connect).await.ok()?;
    let is_connack = stream.read_u8().await.ok()? == CONNACK;
    // Whether the CONNECT was accepted does not matter, so an error is ignored.
    let _ = stream.write_all(DISCONNECT).await;
    is_connack.then_some(())
}
