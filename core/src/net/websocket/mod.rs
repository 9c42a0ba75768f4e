//! MQTT over WebSockets (MQTT 5, 6.0), for clients and servers.

mod client;
mod error;
mod frame_limit;
mod server;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use client::connect;
pub(crate) use error::HandshakeError;
pub use error::WebSocketError;
pub(crate) use server::accept;
pub use stream::{DEFAULT_PATH, WebSocket};
