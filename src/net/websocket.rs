//! MQTT over WebSockets (MQTT 5, 6.0), for both sides: the only file that names the WebSocket crate.

mod frame_limit;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::error::{Error as Fault, ProtocolError, SubProtocolError};
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::client::error::WebSocketError;
use crate::net::websocket::frame_limit::{FrameLimit, TOO_LONG};

/// The path of a broker where none is given; it is what most brokers and clients have.
pub const PATH: &str = "/mqtt";
/// The name of MQTT among the subprotocols.
const SUBPROTOCOL: &str = "mqtt";
const SUBPROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";
/// More than the head of any request for a WebSocket has.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// The longest message sent; packets may span messages.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// What is allocated for reading at the start; a frame grows it by what it announces, within the limit of frames.
const READ_BYTES: usize = 8 * 1024;
/// What may be announced before it is answered, in one frame or in all: no less than the broker's longest CONNECT.
const UNANSWERED_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// A stream of bytes in binary messages. What it does not get rid of at once is held back until it is flushed. One that
/// was accepted takes no more than a CONNECT can come to until something is written, and nothing is lost of it then.
#[derive(Debug)]
pub struct WebSocket<S> {
    stream: WebSocketStream<FrameLimit<S>>,
    /// What is left of the last message.
    unread: Bytes,
    /// Why it is closed, if the other side broke the rules.
    blame: Option<CloseCode>,
    /// Why the other side has closed it, where it did not just go.
    farewell: Option<String>,
    goodbye: Goodbye,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goodbye {
    Unsaid,
    Said,
    Sent,
}

/// Asks a broker for a WebSocket; no message from it may be longer than so many bytes.
///
/// # Errors
/// What it answered instead.
pub(crate) async fn connect<S>(
    stream: S,
    host: &str,
    port: u16,
    path: &str,
    bytes_max: u32,
) -> Result<WebSocket<S>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let uri: Uri = format!("ws://{host}:{port}{path}")
        .parse()
        .map_err(|_| Failure::Trouble(WebSocketError::Other(format!("none can be at {path} of {host}"))))?;
    let request = ClientRequestBuilder::new(uri).with_sub_protocol(SUBPROTOCOL);
    let (stream, _) = client_async_with_config(request, FrameLimit::opened(stream), Some(config(bytes_max)))
        .await
        .map_err(failure)?;
    Ok(WebSocket::new(stream))
}

/// Why there is no WebSocket.
pub(crate) enum Failure {
    Trouble(WebSocketError),
    Io(io::Error),
}

fn failure(fault: Fault) -> Failure {
    Failure::Trouble(match fault {
        Fault::Http(response) => WebSocketError::Status(response.status().as_u16()),
        Fault::Protocol(ProtocolError::SecWebSocketSubProtocolError(
            SubProtocolError::NoSubProtocol | SubProtocolError::InvalidSubProtocol,
        )) => WebSocketError::NoSubprotocol,
        Fault::Protocol(ProtocolError::HttparseError(_)) | Fault::HttpFormat(_) => WebSocketError::NotHttp,
        Fault::Protocol(ProtocolError::HandshakeIncomplete) => {
            return Failure::Io(io::ErrorKind::UnexpectedEof.into());
        }
        Fault::Io(error) => return Failure::Io(error),
        other => WebSocketError::Other(other.to_string()),
    })
}

/// Answers a client that asks for a WebSocket at this path, if only one is served.
///
/// Browsers let any page ask, and say which: `may_come` is asked about its origin and the host that it asks for.
///
/// # Errors
/// Why there is none; the client has been told, and the stream comes back to be closed so that it hears it.
pub(crate) async fn accept<S>(
    mut stream: S,
    path: Option<&str>,
    may_come: impl Fn(&str, Option<&str>) -> bool,
    bytes_max: u32,
) -> Result<WebSocket<S>, (String, S)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = BytesMut::new();
    let (answer, refusal) = match read_request(&mut stream, &mut head).await {
        Ok(request) => match check_origin(&request, may_come).and_then(|()| answer(&request, path)) {
            Ok(answer) => (answer, None),
            Err(refusal) => (refusal.answer(), Some(refusal.reason)),
        },
        Err(Unreadable::Silent(reason)) => return Err((reason, stream)),
        Err(Unreadable::Answered(refusal)) => (refusal.answer(), Some(refusal.reason)),
    };
    let written = match stream.write_all(&answer).await {
        Ok(()) => stream.flush().await,
        Err(error) => Err(error),
    };
    match (refusal, written) {
        (Some(reason), _) => Err((reason, stream)),
        (None, Err(error)) => Err((error.to_string(), stream)),
        (None, Ok(())) => {
            let config = Some(config(bytes_max));
            let gate = FrameLimit::shut(stream, head, UNANSWERED_BYTES_MAX);
            let stream = WebSocketStream::from_raw_socket(gate, Role::Server, config).await;
            Ok(WebSocket::new(stream))
        }
    }
}

/// An answer that is no WebSocket.
struct Refusal {
    status: &'static str,
    /// Other lines of the head.
    lines: &'static str,
    /// For the operator.
    reason: String,
}

impl Refusal {
    fn new(status: &'static str, reason: impl Into<String>) -> Self {
        Self { status, lines: "", reason: reason.into() }
    }

    fn answer(&self) -> Vec<u8> {
        let Self { status, lines, .. } = self;
        let body = "This is MQTT 5 over WebSockets, with the subprotocol mqtt.\n";
        let length = body.len();
        let head = "Connection: close\r\nContent-Type: text/plain; charset=utf-8";
        format!("HTTP/1.1 {status}\r\n{lines}{head}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
    }
}

enum Unreadable {
    /// It would not understand an answer.
    Silent(String),
    Answered(Refusal),
}

/// Reads the head of a request; what came behind it is left in `head`.
async fn read_request<S>(stream: &mut S, head: &mut BytesMut) -> Result<Request, Unreadable>
where
    S: AsyncRead + Unpin,
{
    /// The first byte of a CONNECT.
    const CONNECT: u8 = 0x10;
    /// The first byte of whoever wants TLS.
    const TLS_HANDSHAKE: u8 = 0x16;
    let silent = |reason: &str| Err(Unreadable::Silent(reason.to_owned()));
    let answered = |status, reason: &str| Err(Unreadable::Answered(Refusal::new(status, reason)));
    loop {
        match head.first() {
            Some(&CONNECT) => return silent("it speaks MQTT without a WebSocket"),
            Some(&TLS_HANDSHAKE) => return silent("it speaks TLS, and is not spoken to in it"),
            _ => {}
        }
        match Request::try_parse(head) {
            Ok(Some((len, request))) => {
                drop(head.split_to(len.min(head.len())));
                return Ok(request);
            }
            Ok(None) if head.len() >= HEAD_BYTES_MAX => {
                return answered("431 Request Header Fields Too Large", "its HTTP request is too long");
            }
            Ok(None) => {}
            Err(Fault::Protocol(ProtocolError::WrongHttpMethod)) => {
                return answered(
                    "405 Method Not Allowed",
                    "it asked for no WebSocket, by another method than GET",
                );
            }
            Err(Fault::Protocol(ProtocolError::WrongHttpVersion)) => {
                return answered("505 HTTP Version Not Supported", "it speaks an old version of HTTP");
            }
            Err(Fault::Capacity(_)) => {
                let reason = "its HTTP request has too many headers";
                return answered("431 Request Header Fields Too Large", reason);
            }
            Err(_) if head.first().is_some_and(u8::is_ascii_alphabetic) => {
                return answered("400 Bad Request", "its HTTP request makes no sense");
            }
            Err(_) => return silent("it does not speak HTTP"),
        }
        head.reserve(HEAD_BYTES_MAX.saturating_sub(head.len()).max(1));
        match stream.read_buf(head).await {
            Ok(0) => return silent("it closed before it had asked for a WebSocket"),
            Ok(_) => {}
            Err(error) => return silent(&error.to_string()),
        }
    }
}

/// Only browsers send an origin.
fn check_origin(request: &Request, may_come: impl Fn(&str, Option<&str>) -> bool) -> Result<(), Refusal> {
    let host = request.headers().get("Host").and_then(|host| host.to_str().ok());
    for origin in request.headers().get_all("Origin") {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        if !may_come(&origin, host) {
            let reason = format!("it is a page of {origin}, and not let in: --ws-origin would do so");
            return Err(Refusal::new("403 Forbidden", reason));
        }
    }
    Ok(())
}

/// The answer to a request for a WebSocket.
fn answer(request: &Request, path: Option<&str>) -> Result<Vec<u8>, Refusal> {
    use ProtocolError as Missing;
    let mut response = create_response(request).map_err(|fault| match fault {
        Fault::Protocol(Missing::MissingConnectionUpgradeHeader | Missing::MissingUpgradeWebSocketHeader) => {
            Refusal {
                lines: "Upgrade: websocket\r\n",
                ..Refusal::new(
                    "426 Upgrade Required",
                    "it asked over HTTP for something else than a WebSocket",
                )
            }
        }
        Fault::Protocol(Missing::MissingSecWebSocketVersionHeader) => Refusal {
            lines: "Sec-WebSocket-Version: 13\r\n",
            ..Refusal::new("426 Upgrade Required", "it asked for another version of WebSockets than 13")
        },
        other => Refusal::new("400 Bad Request", format!("its request for a WebSocket is broken: {other}")),
    })?;
    if path.is_some_and(|path| path != request.uri().path()) {
        let reason = format!("it asked for a WebSocket at {}, where none is", request.uri().path());
        return Err(Refusal::new("404 Not Found", reason));
    }
    let offers = request.headers().get_all(SUBPROTOCOL_HEADER);
    let mut offers = offers.iter().filter_map(|offer| offer.to_str().ok()).flat_map(|offer| offer.split(','));
    if !offers.any(|offer| offer.trim() == SUBPROTOCOL) {
        return Err(Refusal::new("400 Bad Request", "it asked for no mqtt subprotocol"));
    }
    response.headers_mut().insert(SUBPROTOCOL_HEADER, HeaderValue::from_static(SUBPROTOCOL));
    let mut answer = Vec::new();
    let written = write_response(&mut answer, &response);
    written.map_err(|fault| Refusal::new("400 Bad Request", fault.to_string()))?;
    Ok(answer)
}

fn config(bytes_max: u32) -> WebSocketConfig {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    // Nothing is buffered that could be written; room for one message and the pong or close on top.
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_BYTES_MAX.saturating_mul(2))
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
}

impl<S> WebSocket<S> {
    fn new(stream: WebSocketStream<FrameLimit<S>>) -> Self {
        Self { stream, unread: Bytes::new(), blame: None, farewell: None, goodbye: Goodbye::Unsaid }
    }

    fn blame(&mut self, code: CloseCode, words: impl Into<String>) -> io::Error {
        self.blame = Some(code);
        io::Error::new(io::ErrorKind::InvalidData, words.into())
    }

    /// What ended the reading; none if it is just the end.
    fn judge(&mut self, fault: Fault) -> Option<io::Error> {
        Some(match fault {
            Fault::Io(error) if error.kind() == TOO_LONG => {
                self.blame(CloseCode::Size, format!("WebSocket: {error}"))
            }
            Fault::Io(error) => error,
            Fault::ConnectionClosed
            | Fault::AlreadyClosed
            | Fault::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return None,
            Fault::Capacity(cause) => self.blame(CloseCode::Size, format!("WebSocket: {cause}")),
            Fault::Utf8(_) => self.blame(CloseCode::Invalid, "text in a WebSocket, and it is not UTF-8"),
            Fault::Protocol(cause) => self.blame(CloseCode::Protocol, format!("WebSocket: {cause}")),
            other => io::Error::other(other.to_string()),
        })
    }

    /// What ended the writing.
    fn lost(&self, fault: Fault) -> io::Error {
        match fault {
            Fault::Io(error) => error,
            Fault::ConnectionClosed
            | Fault::AlreadyClosed
            | Fault::Protocol(ProtocolError::SendAfterClosing) => self.closed(),
            other => io::Error::new(io::ErrorKind::BrokenPipe, other.to_string()),
        }
    }

    /// How the reading ends: an everyday end is none that has to be told.
    fn end(&self) -> io::Result<()> {
        if self.farewell.is_some() { Err(self.closed()) } else { Ok(()) }
    }

    /// That the other side has closed it, and why.
    fn closed(&self) -> io::Error {
        match &self.farewell {
            Some(farewell) => io::Error::other(farewell.clone()),
            None => io::ErrorKind::UnexpectedEof.into(),
        }
    }
}

/// What there is to say of a close, if it is not everyday life.
fn farewell(frame: &CloseFrame) -> Option<String> {
    let CloseFrame { code, reason } = frame;
    let words = match reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", reason.escape_debug()),
    };
    let code = u16::from(*code);
    let is_usual = matches!(frame.code, CloseCode::Normal | CloseCode::Away | CloseCode::Status);
    (!is_usual).then(|| format!("the other side closed the WebSocket with code {code}{words}"))
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.unread = bytes,
                Some(Ok(Message::Text(_))) => {
                    let words = "text in a WebSocket, where MQTT is binary";
                    return Poll::Ready(Err(self.blame(CloseCode::Unsupported, words)));
                }
                // Followed by the end, once the crate has answered it.
                Some(Ok(Message::Close(frame))) => self.farewell = frame.as_ref().and_then(farewell),
                // Answered by the crate, at most one answer at a time.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(fault)) => return Poll::Ready(self.judge(fault).map_or_else(|| self.end(), Err)),
                None => return Poll::Ready(self.end()),
            }
        }
        let len = self.unread.len().min(into.remaining());
        into.put_slice(&self.unread.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.get_mut().open();
        let ready = ready!(Pin::new(&mut self.stream).poll_ready(context));
        ready.map_err(|fault| self.lost(fault))?;
        let taken = bytes.get(..MESSAGE_BYTES_MAX).unwrap_or(bytes);
        let message = Message::Binary(Bytes::copy_from_slice(taken));
        let sent = Pin::new(&mut self.stream).start_send(message);
        sent.map_err(|fault| self.lost(fault))?;
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(flushed.map_err(|fault| self.lost(fault)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.goodbye {
                Goodbye::Unsaid => {
                    // An error means that the other side was first, or that nobody is there to hear it.
                    let _ = ready!(Pin::new(&mut self.stream).poll_ready(context));
                    let code = self.blame.unwrap_or(CloseCode::Normal);
                    let frame = CloseFrame { code, reason: "".into() };
                    let _ = Pin::new(&mut self.stream).start_send(Message::Close(Some(frame)));
                    self.goodbye = Goodbye::Said;
                }
                Goodbye::Said => {
                    let _ = ready!(Pin::new(&mut self.stream).poll_flush(context));
                    self.goodbye = Goodbye::Sent;
                }
                Goodbye::Sent => return Pin::new(self.stream.get_mut()).poll_shutdown(context),
            }
        }
    }
}
