//! The Azure IoT Operations state store: its protocol, the store itself, a client, an MQTT broker, and the command line.
//!
//! Data takes one way: bytes → packet → frame → request or reply → state machine → session → verb → output → terminal.
//!
//! | module | contains | may import |
//! |---|---|---|
//! | [`protocol`] | the state store's wire: frames, requests, replies, notifications, versions, topics | – |
//! | [`mqtt`] | MQTT packets for the broker, and PUBLISH for the client: decoder, encoder, reason codes, topic filters | protocol |
//! | [`platform`] | what differs between operating systems: files, sockets, processes, signals, terminals | – |
//! | [`clock`], [`random`] | the only readers of time and of randomness | platform |
//! | [`files`] | the encoding of text files, and writing that replaces a file as a whole | platform, random |
//! | [`store`] | the key-value state machine | protocol |
//! | [`exchange`] | replication between a root store and its leaves | protocol, store |
//! | [`ledger`] | what makes changes durable: records, groups, the commit queue, the ledgers in files and in etcd | protocol, store, exchange, platform, clock, random |
//! | [`net`] | TLS, certificates, secrets, WebSockets, detached threads | files, platform, clock |
//! | [`client`] | an MQTT session with any broker, the store's verbs as functions | protocol, mqtt, files, net, platform, clock, random |
//! | [`broker`] | an MQTT broker for one application | protocol, mqtt, net, platform, clock, random |
//! | [`server`] | the state store as that application; storage, identity, authorization, operations | all above but `client`, which two of its folders may |
//! | [`render`] | what the records of the verbs share: formats, escaping, tables, JSON lines | protocol |
//! | [`commands`] | the verbs and their records; they print nothing | protocol, files, client, render, platform, clock, random |
//! | [`shell`] | the prompt, and the completion engine of the system's shells | protocol, client, commands, render, platform, clock, random |
//! | [`cli`] | the process edge: arguments, environment, streams, exit codes | all above |
//! | [`testing`] | a store inside a test of an application | protocol, net, client, server, commands |
//!
//! The modules up to [`server`] are the package `mqkv-core`, so that an edit above them compiles none of them.
//! `tests/architecture` has this table too, and checks the code against its own.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub use mqkv_core::{
    broker, client, clock, exchange, files, ledger, mqtt, net, platform, protocol, random, server, store,
};

#[cfg(test)]
#[path = "../tests/watchdog/mod.rs"]
mod a_watchdog;

pub mod commands;
pub mod render;
pub mod shell;

pub mod cli;
pub mod testing;
