//! Sessions whose clients send nothing but a CONNECT.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::common::pki::Ca;
use super::common::wire::{self, Packet};
use super::common::{LoggedServer, Place};
use crate::a_watchdog::bounded;

/// Sends a CONNECT with a Session Expiry Interval of an hour and reads the CONNACK; returns whether a session was present.
fn connect(stream: &mut (impl Read + Write), clean_start: bool) -> bool {
    let head = [&b"\0\x04MQTT\x05"[..], &[u8::from(clean_start) << 1], b"\0\0\x05\x11\0\0\x0e\x10"].concat();
    stream.write_all(&wire::packet(0x10, [&head[..], &wire::text("idle")].concat())).unwrap();
    let (mut input, mut byte) = (Vec::new(), [0]);
    loop {
        bounded(|| stream.read_exact(&mut byte)).unwrap();
        input.push(byte[0]);
        if let Some((connack, _)) = Packet::split(&input) {
            assert_eq!((connack.name(), connack.body[1]), ("CONNACK", 0));
            return connack.body[0] == 1;
        }
    }
}

/// Returns a TLS client that trusts the CA of this file.
fn tls_client(place: &Place, ca: &str) -> impl Fn(TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(place.path(ca)).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    move |stream| {
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::clone(&config), name).unwrap(), stream)
    }
}

#[test]
fn a_session_that_is_cut_right_after_its_connack_is_present_at_the_next_connection() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let tls = tls_client(&place, "ca.pem");
    let options = ["--listen", "mqtt://127.0.0.1:0", "--listen", "mqtts://127.0.0.1:0"];
    let files = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    for clean_start in [true, false] {
        for is_tls in [false, true] {
            let server = LoggedServer::start(&place, &[&options[..], &files].concat());
            let connect = |clean_start| {
                let stream = TcpStream::connect(("127.0.0.1", server.port(usize::from(is_tls)))).unwrap();
                // A process that another test starts may have a copy of the stream: to drop it would not cut the connection.
                let cut = stream.try_clone().unwrap();
                let is_present = match is_tls {
                    false => connect(&mut &stream, clean_start),
                    true => connect(&mut tls(stream), clean_start),
                };
                cut.shutdown(Shutdown::Both).unwrap();
                is_present
            };
            assert!(!connect(clean_start));
            assert!(connect(false), "Clean Start {clean_start}, TLS {is_tls}");
            assert!(connect(false), "it stays known");
        }
    }
}
