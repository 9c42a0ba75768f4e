//! TLS on the client's side: whom it trusts, what it shows of itself, and what a failed handshake means.

pub(crate) mod files;
mod handshake_observer;
pub mod server;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, ProtocolVersion,
    RootCertStore, SignatureScheme,
};

use super::certificate::Certificate;
use crate::client::error::{TlsError, TlsSetupError};
use crate::client::probe::{Roots, TlsSight};
use files::{Identity, nonsense};

/// What is asked for of TLS, before anything has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// The CAs to trust, instead of the platform's.
    pub cafile: Option<PathBuf>,
    /// What the client shows of itself.
    pub identity: Option<IdentityFiles>,
    /// The name that the broker's certificate must have, instead of the host's.
    pub server_name: Option<String>,
    /// Trust whoever answers.
    pub insecure: bool,
}

/// Where a client's certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate, and those that lead to its CA.
    pub certfile: PathBuf,
    /// The key.
    pub keyfile: PathBuf,
    /// The file with the key's password.
    pub keypasswordfile: Option<PathBuf>,
}

/// TLS ready to be used; it says nothing of its secrets.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    /// Decides whom to trust, as in `config`, where it cannot be had back.
    judge: Arc<dyn ServerCertVerifier>,
    roots: Roots,
    server_name: Option<ServerName<'static>>,
    /// The client's own certificate.
    identity: Option<CertificateDer<'static>>,
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsSetupError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsSetupError::Other(error.to_string()))?;
        let (judge, roots) = judge(options, provider)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::clone(&judge));
        let mut identity = None;
        let config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(IdentityFiles { certfile, keyfile, keypasswordfile }) => {
                let Identity { chain, key } = Identity::load(certfile, keyfile, keypasswordfile.as_deref())?;
                identity = chain.first().cloned();
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| misfit(&error, certfile, keyfile))?
            }
        };
        let server_name = options.server_name.as_deref().map(name_of).transpose()?;
        Ok(Self { config: Arc::new(config), judge, roots, server_name, identity })
    }

    /// Shakes hands.
    pub(crate) async fn connect(&self, host: &str, stream: TcpStream) -> Result<Stream, Failure> {
        self.connect_with(Arc::clone(&self.config), host, stream).await
    }

    /// Shakes hands, and tells what was seen, however it ends; nothing is told of a handshake that is dropped.
    pub(crate) async fn connect_examined(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> (Result<Stream, Failure>, TlsSight) {
        let (config, witness) = handshake_observer::witnessed(&self.config, &self.judge);
        let result = self.connect_with(Arc::new(config), host, stream).await;
        let connection = result.as_ref().ok().map(|stream| stream.get_ref().1);
        let suite = connection.and_then(|connection| connection.negotiated_cipher_suite());
        let sight = TlsSight {
            version: result.as_ref().ok().map(version),
            cipher: suite.and_then(|suite| suite.suite().as_str()).map(str::to_owned),
            roots: self.roots.clone(),
            chain: witness.chain().iter().map(|der| Certificate::parse(der)).collect(),
            asks_for_client: witness.is_asked(),
            client: self.identity.as_ref().map(|der| Certificate::parse(der)),
        };
        (result, sight)
    }

    async fn connect_with(
        &self,
        config: Arc<ClientConfig>,
        host: &str,
        stream: TcpStream,
    ) -> Result<Stream, Failure> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => name_of(host).map_err(|error| Failure::Tls(TlsError::Other(error.to_string())))?,
        };
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| match self.trouble(&error) {
            Some(trouble) => Failure::Tls(trouble),
            None => Failure::Io(error),
        })
    }

    /// What an error of a connection says about TLS, if anything.
    pub(crate) fn trouble(&self, error: &io::Error) -> Option<TlsError> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(error) => certificate_trouble(error),
            rustls::Error::AlertReceived(alert) => self.alert_trouble(*alert),
            rustls::Error::InvalidMessage(_) => TlsError::NotTls,
            other => TlsError::Other(other.to_string()),
        })
    }

    fn alert_trouble(&self, alert: AlertDescription) -> TlsError {
        use AlertDescription as Alert;
        let about_certificate = matches!(
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
            // Before TLS 1.3 there was no word for it.
            Alert::BadCertificate if self.identity.is_none() => TlsError::ClientCertificateRequired,
            _ if about_certificate => TlsError::ClientCertificateRefused(alert_text(alert)),
            _ => TlsError::HandshakeRefused(alert_text(alert)),
        }
    }
}

/// A connection with TLS on it.
pub(crate) type Stream = TlsStream<TcpStream>;

/// Why there is no TLS on a connection.
pub(crate) enum Failure {
    Tls(TlsError),
    Io(io::Error),
}

/// The version that was agreed on.
pub(crate) fn version(stream: &Stream) -> &'static str {
    match stream.get_ref().1.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "1.2",
        _ => "1.3",
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

fn name_of(host: &str) -> Result<ServerName<'static>, TlsSetupError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsSetupError::Name(host.to_owned()))
}

/// Who decides whom to trust, and what that is called.
fn judge(
    options: &TlsOptions,
    provider: Arc<CryptoProvider>,
) -> Result<(Arc<dyn ServerCertVerifier>, Roots), TlsSetupError> {
    let (store, roots) = match &options.cafile {
        _ if options.insecure => return Ok((Arc::new(Anybody(provider)), Roots::Anybody)),
        Some(path) => (files::roots(path)?, Roots::File(path.clone())),
        None => {
            let mut store = RootCertStore::empty();
            // One that cannot be read is one that is not trusted.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let count = store.len();
            (store, Roots::Platform { count })
        }
    };
    // An empty store is the only thing that it does not take.
    let judge = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build();
    Ok((judge.map_err(|_| TlsSetupError::NoRoots)?, roots))
}

/// What is wrong with a certificate and a key that were read well.
pub(crate) fn misfit(error: &rustls::Error, certfile: &Path, keyfile: &Path) -> TlsSetupError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            nonsense(keyfile, "holds a key that does not fit the certificate", None)
        }
        rustls::Error::InvalidCertificate(_) => {
            nonsense(certfile, "holds a certificate that cannot be read", None)
        }
        _ => nonsense(keyfile, "holds a key that cannot be used", None),
    }
}

/// What is wrong with the other side's certificate.
pub(crate) fn certificate_trouble(error: &CertificateError) -> TlsError {
    match error {
        CertificateError::Expired => TlsError::Expired { days: None },
        CertificateError::ExpiredContext { time, not_after } => {
            TlsError::Expired { days: Some(days(*not_after, *time)) }
        }
        CertificateError::NotValidYet => TlsError::NotValidYet { days: None },
        CertificateError::NotValidYetContext { time, not_before } => {
            TlsError::NotValidYet { days: Some(days(*time, *not_before)) }
        }
        // A CA of the same name and another key is as unknown.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::UnknownCa,
        CertificateError::NotValidForName => TlsError::WrongName { wanted: None, names: Vec::new() },
        CertificateError::NotValidForNameContext { expected, presented } => TlsError::WrongName {
            wanted: Some(expected.to_str().into_owned()),
            names: presented.iter().map(|name| bare_name(name)).collect(),
        },
        other => TlsError::Certificate(match format!("{other:?}") {
            text if text.contains("CaUsedAsEndEntity") => "it is that of a CA, not of a server".to_owned(),
            text if text.contains("UnsupportedCertVersion") => "it is older than X.509 version 3".to_owned(),
            _ => other.to_string(),
        }),
    }
}

fn days(from: UnixTime, to: UnixTime) -> u64 {
    const DAY_S: u64 = 24 * 60 * 60;
    to.as_secs().saturating_sub(from.as_secs()) / DAY_S
}

/// `DnsName("a.example")` is what the library says of a name.
fn bare_name(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').escape_debug().to_string()
}

/// An alert in words: `UnknownCA` is how the library spells it.
pub(crate) fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let text = match alert {
        Alert::BadCertificate => "bad certificate",
        Alert::UnsupportedCertificate => "unsupported certificate",
        Alert::CertificateRevoked => "certificate revoked",
        Alert::CertificateExpired => "certificate expired",
        Alert::CertificateUnknown => "certificate unknown",
        Alert::UnknownCA => "unknown CA",
        Alert::AccessDenied => "access denied",
        Alert::HandshakeFailure => "handshake failure",
        Alert::ProtocolVersion => "no common version of TLS",
        Alert::CertificateRequired => "certificate required",
        Alert::UnrecognisedName => "unknown name",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

/// Trusts any certificate; that the other side has its key is still checked.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
