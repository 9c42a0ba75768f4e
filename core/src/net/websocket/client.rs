//! The client's side of the WebSocket handshake.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::http::Uri;

use super::error::{HandshakeError, WebSocketError};
use super::frame_limit::FrameLimit;
use super::stream::{SUBPROTOCOL, WebSocket, config};

/// Performs the handshake. Messages from the broker of more than `bytes_max` bytes will be errors.
///
/// # Errors
/// The cause of a failed handshake.
pub(crate) async fn connect<S>(
    stream: S,
    host: &str,
    port: u16,
    path: &str,
    bytes_max: u32,
) -> Result<WebSocket<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let uri: Uri = format!("ws://{host}:{port}{path}")
        .parse()
        .map_err(|_| HandshakeError::WebSocket(WebSocketError::Other(format!("invalid path: {path}"))))?;
    let request = ClientRequestBuilder::new(uri).with_sub_protocol(SUBPROTOCOL);
    let stream = FrameLimit::unlimited(stream);
    // On a platform where usize has fewer than 32 bits the address space is the limit.
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let (stream, _) = client_async_with_config(request, stream, Some(config(bytes_max))).await?;
    Ok(WebSocket::new(stream))
}
