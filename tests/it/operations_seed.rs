//! `serve --seed` and `serve --exec`: a store with known keys, and a store for one command.

use std::process::Command;

use nix::sys::signal::Signal;

use super::common::pki::Ca;
use super::common::{CTRL_D, CTRL_Z, Place, Server, StreamedProcess, Terminal, make_fifo};
use crate::a_watchdog::bounded;

const SEED: &str = concat!(
    r#"{"v":1,"key":"a","value":"1","encoding":"utf-8"}"#,
    "\n\n",
    r#"{"key":"/w==","key_encoding":"base64","value":"AP8=","encoding":"base64","ttl_ms":3600000}"#,
    "\n",
    r#"{"key":"a","value":"2"}"#,
    "\n",
);

/// Returns `mqkv serve OPTIONS --exec -- sh -c SCRIPT`, with the path of the binary in `$mqkv`.
fn exec(place: &Place, options: &[&str], script: &str) -> Command {
    let mut command =
        place.command(&[&["serve"], options, &["--exec", "--", "/bin/sh", "-c", script]].concat());
    command.env("mqkv", env!("CARGO_BIN_EXE_mqkv")).env("PATH", "/usr/bin:/bin");
    command
}

fn shown(command: &mut Command) -> String {
    super::common::bounded::bounded_transcript(command)
}

#[test]
fn a_store_starts_with_the_keys_of_an_export() {
    let place = Place::new();
    place.write("seed", SEED);
    let first = Server::start(&place, &["--seed", "seed"]);
    assert_eq!(place.bytes_at(&first.url(), &["get", "a"]), b"2", "the last of a key wins");
    assert_eq!(place.bytes_at(&first.url(), &["get", "--key-hex", "ff"]), b"\0\xff");
    let exported = place.bytes_at(&first.url(), &["export"]);
    place.write("again", &exported);
    let second = Server::start(&place, &["--seed", "again"]);
    assert_eq!(place.bytes_at(&second.url(), &["keys"]), b"a\n\\xFF\n");
    assert_eq!(place.bytes_at(&second.url(), &["get", "a"]), b"2");
}

#[test]
fn a_store_starts_with_the_keys_of_a_pipe() {
    let place = Place::new();
    make_fifo(&place.path("seed"));
    let path = place.path("seed");
    let writer = std::thread::spawn(move || std::fs::write(path, SEED).unwrap());
    let server = Server::start(&place, &["--seed", "seed"]);
    bounded(|| writer.join()).unwrap();
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"2");
}

#[test]
fn the_memory_of_a_seed_does_not_depend_on_the_size_of_its_file() {
    const LINES: usize = 1_000;
    let line = format!("{{\"key\":\"a\",\"value\":\"{}\"}}\n", "v".repeat(128 * 1024));
    let place = Place::new();
    place.write("seed", line.repeat(LINES));
    let server = Server::start(&place, &["--seed", "seed"]);
    let peak = server.peak_bytes();
    assert!(peak < 100 * 1024 * 1024, "{peak} bytes for a file of {} bytes", line.len() * LINES);
}

#[test]
fn a_restart_undoes_no_change_of_the_keys_of_a_seed() {
    for persist in ["all", "custom"] {
        let place = Place::new();
        place.write("seed", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"1\"}\n");
        let options = ["--data", "data", "--persist", persist, "--seed", "seed"];
        let mut server = Server::start(&place, &options);
        assert_eq!(place.run_at(&server.url(), &["get", "a", "b"]), "--- stdout\n1\n1\n--- exit 0\n");
        assert_eq!(place.run_at(&server.url(), &["set", "a", "2"]), "--- exit 0\n");
        assert_eq!(place.run_at(&server.url(), &["del", "b"]), "--- exit 0\n");
        server.kill();
        server.start_again(&place, &options);
        assert_eq!(place.run_at(&server.url(), &["get", "a"]), "--- stdout\n2(no line feed)\n--- exit 0\n");
        assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\na\n--- exit 0\n", "{persist}");
    }
}

#[test]
fn a_seed_that_ended_early_is_set_again_until_a_store_starts_without_it() {
    let place = Place::new();
    place.write("seed", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"1\"}\n");
    let fails = ["serve", "--listen", "127.0.0.1:0", "--data", "data", "--seed", "seed", "--keys-max", "1"];
    let shown = place.run_bounded(&fails);
    assert!(shown.contains("error: seed:2: the store refused the request: "), "{shown}");
    assert!(shown.contains("\n  1 key set before it\n"), "{shown}");
    assert!(shown.contains("hint: the next start with --seed sets all keys of the file again\n"), "{shown}");
    let mut server = Server::start(&place, &["--data", "data", "--seed", "seed"]);
    assert_eq!(place.run_at(&server.url(), &["keys", "--sort"]), "--- stdout\na\nb\n--- exit 0\n");
    assert_eq!(place.run_at(&server.url(), &["del", "a"]), "--- exit 0\n");
    server.kill();
    server.start_again(&place, &["--data", "data", "--seed", "seed"]);
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- stdout\nb\n--- exit 0\n");

    let mut fails = fails;
    fails[4] = "other";
    assert!(place.run_bounded(&fails).ends_with("--- exit 76\n"));
    let mut server = Server::start(&place, &["--data", "other"]);
    assert_eq!(place.run_at(&server.url(), &["set", "a", "2"]), "--- exit 0\n");
    server.kill();
    server.start_again(&place, &["--data", "other", "--seed", "seed"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"2");
}

#[test]
fn authorization_rules_do_not_apply_to_the_seed() {
    let place = Place::new();
    place.write("seed", SEED);
    place.write("rules", "rules: []\n");
    let mut server = Server::start(&place, &["--data", "data", "--seed", "seed", "--authz", "rules"]);
    assert!(place.run_at(&server.url(), &["get", "a"]).ends_with("--- exit 77\n"));
    server.kill();
    server.start_again(&place, &["--data", "data"]);
    assert_eq!(place.bytes_at(&server.url(), &["get", "a"]), b"2");
}

#[test]
fn an_invalid_line_is_reported_with_its_number_and_nothing_is_started() {
    let place = Place::new();
    place.write("seed", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\"}\n");
    let shown = place.run_bounded(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--port-file",
        "port",
        "--data",
        "data",
        "--seed",
        "seed",
    ]);
    assert_eq!(shown, "--- stderr\nerror: seed:2: missing member \"value\"\n--- exit 65\n");
    assert!(!place.path("port").exists() && !place.path("data").exists());
    place.write("seed", "{\"key\":\"a\",\"val");
    let shown = place.run_bounded(&["serve", "--listen", "127.0.0.1:0", "--seed", "seed"]);
    assert!(
        shown.contains(
            "error: seed:1: invalid JSON: unexpected end of line\n  the file ends within this line"
        ),
        "{shown}"
    );
}

#[test]
fn a_seed_that_the_store_refuses_is_reported_with_its_line() {
    let place = Place::new();
    place.write("seed", "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n");
    let words =
        ["serve", "--listen", "127.0.0.1:0", "--seed", "seed", "--keys-max", "1", "--port-file", "port"];
    let shown = place.run_bounded(&words);
    assert!(
        shown.contains(
            "error: seed:2: the store refused the request: the quota has been exceeded\n  1 key set before it\n"
        ),
        "{shown}"
    );
    assert!(shown.ends_with("--- exit 76\n") && !place.path("port").exists(), "{shown}");
}

#[test]
fn a_seed_that_is_not_a_file_is_reported() {
    let place = Place::new();
    let serve = |seed| place.run_bounded(&["serve", "--listen", "127.0.0.1:0", "--seed", seed]);
    assert!(serve("none").ends_with("--- exit 74\n"));
    assert_eq!(
        serve("-"),
        "--- stderr\nerror: --seed does not read standard input\nhint: --seed FILE\n--- exit 2\n"
    );
}

#[test]
fn a_command_gets_a_store_and_the_streams_and_its_exit_code_is_returned() {
    let place = Place::new();
    place.write("seed", SEED);
    let script = "$mqkv get a && $mqkv set b 3 && $mqkv get b && echo >&2 words && exit 7";
    let shown = shown(&mut exec(&place, &["--seed", "seed"], script));
    assert_eq!(shown, "--- stdout\n23(no line feed)\n--- stderr\nwords\n--- exit 7\n");
}

#[test]
fn the_variables_of_the_official_sdks_point_to_the_store() {
    let place = Place::new();
    let script = "[ $MQKV_BROKER = mqtt://127.0.0.1:$AIO_BROKER_TCP_PORT ] && echo $AIO_MQTT_USE_TLS; \
                  unset MQKV_BROKER; $mqkv set k v && $mqkv get k";
    let mut command = exec(&place, &["--listen", "0.0.0.0:0"], script);
    command.env("MQKV_CONTEXT", "none").env("AIO_BROKER_HOSTNAME", "elsewhere.invalid");
    assert_eq!(shown(&mut command), "--- stdout\nfalse\nv(no line feed)\n--- exit 0\n");
}

#[test]
fn variables_of_another_broker_are_removed_from_the_command_s_environment() {
    let place = Place::new();
    let variables = [
        "MQKV_HOSTNAME",
        "MQKV_PORT",
        "MQKV_NOTLS",
        "MQKV_CLIENT_ID",
        "MQKV_CAFILE",
        "MQKV_SAT_FILE",
        "AIO_TLS_CA_FILE",
        "AIO_SAT_FILE",
        "AIO_MQTT_USERNAME",
        "AIO_MQTT_PASSWORD_FILE",
    ];
    let outer = |options: &[&str], script: &str| {
        let mut command = exec(&place, options, script);
        shown(command.envs(variables.map(|name| (name, "1"))).env("AIO_BROKER_HOSTNAME", "elsewhere.invalid"))
    };
    let shown_lines = outer(&[], "$mqkv set k v && env | grep -c '^MQKV_.\\|^AIO_'");
    assert_eq!(shown_lines, "--- stdout\n5\n--- exit 0\n");
    let shown_lines = outer(&["--listen", "ws://127.0.0.1:0"], "$mqkv set k v && env | grep -c '^AIO_'");
    assert_eq!(shown_lines, "--- stdout\n0\n--- exit 1\n", "there is nothing for the SDKs");
    let mut command = exec(&place, &[], "echo $AIO_MQTT_CLIENT_ID");
    assert_eq!(shown(command.env("AIO_MQTT_CLIENT_ID", "app")), "--- stdout\napp\n--- exit 0\n");
    place.write("tokens", "sat tok.en\n");
    let shown_lines =
        outer(&["--sat-tokens", "tokens"], "echo $MQKV_SAT_FILE $AIO_SAT_FILE $AIO_MQTT_USERNAME");
    assert_eq!(shown_lines, "--- stdout\n1 1\n--- exit 0\n");
}

#[test]
fn a_command_trusts_a_self_signed_certificate_and_others_cause_a_hint() {
    let place = Place::new();
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    place.write("own.pem", own.cert.pem());
    place.write("own.key", own.signing_key.serialize_pem());
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    place.write("both.pem", read("server.pem") + &read("ca.pem"));
    let tls = |certificate, key| ["--tls-cert", certificate, "--tls-key", key];
    let script = "cd / && $mqkv set k v && $mqkv get k && cmp $MQKV_CAFILE $AIO_TLS_CA_FILE";
    let is_well = "--- stdout\nv(no line feed)\n--- exit 0\n";
    for options in [tls("own.pem", "own.key"), tls("both.pem", "server.key")] {
        let mut command = exec(&place, &options, script);
        assert_eq!(shown(command.env("MQKV_CAFILE", place.path("ca.pem"))), is_well);
    }
    let options = tls("server.pem", "server.key");
    let error = shown(&mut exec(&place, &options, "$mqkv get k"));
    let hint = "trust the CA that signed it: -T FILE, or MQKV_CAFILE=FILE";
    assert!(error.ends_with(&format!("is from an unknown CA: no CA of this machine has signed it\nhint: mqkv doctor\nhint: {hint}\n--- exit 69\n")), "{error}");
    let mut command = exec(&place, &options, "$mqkv set k v && $mqkv get k");
    assert_eq!(shown(command.env("MQKV_CAFILE", place.path("ca.pem"))), is_well);
    // The command connects to the first listener, which has no TLS.
    let listeners = ["--listen", "mqtt://127.0.0.1:0", "--listen", "mqtts://127.0.0.1:0"];
    let options = [&tls("own.pem", "own.key")[..], &listeners].concat();
    let shown_lines = shown(&mut exec(&place, &options, "$mqkv set k v && env | grep -c '_CA_\\?FILE='"));
    assert_eq!(shown_lines, "--- stdout\n0\n--- exit 1\n");
}

#[test]
fn the_exit_status_of_the_command_is_the_exit_status_of_serve() {
    let place = Place::new();
    assert_eq!(shown(&mut exec(&place, &[], "kill -TERM $$")), "--- exit 143\n");
    let missing = place.run_bounded(&["serve", "--exec", "--", "./none"]);
    assert!(missing.ends_with("--- exit 127\n"), "{missing}");
    place.write("file", "");
    let no_program = place.run_bounded(&["serve", "--exec", "--", "./file"]);
    assert!(no_program.ends_with("--- exit 126\n"), "{no_program}");
}

#[test]
fn processes_that_a_command_leaves_running_are_ended() {
    let place = Place::new();
    let shown = shown(&mut exec(&place, &[], "sleep 1000 & echo $!"));
    let id = shown.lines().nth(1).unwrap();
    assert!(!super::common::is_running(id), "{shown}");
}

#[test]
fn a_signal_goes_to_the_command_and_the_store_outlives_the_command() {
    let place = Place::new();
    // The signal goes to the process group. `sleep` inherits that it is ignored; otherwise the shell would
    // report that it was terminated.
    let script = "trap '' TERM; sleep 60 & \
                  trap '$mqkv set k v && $mqkv get k; kill -KILL $!; exit 9' TERM; echo ready; wait";
    let running = StreamedProcess::start(&mut exec(&place, &[], script));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    let (output, words, code) = running.end();
    assert_eq!((output, words, code), (vec!["v".to_owned()], Vec::new(), Some(9)));
}

#[test]
fn a_command_needs_exec_and_exec_needs_a_command() {
    let place = Place::new();
    for words in [&["serve", "--exec"][..], &["serve", "--", "true"]] {
        let shown = place.run_bounded(words);
        assert!(shown.ends_with("--- exit 2\n"), "{shown}");
    }
    for words in [&["serve", "--exec", "./x", "-v"][..], &["serve", "--exec=./x"]] {
        let shown = place.run_bounded(words);
        let hint =
            "hint: the command of --exec follows --: mqkv serve --exec -- ./x\nhint: mqkv serve --help\n";
        assert!(shown.ends_with(&format!("{hint}--- exit 2\n")), "{shown}");
    }
    let shown = place.run_bounded(&["serve", "./x"]);
    assert!(!shown.contains("--exec"), "{shown}");
}

#[test]
fn ctrl_z_stops_a_script_that_runs_a_store_and_its_command_and_bg_continues_all() {
    let place = Place::new();
    let mqkv = env!("CARGO_BIN_EXE_mqkv");
    place.write("outer", format!("{mqkv} serve --exec -- sh inner; echo over"));
    make_fifo(&place.path("end"));
    // It starts no program: a shell that starts one does not stop while that one is stopped, in any terminal.
    place.write("inner", "echo begun; read -r line < end");
    let terminal = Terminal::in_shell(&["bash", "--norc", "--noprofile", "-i"], &place, &["ping", "-h"]);
    terminal.ends_with("$");
    terminal.line("sh outer");
    terminal.shows("begun");
    terminal.keys(CTRL_Z);
    terminal.shows("Stopped");
    terminal.line("bg; echo > end; wait");
    terminal.shows("over");
}

#[test]
fn ctrl_z_stops_the_command_and_its_store_and_fg_continues_both() {
    let place = Place::new();
    place.write("script", "echo begun; exec cat");
    let bash = ["bash", "--norc", "--noprofile", "-i"];
    let terminal = Terminal::in_shell(&bash, &place, &["serve", "--exec", "--", "sh", "script"]);
    terminal.shows("begun");
    terminal.keys(CTRL_Z);
    terminal.ends_with("$");
    terminal.line("fg");
    terminal.wait_for("the job", |screen| screen.split("$ fg\n").nth(1).is_some_and(|job| !job.is_empty()));
    terminal.line("two");
    terminal.shows("two\ntwo");
    terminal.keys(CTRL_D);
    terminal.ends_with("$");
}
