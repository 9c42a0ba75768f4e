//! Commands that the program starts, and their end with it.

use std::fs;
use std::process::Stdio;

use crate::a_watchdog::bounded;
use crate::place::{Place, Running, is_open, wait_for};

/// A program with a child: a lock whose command is a server.
fn with_child<'a>(mqkv: &'a str, broker: &'a str, port_file: &'a str) -> Vec<&'a str> {
    vec![
        mqkv,
        "-b",
        broker,
        "lock",
        "inner",
        "--",
        mqkv,
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--port-file",
        port_file,
        "-q",
    ]
}

fn port(place: &Place, name: &str) -> u16 {
    wait_for(|| fs::read_to_string(place.path(name)).ok()?.trim().parse().ok())
}

#[test]
fn a_command_runs_under_the_lock_and_has_its_token() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = place.mqkv();
    let lock = ["-b", &server.broker, "lock", "deploy", "--"];
    let write = [&mqkv, "-b", &server.broker, "set", "recipe", "7", "--fence-env"];
    let ran = place.run(&[&lock[..], &write].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(place.output(&["-b", &server.broker, "get", "recipe"]), "7");
    // The command's code is the code.
    let ran = place.run(&[&lock[..], &[&mqkv, "-b", &server.broker, "get", "missing"]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(place.run(&["-b", &server.broker, "holder", "deploy"]).code, Some(1));
}

#[test]
fn commands_that_end_at_once_are_run_each_time() {
    let place = Place::new();
    let server = place.serve(&[]);
    let command: &[&str] = if cfg!(windows) { &["cmd", "/c", "exit 7"] } else { &["sh", "-c", "exit 7"] };
    let lock = ["-b", &server.broker, "lock", "deploy", "--"];
    for _ in 0..20 {
        let ran = place.run(&[&lock[..], command].concat());
        assert_eq!(ran.code, Some(7), "{ran:?}");
    }
}

#[test]
fn a_lost_lock_ends_the_command_and_its_children() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = place.mqkv();
    let outer = ["-b", &server.broker, "lock", "outer", "--ttl", "2s", "--kill-after", "200ms", "--"];
    let words = [&outer[..], &with_child(&mqkv, &server.broker, "child")].concat();
    let mut lock =
        Running(place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let child = port(&place, "child");
    assert!(is_open(child));
    drop(server);
    assert_eq!(lock.code(), Some(125));
    wait_for(|| (!is_open(child)).then_some(()));
}

/// macOS has no signal for the death of a parent.
#[cfg(any(windows, target_os = "linux"))]
#[test]
fn the_command_of_a_killed_lock_ends_with_its_children() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = place.mqkv();
    let outer = ["-b", &server.broker, "lock", "outer", "--"];
    let words = [&outer[..], &with_child(&mqkv, &server.broker, "child")].concat();
    let mut lock =
        Running(place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let child = port(&place, "child");
    assert!(is_open(child));
    lock.0.kill().unwrap();
    lock.code();
    wait_for(|| (!is_open(child)).then_some(()));
}

#[test]
fn a_watch_runs_its_command_with_the_change() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = place.mqkv();
    // The command has the value as its input.
    let words = [
        "-b",
        &server.broker,
        "watch",
        "k",
        "--no-initial",
        "-c",
        "1",
        "--",
        &mqkv,
        "-b",
        &server.broker,
        "set",
        "copy",
        "-",
    ];
    let mut watch =
        Running(place.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for(|| {
        place.output(&["-b", &server.broker, "set", "k", "of the watch"]);
        watch.0.try_wait().unwrap()
    });
    assert_eq!(watch.code(), Some(0));
    assert_eq!(place.output(&["-b", &server.broker, "get", "copy"]), "of the watch");
}

#[test]
fn a_failed_command_ends_a_watch_that_asks_for_it() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mqkv = place.mqkv();
    place.output(&["-b", &server.broker, "set", "k", "v"]);
    let watch = ["-b", &server.broker, "watch", "k", "--exit-on-error", "--exec-on", "initial", "--"];
    let ran = place.run(&[&watch[..], &[&mqkv, "no-such-verb"]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn a_value_is_edited_by_the_editor_of_the_environment() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.output(&["-b", &server.broker, "set", "k", "before"]);
    // The program is the editor too; the file is its last argument.
    let (mqkv, broker) = (place.mqkv(), &server.broker);
    let edit = |editor: &str| {
        let mut command = place.command(&["-b", broker, "edit", "k"]);
        command.env("EDITOR", format!("\"{mqkv}\" -b {broker} {editor}"));
        bounded(|| command.output()).unwrap()
    };
    let unchanged = edit("set read --file");
    assert_eq!(unchanged.status.code(), Some(0), "{unchanged:?}");
    assert_eq!(place.output(&["-b", broker, "get", "read"]), "before");
    assert_eq!(edit("no-such-verb").status.code(), Some(74));
    assert_eq!(place.output(&["-b", broker, "get", "k"]), "before");
    let editor = if cfg!(windows) {
        place.write("editor.cmd", "@echo after> %1\r\n");
        // As the name of a program without an ending, like `code` of Visual Studio Code.
        ".\\editor"
    } else {
        place.write("editor.sh", "echo after >\"$1\"\n");
        "sh editor.sh"
    };
    let mut command = place.command(&["-b", broker, "edit", "k"]);
    let changed = bounded(|| command.env("EDITOR", editor).output()).unwrap();
    assert_eq!(changed.status.code(), Some(0), "{changed:?}");
    assert_eq!(place.output(&["-b", broker, "get", "k"]), "after");
}
