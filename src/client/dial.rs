//! From a target to a stream of bytes: names, TCP, TLS, WebSockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::error::Error;
use super::settings::{Settings, Target};
use crate::client::probe::{AddressSource, ConnectionProbe, ConnectionStep};
use crate::clock;
use crate::net::tls;
use crate::net::tls::ClientTls;
use crate::net::tls::TlsError;
use crate::net::tls::client::HandshakeError;
use crate::net::websocket;
use crate::net::websocket::WebSocketError;

/// A stream to a broker on which nothing has been said of MQTT.
pub(super) struct Line {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The version of TLS, if it is spoken.
    pub(super) tls: Option<&'static str>,
    /// Where the other end is, on the network.
    pub(super) address: Option<SocketAddr>,
    /// Whether it keeps what the socket does not take at once, and must be flushed behind what is written.
    pub(super) holds_back: bool,
}

impl Line {
    fn new<S>(stream: S, tls: Option<&'static str>, holds_back: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader: Box::new(reader), writer: Box::new(writer), tls, address: None, holds_back }
    }
}

/// Connects, and shakes hands where TLS is spoken, all before the deadline.
pub(super) async fn dial(settings: &Settings, deadline: Instant) -> Result<Line, Error> {
    let Settings { target, tls, connect_timeout: after, .. } = settings;
    let (host, port) = match target {
        Target::Tcp { host, port } => (host, *port),
        Target::Pipe(dial) => return Ok(Line::new(dial(), None, false)),
    };
    let late = |_| Error::Connect { target: target.to_string(), cause: too_late(*after) };
    let dialing = dial_tcp(host, port, settings, deadline);
    let stream = timeout_at(deadline.into(), dialing).await.map_err(late)??;
    let address = stream.peer_addr().ok();
    let line = match tls {
        None if settings.web_socket.is_some() => upgrade(stream, None, settings, deadline, host, port).await,
        None => {
            let (reader, writer) = stream.into_split();
            let (reader, writer) = (Box::new(reader), Box::new(writer));
            Ok(Line { reader, writer, tls: None, address: None, holds_back: false })
        }
        Some(tls) => {
            let stream = shake_hands(tls, host, stream, settings, deadline).await?;
            let version = Some(tls::client::version(&stream));
            upgrade(stream, version, settings, deadline, host, port).await
        }
    };
    Ok(Line { address, ..line? })
}

/// Asks for a WebSocket on a stream, if one is wanted.
async fn upgrade<S>(
    stream: S,
    version: Option<&'static str>,
    settings: &Settings,
    deadline: Instant,
    host: &str,
    port: u16,
) -> Result<Line, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Settings { target, tls, connect_timeout: after, packet_bytes_max, probe, .. } = settings;
    let Some(path) = &settings.web_socket else { return Ok(Line::new(stream, version, version.is_some())) };
    let asking = websocket::connect(stream, host, port, path, *packet_bytes_max);
    let cause = match timeout_at(deadline.into(), asking).await {
        Ok(Ok(stream)) => {
            probe.observe(|| ConnectionStep::WebSocketOpened { path: path.clone() });
            return Ok(Line::new(stream, version, true));
        }
        Ok(Err(websocket::HandshakeError::WebSocket(cause))) => cause,
        Ok(Err(websocket::HandshakeError::Io(error))) => {
            // In TLS 1.3 a broker sees the client's certificate when the client is done with the handshake.
            if let Some(cause) = tls.as_ref().and_then(|tls| tls.tls_error(&error)) {
                return Err(of_tls(settings, cause));
            }
            WebSocketError::Interrupted(explain(&error))
        }
        Err(_) => WebSocketError::TimedOut(*after),
    };
    Err(Error::WebSocket { target: target.to_string(), cause })
}

async fn shake_hands(
    tls: &ClientTls,
    host: &str,
    stream: TcpStream,
    settings: &Settings,
    deadline: Instant,
) -> Result<tls::client::Stream, Error> {
    let Settings { connect_timeout: after, probe, .. } = settings;
    let handshake = async {
        if !probe.is_active() {
            return tls.connect(host, stream).await;
        }
        let (result, sight) = tls.connect_observed(host, stream).await;
        probe.observe(|| ConnectionStep::TlsHandshake(Box::new(sight)));
        result
    };
    let cause = match timeout_at(deadline.into(), handshake).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(HandshakeError::Tls(cause))) => cause,
        Ok(Err(HandshakeError::Io(error))) => TlsError::Interrupted(explain(&error)),
        Err(_) => TlsError::TimedOut(*after),
    };
    Err(of_tls(settings, cause))
}

/// A connection to the first address that takes one.
pub(super) async fn dial_tcp(
    host: &str,
    port: u16,
    settings: &Settings,
    deadline: Instant,
) -> Result<TcpStream, Error> {
    let Settings { target, connect_timeout: after, probe, .. } = settings;
    let (addresses, source) = resolve(host, port)
        .await
        .map_err(|error| Error::Resolve { target: target.to_string(), cause: explain(&error) })?;
    if !addresses.is_empty() {
        let addresses = || addresses.iter().map(SocketAddr::ip).collect();
        probe.observe(|| ConnectionStep::Resolved { addresses: addresses(), source });
    }
    let left = deadline.saturating_duration_since(clock::monotonic());
    let connected = connect_first(&addresses, left, *after, probe).await;
    connected.map_err(|cause| Error::Connect { target: target.to_string(), cause })
}

/// Connects to the first address that answers. One that says nothing leaves an equal share of the time to each of the
/// others: where a name has addresses of two kinds, one of them often leads nowhere.
async fn connect_first(
    addresses: &[SocketAddr],
    left: Duration,
    after: Duration,
    probe: &ConnectionProbe,
) -> Result<TcpStream, String> {
    let begun = clock::monotonic();
    let mut cause = "the name has no address".to_owned();
    for (untried, address) in (1..=addresses.len()).rev().zip(addresses.iter().copied()) {
        let left = left.saturating_sub(clock::monotonic().saturating_duration_since(begun));
        let share = left.checked_div(u32::try_from(untried).unwrap_or(u32::MAX)).unwrap_or(left);
        let connected = timeout(share, TcpStream::connect(address)).await;
        match connected
            .map_err(|_| too_late(after))
            .and_then(|result| result.map_err(|error| explain(&error)))
        {
            Ok(stream) => {
                // Without it each request costs some 40 ms more (protocol §8); a socket that refuses still works.
                let _ = stream.set_nodelay(true);
                probe.observe(|| ConnectionStep::Connected { address });
                return Ok(stream);
            }
            Err(missed) => {
                probe.observe(|| ConnectionStep::ConnectFailed { address, cause: missed.clone() });
                cause = missed;
            }
        }
    }
    Err(cause)
}

/// What came between in TLS, on the way to where the settings lead.
pub(super) fn of_tls(settings: &Settings, cause: TlsError) -> Error {
    let Settings { target, web_socket, .. } = settings;
    Error::Tls { target: target.to_string(), cause, in_web_socket: web_socket.is_some() }
}

/// When a connection that is begun now must have been made.
pub(super) fn deadline(after: Duration) -> Instant {
    /// As good as for ever, and no clock overflows.
    const AFTER_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = clock::monotonic();
    now.checked_add(after.min(AFTER_MAX)).unwrap_or(now)
}

fn too_late(after: Duration) -> String {
    format!("no connection within {after:?}")
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
        io::ErrorKind::ConnectionRefused => Error::REFUSED.to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the other side".to_owned(),
        io::ErrorKind::UnexpectedEof => "the other side closed the connection".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn an_address_that_says_nothing_leaves_time_for_the_next_one() {
        const SHORT: Duration = Duration::from_millis(100);
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // With a full queue it says neither yes nor no.
        let silent = silent.listen(0).unwrap();
        let silent = silent.local_addr().map(|address| (silent, address)).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(SHORT, TcpStream::connect(silent.1)).await {
            waiting.push(stream.unwrap());
        }
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.1, open.local_addr().unwrap()];
        let within = SHORT.saturating_mul(20);
        let probe = ConnectionProbe::default();
        let reached = timeout(within, connect_first(&addresses, within, within, &probe)).await.unwrap();
        assert_eq!(reached.unwrap().peer_addr().unwrap(), addresses[1]);
        let missed = connect_first(&addresses[..1], SHORT, SHORT, &probe).await;
        assert_eq!(missed.unwrap_err(), "no connection within 100ms");
    }
}
