//! TLS on the server's side: what it shows of itself, whom it lets in, and what a failed handshake means.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::net::certificate::{Certificate, NoCertificate};
use crate::net::tls::files;
use crate::net::tls::files::{IS_ENCRYPTED, Identity, nonsense};
use crate::net::tls::{alert_text, certificate_trouble, misfit};
use crate::net::{TlsError, TlsSetupError};

/// Where what a server needs for TLS is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that lead to its CA.
    pub certfile: PathBuf,
    /// Its key.
    pub keyfile: PathBuf,
    /// The CAs one of which must have signed a client's certificate, and whether it must have one; none: clients are not
    /// asked for one.
    pub client_ca: Option<(PathBuf, ClientCertificate)>,
}

/// Whether a client comes in without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It does not.
    Required,
    /// It does, but one that it has must be good.
    Optional,
}

/// TLS ready to be used, as its files were when they were last read; clones share it. It says nothing of its secrets.
#[derive(Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    in_force: Arc<RwLock<InForce>>,
}

/// What the files held.
struct InForce {
    acceptor: TlsAcceptor,
    /// What the server's certificate says, if it can be read as strictly as those of clients.
    certificate: Option<Certificate>,
}

impl Tls {
    /// Reads all files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn load(files: TlsFiles) -> Result<Self, TlsSetupError> {
        let in_force = Arc::new(RwLock::new(InForce::read(&files)?));
        Ok(Self { files: Arc::new(files), in_force })
    }

    /// Reads the files of all of them again, for the handshakes from now on. May block.
    ///
    /// # Errors
    /// What is wrong with one of them; then what was read before stays in force for all.
    pub(crate) fn reload(all: &[Self]) -> Result<(), TlsSetupError> {
        let read: Vec<InForce> = all.iter().map(|tls| InForce::read(&tls.files)).collect::<Result<_, _>>()?;
        for (tls, read) in all.iter().zip(read) {
            *tls.in_force.write().unwrap_or_else(PoisonError::into_inner) = read;
        }
        Ok(())
    }

    fn in_force(&self) -> RwLockReadGuard<'_, InForce> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether both are one, so that reading either again is enough.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.in_force, &other.in_force)
    }

    /// How many whole days are left to the server's certificate, as far as it says; negative where it has expired.
    pub(crate) fn days_left(&self, now_s: u64) -> Option<i64> {
        self.in_force().certificate.as_ref().map(|certificate| certificate.days_left(now_s))
    }

    /// What is wrong with the time of the server's certificate: no client would trust it.
    pub(crate) fn out_of_time(&self, now_s: u64) -> Option<String> {
        let in_force = self.in_force();
        let certificate = in_force.certificate.as_ref()?;
        let what = match certificate.days_left(now_s) {
            ..0 => "has expired",
            _ if certificate.not_before_s > now_s => "is not valid yet",
            _ => return None,
        };
        Some(format!("{} holds a certificate that {what}", self.files.certfile.display()))
    }

    /// Shakes hands; a stream that failed comes back, to be ended without losing the last words on it.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, (String, S)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = self.in_force().acceptor.clone();
        let accepted = acceptor.accept(stream).into_fallible().await;
        accepted.map_err(|(error, stream)| (explain(&error), stream))
    }
}

impl InForce {
    /// None of the sessions before can be resumed in it: what they have shown was judged by the files before.
    fn read(files: &TlsFiles) -> Result<Self, TlsSetupError> {
        let other = |error: &dyn fmt::Display| TlsSetupError::Other(error.to_string());
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| other(&error))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some((path, wanted)) => {
                let roots = Arc::new(files::roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match wanted {
                    ClientCertificate::Required => verifier,
                    ClientCertificate::Optional => verifier.allow_unauthenticated(),
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| other(&error))?)
            }
        };
        let identity = Identity::load(&files.certfile, &files.keyfile, None);
        let Identity { chain, key } = identity.map_err(without_password)?;
        let certificate = chain.first().and_then(|first| Certificate::parse(first).ok());
        let config = builder
            .with_single_cert(chain, key)
            .map_err(|error| misfit(&error, &files.certfile, &files.keyfile))?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), certificate })
    }
}

/// The certificate that a client has shown, if it has: verified, so that it has the key, and a CA stands for it.
///
/// # Errors
/// Nobody can say whose it is.
pub(crate) fn certificate<S>(stream: &TlsStream<S>) -> Result<Option<Certificate>, NoCertificate> {
    let chain = stream.get_ref().1.peer_certificates();
    chain.and_then(|chain| chain.first()).map(|first| Certificate::parse(first)).transpose()
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
            TlsError::Expired { .. } => "its certificate has expired".to_owned(),
            TlsError::NotValidYet { .. } => "its certificate is not valid yet".to_owned(),
            TlsError::UnknownCa => "its certificate is from an unknown CA".to_owned(),
            TlsError::Certificate(cause) => format!("its certificate cannot be used: {cause}"),
            _ => format!("its certificate cannot be used: {error}"),
        },
        other => format!("TLS handshake: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::mpsc;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, HandshakeKind};

    use super::*;
    use crate::client::{Client, Error, Settings as ClientSettings, Target};
    use crate::net::{Tls as ClientTls, TlsOptions};
    use crate::server::{ListenerSettings, Settings, StoreServer, StoreSettings};

    /// A server with a certificate of its own, which is in this folder as `c`.
    async fn start(home: &TempDir, settings: Settings) -> StoreServer {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certfile, keyfile) = (home.path().join("c"), home.path().join("k"));
        fs::write(&certfile, cert.pem()).unwrap();
        fs::write(&keyfile, signing_key.serialize_pem()).unwrap();
        let tls = Some(Tls::load(TlsFiles { certfile, keyfile, client_ca: None }).unwrap());
        let address = "127.0.0.1:0".parse().unwrap();
        let listeners = vec![ListenerSettings { tls, ..ListenerSettings::plain(address) }];
        StoreServer::start(Settings { listeners, ..settings }, StoreSettings::default()).await.unwrap()
    }

    async fn connect(server: &StoreServer, home: &TempDir) -> Result<Client, Error> {
        let target = Target::Tcp { host: "localhost".to_owned(), port: server.addresses()[0].port() };
        let options = TlsOptions { cafile: Some(home.path().join("c")), ..TlsOptions::default() };
        let tls = Some(ClientTls::load(&options).unwrap());
        Client::connect(ClientSettings { tls, ..ClientSettings::new(target, "me".to_owned()) }).await
    }

    #[tokio::test]
    async fn whoever_does_not_shake_hands_in_time_is_cut_off() {
        let (sender, mut events) = mpsc::unbounded_channel();
        let connect_timeout = Duration::from_millis(20);
        let events_sink = Arc::new(move |event: crate::server::Event| drop(sender.send(event.to_string())));
        let home = tempfile::tempdir().unwrap();
        let settings = Settings { connect_timeout, events: events_sink, ..Settings::default() };
        let server = start(&home, settings).await;
        let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        let event = events.recv().await.unwrap();
        assert!(event.ends_with(" refused: no TLS handshake in time"), "{event}");
        server.shutdown().await;
    }

    #[tokio::test]
    async fn handshakes_that_are_left_hanging_hold_nobody_up_and_end() {
        let home = tempfile::tempdir().unwrap();
        let settings = Settings { connect_timeout: Duration::from_secs(2), ..Settings::default() };
        let server = start(&home, settings).await;
        let mut hanging = Vec::new();
        for number in 0..100 {
            let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
            // Some of them begin.
            stream.write_all(&b"\x16\x03\x01\x02\0\x01\0"[..number % 8]).await.unwrap();
            hanging.push(stream);
        }
        let client = connect(&server, &home).await.unwrap();
        client.close().await;
        for mut stream in hanging {
            let mut rest = Vec::new();
            // Closed, with an alert or without.
            let _ = stream.read_to_end(&mut rest).await;
            assert!(rest.len() < 16, "{rest:?}");
        }
        server.shutdown().await;
    }

    #[tokio::test]
    async fn servers_of_one_process_have_certificates_of_their_own() {
        let homes = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let one = start(&homes[0], Settings::default()).await;
        let other = start(&homes[1], Settings::default()).await;
        for (server, home) in [(&one, &homes[0]), (&other, &homes[1])] {
            let client = connect(server, home).await.unwrap();
            assert_eq!(client.about().tls, Some("1.3"));
            client.close().await;
        }
        let error = connect(&one, &homes[1]).await.unwrap_err();
        assert!(matches!(error, Error::Tls { trouble: TlsError::UnknownCa, .. }), "{error}");
        one.shutdown().await;
        other.shutdown().await;
    }

    #[tokio::test]
    async fn a_session_of_before_does_not_bring_in_whom_the_new_cas_do_not_know() {
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
        let tls =
            Tls::load(TlsFiles { certfile: file("server"), keyfile: file("server.key"), client_ca }).unwrap();
        let Identity { chain, key } = Identity::load(&file("me"), &file("me.key"), None).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(files::roots(&file("server")).unwrap())
            .with_client_auth_cert(chain, key)
            .unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let come = async || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (accepted, connected) =
                tokio::join!(tls.accept(theirs), connector.connect("localhost".try_into().unwrap(), ours));
            // What it is told after the handshake is the ticket for the next one.
            let (mut accepted, mut connected) = (accepted.map_err(|(reason, _)| reason)?, connected.unwrap());
            accepted.write_all(b".").await.unwrap();
            connected.read_exact(&mut [0]).await.unwrap();
            Ok::<_, String>(accepted.get_ref().1.handshake_kind().unwrap())
        };
        assert_eq!(come().await, Ok(HandshakeKind::Full));
        assert_eq!(come().await, Ok(HandshakeKind::Resumed));
        Tls::reload(std::slice::from_ref(&tls)).unwrap();
        assert_eq!(come().await, Ok(HandshakeKind::Full));
        fs::copy(file("other"), file("cas")).unwrap();
        Tls::reload(std::slice::from_ref(&tls)).unwrap();
        assert_eq!(come().await, Err("its certificate is from an unknown CA".to_owned()));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let home = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certfile, keyfile) = (home.path().join("c"), home.path().join("k"));
        fs::write(&certfile, cert.pem()).unwrap();
        fs::write(&keyfile, signing_key.serialize_pem()).unwrap();
        let tls = Tls::load(TlsFiles { certfile, keyfile, client_ca: None }).unwrap();
        assert_eq!(format!("{tls:?}"), "Tls { .. }");
    }
}
