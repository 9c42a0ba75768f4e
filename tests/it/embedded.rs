//! `--embedded` and `serve --data`: persistence, and directories that cannot be used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::common::wait_until;
use super::common::{Place, Server};
use crate::a_watchdog::bounded;

const EMBEDDED: &str = "--embedded=data";
const FILE: &str = "data/log-1";

fn run(place: &Place, line: &str) -> String {
    place.run_bounded(&line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn a_store_in_memory_ends_with_its_process() {
    let place = Place::new();
    assert_eq!(run(&place, "--embedded set k v -o text -q"), "--- exit 0\n");
    assert_eq!(run(&place, "--embedded get k -q"), "--- exit 1\n");
    let shown = run(&place, "--embedded ping");
    assert!(shown.starts_with("--- stdout\nembedded store  connect "), "{shown}");
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 0);
}

#[test]
fn a_verb_on_keys_in_memory_warns_that_they_are_lost() {
    let place = Place::new();
    let warning = "warning: --embedded: the store begins empty, and its keys are lost at the end\nhint: ";
    let shown = run(&place, "set k v --embedded -o text");
    let hint = "keep keys in a folder: --embedded=DIR\n";
    assert_eq!(shown, format!("--- stdout\nstored k (1 byte)\n--- stderr\n{warning}{hint}--- exit 0\n"));
    fs::create_dir(place.path("demo")).unwrap();
    let shown = run(&place, "export --embedded demo");
    assert!(shown.contains(&format!("{warning}did you mean --embedded=demo?\n")), "{shown}");
    assert!(!run(&place, "--embedded ping").contains("warning"));
    assert!(!run(&place, "--embedded=demo set k v").contains("warning"));
}

#[test]
fn a_store_in_a_directory_persists_keys_with_their_versions() {
    let place = Place::new();
    let get = || bounded(|| place.command(&[EMBEDDED, "get", "k", "-j"]).output()).unwrap().stdout;
    assert_eq!(run(&place, &format!("{EMBEDDED} set k --hex 00ff")), "--- exit 0\n");
    let first = get();
    assert!(String::from_utf8_lossy(&first).contains("\"value\":\"AP8=\""), "{first:?}");
    assert_eq!(get(), first, "another run reads the same version");
    assert_eq!(
        run(&place, &format!("{EMBEDDED} set k v --nx")),
        "--- stderr\nerror: not stored: k exists\n--- exit 1\n"
    );
    assert_eq!(run(&place, &format!("{EMBEDDED} del k")), "--- exit 0\n");
    assert_eq!(
        run(&place, &format!("{EMBEDDED} get k")),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    assert_eq!(fs::metadata(place.path(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(place.path("data")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_time_to_live_elapses_between_runs() {
    let place = Place::new();
    assert_eq!(run(&place, &format!("{EMBEDDED} set short v --ttl 500ms")), "--- exit 0\n");
    assert_eq!(run(&place, &format!("{EMBEDDED} set long v --ttl 1h")), "--- exit 0\n");
    let is_expired = || {
        run(&place, &format!("{EMBEDDED} get short"))
            == "--- stderr\nerror: key not found: short\n--- exit 1\n"
    };
    wait_until("the key expires", || is_expired().then_some(()));
    assert_eq!(run(&place, &format!("{EMBEDDED} get long")), "--- stdout\nv(no line feed)\n--- exit 0\n");
}

#[test]
fn a_fencing_token_is_persistent() {
    let place = Place::new();
    assert_eq!(run(&place, &format!("{EMBEDDED} set k v --fence 2000:0:holder")), "--- exit 0\n");
    let shown = run(&place, &format!("{EMBEDDED} set k w"));
    assert!(shown.contains("a fencing token is required") && shown.ends_with("--- exit 76\n"), "{shown}");
    let shown = run(&place, &format!("{EMBEDDED} del k --fence 1999:0:holder"));
    assert!(shown.contains("a lower version") && shown.ends_with("--- exit 76\n"), "{shown}");
    assert_eq!(run(&place, &format!("{EMBEDDED} del k --fence 2000:0:holder")), "--- exit 0\n");
}

#[test]
fn a_directory_is_used_by_one_process_at_a_time() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--data", "data"]);
    let refused = "--- stderr\nerror: data is in use by another process\n\
                   hint: connect to the `mqkv serve` that uses it with -b mqtt://HOST:PORT, or stop that\n--- exit 74\n";
    assert_eq!(run(&place, &format!("{EMBEDDED} get k")), refused);
    assert_eq!(run(&place, "serve --listen 127.0.0.1:0 --data data"), refused);
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v"]), "--- exit 0\n");
    drop(server);
    assert_eq!(run(&place, &format!("{EMBEDDED} get k")), "--- stdout\nv(no line feed)\n--- exit 0\n");
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    const KEYS: usize = 20;
    let place = Place::new();
    // Dropping a server kills it with SIGKILL.
    let server = Server::start(&place, &["-q", "--data", "data"]);
    for number in 0..KEYS {
        let key = format!("k{number}");
        assert_eq!(place.run_at(&server.url(), &["set", &key, &key]), "--- exit 0\n");
    }
    assert_eq!(place.run_at(&server.url(), &["del", "k0"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &["-q", "--data", "data"]);
    assert_eq!(
        place.run_at(&server.url(), &["get", "k0"]),
        "--- stderr\nerror: key not found: k0\n--- exit 1\n"
    );
    for number in 1..KEYS {
        let key = format!("k{number}");
        assert_eq!(place.bytes_at(&server.url(), &["get", &key]), key.as_bytes());
    }
}

#[test]
fn a_server_without_a_directory_persists_nothing() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v", "--persist"]), "--- exit 0\n");
    drop(server);
    let server = Server::start(&place, &["-q"]);
    assert_eq!(
        place.run_at(&server.url(), &["get", "k"]),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
}

#[test]
fn a_file_in_place_of_the_directory_is_an_error() {
    let place = Place::new();
    place.write("data", "a file");
    let refused = |path: &str| {
        format!(
            "--- stderr\nerror: cannot use {path}: not a directory\n\
             hint: use a directory that is writable\n--- exit 74\n"
        )
    };
    assert_eq!(run(&place, &format!("{EMBEDDED} get k")), refused("data"));
    assert_eq!(run(&place, "serve --listen 127.0.0.1:0 --data data"), refused("data"));
    let shown = run(&place, "--embedded=data/below get k");
    assert!(shown.starts_with("--- stderr\nerror: cannot use data/below: "), "{shown}");
    assert!(shown.ends_with("--- exit 74\n"), "{shown}");
    assert_eq!(fs::read(place.path("data")).unwrap(), b"a file");
}

#[test]
fn a_directory_that_cannot_be_written_exits_with_74() {
    // Not even root can create a directory here.
    let shown = run(&Place::new(), "--embedded=/proc/mqkv set k v");
    assert!(shown.starts_with("--- stderr\nerror: cannot use /proc/mqkv: "), "{shown}");
    assert!(shown.ends_with("hint: use a directory that is writable\n--- exit 74\n"), "{shown}");

    let place = Place::new();
    fs::create_dir(place.path("data")).unwrap();
    fs::set_permissions(place.path("data"), fs::Permissions::from_mode(0o500)).unwrap();
    let mut command = place.command(&[EMBEDDED, "set", "k", "v"]);
    if fs::write(place.path("data/probe"), "").is_ok() {
        // Root without this capability is subject to permissions.
        let mut limited = Command::new("setpriv");
        limited.args(["--bounding-set", "-dac_override"]).arg(command.get_program()).args(command.get_args());
        limited.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        limited.current_dir(place.folder());
        command = limited;
    }
    let output = bounded(|| command.output()).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("data: Permission denied"), "{errors}");
    assert_eq!(output.status.code(), Some(74), "{errors}");
}

#[test]
fn a_corrupt_file_is_an_error_and_is_not_changed() {
    let is_corrupt = |shown: &str| {
        shown.starts_with("--- stderr\nerror: data is corrupt: ")
            && shown.ends_with(
                "\nhint: restore all files of data from one backup, or recover the readable keys: mqkv data recover data\n--- exit 74\n",
            )
            && shown.lines().count() == 4
    };
    let place = Place::new();
    assert_eq!(run(&place, &format!("{EMBEDDED} set k v")), "--- exit 0\n");
    let good = fs::read(place.path(FILE)).unwrap();
    let (torn, _) = good.split_at(100);
    for garbage in [b"garbage".repeat(1000), b"x".to_vec(), torn.to_vec(), vec![0xFF; good.len()]] {
        place.write(FILE, &garbage);
        let shown = run(&place, &format!("{EMBEDDED} get k"));
        assert!(is_corrupt(&shown), "{shown}");
        assert!(fs::read(place.path(FILE)).unwrap() == garbage, "the file is unchanged");
    }
}

#[test]
fn corruption_of_any_page_is_an_error_and_no_panic() {
    const PAGE: usize = 4096;
    let place = Place::new();
    assert_eq!(run(&place, &format!("{EMBEDDED} set k v")), "--- exit 0\n");
    let good = fs::read(place.path(FILE)).unwrap();
    for page in 0..good.len() / PAGE {
        for garbage in [0x00, 0x01, 0xA5, 0xFF] {
            let mut bad = good.clone();
            bad[page * PAGE..][..PAGE].fill(garbage);
            place.write(FILE, &bad);
            let shown = run(&place, &format!("{EMBEDDED} get k"));
            let error = shown.starts_with("--- stderr\nerror: ") && shown.ends_with("--- exit 74\n");
            // The contents of an unused page do not matter.
            let unharmed = shown == "--- stdout\nv(no line feed)\n--- exit 0\n";
            assert!((error && !shown.contains("panicked")) || unharmed, "page {page}, {garbage:#x}: {shown}");
        }
    }
}
