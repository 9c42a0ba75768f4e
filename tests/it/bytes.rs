//! Keys and values of arbitrary bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::common::bounded::bounded_transcript;
use super::common::{Place, Server};

#[test]
fn a_value_of_any_bytes_is_returned_unchanged() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let values = [vec![], vec![0], vec![b'\n'], all.clone(), all.repeat(4096), all.repeat(65_536)];
    assert_eq!(values.last().map(Vec::len), Some(16 * 1024 * 1024));
    for value in values {
        let size = value.len();
        assert_eq!(place.run_at_with_input(&url, &["set", "k", "-"], &value), "--- exit 0\n", "{size} bytes");
        assert!(place.bytes_at(&url, &["get", "k"]) == value, "{size} bytes in a pipe");
        place.run_at(&url, &["get", "k", "-f", "out"]);
        assert!(std::fs::read(place.path("out")).unwrap() == value, "{size} bytes in a file");
    }
}

#[test]
fn a_key_of_any_bytes_is_a_key() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    // An argument of a process cannot contain a zero byte.
    let all: Vec<u8> = (1..=u8::MAX).collect();
    let longest = vec![b'k'; 65_535];
    for key in [&all[..], b"\xff", b"\n", b" ", b"+/#/$", "Schlüssel".as_bytes(), &longest] {
        let key = OsStr::from_bytes(key);
        let run = |words: &[&OsStr]| bounded_transcript(place.command_os(words).args(["-b", &url]));
        let verb = |name: &'static str| OsStr::new(name);
        assert_eq!(run(&[verb("set"), verb("-k"), key, verb("--value"), key]), "--- exit 0\n", "{key:?}");
        let output = place.command_os(&[verb("get"), verb("-k"), key]).args(["-b", &url]).output().unwrap();
        assert_eq!(output.stdout, key.as_bytes());
        assert_eq!(run(&[verb("del"), verb("-k"), key]), "--- exit 0\n", "{key:?}");
        assert_eq!(run(&[verb("del"), verb("-k"), key, verb("-q")]), "--- exit 1\n", "{key:?}");
    }
    // A zero byte needs an encoding.
    assert_eq!(place.run_at(&url, &["set", "--key-hex", "00", "v"]), "--- exit 0\n");
    assert_eq!(
        place.run_at(&url, &["get", "--key-base64", "AA==", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"get\",\"key\":\"\\u0000\",\"found\":true,\"value\":\"v\",\
         \"encoding\":\"utf-8\",\"size\":1,\"version\":\"VERSION\"}\n--- exit 0\n"
    );
    assert_eq!(
        place.run_at(&url, &["set", "--key-hex", "ff", "v", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"set\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"applied\":true,\
         \"version\":\"VERSION\"}\n--- exit 0\n"
    );
}

#[test]
fn a_value_cannot_send_control_characters_to_the_terminal() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let evil = b"\x1b]0;owned\x07\r\n\x9b2J\x7f";
    assert_eq!(place.run_at_with_input(&url, &["set", "k", "-"], evil), "--- exit 0\n");
    assert_eq!(
        place.run_at(&url, &["get", "k", "-o", "text"]),
        "--- stdout\n\\x1B]0;owned\\x07\\x0D\n\\x9B2J\\x7F\n--- exit 0\n"
    );
    assert_eq!(
        place.run_at(&url, &["get", "\x1b[2J", "-o", "text"]),
        "--- stderr\nerror: key not found: \\x1B[2J\n--- exit 1\n"
    );
}
