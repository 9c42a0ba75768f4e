//! Errors of a client's WebSocket handshake.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio_tungstenite::tungstenite::error::{Error as Fault, ProtocolError, SubProtocolError};

/// The cause of a failed WebSocket handshake with a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketError {
    /// The server answered with this HTTP status.
    Status(u16),
    /// The server does not accept the subprotocol `mqtt`.
    NoSubprotocol,
    /// The answer is not HTTP.
    NotHttp,
    /// The connection was lost during the handshake.
    Interrupted(String),
    /// The handshake did not end within this time.
    TimedOut(Duration),
    Other(String),
}

/// The cause of a failed handshake.
pub(crate) enum HandshakeError {
    WebSocket(WebSocketError),
    Io(io::Error),
}

impl WebSocketError {
    /// Writes the message, with `target` as `host:port`.
    pub(crate) fn write(&self, out: &mut fmt::Formatter<'_>, target: &str) -> fmt::Result {
        match self {
            Self::Status(status) => write!(out, "no WebSocket at {target}: HTTP status {status}"),
            Self::NoSubprotocol => write!(out, "no WebSocket at {target}: subprotocol mqtt not accepted"),
            Self::NotHttp => write!(out, "no WebSocket at {target}: the answer is not HTTP"),
            Self::Interrupted(cause) => write!(out, "WebSocket handshake with {target} failed: {cause}"),
            Self::TimedOut(after) => {
                write!(out, "WebSocket handshake with {target} timed out after {after:?}")
            }
            Self::Other(cause) => {
                write!(out, "WebSocket handshake with {target} failed: {}", cause.escape_debug())
            }
        }
    }
}

impl From<Fault> for HandshakeError {
    fn from(fault: Fault) -> Self {
        Self::WebSocket(match fault {
            Fault::Http(response) => WebSocketError::Status(response.status().as_u16()),
            Fault::Protocol(ProtocolError::SecWebSocketSubProtocolError(
                SubProtocolError::NoSubProtocol | SubProtocolError::InvalidSubProtocol,
            )) => WebSocketError::NoSubprotocol,
            Fault::Protocol(ProtocolError::HttparseError(_)) | Fault::HttpFormat(_) => {
                WebSocketError::NotHttp
            }
            Fault::Protocol(ProtocolError::HandshakeIncomplete) => {
                return Self::Io(io::ErrorKind::UnexpectedEof.into());
            }
            Fault::Io(error) => return Self::Io(error),
            other => WebSocketError::Other(other.to_string()),
        })
    }
}
