//! MQTT client of the state store: a session with any broker, and the store's requests as functions.

mod answers;
pub mod authentication;
mod backoff;
mod bulk;
mod connect;
mod connection_info;
mod connection_state;
mod connection_status;
mod driver;
pub mod error;
mod groups;
mod handle;
pub mod lock;
pub mod outgoing_request;
pub mod packet;
pub mod probe;
mod protocol_detection;
mod publication;
pub mod request;
pub mod results;
pub mod service;
pub mod session;
pub mod settings;
mod subscription;
mod subscriptions;
mod ticket;
pub mod trace;
mod transport;
pub mod watch;
mod watcher;
mod watches;

pub use authentication::{Authentication, PasswordSource, SecretReader};
pub use backoff::Backoff;
pub use bulk::Bulk;
pub use connection_info::ConnectionInfo;
pub use connection_status::ConnectionStatus;
pub use error::{CredentialError, Error, LossCause, Outcome, ReasonCode, UnsuitableCause};
pub use handle::Client;
pub use probe::{ConnectionProbe, ConnectionStep};
pub use protocol_detection::detect_protocol;
pub use publication::Publication;
pub use request::{Access, RawRequest, RequestProperties, Response, decode_response, unexpected_reply};
pub use results::{DeleteOutcome, Page, SetOptions, SetOutcome, VersionedValue};
pub use service::{ServiceConnected, ServiceConnection, ServiceNode, ServiceSettings};
pub use settings::{Reconnect, SessionSettings, Settings, Target};
pub use subscription::Subscription;
pub use subscriptions::SubscriptionEvent;
pub use trace::Tracer;
pub use watch::{Watch, WatchEvent};
pub use watcher::{WatchedKeys, Watcher};

// Types of `net` in this module's errors and reports, so that its users need no import of `net`.
pub use crate::net::certificate::{Certificate, expiry_text};
pub use crate::net::tls::{TlsHandshake, TrustedRoots};
pub use crate::net::websocket::WebSocketError;
pub use crate::net::{TlsError, TlsSetupError};
