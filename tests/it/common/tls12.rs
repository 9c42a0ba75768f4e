//! A proxy that accepts TLS 1.2 only, in front of a broker without TLS.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::spawn;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, version};

/// Starts a proxy to a broker on this machine, for one connection after the other, and returns its port.
pub fn proxy(certificate: &Path, key: &Path, broker_port: u16) -> u16 {
    let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nonblocking(true).unwrap();
            runtime.block_on(async {
                let stream = TcpStream::from_std(stream).unwrap();
                let mut client = acceptor.accept(stream).await.unwrap();
                let broker = SocketAddr::from(([127, 0, 0, 1], broker_port));
                let mut broker = TcpStream::connect(broker).await.unwrap();
                // Either side may close the connection at any time.
                let _ = copy_bidirectional(&mut client, &mut broker).await;
            });
        }
    });
    port
}
