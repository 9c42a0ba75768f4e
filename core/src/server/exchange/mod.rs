//! The store's part in an exchange: topics, the uplink of a leaf, requests of operators.

pub mod command;
pub mod membership;
pub mod opening;
pub mod participant;
pub mod settings;
pub mod uplink;
