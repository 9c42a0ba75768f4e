//! Records the certificates that a broker presents in a TLS handshake, whether or not verification accepts them.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::net::certificate::{Certificate, InvalidCertificate};

/// A record of one TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsHandshake {
    /// `1.2` or `1.3`, once negotiated.
    pub version: Option<&'static str>,
    /// The cipher suite, once negotiated.
    pub cipher: Option<String>,
    pub roots: TrustedRoots,
    /// The broker's certificate, then the intermediate ones that it sent. Only a completed handshake shows that they are
    /// trusted.
    pub chain: Vec<Result<Certificate, InvalidCertificate>>,
    /// Whether the broker requested a client certificate.
    pub requests_client_certificate: bool,
    /// The configured client certificate. It is sent only if the broker requests one.
    pub client_certificate: Option<Result<Certificate, InvalidCertificate>>,
}

/// The CAs that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedRoots {
    /// The CAs of the platform.
    Platform { count: usize },
    /// The CAs in a file.
    File(PathBuf),
    /// Every certificate is accepted.
    Any,
}

/// What one handshake has shown so far.
#[derive(Debug, Default)]
pub(crate) struct HandshakeObserver {
    chain: OnceLock<Vec<CertificateDer<'static>>>,
    is_certificate_requested: AtomicBool,
}

impl HandshakeObserver {
    /// Returns the broker's certificates, its own first; empty if the handshake ended before they were received.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        self.chain.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns whether the broker has requested a client certificate.
    pub(crate) fn is_certificate_requested(&self) -> bool {
        self.is_certificate_requested.load(Ordering::Relaxed)
    }
}

/// Returns a copy of the configuration for one observed handshake, which accepts and rejects as the original does.
pub(crate) fn observe(
    config: &ClientConfig,
    verifier: &Arc<dyn ServerCertVerifier>,
) -> (ClientConfig, Arc<HandshakeObserver>) {
    let observer = Arc::new(HandshakeObserver::default());
    let mut config = config.clone();
    let verifier = RecordingVerifier { verifier: Arc::clone(verifier), observer: Arc::clone(&observer) };
    config.dangerous().set_certificate_verifier(Arc::new(verifier));
    let identity = Arc::clone(&config.client_auth_cert_resolver);
    config.client_auth_cert_resolver =
        Arc::new(RecordingResolver { identity, observer: Arc::clone(&observer) });
    (config, observer)
}

/// Records the broker's certificates and delegates the verification.
struct RecordingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    observer: Arc<HandshakeObserver>,
}

/// Records the request for a client certificate and delegates the answer.
struct RecordingResolver {
    identity: Arc<dyn ResolvesClientCert>,
    observer: Arc<HandshakeObserver>,
}

impl fmt::Debug for RecordingVerifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RecordingVerifier").finish_non_exhaustive()
    }
}

impl fmt::Debug for RecordingResolver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RecordingResolver").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = std::iter::once(own).chain(others).map(|der| der.clone().into_owned()).collect();
        // The verifier is called once in a handshake, so the cell is empty.
        let _ = self.observer.chain.set(chain);
        self.verifier.verify_server_cert(own, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

impl ResolvesClientCert for RecordingResolver {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.observer.is_certificate_requested.store(true, Ordering::Relaxed);
        self.identity.resolve(issuers, schemes)
    }

    fn has_certs(&self) -> bool {
        self.identity.has_certs()
    }
}
