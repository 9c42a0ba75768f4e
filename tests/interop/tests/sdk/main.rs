//! Tests with the official SDK: its client with `mqkv serve`, and `mqkv` with a store built from the SDK.

mod authentication;
mod cluster;
mod leases;
mod notifications;
mod operations;
mod our_client;
mod refusals;
mod sessions;
