//! The TLS listener of a server that is started through the library.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use mqkv::client::{Client, Error, Settings as ClientSettings, Target};
use mqkv::net::tls::{ServerTls, ServerTlsFiles};
use mqkv::net::{ClientTls, TlsError, TlsOptions};
use mqkv::server::{Event, ListenerSettings, Settings, StoreServer, StoreSettings};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Starts a server with a new certificate, which is written to `c` in the directory.
async fn start(home: &TempDir, mut settings: Settings) -> StoreServer {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certfile, keyfile) = (home.path().join("c"), home.path().join("k"));
    fs::write(&certfile, cert.pem()).unwrap();
    fs::write(&keyfile, signing_key.serialize_pem()).unwrap();
    let tls = Some(ServerTls::load(ServerTlsFiles { certfile, keyfile, client_ca: None }).unwrap());
    let address = "127.0.0.1:0".parse().unwrap();
    settings.broker.listeners = vec![ListenerSettings { tls, ..ListenerSettings::plain(address) }];
    StoreServer::start(settings, StoreSettings::default()).await.unwrap()
}

async fn connect(server: &StoreServer, home: &TempDir) -> Result<Client, Error> {
    let target = Target::Tcp { host: "localhost".to_owned(), port: server.addresses()[0].port() };
    let options = TlsOptions { cafile: Some(home.path().join("c")), ..TlsOptions::default() };
    let tls = Some(ClientTls::load(&options).unwrap());
    Client::connect(ClientSettings { tls, ..ClientSettings::new(target, "me".to_owned()) }).await
}

#[tokio::test]
async fn a_client_that_sends_no_handshake_in_time_is_disconnected() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let connect_timeout = Duration::from_millis(20);
    let events_sink = Arc::new(move |event: Event| drop(sender.send(event.to_string())));
    let home = tempfile::tempdir().unwrap();
    let mut settings = Settings { events: events_sink, ..Settings::default() };
    settings.broker.connect_timeout = connect_timeout;
    let server = start(&home, settings).await;
    let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let event = events.recv().await.unwrap();
    assert!(event.ends_with(" refused: no TLS handshake in time"), "{event}");
    server.shutdown().await;
}

#[tokio::test]
async fn stalled_handshakes_do_not_block_other_clients_and_time_out() {
    let home = tempfile::tempdir().unwrap();
    let connect_timeout = Duration::from_secs(2);
    let mut settings = Settings::default();
    settings.broker.connect_timeout = connect_timeout;
    let server = start(&home, settings).await;
    let mut hanging = Vec::new();
    for number in 0..100 {
        let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
        // A different part of a handshake on each, none on some.
        stream.write_all(&b"\x16\x03\x01\x02\0\x01\0"[..number % 8]).await.unwrap();
        hanging.push(stream);
    }
    let client = connect(&server, &home).await.unwrap();
    client.close().await;
    for mut stream in hanging {
        let mut rest = Vec::new();
        // The server may send an alert before it closes.
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.len() < 16, "{rest:?}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn two_servers_in_one_process_use_different_certificates() {
    let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let one = start(&homes[0], Settings::default()).await;
    let other = start(&homes[1], Settings::default()).await;
    for (server, home) in [(&one, &homes[0]), (&other, &homes[1])] {
        let client = connect(server, home).await.unwrap();
        assert_eq!(client.connection_info().tls(), Some("1.3"));
        client.close().await;
    }
    let error = connect(&one, &homes[1]).await.unwrap_err();
    assert!(matches!(error, Error::Tls { cause: TlsError::UnknownCa { .. }, .. }), "{error}");
    one.shutdown().await;
    other.shutdown().await;
}
