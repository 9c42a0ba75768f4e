//! `decode`, which needs no broker.

use super::common::Place;

fn run(words: &[&str]) -> String {
    Place::new().run(words)
}

#[test]
fn a_version_is_split_into_time_counter_and_node() {
    assert_eq!(
        run(&["decode", "hlc", "001763669639958:00003:StateStore"]),
        "--- stdout\n2025-11-20T20:13:59.958Z  counter 3  node StateStore\n--- exit 0\n"
    );
    assert_eq!(
        run(&["decode", "version", "1:2:n", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"decode\",\"kind\":\"hlc\",\"time\":\"1970-01-01T00:00:00.001Z\",\
         \"ms\":1,\"counter\":2,\"node\":\"n\"}\n--- exit 0\n"
    );
    assert_eq!(
        run(&["decode", "hlc", "18446744073709551615:0:n"]),
        "--- stdout\n18446744073709551615 ms  counter 0  node n\n--- exit 0\n"
    );
    assert_eq!(
        run(&["decode", "hlc", "yesterday"]),
        "--- stderr\nerror: a timestamp has three parts, MILLISECONDS:COUNTER:NODE\n--- exit 65\n"
    );
}

#[test]
fn a_topic_names_its_client_and_key() {
    let topic = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/6331/command/notify/6B1B";
    assert_eq!(
        run(&["decode", "topic", topic]),
        "--- stdout\nnotification  client c1  key k\\x1B\n--- exit 0\n"
    );
    assert_eq!(
        run(&["-j", "decode", "topic", topic]),
        "--- stdout\n{\"v\":1,\"op\":\"decode\",\"kind\":\"notification-topic\",\"client_id\":\"c1\",\
         \"key\":\"k\\u001b\"}\n--- exit 0\n"
    );
}

#[test]
fn a_frame_is_read_from_digits_a_file_or_standard_input() {
    let place = Place::new();
    let expected = "--- stdout\nrequest: GET k\n1) \"GET\"\n2) \"k\"\n--- exit 0\n";
    let payload = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    place.write("payload", payload);
    assert_eq!(place.run(&["decode", "frame", "-f", "payload"]), expected);
    assert_eq!(place.run_with_input(&["decode", "frame", "-"], payload), expected);
    assert_eq!(
        place.run(&["decode", "frame", "--hex", "2a320d0a24330d0a4745540d0a24310d0a6b0d0a"]),
        expected
    );
}

#[test]
fn an_invalid_frame_exits_with_65() {
    assert_eq!(
        run(&["decode", "frame", "--hex", "2b4f4b0a"]),
        "--- stderr\nerror: invalid frame: CRLF missing at byte 3\n\
         hint: the input must be exactly one payload, in which every line ends with CR LF\n--- exit 65\n"
    );
}

#[test]
fn a_reply_is_a_tree_in_json() {
    assert_eq!(
        run(&["decode", "frame", "--hex", "3a2d310d0a", "-j"]),
        "--- stdout\n{\"v\":1,\"op\":\"decode\",\"kind\":\"reply\",\"reply\":\"not-applied\",\
         \"frame\":{\"type\":\"integer\",\"value\":-1}}\n--- exit 0\n"
    );
}
