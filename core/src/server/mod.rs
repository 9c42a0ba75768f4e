//! State store server: the store as the application of a broker, with storage, identity, authorization, operations.

pub mod authorization;
pub mod cluster;
pub mod cluster_key;
pub mod delivery;
mod duplicate_detection;
pub mod error;
#[cfg(feature = "cluster")]
pub mod etcd;
pub mod event;
pub mod exchange;
pub mod external;
pub mod identity;
pub mod metrics;
#[cfg(not(feature = "cluster"))]
mod no_cluster;
pub mod operations;
mod operations_settings;
mod rate_limit;
mod reload;
pub mod service;
pub mod settings;
#[cfg(test)]
mod simulation;
mod store_server;
mod waiting_answer;

pub use self::authorization::{AuthorizationError, Authorizer};
pub use self::error::{ClusterErrorKind, Error};
#[cfg(feature = "cluster")]
pub use self::etcd::{ClusterNode, ClusterSettings};
pub use self::event::Event;
pub use self::identity::{CredentialFiles, Identities, IdentityError, LOGIN_FAILURES_MAX, UsersFile};
#[cfg(not(feature = "cluster"))]
pub use self::no_cluster::{ClusterNode, ClusterSettings};
pub use self::operations_settings::{AdminSettings, OperationsSettings};
pub use self::service::{Persistence, StoreSettings, recorded_bytes_max};
pub use self::settings::Settings;
pub use crate::broker::settings::{ListenerSettings, WebSocketSettings};
pub use crate::net::tls::{ClientCertificate, ServerTls, ServerTlsFiles};
pub use crate::server::reload::{CertificatesReloader, CredentialsReloader, ExchangeReloader, RulesReloader};
pub use crate::server::store_server::StoreServer;
pub use crate::store::Limits;
