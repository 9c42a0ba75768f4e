//! Network functions below MQTT that client and server share: TLS, certificates, secrets, WebSockets, threads.

pub mod certificate;
pub mod detached;
pub mod io_error;
pub mod listening_socket;
pub mod origin;
pub mod runtime_thread;
pub mod secret;
pub mod tls;
pub mod websocket;

pub use certificate::Certificate;
pub use listening_socket::ListeningSocket;
pub use secret::Secret;
pub use tls::{ClientTls, GivenCa, IdentityFiles, TlsError, TlsOptions, TlsSetupError};
