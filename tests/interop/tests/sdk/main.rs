//! The official SDK judges: as client of `mqkv serve`, and as the store of our client.

mod authentication;
mod leases;
mod notifications;
mod operations;
mod our_client;
mod refusals;
mod sessions;
