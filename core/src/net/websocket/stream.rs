//! A byte stream in the binary messages of a WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error as Fault, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, WebSocketConfig};

use super::frame_limit::{FrameLimit, TOO_LONG};

/// The path of a broker's WebSocket if none is given: the default of most brokers and clients.
pub const DEFAULT_PATH: &str = "/mqtt";
pub(super) const SUBPROTOCOL: &str = "mqtt";
/// The longest message that is written. A packet may span messages (MQTT 5, 6.0).
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Initial size of the read buffer. A frame grows it to the frame's length; see [`FrameLimit`].
const READ_BYTES: usize = 8 * 1024;

/// A byte stream in the binary messages of a WebSocket.
///
/// Written bytes may be buffered until a flush. A stream that a server accepted reads no more than the longest CONNECT until
/// something is written to it; the rest stays in the socket and is read afterwards.
#[derive(Debug)]
pub struct WebSocket<S> {
    stream: WebSocketStream<FrameLimit<S>>,
    /// The unread part of the last message.
    unread: Bytes,
    /// The close code for a protocol violation of the other side.
    violation: Option<CloseCode>,
    /// The text of an abnormal close frame from the other side.
    peer_close: Option<String>,
    closing: Closing,
}

/// Progress of our close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    Flushing,
    Sent,
}

/// Returns the configuration for messages and frames of at most `bytes_max` bytes.
pub(super) fn config(bytes_max: usize) -> WebSocketConfig {
    // A write buffer size of 0 writes each message at once. The maximum leaves room for one message and a pong or close.
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_BYTES_MAX.saturating_mul(2))
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
}

impl<S> WebSocket<S> {
    pub(super) fn new(stream: WebSocketStream<FrameLimit<S>>) -> Self {
        Self { stream, unread: Bytes::new(), violation: None, peer_close: None, closing: Closing::Open }
    }

    /// Records a violation of the protocol by the other side, to be sent in our close frame.
    fn violation(&mut self, code: CloseCode, text: impl Into<String>) -> io::Error {
        self.violation = Some(code);
        io::Error::new(io::ErrorKind::InvalidData, text.into())
    }

    /// Returns the error of a failed read, or None if it is the end of the stream.
    fn read_error(&mut self, fault: Fault) -> Option<io::Error> {
        Some(match fault {
            Fault::Io(error) if error.kind() == TOO_LONG => {
                self.violation(CloseCode::Size, format!("WebSocket: {error}"))
            }
            Fault::Io(error) => error,
            Fault::ConnectionClosed
            | Fault::AlreadyClosed
            | Fault::Protocol(ProtocolError::ResetWithoutClosingHandshake) => return None,
            Fault::Capacity(cause) => self.violation(CloseCode::Size, format!("WebSocket: {cause}")),
            Fault::Utf8(_) => self.violation(CloseCode::Invalid, "WebSocket: text message that is not UTF-8"),
            Fault::Protocol(cause) => self.violation(CloseCode::Protocol, format!("WebSocket: {cause}")),
            other => io::Error::other(other.to_string()),
        })
    }

    /// Returns the error of a failed write.
    fn write_error(&self, fault: Fault) -> io::Error {
        match fault {
            Fault::Io(error) => error,
            Fault::ConnectionClosed
            | Fault::AlreadyClosed
            | Fault::Protocol(ProtocolError::SendAfterClosing) => self.closed(),
            other => io::Error::new(io::ErrorKind::BrokenPipe, other.to_string()),
        }
    }

    /// Returns the end of the stream, or an error if the other side closed it abnormally.
    fn end(&self) -> io::Result<()> {
        if self.peer_close.is_some() { Err(self.closed()) } else { Ok(()) }
    }

    fn closed(&self) -> io::Error {
        match &self.peer_close {
            Some(text) => io::Error::other(text.clone()),
            None => io::ErrorKind::UnexpectedEof.into(),
        }
    }
}

/// Returns the text of a close frame, or None for a normal close.
fn close_text(frame: &CloseFrame) -> Option<String> {
    let CloseFrame { code, reason } = frame;
    let reason = match reason.as_str() {
        "" => String::new(),
        reason => format!(": {}", reason.escape_debug()),
    };
    let code = u16::from(*code);
    let is_normal = matches!(frame.code, CloseCode::Normal | CloseCode::Away | CloseCode::Status);
    (!is_normal).then(|| format!("WebSocket closed by the other side with code {code}{reason}"))
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
                    // MQTT 5, 6.0: MQTT is sent in binary frames, a connection with any other is closed.
                    let text = "WebSocket: text message";
                    return Poll::Ready(Err(self.violation(CloseCode::Unsupported, text)));
                }
                // The crate answers it, and then reports the end of the stream.
                Some(Ok(Message::Close(frame))) => self.peer_close = frame.as_ref().and_then(close_text),
                // The crate answers pings. It holds one pong at most, so a flood of pings does not grow a buffer.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(fault)) => {
                    return Poll::Ready(self.read_error(fault).map_or_else(|| self.end(), Err));
                }
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
        self.stream.get_mut().remove_unanswered_limit();
        let ready = ready!(Pin::new(&mut self.stream).poll_ready(context));
        ready.map_err(|fault| self.write_error(fault))?;
        let taken = bytes.get(..MESSAGE_BYTES_MAX).unwrap_or(bytes);
        let message = Message::Binary(Bytes::copy_from_slice(taken));
        let sent = Pin::new(&mut self.stream).start_send(message);
        sent.map_err(|fault| self.write_error(fault))?;
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(flushed.map_err(|fault| self.write_error(fault)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.closing {
                Closing::Open => {
                    // Errors are ignored here: the other side has closed first, or the connection is lost.
                    let _ = ready!(Pin::new(&mut self.stream).poll_ready(context));
                    let code = self.violation.unwrap_or(CloseCode::Normal);
                    let frame = CloseFrame { code, reason: "".into() };
                    let _ = Pin::new(&mut self.stream).start_send(Message::Close(Some(frame)));
                    self.closing = Closing::Flushing;
                }
                Closing::Flushing => {
                    let _ = ready!(Pin::new(&mut self.stream).poll_flush(context));
                    self.closing = Closing::Sent;
                }
                Closing::Sent => return Pin::new(self.stream.get_mut()).poll_shutdown(context),
            }
        }
    }
}
