//! From a target to a stream of bytes: names, TCP, TLS.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::{Error, TlsTrouble};
use super::examination::{AddressSource, Examiner, Finding};
use super::settings::{Settings, Target};
use super::tls::{self, Failure, Tls};

/// A stream to a broker on which nothing has been said of MQTT.
pub(super) struct Line {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The version of TLS, if it is spoken.
    pub(super) tls: Option<&'static str>,
}

/// Connects, and shakes hands where TLS is spoken.
pub(super) async fn dial(settings: &Settings) -> Result<Line, Error> {
    let Settings { target, tls, connect_timeout: after, examiner, .. } = settings;
    let (host, port) = match target {
        Target::Tcp { host, port } => (host, *port),
        Target::Pipe(dial) => {
            let (reader, writer) = tokio::io::split(dial());
            return Ok(Line { reader: Box::new(reader), writer: Box::new(writer), tls: None });
        }
    };
    let late = |_| {
        let cause = format!("no connection within {after:?}");
        Error::Connect { target: target.to_string(), cause }
    };
    let stream = timeout(*after, dial_tcp(host, port, target, examiner)).await.map_err(late)??;
    match tls {
        None => {
            let (reader, writer) = stream.into_split();
            Ok(Line { reader: Box::new(reader), writer: Box::new(writer), tls: None })
        }
        Some(tls) => {
            let stream = shake_hands(tls, host, stream, settings).await?;
            let version = Some(tls::version(&stream));
            let (reader, writer) = tokio::io::split(stream);
            Ok(Line { reader: Box::new(reader), writer: Box::new(writer), tls: version })
        }
    }
}

async fn shake_hands(
    tls: &Tls,
    host: &str,
    stream: TcpStream,
    settings: &Settings,
) -> Result<tls::Stream, Error> {
    let Settings { target, connect_timeout: after, examiner, .. } = settings;
    let handshake = async {
        if !examiner.looks_on() {
            return tls.connect(host, stream).await;
        }
        let (result, sight) = tls.connect_examined(host, stream).await;
        examiner.tell(|| Finding::Secured(Box::new(sight)));
        result
    };
    let trouble = match timeout(*after, handshake).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(Failure::Tls(trouble))) => trouble,
        Ok(Err(Failure::Io(error))) => TlsTrouble::Cut(explain(&error)),
        Err(_) => TlsTrouble::Silent(*after),
    };
    Err(Error::Tls { target: target.to_string(), trouble })
}

async fn dial_tcp(host: &str, port: u16, target: &Target, examiner: &Examiner) -> Result<TcpStream, Error> {
    let (addresses, source) = resolve(host, port)
        .await
        .map_err(|error| Error::Resolve { target: target.to_string(), cause: explain(&error) })?;
    if !addresses.is_empty() {
        let addresses = || addresses.iter().map(SocketAddr::ip).collect();
        examiner.tell(|| Finding::Resolved { addresses: addresses(), source });
    }
    let mut cause = "the name has no address".to_owned();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it each request costs some 40 ms more (protocol §8); a socket that refuses still works.
                let _ = stream.set_nodelay(true);
                examiner.tell(|| Finding::Reached { address });
                return Ok(stream);
            }
            Err(error) => {
                cause = explain(&error);
                examiner.tell(|| Finding::Missed { address, cause: cause.clone() });
            }
        }
    }
    Err(Error::Connect { target: target.to_string(), cause })
}

async fn resolve(host: &str, port: u16) -> io::Result<(Vec<SocketAddr>, AddressSource)> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok((vec![SocketAddr::new(address, port)], AddressSource::Given));
    }
    // Loopback by definition (RFC 6761): no resolver, no thread for it.
    if host.eq_ignore_ascii_case("localhost") {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let addresses = loopback.map(|address| SocketAddr::new(address, port)).to_vec();
        return Ok((addresses, AddressSource::Loopback));
    }
    Ok((tokio::net::lookup_host((host, port)).await?.collect(), AddressSource::Resolver))
}

/// The system's words without its numbers; what ends a connection silently gets words of ours.
pub(super) fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the other side".to_owned(),
        io::ErrorKind::UnexpectedEof => "the other side closed the connection".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}
