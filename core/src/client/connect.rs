//! Connection of a byte stream to the broker: name resolution, TCP, TLS, WebSocket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::error::{Error, io_error_text};
use super::forwarding::Forwarding;
use super::probe::{AddressSource, ConnectionProbe, ConnectionStep};
use super::settings::{Settings, Target};
use crate::clock;
use crate::net::tls::client::{self as tls_client, HandshakeError};
use crate::net::tls::{ClientTls, TlsError};
use crate::net::websocket::{self, WebSocketError};

/// Where tunnels are open.
const LOOPBACK: &str = "127.0.0.1";

/// A connected stream, before the first MQTT packet.
pub(super) struct ByteStream {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The TLS version. None: without TLS.
    pub(super) tls: Option<&'static str>,
    /// Whether a TLS session of this process was resumed.
    pub(super) is_resumed: bool,
    /// The broker's address. None: not on the network.
    pub(super) address: Option<SocketAddr>,
    /// Whether the writer buffers what the socket does not take at once. It must then be flushed after writes.
    pub(super) is_buffered: bool,
}

impl ByteStream {
    fn new<S>(stream: S, tls: Option<&'static str>, is_buffered: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = tokio::io::split(stream);
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            tls,
            is_resumed: false,
            address: None,
            is_buffered,
        }
    }
}

/// Connects to the target and performs the TLS and WebSocket handshakes of the settings.
pub(super) async fn open_stream(settings: &Settings, deadline: Instant) -> Result<ByteStream, Error> {
    let Settings { target, tls, connect_timeout: after, .. } = settings;
    let late = |_| connect_error(settings, timeout_text(*after));
    let connecting = async |host: &str, port| {
        let connecting = connect_tcp(host, port, settings, deadline);
        timeout_at(deadline.into(), connecting).await.map_err(late)?
    };
    let (host, port, stream) = match target {
        Target::Tcp { host, port } => (&**host, *port, connecting(host, *port).await?),
        Target::Forwarded(forwarding) => {
            let local = local_port(forwarding, settings, deadline).await?;
            (&*forwarding.host, forwarding.port, connecting(LOOPBACK, local).await?)
        }
        Target::Pipe(open) => return Ok(ByteStream::new(open(), None, false)),
    };
    let address = stream.peer_addr().ok();
    let mut is_resumed = false;
    let stream = match tls {
        None if settings.web_socket.is_some() => {
            open_web_socket(stream, None, settings, deadline, host, port).await
        }
        None => {
            // TCP has a split without a lock of its own.
            let (reader, writer) = stream.into_split();
            let (reader, writer) = (Box::new(reader), Box::new(writer));
            Ok(ByteStream { reader, writer, tls: None, is_resumed, address: None, is_buffered: false })
        }
        Some(tls) => {
            let handshake = tls_handshake(tls, host, stream, settings, deadline).await;
            if let (Target::Forwarded(forwarding), Some(local), Err(Error::Tls { cause, .. })) =
                (target, address, &handshake)
                && matches!(cause, TlsError::TimedOut(_))
            {
                // A tunnel accepts connections also after its network has gone.
                forwarding.handle_silence(local.port());
            }
            let stream = handshake?;
            let version = Some(tls_client::version(&stream));
            is_resumed = tls_client::is_resumed(&stream);
            open_web_socket(stream, version, settings, deadline, host, port).await
        }
    };
    Ok(ByteStream { address, is_resumed, ..stream? })
}

/// Opens a WebSocket on the stream if the settings have a path for one.
async fn open_web_socket<S>(
    stream: S,
    tls_version: Option<&'static str>,
    settings: &Settings,
    deadline: Instant,
    host: &str,
    port: u16,
) -> Result<ByteStream, Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Settings { target, tls, connect_timeout: after, packet_bytes_max, probe, .. } = settings;
    let Some(path) = &settings.web_socket else {
        return Ok(ByteStream::new(stream, tls_version, tls_version.is_some()));
    };
    let handshake = websocket::connect(stream, host, port, path, *packet_bytes_max);
    let cause = match timeout_at(deadline.into(), handshake).await {
        Ok(Ok(stream)) => {
            probe.observe(|| ConnectionStep::WebSocketOpened { path: path.clone() });
            return Ok(ByteStream::new(stream, tls_version, true));
        }
        Ok(Err(websocket::HandshakeError::WebSocket(cause))) => cause,
        Ok(Err(websocket::HandshakeError::Io(error))) => {
            // In TLS 1.3 the broker verifies the client certificate after the client's handshake has ended, so its
            // alert arrives here.
            if let Some(cause) = tls.as_ref().and_then(|tls| tls.tls_error(&error)) {
                return Err(tls_error(settings, cause));
            }
            WebSocketError::Interrupted(io_error_text(&error))
        }
        Err(_) => WebSocketError::TimedOut(*after),
    };
    Err(Error::WebSocket { target: target.to_string(), cause })
}

async fn tls_handshake(
    tls: &ClientTls,
    host: &str,
    stream: TcpStream,
    settings: &Settings,
    deadline: Instant,
) -> Result<tls_client::Stream, Error> {
    let Settings { connect_timeout: after, probe, .. } = settings;
    let handshake = async {
        if !probe.is_active() {
            return tls.connect(host, stream).await;
        }
        let (result, handshake) = tls.connect_observed(host, stream).await;
        probe.observe(|| ConnectionStep::TlsHandshake(Box::new(handshake)));
        result
    };
    let cause = match timeout_at(deadline.into(), handshake).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(HandshakeError::Tls(cause))) => cause,
        Ok(Err(HandshakeError::Io(error))) => TlsError::Interrupted(io_error_text(&error)),
        Err(_) => TlsError::TimedOut(*after),
    };
    Err(tls_error(settings, cause))
}

/// Waits until the tunnel is open.
async fn local_port(forwarding: &Forwarding, settings: &Settings, deadline: Instant) -> Result<u16, Error> {
    let opened = timeout_at(deadline.into(), forwarding.opened()).await;
    opened.ok().flatten().ok_or_else(|| {
        let (target, cause) = (settings.target.to_string(), forwarding.failure());
        Error::NotForwarded { target, cause }
    })
}

/// Connects to the first address of the host that accepts a connection.
pub(super) async fn connect_tcp(
    host: &str,
    port: u16,
    settings: &Settings,
    deadline: Instant,
) -> Result<TcpStream, Error> {
    let Settings { target, connect_timeout: after, probe, .. } = settings;
    let (addresses, source) = resolve(host, port)
        .await
        .map_err(|error| Error::Resolve { target: target.to_string(), cause: io_error_text(&error) })?;
    if !addresses.is_empty() {
        let addresses = || addresses.iter().map(SocketAddr::ip).collect();
        probe.observe(|| ConnectionStep::Resolved { addresses: addresses(), source });
    }
    let left = deadline.saturating_duration_since(clock::monotonic());
    let connected = connect_first(&addresses, left, *after, probe).await;
    connected.map_err(|cause| connect_error(settings, cause))
}

/// Tries the addresses in order. Each has an equal share of the remaining time: if a host has IPv6 and IPv4 addresses,
/// often one kind is unreachable without an error.
async fn connect_first(
    addresses: &[SocketAddr],
    left: Duration,
    after: Duration,
    probe: &ConnectionProbe,
) -> Result<TcpStream, String> {
    let started = clock::monotonic();
    let mut cause = "the name has no address".to_owned();
    for (untried, address) in (1..=addresses.len()).rev().zip(addresses.iter().copied()) {
        let left = left.saturating_sub(clock::monotonic().saturating_duration_since(started));
        // No resolver returns 2^32 addresses; `untried` is not 0.
        let share = left.checked_div(u32::try_from(untried).unwrap_or(u32::MAX)).unwrap_or(left);
        let connected = timeout(share, TcpStream::connect(address)).await;
        match connected
            .map_err(|_| timeout_text(after))
            .and_then(|result| result.map_err(|error| io_error_text(&error)))
        {
            Ok(stream) => {
                // With Nagle's algorithm each request takes about 40 ms longer (protocol §8). A socket that does not
                // support the option works nevertheless.
                let _ = stream.set_nodelay(true);
                probe.observe(|| ConnectionStep::Connected { address });
                return Ok(stream);
            }
            Err(text) => {
                probe.observe(|| ConnectionStep::ConnectFailed { address, cause: text.clone() });
                cause = text;
            }
        }
    }
    Err(cause)
}

/// Returns the error of a connection that was not made, or was lost before CONNACK.
pub(super) fn connect_error(settings: &Settings, cause: String) -> Error {
    Error::Connect { target: settings.target.to_string(), scheme: settings.scheme(), cause }
}

/// Returns the error of a failed TLS handshake.
pub(super) fn tls_error(settings: &Settings, cause: TlsError) -> Error {
    let Settings { target, web_socket, .. } = settings;
    Error::Tls { target: target.to_string(), cause, in_web_socket: web_socket.is_some() }
}

/// Returns the deadline of a connection attempt that starts now.
pub(super) fn deadline(after: Duration) -> Instant {
    /// A hundred years: practically no timeout, and within the range of the clock.
    const AFTER_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = clock::monotonic();
    now.checked_add(after.min(AFTER_MAX)).unwrap_or(now)
}

fn timeout_text(after: Duration) -> String {
    format!("connection timed out after {after:?}")
}

async fn resolve(host: &str, port: u16) -> io::Result<(Vec<SocketAddr>, AddressSource)> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok((vec![SocketAddr::new(address, port)], AddressSource::Given));
    }
    // Loopback by definition (RFC 6761, 6.3), which saves the resolver's thread.
    if host.eq_ignore_ascii_case("localhost") {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let addresses = loopback.map(|address| SocketAddr::new(address, port)).to_vec();
        return Ok((addresses, AddressSource::Loopback));
    }
    Ok((tokio::net::lookup_host((host, port)).await?.collect(), AddressSource::Resolver))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn an_address_without_an_answer_leaves_time_for_the_next_one() {
        const SHORT: Duration = Duration::from_millis(100);
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // When its queue is full, the socket neither accepts nor refuses a connection.
        let silent = silent.listen(0).unwrap();
        let silent = silent.local_addr().map(|address| (silent, address)).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(SHORT, TcpStream::connect(silent.1)).await {
            queued.push(stream.unwrap());
        }
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.1, open.local_addr().unwrap()];
        let within = SHORT.saturating_mul(20);
        let probe = ConnectionProbe::default();
        let connected = timeout(within, connect_first(&addresses, within, within, &probe)).await.unwrap();
        assert_eq!(connected.unwrap().peer_addr().unwrap(), addresses[1]);
        let failed = connect_first(&addresses[..1], SHORT, SHORT, &probe).await;
        assert_eq!(failed.unwrap_err(), "connection timed out after 100ms");
    }
}
