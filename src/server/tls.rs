//! TLS on the server's side: what it shows of itself, whom it lets in, and what a failed handshake means.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::client::tls::files::{self, IS_ENCRYPTED, Identity, nonsense};
use crate::client::tls::{alert_text, certificate_trouble, misfit};
use crate::client::{TlsSetupError, TlsTrouble};

/// Where what a server needs for TLS is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that lead to its CA.
    pub certfile: PathBuf,
    /// Its key.
    pub keyfile: PathBuf,
    /// The CAs one of which must have signed a client's certificate; none: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// TLS ready to be used; it says nothing of its secrets.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsSetupError> {
        let other = |error: &dyn fmt::Display| TlsSetupError::Other(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| other(&error))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(files::roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| other(&error))?)
            }
        };
        let identity = Identity::load(&files.certfile, &files.keyfile, None);
        let Identity { chain, key } = identity.map_err(without_password)?;
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| misfit(&error, &files.certfile, &files.keyfile))?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// Shakes hands; a stream that failed comes back, to be ended without losing the last words on it.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, (String, TcpStream)> {
        let accepted = self.acceptor.accept(stream).into_fallible().await;
        accepted.map_err(|(error, stream)| (explain(&error), stream))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// A server asks for no password.
fn without_password(error: TlsSetupError) -> TlsSetupError {
    match error {
        TlsSetupError::Nonsense { path, what: IS_ENCRYPTED, .. } => {
            nonsense(&path, IS_ENCRYPTED, Some("openssl pkey -in FILE -out FILE.plain"))
        }
        other => other,
    }
}

fn explain(error: &io::Error) -> String {
    let Some(tls) = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed during the TLS handshake".to_owned(),
            _ => format!("TLS handshake: {error}"),
        };
    };
    match tls {
        rustls::Error::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        rustls::Error::NoCertificatesPresented => "it has no client certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            format!("it refused the TLS handshake: {}", alert_text(*alert))
        }
        rustls::Error::InvalidCertificate(error) => match certificate_trouble(error) {
            TlsTrouble::Expired { .. } => "its certificate has expired".to_owned(),
            TlsTrouble::NotValidYet { .. } => "its certificate is not valid yet".to_owned(),
            TlsTrouble::UnknownCa => "its certificate is from an unknown CA".to_owned(),
            TlsTrouble::Certificate(cause) => format!("its certificate cannot be used: {cause}"),
            _ => format!("its certificate cannot be used: {error}"),
        },
        other => format!("TLS handshake: {other}"),
    }
}
