//! Tests that start processes: the built binary in an isolated environment.
//!
//! On Unix only: they use signals, pseudo-terminals and descriptors. `tests/portable` runs on any system.
#![cfg(unix)]
#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)] // clippy.toml exempts test functions only, not the helpers that they share

#[path = "../watchdog/mod.rs"]
mod a_watchdog;
mod authorization;
mod authorization_sessions;
mod bad_answers;
mod bad_brokers;
mod bad_input;
mod bench;
mod broker_bad_input;
mod broker_suite;
mod bulk;
mod bytes;
#[cfg(feature = "cluster")]
mod cluster_claims;
#[cfg(feature = "cluster")]
mod cluster_clocks;
#[cfg(feature = "cluster")]
mod cluster_example;
#[cfg(feature = "cluster")]
mod cluster_operator;
#[cfg(feature = "cluster")]
mod cluster_restore;
#[cfg(feature = "cluster")]
mod cluster_serve;
#[cfg(feature = "cluster")]
mod cluster_store;
mod cluster_usage;
mod common;
mod completion;
mod configuration;
mod contexts;
mod data_copy;
mod decode;
mod del_pattern;
mod docs;
mod doctor;
mod early_packets;
mod edit;
mod embedded;
#[cfg(feature = "cluster")]
mod etcd_bulk_read;
#[cfg(feature = "cluster")]
mod etcd_connect;
#[cfg(feature = "cluster")]
mod etcd_faults;
#[cfg(feature = "cluster")]
mod etcd_instances;
#[cfg(feature = "cluster")]
mod etcd_member;
#[cfg(feature = "cluster")]
mod etcd_requests;
#[cfg(feature = "cluster")]
mod etcd_watch;
mod examples_ci;
mod examples_compose;
mod examples_kubernetes;
mod examples_monitoring;
mod examples_systemd;
mod exchange;
mod exchange_docs;
mod exchange_links;
mod exchange_nodes;
mod fencing;
mod groups;
mod half_open;
mod hangs;
mod help;
mod idle_sessions;
mod interrupted;
mod kube;
mod library_tls;
mod limits;
mod lock;
mod lock_lost;
mod lock_signals;
mod login;
mod login_asked;
mod monitor;
mod mosquitto;
mod mosquitto_login;
mod operations_admin;
mod operations_browser;
mod operations_drain;
mod operations_exchange;
mod operations_log;
mod operations_seed;
mod operations_sys;
mod persistence;
mod persistence_directory;
mod persistence_kill;
mod persistence_versions;
mod picture;
mod recorded_replies;
mod recordings;
mod retries;
mod round_trips;
mod sat;
mod serve_certificates;
mod serve_configuration;
mod serve_identity;
mod serve_listeners;
mod serve_signals;
mod service_connection;
mod shell;
mod shell_contexts;
mod shell_jobs;
mod shell_lost;
mod store_service;
mod streams;
mod testing_store;
mod tls;
mod tls_files;
mod trace;
mod unreachable;
mod unread_log;
mod usage;
mod verbs;
#[cfg(unix)]
mod watch;
#[cfg(unix)]
mod watch_command;
#[cfg(unix)]
mod watch_lost;
#[cfg(unix)]
mod watch_prefix;
mod websocket;
