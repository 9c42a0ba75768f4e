//! Connections: listeners, threads, streams, and the packets of one connection.

pub mod busy_poll;
pub mod busy_poll_stream;
pub mod connect_error;
pub mod connection;
pub mod deferred_packets;
pub mod handshake_turns;
pub mod keep_alive;
pub mod listener;
pub mod login;
pub mod packet_handler;
pub mod progress;
pub mod topic_aliases;
pub mod traffic_counters;
pub mod transfer;
pub mod turns;
pub mod unfinished_logins;
pub mod workers;
