//! Input that is invalid beyond the grammar: keys and values over a limit, text that is not UTF-8, files that cannot be
//! read or written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::common::bounded::bounded_transcript;
use super::common::fake_broker::FakeBroker;
use super::common::{Place, Server, wire};

/// Runs a command line of arbitrary bytes.
fn run(place: &Place, words: &[&[u8]]) -> String {
    let words: Vec<&OsStr> = words.iter().map(|word| OsStr::from_bytes(word)).collect();
    bounded_transcript(&mut place.command_os(&words))
}

#[test]
fn an_empty_key_and_one_over_the_limit_are_usage_errors() {
    let place = Place::new();
    let long = vec![b'k'; 65_536];
    for verb in [&["get"][..], &["set", "--value", "v"], &["del"], &["vdel", "--value", "v"]] {
        let words: Vec<&[u8]> = verb.iter().map(|word| word.as_bytes()).collect();
        let empty = run(&place, &[&words[..], &[b"-k", b""]].concat());
        assert_eq!(empty, "--- stderr\nerror: the key is empty\n--- exit 2\n", "{verb:?}");
        let long = run(&place, &[&words[..], &[b"-k", &long]].concat());
        assert_eq!(
            long, "--- stderr\nerror: the key has 65536 bytes; the limit is 65535\n--- exit 2\n",
            "{verb:?}"
        );
    }
    assert_eq!(
        run(&place, &[b"get", b"--key-hex", b""]),
        "--- stderr\nerror: the key is empty\n--- exit 2\n"
    );
    assert_eq!(run(&place, &[b"del", b"k", b""]), "--- stderr\nerror: the key is empty\n--- exit 2\n");
}

#[test]
fn a_value_over_the_brokers_packet_limit_exits_with_65_and_is_not_sent() {
    let fake = FakeBroker::start(|connection| {
        connection.expect("CONNECT");
        // Maximum packet size: 1,000 bytes.
        connection.send(&wire::connack(0, &[0x27, 0, 0, 0x03, 0xE8]));
        connection.subscribe(1);
        connection.listen()
    });
    let place = Place::new();
    place.write("big", vec![0; 2000]);
    let shown = place.run_at(&fake.url(), &["set", "k", "-f", "big", "-i", "me"]);
    assert!(shown.starts_with("--- stderr\nerror: request too large: 2"), "{shown}");
    assert!(
        shown.ends_with(
            " bytes; the broker accepts at most 1000\n  nothing was changed\n\
             hint: use a smaller value, or several keys\n--- exit 65\n"
        ),
        "{shown}"
    );
    assert_eq!(fake.end(), ["DISCONNECT"]);
}

#[test]
fn a_value_over_the_limit_exits_with_65_before_anything_is_sent() {
    let place = Place::new();
    // A sparse file takes no space.
    let file = std::fs::File::create(place.path("huge")).unwrap();
    file.set_len(256 * 1024 * 1024).unwrap();
    assert_eq!(
        run(&place, &[b"set", b"k", b"-f", b"huge"]),
        "--- stderr\nerror: value too large: the limit is 268173312 bytes\n--- exit 65\n"
    );
    let mut endless = place.command(&["set", "k", "-"]);
    endless.stdin(std::fs::File::open("/dev/zero").unwrap());
    assert_eq!(
        bounded_transcript(&mut endless),
        "--- stderr\nerror: value too large: the limit is 268173312 bytes\n--- exit 65\n"
    );
}

#[test]
fn text_that_is_not_utf_8_is_a_usage_error() {
    let place = Place::new();
    let error = |word: &str, verb: &str| {
        format!(
            "--- stderr\nerror: invalid UTF-8: {word}\n  only keys, values and file names may contain arbitrary bytes\n\
             hint: {verb} --help\n--- exit 2\n"
        )
    };
    let get = |option: &[u8], value: &[u8]| run(&place, &[b"get", b"k", option, value]);
    assert_eq!(get(b"-b", b"mqtt://h\xff"), error("mqtt://h\\xff", "mqkv get"));
    assert_eq!(get(b"-n", b"h\xff"), error("h\\xff", "mqkv get"));
    assert_eq!(get(b"-i", b"h\xff"), error("h\\xff", "mqkv get"));
    assert_eq!(get(b"-t", b"\xff"), error("\\xff", "mqkv get"));
    let set = |option: &[u8], value: &[u8]| run(&place, &[b"set", b"k", b"v", option, value]);
    assert_eq!(set(b"--ttl", b"5\xffs"), error("5\\xffs", "mqkv set"));
    assert_eq!(set(b"--fence", b"1:0:\xff"), error("1:0:\\xff", "mqkv set"));
    assert_eq!(run(&place, &[b"set", b"k", b"--hex", b"\xff"]), error("\\xff", "mqkv set"));
    assert_eq!(run(&place, &[b"serve", b"--listen", b"\xff:0"]), error("\\xff:0", "mqkv serve"));
    assert_eq!(run(&place, &[b"decode", b"hlc", b"\xff"]), error("\\xff", "mqkv decode hlc"));
    for words in [
        &[&b"\xff"[..]][..],
        &[b"get", b"k", b"-o", b"\xff"],
        &[b"get", b"k", b"--\xff"],
        &[b"help", b"\xff"],
    ] {
        let shown = run(&place, words);
        assert!(
            shown.starts_with("--- stderr\nerror: ") && shown.ends_with("--- exit 2\n"),
            "{words:?}: {shown}"
        );
    }
}

#[test]
fn file_names_may_contain_any_byte() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let at = |words: &[&[u8]]| run(&place, &[&[&b"-b"[..], url.as_bytes()], words].concat());
    assert_eq!(at(&[b"set", b"k", b"v"]), "--- exit 0\n");
    assert_eq!(at(&[b"get", b"k", b"-f", b"out\xff"]), "--- exit 0\n");
    assert_eq!(
        at(&[b"get", b"k", b"-f", b"out\xff", b"-o", b"text"]),
        "--- stdout\nwrote out\\xFF (1 byte)\n--- exit 0\n"
    );
    assert_eq!(at(&[b"set", b"l", b"-f", b"out\xff"]), "--- exit 0\n");
    assert_eq!(at(&[b"get", b"l"]), "--- stdout\nv(no line feed)\n--- exit 0\n");
    let shown = at(&[b"set", b"l", b"-f", b"no\xff"]);
    assert!(
        shown.starts_with("--- stderr\nerror: cannot read no") && shown.ends_with("--- exit 74\n"),
        "{shown}"
    );
    assert_eq!(run(&place, &[b"--embedded=dir\xff", b"set", b"k", b"v"]), "--- exit 0\n");
    assert_eq!(
        run(&place, &[b"--embedded=dir\xff", b"get", b"k"]),
        "--- stdout\nv(no line feed)\n--- exit 0\n"
    );
}

#[test]
fn an_invalid_url_is_reported_with_a_valid_example() {
    let place = Place::new();
    let get = |url: &str| place.run_bounded(&["get", "k", "-b", url]);
    let usage =
        |message: &str, hint: &str| format!("--- stderr\nerror: {message}\nhint: {hint}\n--- exit 2\n");
    assert_eq!(get("a/b"), usage("the broker is not a URL", "-b mqtt://HOST[:PORT]"));
    assert_eq!(get("http://h"), usage("unknown scheme http://", "-b mqtt://HOST[:PORT]"));
    assert_eq!(get("mqtt://h:port"), usage("invalid host or port in mqtt://h:port", "-b mqtt://HOST[:PORT]"));
    assert_eq!(get("mqtt://"), usage("invalid host or port in mqtt://", "-b mqtt://HOST[:PORT]"));
    let shown = get("mqtt://no..such");
    assert!(shown.starts_with("--- stderr\nerror: cannot resolve no..such:1883: "), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn a_client_id_that_no_topic_can_contain_is_a_usage_error() {
    let place = Place::new();
    let with = |id: &str| place.run_bounded(&["--embedded", "get", "k", "-i", id]);
    let usage = |message: &str| format!("--- stderr\nerror: {message}\n--- exit 2\n");
    assert_eq!(with(""), usage("the client id is empty"));
    for id in ["a+", "#", "a\nb"] {
        assert_eq!(with(id), usage("the client id contains a control character, + or #"), "{id:?}");
    }
    assert_eq!(with(&"i".repeat(1025)), usage("the client id has 1025 bytes; the limit is 1024"));
    for id in ["a", "line 1/press", "ünïcode", &"i".repeat(1024)] {
        assert_eq!(with(id), "--- stderr\nerror: key not found: k\n--- exit 1\n", "{id:?}");
    }
}

#[test]
fn timeouts_have_no_upper_limit() {
    let place = Place::new();
    for duration in ["1h", "500000000y"] {
        let words = ["--embedded", "get", "k", "--timeout", duration, "--connect-timeout", duration];
        assert_eq!(
            place.run_bounded(&words),
            "--- stderr\nerror: key not found: k\n--- exit 1\n",
            "{duration}"
        );
    }
    let shown = place.run_bounded(&["set", "k", "v", "--ttl", "9999999999y"]);
    assert!(
        shown.contains(": a time to live is at most 100 years; without --ttl the key does not expire\n"),
        "{shown}"
    );
}

#[test]
fn an_address_that_cannot_be_bound_is_reported_with_one_that_can() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let taken = server.url().replace("mqtt://", "");
    let serve = |address: &str| place.run_bounded(&["serve", "--listen", address]);
    assert_eq!(
        serve(&taken),
        "--- stderr\nerror: cannot listen on BROKER: Address already in use (os error 98)\n\
         hint: --listen BROKER for any free port, or stop the process that listens there\n--- exit 69\n"
    );
    // No machine has an address that is reserved for documentation.
    assert_eq!(
        serve("192.0.2.1:1883"),
        "--- stderr\nerror: cannot listen on 192.0.2.1:1883: Cannot assign requested address (os error 99)\n\
         hint: --listen 0.0.0.0:1883 for all addresses: this machine does not have 192.0.2.1\n--- exit 69\n"
    );
}

#[test]
fn a_file_that_cannot_be_read_or_written_exits_with_74() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let at = |words: &[&str]| place.run_at(&server.url(), words);
    assert_eq!(at(&["set", "k", "v"]), "--- exit 0\n");
    assert_eq!(
        at(&["get", "k", "-f", "no/such/folder"]),
        "--- stderr\nerror: cannot write no/such/folder: No such file or directory (os error 2)\n--- exit 74\n"
    );
    let shown = at(&["get", "k", "-f", "."]);
    assert!(
        shown.starts_with("--- stderr\nerror: cannot write .: ") && shown.ends_with("--- exit 74\n"),
        "{shown}"
    );
    assert_eq!(
        at(&["set", "k", "-f", "."]),
        "--- stderr\nerror: cannot read .: Is a directory (os error 21)\n--- exit 74\n"
    );
    assert_eq!(
        at(&["get", "k", "-f", "-"]),
        "--- stderr\nerror: -f needs the name of a file\nhint: print the exact bytes on standard output: -o raw\n--- exit 2\n"
    );
    assert_eq!(at(&["get", "k", "-f", "/dev/null"]), "--- exit 0\n");
}
