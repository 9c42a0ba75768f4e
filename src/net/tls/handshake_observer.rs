//! Looks over the shoulder of a TLS handshake: what the broker shows of itself, also where it is not believed, and
//! whether it asks who the client is.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// What one handshake has shown so far.
#[derive(Debug, Default)]
pub(crate) struct HandshakeObserver {
    chain: OnceLock<Vec<CertificateDer<'static>>>,
    is_asked: AtomicBool,
}

impl HandshakeObserver {
    /// The broker's certificates, its own first; none if it has not shown them.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        self.chain.get().map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the broker has asked for a client certificate.
    pub(crate) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}

/// The same configuration, for one handshake that is looked at; it judges as the given one does.
pub(crate) fn witnessed(
    config: &ClientConfig,
    judge: &Arc<dyn ServerCertVerifier>,
) -> (ClientConfig, Arc<HandshakeObserver>) {
    let witness = Arc::new(HandshakeObserver::default());
    let mut config = config.clone();
    let shown = Shown { judge: Arc::clone(judge), witness: Arc::clone(&witness) };
    config.dangerous().set_certificate_verifier(Arc::new(shown));
    let identity = Arc::clone(&config.client_auth_cert_resolver);
    config.client_auth_cert_resolver = Arc::new(Asked { identity, witness: Arc::clone(&witness) });
    (config, witness)
}

/// Writes down what the broker shows, and lets the judge decide.
struct Shown {
    judge: Arc<dyn ServerCertVerifier>,
    witness: Arc<HandshakeObserver>,
}

/// Writes down that the broker asks.
struct Asked {
    identity: Arc<dyn ResolvesClientCert>,
    witness: Arc<HandshakeObserver>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Asked").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = std::iter::once(own).chain(others).map(|der| der.clone().into_owned()).collect();
        // One handshake shows one chain.
        let _ = self.witness.chain.set(chain);
        self.judge.verify_server_cert(own, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.judge.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.judge.supported_verify_schemes()
    }
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.witness.is_asked.store(true, Ordering::Relaxed);
        self.identity.resolve(issuers, schemes)
    }

    fn has_certs(&self) -> bool {
        self.identity.has_certs()
    }
}
