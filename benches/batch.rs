//! 100,000 SETs by `mqkv batch`, by a client of the library with 64 requests in flight, and by single processes, in turn
//! with the same `mqkv serve`; `export` and `import` of as many keys.
//!
//! `cargo bench --bench batch` prints the rates and two ratios: batch to client, batch to single processes.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::arithmetic_side_effects)]
#![allow(clippy::indexing_slicing, clippy::disallowed_methods, clippy::panic)]

mod shared;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

use mqkv::client::{Client, SetOptions, Settings, Target};
use mqkv::protocol::Key;

use shared::{MQKV, rate, ratios, spread};

const LINES: usize = 100_000;
const INFLIGHT: usize = 64;
const PROCESSES: usize = 300;
const ROUNDS: usize = 7;

fn main() {
    let server = shared::serve(&[]);
    let port = server.port;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let mut lines = String::new();
    for number in 0..LINES {
        writeln!(lines, "set bench/{number:06} value-{number:06}").unwrap();
    }
    fs::write(&file, lines).unwrap();
    let dump = folder.path().join("dump");
    let names = ["batch", "client", "processes", "export", "import"];
    let mut rates: [Vec<f64>; 5] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(rate(LINES, || run(port, &["batch", file.to_str().unwrap()], None)));
        rates[1].push(rate(LINES, || library_client(port)));
        rates[2].push(rate(PROCESSES, || {
            for _ in 0..PROCESSES {
                run(port, &["set", "bench/000000", "value-000000"], None);
            }
        }));
        rates[3].push(rate(LINES, || run(port, &["export", "bench/*"], Some(&dump))));
        rates[4].push(rate(LINES, || run(port, &["import", dump.to_str().unwrap()], None)));
    }
    assert_eq!(fs::read_to_string(&dump).unwrap().lines().count(), LINES);
    let of = |one: usize, other: usize| ratios(&rates[one], &rates[other]);
    let ratios_of_pairs = [("batch / client", of(0, 1)), ("batch / processes", of(0, 2))];
    for (name, figures) in names.iter().zip(&rates) {
        println!("{name:18} {} a second", spread(figures, 0));
    }
    for (name, figures) in &ratios_of_pairs {
        println!("{name:18} {}", spread(figures, 2));
    }
}

fn run(port: u16, words: &[&str], output: Option<&Path>) {
    let mut command = Command::new(MQKV);
    command.args(words).args(["-q", "-b", &format!("mqtt://127.0.0.1:{port}")]);
    command.stdout(output.map_or(Stdio::null(), |path| fs::File::create(path).unwrap().into()));
    assert!(command.status().unwrap().success());
}

/// 64 tasks that set keys, each with one request in flight.
fn library_client(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
        let client = Client::connect(Settings::new(target, "bench-client".to_owned())).await.unwrap();
        let next = Rc::new(std::cell::Cell::new(0));
        let tasks: Vec<_> = (0..INFLIGHT)
            .map(|_| {
                let (client, next) = (client.clone(), Rc::clone(&next));
                tokio::task::spawn_local(async move {
                    while next.get() < LINES {
                        let number = next.replace(next.get() + 1);
                        let key = Key::new(format!("bench/{number:06}")).unwrap();
                        let value = format!("value-{number:06}").into();
                        assert!(client.set(&key, &value, SetOptions::default()).await.unwrap().applied);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        client.close().await;
    });
}
