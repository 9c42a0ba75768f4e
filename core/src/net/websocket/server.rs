//! The server's side of the WebSocket handshake.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error as Fault, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::frame_limit::{FrameLimit, PART_BYTES_MAX};
use super::stream::{SUBPROTOCOL, WebSocket, config};

const SUBPROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";
/// The longest head of a request, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The frame limit before the first response: no less than the broker's longest CONNECT.
pub(super) const UNANSWERED_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Performs the handshake. `path` is the only path that is accepted; None accepts every path.
///
/// Browsers let every page open a WebSocket to any server and send the page's origin: `is_allowed` decides about the
/// `Origin` and `Host` headers. `bytes_max` is the longest frame.
///
/// # Errors
/// The cause, and the stream. The client has been sent an HTTP error; the caller shuts the stream down gracefully, so that
/// the client receives it.
pub(crate) async fn accept<S>(
    mut stream: S,
    path: Option<&str>,
    is_allowed: impl Fn(&str, Option<&str>) -> bool,
    bytes_max: u32,
) -> Result<WebSocket<S>, (String, S)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = BytesMut::new();
    let (response, refusal) = match read_request(&mut stream, &mut head).await {
        Ok(request) => match check_origin(&request, is_allowed).and_then(|()| response(&request, path)) {
            Ok(response) => (response, None),
            Err(refusal) => (refusal.response(), Some(refusal.reason)),
        },
        Err(RequestError::NotHttp(reason)) => return Err((reason, stream)),
        Err(RequestError::Http(refusal)) => (refusal.response(), Some(refusal.reason)),
    };
    let written = match stream.write_all(&response).await {
        Ok(()) => stream.flush().await,
        Err(error) => Err(error),
    };
    match (refusal, written) {
        (Some(reason), _) => Err((reason, stream)),
        (None, Err(error)) => Err((error.to_string(), stream)),
        (None, Ok(())) => {
            let config = Some(config(PART_BYTES_MAX));
            let limited = FrameLimit::new(stream, head, bytes_max.into(), UNANSWERED_BYTES_MAX);
            let stream = WebSocketStream::from_raw_socket(limited, Role::Server, config).await;
            Ok(WebSocket::new(stream))
        }
    }
}

/// An HTTP response that refuses the WebSocket.
struct Refusal {
    status: &'static str,
    /// Additional header lines.
    headers: &'static str,
    /// The cause, for the log.
    reason: String,
}

impl Refusal {
    fn new(status: &'static str, reason: impl Into<String>) -> Self {
        Self { status, headers: "", reason: reason.into() }
    }

    fn response(&self) -> Vec<u8> {
        let Self { status, headers, .. } = self;
        let body = "MQTT over WebSockets, subprotocol mqtt\n";
        let length = body.len();
        let head = "Connection: close\r\nContent-Type: text/plain; charset=utf-8";
        format!("HTTP/1.1 {status}\r\n{headers}{head}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    }
}

enum RequestError {
    /// Not an HTTP client: it gets no response.
    NotHttp(String),
    Http(Refusal),
}

/// Reads the head of a request. Bytes received after it are left in `head`.
async fn read_request<S>(stream: &mut S, head: &mut BytesMut) -> Result<Request, RequestError>
where
    S: AsyncRead + Unpin,
{
    /// The first byte of a CONNECT.
    const CONNECT: u8 = 0x10;
    /// The first byte of a TLS handshake.
    const TLS_HANDSHAKE: u8 = 0x16;
    let not_http = |reason: &str| Err(RequestError::NotHttp(reason.to_owned()));
    let refused = |status, reason: &str| Err(RequestError::Http(Refusal::new(status, reason)));
    loop {
        match head.first() {
            Some(&CONNECT) => return not_http("MQTT without a WebSocket"),
            Some(&TLS_HANDSHAKE) => return not_http("TLS on a listener without TLS"),
            _ => {}
        }
        match Request::try_parse(head) {
            Ok(Some((len, request))) => {
                drop(head.split_to(len.min(head.len())));
                return Ok(request);
            }
            Ok(None) if head.len() >= HEAD_BYTES_MAX => {
                return refused("431 Request Header Fields Too Large", "HTTP request is too long");
            }
            Ok(None) => {}
            Err(Fault::Protocol(ProtocolError::WrongHttpMethod)) => {
                return refused("405 Method Not Allowed", "HTTP method is not GET");
            }
            Err(Fault::Protocol(ProtocolError::WrongHttpVersion)) => {
                return refused("505 HTTP Version Not Supported", "HTTP version is older than 1.1");
            }
            Err(Fault::Capacity(_)) => {
                let reason = "HTTP request has too many headers";
                return refused("431 Request Header Fields Too Large", reason);
            }
            Err(_) if head.first().is_some_and(u8::is_ascii_alphabetic) => {
                return refused("400 Bad Request", "malformed HTTP request");
            }
            Err(_) => return not_http("client does not speak HTTP"),
        }
        head.reserve(HEAD_BYTES_MAX.saturating_sub(head.len()).max(1));
        match stream.read_buf(head).await {
            Ok(0) => return not_http("connection closed before the WebSocket handshake"),
            Ok(_) => {}
            Err(error) => return not_http(&error.to_string()),
        }
    }
}

/// Checks all `Origin` headers. Clients that are not browsers send none and are accepted.
fn check_origin(request: &Request, is_allowed: impl Fn(&str, Option<&str>) -> bool) -> Result<(), Refusal> {
    let host = request.headers().get("Host").and_then(|host| host.to_str().ok());
    for origin in request.headers().get_all("Origin") {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if !is_allowed(&origin, host) {
            let reason = format!("web page of origin {origin} is not allowed; --ws-origin allows it");
            return Err(Refusal::new("403 Forbidden", reason));
        }
    }
    Ok(())
}

/// Returns the response that accepts the request.
fn response(request: &Request, path: Option<&str>) -> Result<Vec<u8>, Refusal> {
    use ProtocolError as Missing;
    let mut response = create_response(request).map_err(|fault| match fault {
        Fault::Protocol(Missing::MissingConnectionUpgradeHeader | Missing::MissingUpgradeWebSocketHeader) => {
            Refusal {
                headers: "Upgrade: websocket\r\n",
                ..Refusal::new("426 Upgrade Required", "HTTP request without an upgrade to a WebSocket")
            }
        }
        Fault::Protocol(Missing::MissingSecWebSocketVersionHeader) => Refusal {
            headers: "Sec-WebSocket-Version: 13\r\n",
            ..Refusal::new("426 Upgrade Required", "WebSocket version is not 13")
        },
        other => Refusal::new("400 Bad Request", format!("malformed WebSocket request: {other}")),
    })?;
    if path.is_some_and(|path| path != request.uri().path()) {
        let reason = format!("no WebSocket at path {}", request.uri().path());
        return Err(Refusal::new("404 Not Found", reason));
    }
    let offers = request.headers().get_all(SUBPROTOCOL_HEADER);
    let mut offers = offers.iter().filter_map(|offer| offer.to_str().ok()).flat_map(|offer| offer.split(','));
    if !offers.any(|offer| offer.trim() == SUBPROTOCOL) {
        return Err(Refusal::new("400 Bad Request", "subprotocol mqtt not offered"));
    }
    response.headers_mut().insert(SUBPROTOCOL_HEADER, HeaderValue::from_static(SUBPROTOCOL));
    let mut bytes = Vec::new();
    let written = write_response(&mut bytes, &response);
    written.map_err(|fault| Refusal::new("400 Bad Request", fault.to_string()))?;
    Ok(bytes)
}
