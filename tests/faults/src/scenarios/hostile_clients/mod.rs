//! Hostile clients with the server's default limits: its memory stays bounded, and a well-behaved client is served in time.

mod attacks;

use std::thread;
use std::time::Duration;

use self::attacks::ATTACKS;
use crate::client::{Client, Origin, Verb};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Measured, Progress, Refusals, TIMEOUT, raise_file_limit};
use crate::port::reserved_port;
use crate::server::{Server, users};

/// `--memory-max` of the servers under attack.
const MEMORY_MAX: &str = "256M";
/// What the process may take: `--memory-max`, and what it needs beside it: code, stacks, buffers of connections, freed
/// memory that the allocator keeps.
const MEMORY_BYTES_MAX: u64 = (256 + 128) * MIB;

/// An attack: prepares, then returns what is done while the other client is measured.
struct Attack {
    name: &'static str,
    prepare: fn(&Target) -> Run,
}

type Run = Box<dyn FnOnce(&Target) + Send>;

/// The server that is attacked.
#[derive(Clone)]
struct Target {
    port: u16,
    web_socket_port: u16,
    progress: Progress,
}

pub fn run(effort: Effort) -> Result<String, String> {
    raise_file_limit()?;
    // For work on one attack: the part of its name.
    let only = std::env::var("MQKV_ATTACK").unwrap_or_default();
    let attacks: Vec<_> = ATTACKS.iter().filter(|attack| attack.name.contains(&only)).collect();
    if attacks.is_empty() {
        return Err(format!("no attack has '{only}' in its name"));
    }
    if only.is_empty() {
        good_client::detects()?;
        detects()?;
    }
    let mut failures = 0;
    for Attack { name, prepare } in &attacks {
        let measured = measure(*prepare, MEMORY_MAX, effort.pick(3, 20));
        failures += usize::from(!measured.report(name, effort, MEMORY_BYTES_MAX));
    }
    match failures {
        0 if only.is_empty() => Ok(format!("{} attacks withstood; the detectors work", attacks.len())),
        0 => Ok(format!("{} of {} attacks withstood; no detector was tried", attacks.len(), ATTACKS.len())),
        _ => Err(format!("{failures} of {} attacks succeeded", attacks.len())),
    }
}

/// Measures the well-behaved client alone, then during an attack of at least `seconds`.
fn measure(prepare: fn(&Target) -> Run, memory_max: &str, seconds: u64) -> Measured {
    let web_socket_port = reserved_port();
    let listen = format!("ws://127.0.0.1:{web_socket_port}?anonymous=yes");
    let options = ["--users", "users", "--memory-max", memory_max, "--listen", &listen];
    let server = Server::start_with_file("users", &users(["ann".to_owned()]), &options);
    let target = Target { port: server.port(), web_socket_port, progress: Progress::default() };
    let run = prepare(&target);
    let attack = move |progress: &Progress| run(&Target { progress: progress.clone(), ..target });
    let lasts = |_: &Progress| {
        thread::sleep(Duration::from_secs(seconds));
        Refusals::default()
    };
    good_client::beside(&server, Origin::HERE, attack, lasts).0
}

/// Checks that an attack on a server with a higher bound is found to take more memory than allowed.
fn detects() -> Result<(), String> {
    let fills: fn(&Target) -> Run = |_| {
        Box::new(|target| {
            let mut client = Client::new("filler", target.port);
            for number in 0..450 {
                client
                    .request(&format!("big{number}"), &Verb::Set("x".repeat(1024 * 1024)), TIMEOUT)
                    .unwrap();
            }
        })
    };
    let measured = measure(fills, "2G", 0);
    match measured.verdict(Effort::Short, MEMORY_BYTES_MAX).contains(&"TOO MUCH MEMORY") {
        true => Ok(()),
        false => Err(format!("a server with a higher bound was not detected: {measured}")),
    }
}
