//! TLS of a client.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, HandshakeKind,
    ProtocolVersion, RootCertStore, SignatureScheme,
};

use super::error::{TlsError, TlsSetupError, alert_text, is_ca_certificate, text_of};
use super::files::{self, GivenCa, Identity, IdentityFiles};
use super::handshake_observer::{self, TlsHandshake, TrustedRoots};
use crate::net::certificate::Certificate;

/// TLS options of a client, before any file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The trusted CAs, instead of the platform's.
    pub cafile: Option<PathBuf>,
    /// The trusted CAs in memory, instead of the platform's; without `cafile`.
    pub given_ca: Option<GivenCa>,
    /// The client certificate.
    pub identity: Option<IdentityFiles>,
    /// The name that the broker's certificate must have, instead of the host's.
    pub server_name: Option<String>,
    /// Accept every certificate.
    pub insecure: bool,
}

/// TLS configuration of a client, as of the last time that its files were read. Its `Debug` output contains no secrets.
///
/// Clones share it, and the sessions that brokers let them resume, in memory: the TLS crate gives no access to the secret of a
/// session, so that another process cannot resume it. Early data (0-RTT) is never sent: an attacker could repeat a write.
#[derive(Clone)]
pub struct ClientTls {
    options: Arc<TlsOptions>,
    server_name: Option<ServerName<'static>>,
    /// Offered in the handshake (ALPN).
    application_protocols: &'static [&'static [u8]],
    current: Arc<RwLock<Arc<Loaded>>>,
}

/// The content of the files. The CAs of the platform are none: they are read once.
#[derive(PartialEq, Eq)]
struct Content {
    trusted: Option<Vec<CertificateDer<'static>>>,
    identity: Option<Identity>,
}

/// The content of the files, and the configuration that is made from it.
struct Loaded {
    content: Content,
    config: Arc<ClientConfig>,
    /// The verifier of `config`, which does not give it back.
    verifier: Arc<dyn ServerCertVerifier>,
    roots: TrustedRoots,
}

/// A TLS connection.
pub(crate) type Stream = TlsStream<TcpStream>;

/// The cause of a failed handshake.
pub(crate) enum HandshakeError {
    Tls(TlsError),
    Io(io::Error),
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid, the platform has no CA certificates, or the server name is invalid.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        Self::load_for(options, &[])
    }

    /// Reads the files, for handshakes that offer these application protocols (ALPN).
    ///
    /// # Errors
    /// As for [`ClientTls::load`].
    pub(crate) fn load_for(
        options: &TlsOptions,
        application_protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsSetupError> {
        let loaded = Loaded::new(options, application_protocols, Content::read(options)?)?;
        let server_name = options.server_name.as_deref().map(server_name).transpose()?;
        let (options, current) = (Arc::new(options.clone()), Arc::new(RwLock::new(Arc::new(loaded))));
        Ok(Self { options, server_name, application_protocols, current })
    }

    /// Reads the files again, for handshakes that start later: certificates are renewed while a process runs. What was read from a
    /// pipe stays in force, because it can be read only once. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be read or is invalid. In this case the configuration stays as it is.
    pub fn reload(&self) -> Result<(), TlsSetupError> {
        if files::first_irregular(self.options.files()).is_some() {
            return Ok(());
        }
        let content = Content::read(&self.options)?;
        // A new configuration resumes no session of an earlier one.
        if content != self.current().content {
            let loaded = Loaded::new(&self.options, self.application_protocols, content)?;
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        }
        Ok(())
    }

    fn current(&self) -> Arc<Loaded> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the file of the client certificate.
    #[must_use]
    pub fn certificate_file(&self) -> Option<&Path> {
        self.options.identity.as_ref().map(|identity| identity.certfile.as_path())
    }

    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> Result<Stream, HandshakeError> {
        self.connect_with(Arc::clone(&self.current().config), host, stream).await
    }

    /// Like [`ClientTls::connect`], and returns what the handshake showed, also if it failed.
    pub(crate) async fn connect_observed(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> (Result<Stream, HandshakeError>, TlsHandshake) {
        let loaded = self.current();
        let (config, observer) = handshake_observer::observe(&loaded.config, &loaded.verifier);
        let result = self.connect_with(Arc::new(config), host, stream).await;
        let connection = result.as_ref().ok().map(|stream| stream.get_ref().1);
        let suite = connection.and_then(|connection| connection.negotiated_cipher_suite());
        let handshake = TlsHandshake {
            version: result.as_ref().ok().map(version),
            cipher: suite.and_then(|suite| suite.suite().as_str()).map(str::to_owned),
            roots: loaded.roots.clone(),
            chain: observer.chain().iter().map(|der| Certificate::parse(der)).collect(),
            requests_client_certificate: observer.is_certificate_requested(),
            client_certificate: loaded.content.own_certificate().map(|der| Certificate::parse(der)),
        };
        (result, handshake)
    }

    async fn connect_with(
        &self,
        config: Arc<ClientConfig>,
        host: &str,
        stream: TcpStream,
    ) -> Result<Stream, HandshakeError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => {
                server_name(host).map_err(|error| HandshakeError::Tls(TlsError::Other(error.to_string())))?
            }
        };
        let connected = TlsConnector::from(config).connect(name, stream).await;
        connected.map_err(|error| match self.tls_error(&error) {
            Some(error) => HandshakeError::Tls(error),
            None => HandshakeError::Io(error),
        })
    }

    /// Returns the TLS error inside an error of a stream, if it has one.
    pub(crate) fn tls_error(&self, error: &io::Error) -> Option<TlsError> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(error) => match TlsError::from(error) {
                TlsError::UnknownCa { .. } => {
                    TlsError::UnknownCa { cafile: self.options.origin_of_cas().map(Path::to_owned) }
                }
                other => other,
            },
            rustls::Error::AlertReceived(alert) => self.alert_error(*alert),
            rustls::Error::InvalidMessage(_) => TlsError::NotTls,
            other => TlsError::Other(text_of(other)),
        })
    }

    fn alert_error(&self, alert: AlertDescription) -> TlsError {
        use AlertDescription as Alert;
        let is_about_certificate = matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
        );
        match alert {
            Alert::CertificateRequired => TlsError::ClientCertificateRequired,
            // TLS 1.2 has no alert for a missing certificate; servers send this one.
            Alert::BadCertificate if self.options.identity.is_none() => TlsError::ClientCertificateRequired,
            _ if is_about_certificate => TlsError::ClientCertificateRejected {
                alert: alert_text(alert),
                certfile: self.certificate_file().map(Path::to_owned),
            },
            _ => TlsError::HandshakeRefused(alert_text(alert)),
        }
    }
}

/// Returns the negotiated TLS version, `1.2` or `1.3`.
pub(crate) fn version(stream: &Stream) -> &'static str {
    match stream.get_ref().1.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "1.2",
        _ => "1.3",
    }
}

/// Returns whether the handshake has resumed a session.
pub(crate) fn is_resumed(stream: &Stream) -> bool {
    stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClientTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl TlsOptions {
    /// Returns where the trusted CAs come from; `None` for those of the platform.
    fn origin_of_cas(&self) -> Option<&Path> {
        self.cafile.as_deref().or(self.given_ca.as_ref().map(GivenCa::origin))
    }
}

fn server_name(host: &str) -> Result<ServerName<'static>, TlsSetupError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsSetupError::Name(host.to_owned()))
}

impl TlsOptions {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let identity =
            self.identity.iter().flat_map(|IdentityFiles { certfile, keyfile, keypasswordfile }| {
                [Some(certfile), Some(keyfile), keypasswordfile.as_ref()].into_iter().flatten()
            });
        self.cafile.iter().chain(identity).map(PathBuf::as_path)
    }
}

impl Content {
    fn read(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        let trusted = match (&options.cafile, &options.given_ca) {
            _ if options.insecure => None,
            (Some(path), _) => Some(files::certificates(path)?),
            (None, Some(given)) => Some(given.certificates()?),
            (None, None) => None,
        };
        let identity =
            options.identity.as_ref().map(|IdentityFiles { certfile, keyfile, keypasswordfile }| {
                Identity::load(certfile, keyfile, keypasswordfile.as_deref())
            });
        Ok(Self { trusted, identity: identity.transpose()? })
    }

    fn own_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.identity.as_ref()?.chain.first()
    }
}

impl Loaded {
    fn new(
        options: &TlsOptions,
        application_protocols: &[&[u8]],
        content: Content,
    ) -> Result<Self, TlsSetupError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsSetupError::Other(error.to_string()))?;
        let (verifier, roots) = verifier(options, content.trusted.as_deref(), provider)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::clone(&verifier));
        let mut config = match (&content.identity, &options.identity) {
            (Some(Identity { chain, key }), Some(IdentityFiles { certfile, keyfile, .. })) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| TlsSetupError::of_pair(&error, certfile, keyfile))?,
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = application_protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { content, config: Arc::new(config), verifier, roots })
    }
}

fn verifier(
    options: &TlsOptions,
    trusted: Option<&[CertificateDer<'static>]>,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<dyn ServerCertVerifier>, TrustedRoots), TlsSetupError> {
    let (store, roots) = match (options.origin_of_cas(), trusted) {
        _ if options.insecure => return Ok((Arc::new(AcceptAny(provider)), TrustedRoots::Any)),
        (Some(path), Some(trusted)) => (files::roots(path, trusted)?, TrustedRoots::File(path.to_owned())),
        _ => {
            let mut store = RootCertStore::empty();
            // Platform stores contain certificates that cannot be parsed. They are skipped: they are not trusted.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let count = store.len();
            (store, TrustedRoots::Platform { count })
        }
    };
    // Without revocation lists an empty store is the builder's only error.
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build();
    let verifier = verifier.map_err(|_| TlsSetupError::NoRoots)?;
    let trusted = trusted.unwrap_or_default().to_vec();
    Ok((Arc::new(TrustVerifier { verifier, trusted }), roots))
}

/// Verifies as the crate does, but accepts the certificate of a CA as the server's own, too, if it is in the file of trusted ones.
/// `openssl req -x509` makes such certificates, and OpenSSL accepts them.
#[derive(Debug)]
struct TrustVerifier {
    verifier: Arc<WebPkiServerVerifier>,
    /// The certificates of the file, if there is one.
    trusted: Vec<CertificateDer<'static>>,
}

impl TrustVerifier {
    /// Checks what remains to be checked of a certificate that is trusted itself, so that its signature is no matter.
    fn verify_trusted(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let refused = |error: CertificateError| rustls::Error::InvalidCertificate(error);
        let certificate = Certificate::parse(own).map_err(|_| refused(CertificateError::BadEncoding))?;
        if now.as_secs() < certificate.not_before_s {
            return Err(refused(CertificateError::NotValidYet));
        }
        if now.as_secs() > certificate.not_after_s {
            return Err(refused(CertificateError::Expired));
        }
        if !certificate.is_for_servers {
            return Err(refused(CertificateError::InvalidPurpose));
        }
        verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for TrustVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.verifier.verify_server_cert(own, others, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(error))
                if is_ca_certificate(&error) && self.trusted.iter().any(|trusted| trusted == own) =>
            {
                self.verify_trusted(own, name, now)
            }
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Accepts every certificate. The handshake still proves that the broker has the certificate's key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};

    use super::*;

    #[test]
    fn what_was_read_from_a_pipe_stays_in_force_and_a_file_that_is_missing_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("ca");
        std::fs::write(&path, certificate(|_| {}).pem()).unwrap();
        let tls =
            ClientTls::load(&TlsOptions { cafile: Some(path.clone()), ..TlsOptions::default() }).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(tls.reload(), Err(TlsSetupError::Unreadable { .. })));
        // Like a pipe, a folder cannot be read again.
        std::fs::create_dir(&path).unwrap();
        assert_eq!(tls.reload(), Ok(()));
    }

    /// Returns a certificate of a CA and of the server `a.example`, as `openssl req -x509` makes it.
    fn certificate(adjust: impl FnOnce(&mut CertificateParams)) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        adjust(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_trusted_certificate_of_a_ca_is_checked_as_the_one_of_a_server_and_no_other_is_accepted() {
        const NOW_S: u64 = 1_900_000_000;
        let verified = |own: &rcgen::Certificate, name: &str, now_s: u64, trusted: &rcgen::Certificate| {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("ca");
            std::fs::write(&path, trusted.pem()).unwrap();
            let options = TlsOptions { cafile: Some(path), ..TlsOptions::default() };
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
            let verifier = Arc::clone(&ClientTls::load(&options).unwrap().current().verifier);
            verifier.verify_server_cert(own.der(), &[], &name, &[], now).map(drop)
        };
        let own = certificate(|_| {});
        assert_eq!(verified(&own, "a.example", NOW_S, &own), Ok(()));
        assert!(verified(&own, "b.example", NOW_S, &own).is_err());
        assert!(verified(&own, "a.example", 0, &own).is_err(), "not valid yet");
        assert!(verified(&own, "a.example", NOW_S * 100, &own).is_err(), "expired");
        assert!(verified(&certificate(|_| {}), "a.example", NOW_S, &own).is_err(), "another key");
        let for_usage = |usage| certificate(|params| params.extended_key_usages = vec![usage]);
        let own = for_usage(ExtendedKeyUsagePurpose::ServerAuth);
        assert_eq!(verified(&own, "a.example", NOW_S, &own), Ok(()));
        let own = for_usage(ExtendedKeyUsagePurpose::ClientAuth);
        assert!(verified(&own, "a.example", NOW_S, &own).is_err(), "for clients only");
    }
}
