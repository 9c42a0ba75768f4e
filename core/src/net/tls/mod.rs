//! TLS configuration of clients and servers.

pub mod client;
pub mod error;
pub mod files;
pub mod handshake_observer;
pub mod server;

pub use client::{ClientTls, TlsOptions};
pub use error::{TlsError, TlsSetupError};
pub use files::{GivenCa, IdentityFiles, contains_ca};
pub use handshake_observer::{TlsHandshake, TrustedRoots};
pub use server::{ClientCertificate, ServerTls, ServerTlsFiles};
