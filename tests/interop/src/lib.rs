//! The fixtures of the tests with the official SDK: brokers, a cluster, a relay, a client and a store built from the SDK.
//!
//! A panic here is a failed test.

mod brokers;
mod cluster;
mod relay;
mod responder;
mod sdk_client;

pub use brokers::{Mosquitto, Mqkv, add_user, run};
pub use cluster::Cluster;
pub use relay::Relay;
pub use responder::Responder;
pub use sdk_client::{SdkClient, connection_error, later, now, order, settings, within};
