//! TLS of a server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::error::{TlsError, TlsSetupError, alert_text, text_of};
use super::files::{self, IS_ENCRYPTED, Identity};
use crate::net::certificate::{Certificate, InvalidCertificate};

/// The files of a server's TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsFiles {
    /// The certificate and its intermediate CAs.
    pub certfile: PathBuf,
    pub keyfile: PathBuf,
    /// The CAs that sign client certificates. None: no client certificate is requested.
    pub client_ca: Option<(PathBuf, ClientCertificate)>,
}

/// Whether a client must present a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    Required,
    /// A client may connect without a certificate; one that it presents must be valid.
    Optional,
}

/// TLS configuration of a server, as of the last time that its files were read. Clones share it. Its `Debug` output
/// contains no secrets.
#[derive(Clone)]
pub struct ServerTls {
    files: Arc<ServerTlsFiles>,
    current: Arc<RwLock<Loaded>>,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Content {
    client_cas: Option<Vec<CertificateDer<'static>>>,
    identity: Identity,
}

/// The content of the files, and the configuration that is made from it.
struct Loaded {
    content: Content,
    acceptor: TlsAcceptor,
    /// The server's certificate. None if our parser, which is stricter than rustls, rejects it.
    certificate: Option<Arc<Certificate>>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or is invalid.
    pub fn load(files: ServerTlsFiles) -> Result<Self, TlsSetupError> {
        let current = Arc::new(RwLock::new(Loaded::new(&files, Content::read(&files)?)?));
        Ok(Self { files: Arc::new(files), current })
    }

    /// Reads the files of all configurations again, for handshakes that start later. Returns whether one has changed. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// A file cannot be read or is invalid. In this case all configurations stay as they are.
    pub(crate) fn reload(all: &[Self]) -> Result<bool, TlsSetupError> {
        let changed = all.iter().map(Self::read_changed).collect::<Result<Vec<_>, _>>()?;
        let has_changed = changed.iter().any(Option::is_some);
        for (tls, changed) in all.iter().zip(changed) {
            if let Some(loaded) = changed {
                *tls.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
            }
        }
        Ok(has_changed)
    }

    /// Reads the files. Returns None if they are as before.
    fn read_changed(&self) -> Result<Option<Loaded>, TlsSetupError> {
        if let Some(path) = self.files.first_irregular() {
            let cause = "not a regular file".to_owned();
            return Err(TlsSetupError::Unreadable { path: path.to_owned(), cause });
        }
        let content = Content::read(&self.files)?;
        let is_unchanged = content == self.current().content;
        if is_unchanged { Ok(None) } else { Loaded::new(&self.files, content).map(Some) }
    }

    /// Returns whether all files are regular ones, which can be read again.
    pub(crate) fn is_readable_again(&self) -> bool {
        self.files.first_irregular().is_none()
    }

    fn current(&self) -> RwLockReadGuard<'_, Loaded> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether both are clones of one configuration, so that reloading one reloads the other.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.current, &other.current)
    }

    /// Returns the server's certificate, if it can be parsed.
    pub(crate) fn certificate(&self) -> Option<Arc<Certificate>> {
        self.current().certificate.clone()
    }

    /// Returns the file of the server's certificate.
    pub(crate) fn certificate_file(&self) -> &Path {
        &self.files.certfile
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// The cause, and the stream: the caller shuts it down gracefully, so that the client receives the alert.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, (String, S)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = self.current().acceptor.clone();
        let accepted = acceptor.accept(stream).into_fallible().await;
        accepted.map_err(|(error, stream)| (handshake_error_text(&error), stream))
    }
}

impl ServerTlsFiles {
    fn first_irregular(&self) -> Option<&Path> {
        let client_ca = self.client_ca.as_ref().map(|(path, _)| path);
        let all = [&self.certfile, &self.keyfile].into_iter().chain(client_ca);
        files::first_irregular(all.map(PathBuf::as_path))
    }
}

impl Content {
    fn read(files: &ServerTlsFiles) -> Result<Self, TlsSetupError> {
        let client_cas = files.client_ca.as_ref().map(|(path, _)| files::certificates(path)).transpose()?;
        let identity = Identity::load(&files.certfile, &files.keyfile, None).map_err(hint_to_decrypt)?;
        Ok(Self { client_cas, identity })
    }
}

impl Loaded {
    /// Makes a configuration. It resumes no session of an earlier one: a resumed client certificate would not be verified against
    /// the CAs that are trusted now.
    fn new(files: &ServerTlsFiles, content: Content) -> Result<Self, TlsSetupError> {
        let other = |error: &dyn fmt::Display| TlsSetupError::Other(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| other(&error))?;
        let builder = match (&files.client_ca, &content.client_cas) {
            (Some((path, policy)), Some(cas)) => {
                let roots = Arc::new(files::roots(path, cas)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match policy {
                    ClientCertificate::Required => verifier,
                    ClientCertificate::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| other(&error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let Identity { chain, key } = &content.identity;
        let certificate = chain.first().and_then(|first| Certificate::parse(first).ok()).map(Arc::new);
        let config = builder
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| TlsSetupError::of_pair(&error, &files.certfile, &files.keyfile))?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate, content })
    }
}

/// Returns the client's certificate, if it presented one. The handshake has verified its chain and that the client has the
/// key.
///
/// # Errors
/// It cannot be parsed: our parser is stricter than rustls.
pub(crate) fn client_certificate<S>(
    stream: &TlsStream<S>,
) -> Result<Option<Certificate>, InvalidCertificate> {
    let chain = stream.get_ref().1.peer_certificates();
    chain.and_then(|chain| chain.first()).map(|first| Certificate::parse(first)).transpose()
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// Replaces the hint for an encrypted key: a server has no option for a key's password.
fn hint_to_decrypt(error: TlsSetupError) -> TlsSetupError {
    match error {
        TlsSetupError::Invalid { path, what, .. } if what == IS_ENCRYPTED => {
            TlsSetupError::invalid(&path, IS_ENCRYPTED, Some("openssl pkey -in FILE -out FILE.plain"))
        }
        other => other,
    }
}

fn handshake_error_text(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "connection closed during the TLS handshake".to_owned(),
            _ => format!("TLS handshake failed: {error}"),
        };
    };
    match tls {
        rustls::Error::InvalidMessage(_) => "client does not speak TLS".to_owned(),
        rustls::Error::NoCertificatesPresented => "no client certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            format!("client refused the TLS handshake: {}", alert_text(*alert))
        }
        rustls::Error::InvalidCertificate(error) => match TlsError::from(error) {
            TlsError::Expired { .. } => "client certificate has expired".to_owned(),
            TlsError::NotValidYet { .. } => "client certificate is not valid yet".to_owned(),
            TlsError::UnknownCa { .. } => "client certificate is from an unknown CA".to_owned(),
            TlsError::CaCertificate => "client certificate is one of a CA".to_owned(),
            TlsError::Certificate(cause) => format!("client certificate cannot be used: {cause}"),
            _ => format!("client certificate cannot be used: {error}"),
        },
        other => format!("TLS handshake failed: {}", text_of(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, HandshakeKind};

    use super::*;

    #[tokio::test]
    async fn a_resumed_session_is_verified_against_reloaded_cas() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name);
        let identity = |name: &str| {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            fs::write(file(name), cert.pem()).unwrap();
            fs::write(file(&format!("{name}.key")), signing_key.serialize_pem()).unwrap();
        };
        ["server", "me", "other"].into_iter().for_each(identity);
        fs::copy(file("me"), file("cas")).unwrap();
        let client_ca = Some((file("cas"), ClientCertificate::Required));
        let tls = ServerTls::load(ServerTlsFiles {
            certfile: file("server"),
            keyfile: file("server.key"),
            client_ca,
        })
        .unwrap();
        let trusted = files::roots(&file("server"), &files::certificates(&file("server")).unwrap()).unwrap();
        let Identity { chain, key } = Identity::load(&file("me"), &file("me.key"), None).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(trusted)
            .with_client_auth_cert(chain, key)
            .unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let connect = async || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (accepted, connected) =
                tokio::join!(tls.accept(theirs), connector.connect("localhost".try_into().unwrap(), ours));
            // The session ticket is sent after the handshake.
            let (mut accepted, mut connected) = (accepted.map_err(|(reason, _)| reason)?, connected.unwrap());
            accepted.write_all(b".").await.unwrap();
            connected.read_exact(&mut [0]).await.unwrap();
            Ok::<_, String>(accepted.get_ref().1.handshake_kind().unwrap())
        };
        assert_eq!(connect().await, Ok(HandshakeKind::Full));
        assert_eq!(connect().await, Ok(HandshakeKind::Resumed));
        let reload = || ServerTls::reload(std::slice::from_ref(&tls)).unwrap();
        assert!(!reload());
        assert_eq!(connect().await, Ok(HandshakeKind::Resumed), "no file has changed");
        fs::copy(file("other"), file("cas")).unwrap();
        assert!(reload());
        assert_eq!(connect().await, Err("client certificate is from an unknown CA".to_owned()));
    }

    #[test]
    fn debug_output_contains_no_secrets() {
        let home = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certfile, keyfile) = (home.path().join("c"), home.path().join("k"));
        fs::write(&certfile, cert.pem()).unwrap();
        fs::write(&keyfile, signing_key.serialize_pem()).unwrap();
        let tls = ServerTls::load(ServerTlsFiles { certfile, keyfile, client_ca: None }).unwrap();
        assert_eq!(format!("{tls:?}"), "ServerTls { .. }");
    }
}
