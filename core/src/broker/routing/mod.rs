//! Routing: which sessions there are, what they subscribe to, and which messages they get.

pub mod ended;
pub mod filter_memory;
pub mod registry;
pub mod retained;
pub mod route;
pub mod shared_subscriptions;
pub mod subscriptions;
mod table;
