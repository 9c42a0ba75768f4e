//! MQTT broker for one application: listeners, connections, sessions, subscriptions, routing.
//!
//! It knows no store, no rules and no files: [`Hooks`] are the traits that it is given.

pub mod address;
pub mod authentication;
pub mod counters;
pub mod event;
pub mod expiry_task;
pub mod handle;
mod inspection;
pub mod memory;
pub mod permissions;
pub mod principal;
pub mod publication;
pub mod routing;
pub mod server;
pub mod session;
pub mod settings;
pub mod statistics;
pub mod wire;

#[cfg(test)]
pub(crate) mod test_client;
#[cfg(test)]
mod tests;

pub use self::address::address;
pub use self::authentication::{Authenticated, Authenticator, Credential, Denial, PendingCheck};
pub use self::counters::{Counter, Counters, Traffic};
pub use self::event::{Event, EventSink};
pub use self::handle::{
    Application, Broker, Continuation, Hooks, Peer, SYS, SessionPhase, Verdict, next_connection_id,
};
pub use self::memory::{MemoryBudget, MemoryKind};
pub use self::permissions::{AccessControl, Permissions};
pub use self::principal::Principal;
pub use self::server::{Server, StartError};
pub use self::session::connection_handle::HeldAcknowledgement;
pub use self::settings::{ListenerSettings, Settings, WebSocketSettings};
pub use self::statistics::{ClientStatistics, Statistics};
pub use self::wire::workers;
