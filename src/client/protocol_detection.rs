//! What is spoken at a port where one way of speaking was cut off without a word: asked once in the other way, by
//! whoever wants to know why.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::dial::{deadline, dial_tcp};
use super::error::Error;
use super::settings::{Settings, Target};
use crate::client::probe::ConnectionProbe;
use crate::net::tls::client::HandshakeError;
use crate::net::tls::{ClientTls, TlsError, TlsOptions};

/// How long it may take, at most: what was found first is worth telling without it.
const WITHIN: Duration = Duration::from_secs(3);
/// A CONNECT of nobody, for nothing: clean start, and a client id that the broker is to choose.
const CONNECT: &[u8] = b"\x10\x0D\0\x04MQTT\x05\x02\0\x0A\0\0\0";
const CONNACK: u8 = 0x20;
/// A normal DISCONNECT.
const DISCONNECT: &[u8] = b"\xE0\0";

/// The error of a connection that was made and cut off, or what is wrong with it in truth: plain MQTT where TLS is
/// spoken, or the other way round. Brokers say nothing of it, most of them.
pub async fn detect_protocol(settings: &Settings, error: Error) -> Error {
    let Target::Tcp { host, port } = &settings.target else { return error };
    if settings.web_socket.is_some() {
        return error;
    }
    let settings = Settings { probe: ConnectionProbe::default(), ..settings.clone() };
    let within = WITHIN.min(settings.connect_timeout);
    let is_true = |is_so: Result<Option<()>, _>| matches!(is_so, Ok(Some(())));
    match error {
        Error::Connect { target, .. }
            if settings.tls.is_none()
                && is_true(timeout(within, speaks_tls(host, *port, &settings)).await) =>
        {
            Error::Tls { target, cause: TlsError::Required, in_web_socket: false }
        }
        Error::Tls { target, cause: TlsError::Interrupted(_), .. }
            if is_true(timeout(within, speaks_mqtt(host, *port, &settings)).await) =>
        {
            Error::Tls { target, cause: TlsError::NotTls, in_web_socket: false }
        }
        error => error,
    }
}

async fn speaks_tls(host: &str, port: u16, settings: &Settings) -> Option<()> {
    // Nothing is said in it: anybody will do.
    let tls = ClientTls::load(&TlsOptions { insecure: true, ..TlsOptions::default() }).ok()?;
    let stream = dial_tcp(host, port, settings, deadline(WITHIN)).await.ok()?;
    match tls.connect(host, stream).await {
        Ok(_) => Some(()),
        Err(HandshakeError::Tls(TlsError::NotTls | TlsError::Other(_)) | HandshakeError::Io(_)) => None,
        // It has an opinion on certificates.
        Err(HandshakeError::Tls(_)) => Some(()),
    }
}

async fn speaks_mqtt(host: &str, port: u16, settings: &Settings) -> Option<()> {
    let mut stream = dial_tcp(host, port, settings, deadline(WITHIN)).await.ok()?;
    stream.write_all(CONNECT).await.ok()?;
    let is_connack = stream.read_u8().await.ok()? == CONNACK;
    // Whether it let nobody in or not, it knows how to go on.
    let _ = stream.write_all(DISCONNECT).await;
    is_connack.then_some(())
}
