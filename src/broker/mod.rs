//! MQTT broker for one application: listeners, connections, sessions, subscriptions, routing.
//!
//! It knows no store, no rules and no files: [`Hooks`] are the traits that it is given.

pub mod authentication;
pub mod broker;
pub mod busy_poll;
pub mod busy_poll_stream;
pub mod codec;
pub mod connection;
pub mod connection_handle;
pub mod counters;
pub mod deferred_packets;
pub mod dialect;
pub mod event;
pub mod expiry_task;
pub mod filter;
pub mod intake;
pub mod listener;
pub mod mqtt311;
pub mod packet;
pub mod packet_handler;
pub mod permissions;
pub mod principal;
pub mod publication;
pub mod publish;
pub mod reason;
pub mod registry;
pub mod retained;
pub mod server;
pub mod session;
pub mod session_entry;
pub mod settings;
pub mod shared_subscriptions;
pub mod statistics;
pub mod strict;
pub mod subscriptions;
pub mod topic_aliases;
pub mod traffic_counters;
pub mod workers;

#[cfg(test)]
pub(crate) mod test_client;
#[cfg(test)]
mod wire_tests;

pub use self::authentication::{Authenticator, Denial, PendingCheck};
pub use self::broker::{Application, Broker, Hooks, Peer, SYS, Verdict};
pub use self::counters::{Counter, Counters, Traffic};
pub use self::event::{Event, EventSink};
pub use self::permissions::{AccessControl, Permissions};
pub use self::principal::Principal;
pub use self::server::{Server, StartError};
pub use self::settings::{ListenerSettings, Settings, WebSocketSettings};
pub use self::statistics::{ClientStatistics, Statistics};
