//! Connections with the endpoints of etcd: addresses, TCP, TLS, and the channel of gRPC above them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::net::detached::run_detached;
use crate::net::io_error::io_error_text;
use crate::net::tls::client::{HandshakeError, Stream as TlsStream};
use crate::net::tls::{ClientTls, TlsError};

/// The port of etcd for clients.
const PORT: u16 = 2379;
/// What a client of HTTP/2 offers in the TLS handshake (RFC 9113, section 3.2).
pub(super) const ALPN: &[u8] = b"h2";

/// The client URL of a member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    pub(super) is_tls: bool,
}

impl Address {
    /// # Errors
    /// The URL is not of the form `http://HOST:PORT` or `https://HOST:PORT`: returns a predicate.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        const FORM: &str = "is not of the form https://HOST:PORT or http://HOST:PORT";
        let uri: Uri = url.parse().map_err(|_| FORM)?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(FORM),
        };
        let authority = uri.authority().ok_or(FORM)?;
        if authority.as_str().contains('@') {
            return Err("contains a user; give user and password as options");
        }
        // A colon without a port, for example.
        let has_port = !authority.as_str().ends_with(authority.host());
        let port = if has_port { authority.port_u16().ok_or(FORM)? } else { PORT };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(FORM);
        }
        Ok(Self { host, port, is_tls })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

/// Why there is no connection with an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DialError {
    /// A TLS file cannot be read or is invalid.
    Files(String),
    /// The name has no address, or no TCP connection could be made.
    Tcp(String),
    Tls(TlsError),
    TimedOut(Duration),
}

impl DialError {
    /// Returns the message, with the endpoint that it is about.
    pub(super) fn text(&self, address: &Address) -> String {
        struct Tls<'a>(&'a TlsError, String);
        impl fmt::Display for Tls<'_> {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(out, &self.1)
            }
        }
        match self {
            Self::Files(cause) => cause.clone(),
            Self::Tcp(cause) => format!("{cause}: {address}"),
            Self::Tls(cause) => Tls(cause, address.to_string()).to_string(),
            Self::TimedOut(after) => format!("no connection after {after:?}: {address}"),
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("no connection")
    }
}

impl std::error::Error for DialError {}

/// Why the last connection with an endpoint failed. It is stored separately because errors lose their types on their way through gRPC.
#[derive(Clone, Debug, Default)]
pub(super) struct LastFailure(Arc<Mutex<Option<DialError>>>);

impl LastFailure {
    pub(super) fn get(&self) -> Option<DialError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, failure: Option<DialError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }
}

/// Makes the connections with one endpoint.
#[derive(Clone, Debug)]
pub(super) struct Dialer {
    pub(super) address: Address,
    /// For an address with TLS.
    pub(super) tls: Option<ClientTls>,
    pub(super) connect_timeout: Duration,
    pub(super) last_failure: LastFailure,
}

impl Dialer {
    /// Returns a channel that connects with its first request and, if the connection is lost, with the next one.
    pub(super) fn channel(&self) -> Result<Channel, String> {
        let scheme = if self.address.is_tls { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{}", self.address).parse().map_err(|error| format!("{error}"))?;
        Ok(Endpoint::from(uri).connect_with_connector_lazy(self.clone()))
    }

    async fn dial(self) -> Result<TokioIo<Stream>, DialError> {
        let dialed = timeout(self.connect_timeout, self.connect()).await;
        let dialed = dialed.unwrap_or(Err(DialError::TimedOut(self.connect_timeout)));
        self.last_failure.set(dialed.as_ref().err().cloned());
        dialed.map(TokioIo::new)
    }

    /// Returns the alert with which the endpoint refuses the client's certificate, if it does.
    ///
    /// In TLS 1.3 a server verifies it after the client's handshake has ended. If the client writes at the same time, the alert
    /// may be lost with the connection, hence another one that only reads.
    pub(super) async fn refusal(&self) -> Option<DialError> {
        let tls = self.tls.as_ref()?;
        let read = async { Some(self.connect().await.ok()?.read(&mut [0]).await) };
        let error = timeout(self.connect_timeout, read).await.ok()??.err()?;
        tls.tls_error(&error).map(DialError::Tls)
    }

    /// Connects, with what the TLS files contain now: they are renewed while the process runs.
    async fn connect(&self) -> Result<Stream, DialError> {
        if let Some(tls) = self.tls.clone() {
            let reloaded = run_detached(move || tls.reload()).await;
            let failed = |cause: &dyn fmt::Display| DialError::Files(cause.to_string());
            reloaded.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
        }
        let Address { host, port, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| DialError::Tcp(io_error_text(&error)))?;
        // With Nagle's algorithm a request may wait for the acknowledgement of the one before it.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(stream)) };
        match tls.connect(host, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(HandshakeError::Tls(cause)) => Err(DialError::Tls(cause)),
            Err(HandshakeError::Io(error)) => {
                Err(DialError::Tls(TlsError::Interrupted(io_error_text(&error))))
            }
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<Stream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}

/// A connection with an endpoint.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, out),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::tls::{ServerTls, ServerTlsFiles, TlsOptions};

    #[tokio::test]
    async fn each_connection_uses_what_the_tls_files_contain_then() {
        let home = tempfile::tempdir().unwrap();
        let file = |name: &str| home.path().join(name);
        for name in ["first", "second"] {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            fs::write(file(name), cert.pem()).unwrap();
            fs::write(file(&format!("{name}.key")), signing_key.serialize_pem()).unwrap();
        }
        fs::copy(file("first"), file("trusted")).unwrap();
        let options = TlsOptions { cafile: Some(file("trusted")), ..TlsOptions::default() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dialer = Dialer {
            address: Address::parse(&format!("https://127.0.0.1:{port}")).unwrap(),
            tls: Some(ClientTls::load_for(&options, &[ALPN]).unwrap()),
            connect_timeout: Duration::from_secs(60),
            last_failure: LastFailure::default(),
        };
        let dial = async |name: &str| {
            let (certfile, keyfile) = (file(name), file(&format!("{name}.key")));
            let tls = ServerTls::load(ServerTlsFiles { certfile, keyfile, client_ca: None }).unwrap();
            let accept = async { tls.accept(listener.accept().await.unwrap().0).await.map(drop) };
            let (_, dialed) = tokio::join!(accept, dialer.clone().dial());
            dialed.map(drop)
        };
        assert_eq!(dial("first").await, Ok(()));
        let unknown = TlsError::UnknownCa { cafile: options.cafile.clone() };
        assert_eq!(dial("second").await, Err(DialError::Tls(unknown)));
        fs::copy(file("second"), file("trusted")).unwrap();
        assert_eq!(dial("second").await, Ok(()));
        fs::write(file("trusted"), "").unwrap();
        let empty = format!("{} is empty", file("trusted").display());
        assert_eq!(dialer.clone().dial().await.map(drop), Err(DialError::Files(empty)));
    }

    #[test]
    fn an_endpoint_is_a_url_of_a_host_and_a_port() {
        for (url, shown, is_tls) in [
            ("http://127.0.0.1:2379", "127.0.0.1:2379", false),
            ("https://etcd.example:1/", "etcd.example:1", true),
            ("https://etcd", "etcd:2379", true),
            ("http://[::1]:12379", "[::1]:12379", false),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!((address.to_string().as_str(), address.is_tls), (shown, is_tls), "{url}");
        }
        for url in [
            "",
            "etcd:2379",
            "127.0.0.1",
            "ftp://etcd:2379",
            "http://",
            "http://etcd:",
            "http://etcd:70000",
            "http://:2379",
            "http://etcd:2379/v3",
            "http://etcd:2379?a",
            "http://me:secret@etcd:2379",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
