//! `mqkv` beside the programs that users compare it with, in turn on one machine: `mosquitto_rr` and the official SDK for
//! one command, Mosquitto with a responder and Redis for requests, etcd and Redis for durable writes, a plain publish
//! through Mosquitto for notifications, `redis-cli --pipe` for bulk, and Redis for memory.
//!
//! `cargo bench --bench compare` prints all sections, `cargo bench --bench compare -- durable memory` two of them. Each
//! figure is the median of several rounds, with the least and the greatest; the order of the programs changes from round
//! to round. Needs Debian's `mosquitto`, `mosquitto-clients` and `redis-server`; `etcd-server` and the SDK's program are
//! measured if they are there.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects, clippy::panic)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods)]

mod bulk;
mod durable;
mod memory;
mod notifications;
mod one_shot;
mod requests;
mod responder;
#[path = "../shared/mod.rs"]
mod shared;

use std::env;

/// The name of a section, and what runs it.
const SECTIONS: [(&str, fn()); 6] = [
    ("one-shot", one_shot::run),
    ("requests", requests::run),
    ("durable", durable::run),
    ("bulk", bulk::run),
    ("notifications", notifications::run),
    ("memory", memory::run),
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [role, port] = &arguments[..]
        && let Ok(port) = port.parse()
    {
        return responder::run(role, port);
    }
    // Cargo adds options of its own.
    let wanted: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| !argument.starts_with('-')).collect();
    for name in &wanted {
        assert!(SECTIONS.iter().any(|(section, _)| section == name), "no section {name}");
    }
    for (name, run) in SECTIONS {
        if wanted.is_empty() || wanted.contains(&name) {
            println!("== {name}");
            run();
        }
    }
}
