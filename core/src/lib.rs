//! State store, protocol, client and MQTT broker of `mqkv`, without the command line. The library `mqkv` has these modules, too, and
//! says what each may import.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod clock;
pub mod exchange;
pub mod files;
pub mod ledger;
pub mod mqtt;
pub mod platform;
pub mod protocol;
pub mod random;
pub mod store;

#[cfg(test)]
#[path = "../../tests/watchdog/mod.rs"]
mod a_watchdog;

pub mod broker;
pub mod client;
pub mod net;
pub mod server;
