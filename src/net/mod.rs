//! What client and server share below MQTT: TLS, certificates, secrets, WebSockets, detached threads.

pub mod certificate;
pub mod detached;
pub mod origin;
pub mod runtime_thread;
pub mod secret;
pub mod tls;
pub mod websocket;

pub use certificate::Certificate;
pub use secret::Secret;
pub use tls::{IdentityFiles, Tls, TlsOptions};

pub use crate::client::error::{TlsError, TlsSetupError};
