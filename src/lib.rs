//! The Azure IoT Operations state store: its wire, its rules, a client, a broker with the store inside,
//! and the command line over all of it.
//!
//! Data takes one way: bytes → frame → request or reply → state machine → session → verb → output → terminal.
//! Each arrow is a module, the inner ones know no socket, no clock and no thread:
//!
//! | module | may import | what it is for |
//! |---|---|---|
//! | [`protocol`] | – | what is on the wire, both ways |
//! | [`clock`] | – | the only reader of time |
//! | [`chance`] | – | the only source of randomness |
//! | [`store`] | protocol | (state, who, request, now) → (reply, notifications, what to keep) |
//! | [`client`] | protocol, clock, chance | a session with any broker |
//! | [`server`] | protocol, clock, chance, store, client | a broker with the store inside |
//! | [`commands`] | protocol, client | the verbs; they return data and print nothing |
//! | [`render`] | protocol, commands | output and errors to bytes |
//! | [`shell`] | protocol, client, commands, render | the prompt: the verbs over one session, line by line |
//! | [`cli`] | all of these | the process edge |
//!
//! `tests/architecture.rs` holds this table against the code.
#![cfg_attr(test, allow(clippy::arithmetic_side_effects))]

pub mod chance;
pub mod clock;
pub mod protocol;
pub mod store;

pub mod client;
pub mod server;

pub mod commands;
pub mod render;
pub mod shell;

pub mod cli;
