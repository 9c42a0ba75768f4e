//! Duration of a process: `mqkv get`, and `mosquitto_rr` with the same request to the same `mqkv serve`, in turn.
//!
//! `cargo bench --bench one_shot` prints both medians and the ratio of each pair; the ratio depends least on the machine. Needs Debian's `mosquitto-clients`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods
)]
#![allow(clippy::indexing_slicing, clippy::panic, clippy::exit, clippy::print_stderr)]

mod shared;

use std::process::{Command, Stdio};
use std::time::Instant;

use shared::MQKV;
use shared::raw::REQUEST_TOPIC;

const PAIRS: usize = 200;

fn main() {
    if Command::new("mosquitto_rr").arg("--help").stdout(Stdio::null()).status().is_err() {
        eprintln!("mosquitto_rr is missing: apt-get install mosquitto-clients");
        std::process::exit(1);
    }
    let server = shared::serve(&[]);
    let port = server.port.to_string();
    let mqkv = |words: &[&str]| {
        let mut command = Command::new(MQKV);
        command.args(words).args(["-b", &format!("mqtt://127.0.0.1:{port}")]);
        command
    };
    assert!(mqkv(&["set", "line1/temp", "21.5"]).status().unwrap().success());
    let rr = || {
        let mut command = Command::new("mosquitto_rr");
        command.args(["-V", "5", "-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", REQUEST_TOPIC]);
        command.args(["-e", "clients/rr/response", "-D", "publish", "correlation-data", "0123456789abcdef"]);
        command.args(["-m", "*2\r\n$3\r\nGET\r\n$10\r\nline1/temp\r\n"]);
        command
    };
    let time = |mut command: Command, expected: &[u8]| {
        let begun = Instant::now();
        let output = command.output().unwrap();
        let taken = begun.elapsed();
        assert!(output.stdout.starts_with(expected), "{command:?}: {output:?}");
        taken
    };
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut ratios = Vec::new();
    for pair in 0..PAIRS + 10 {
        // The order changes from pair to pair.
        let (one, other) = if pair % 2 == 0 {
            let one = time(mqkv(&["get", "line1/temp"]), b"21.5");
            (one, time(rr(), b"$4\r\n21.5"))
        } else {
            let other = time(rr(), b"$4\r\n21.5");
            (time(mqkv(&["get", "line1/temp"]), b"21.5"), other)
        };
        if pair >= 10 {
            ours.push(one.as_secs_f64() * 1e3);
            theirs.push(other.as_secs_f64() * 1e3);
            ratios.push(one.as_secs_f64() / other.as_secs_f64());
        }
    }
    for (name, mut figures) in [("mqkv get, ms", ours), ("mosquitto_rr, ms", theirs), ("ratio", ratios)] {
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| figures[((figures.len() - 1) as f64 * share) as usize];
        println!("{name:18} median {:.3}  quartiles {:.3} to {:.3}", at(0.5), at(0.25), at(0.75));
    }
}
