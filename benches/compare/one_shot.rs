//! Duration of a process that gets one key from the same `mqkv serve`: `mqkv get`, `mosquitto_rr` with the same request,
//! and a program with the official Rust SDK.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::shared::raw::REQUEST_TOPIC;
use crate::shared::{MQKV, in_turn, print_against_others, serve, spawn};

const ROUNDS: usize = 100;
/// Built by `cargo build --release --manifest-path tests/interop/Cargo.toml --bin one_shot`.
const SDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/target/release/one_shot");

pub fn run() {
    let server = serve(&[]);
    let port = server.port.to_string();
    let mqkv = |words: &[&str]| {
        let mut command = Command::new(MQKV);
        command.args(words).args(["-b", &format!("mqtt://127.0.0.1:{port}")]);
        command
    };
    assert!(mqkv(&["set", "line1/temp", "21.5"]).status().unwrap().success());
    let mosquitto_rr = || {
        let mut command = Command::new("mosquitto_rr");
        command.args(["-V", "5", "-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", REQUEST_TOPIC]);
        command.args(["-e", "clients/rr/response", "-D", "publish", "correlation-data", "0123456789abcdef"]);
        command.args(["-m", "*2\r\n$3\r\nGET\r\n$10\r\nline1/temp\r\n"]);
        command
    };
    let sdk = || {
        let mut command = Command::new(SDK);
        command.args([&port, "line1/temp"]);
        command
    };
    // The name of its package is for the error if it is missing.
    spawn(mosquitto_rr().stdout(std::process::Stdio::null()), "mosquitto-clients").wait().unwrap();
    let mut names = vec!["mqkv get", "mosquitto_rr"];
    let mut subjects: Vec<Box<dyn FnMut() -> f64>> = vec![
        Box::new(|| duration(mqkv(&["get", "line1/temp"]), "21.5")),
        Box::new(|| duration(mosquitto_rr(), "$4\r\n21.5")),
    ];
    if Path::new(SDK).exists() {
        names.push("the official Rust SDK");
        subjects.push(Box::new(|| duration(sdk(), "21.5")));
    } else {
        println!("  {SDK} is missing: it is left out");
    }
    let figures = in_turn(ROUNDS, &mut subjects);
    print_against_others(&names, &figures, "ms", 2);
}

/// Runs a command to its end, and returns how many milliseconds it took.
fn duration(mut command: Command, expected: &str) -> f64 {
    let begun = Instant::now();
    let output = command.output().unwrap();
    let taken = begun.elapsed();
    assert!(output.stdout.starts_with(expected.as_bytes()), "{command:?}: {output:?}");
    taken.as_secs_f64() * 1e3
}
