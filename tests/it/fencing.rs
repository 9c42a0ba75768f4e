//! Refusals of the store: fenced keys, clocks that are ahead, the limit on keys.

use std::net::TcpStream;

use super::common::fake_broker::Connection;
use super::common::wire::{self, Publish};
use super::common::{Place, Server};

const OLDER: &str = "1000:0:holder";
const TOKEN: &str = "2000:0:holder";
const NEWER: &str = "2000:1:holder";
const FAR_AHEAD: &str = "9999999999999:0:holder";
const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

fn refused(text: &str, hint: &str) -> String {
    format!(
        "--- stderr\nerror: the store refused the request: {text}\n  nothing was changed\nhint: {hint}\n--- exit 76\n"
    )
}

#[test]
fn a_fenced_key_accepts_the_same_token_or_a_newer_one() {
    let place = Place::new().with_variable("MQKV_FENCING_TOKEN", NEWER);
    let server = Server::start(&place, &["-q"]);
    let run = |line: &str| place.run_at(&server.url(), &line.split_whitespace().collect::<Vec<_>>());
    let required = refused(
        "a fencing token is required for this request",
        "use the token of the lock's holder: --fence TOKEN",
    );
    let too_old = refused(
        "the request fencing token is a lower version than the fencing token protecting the resource",
        "acquire the lock again: another client has held it since this token",
    );
    assert_eq!(run(&format!("set k v --fence {TOKEN}")), "--- exit 0\n");
    for write in ["set k w", "del k", "vdel k v"] {
        assert_eq!(run(write), required, "{write}");
        assert_eq!(run(&format!("{write} --fence {OLDER}")), too_old, "{write}");
    }
    assert_eq!(run(&format!("set k w --fence {TOKEN}")), "--- exit 0\n");
    assert_eq!(run("set k x --fence-env"), "--- exit 0\n");
    // The newer token protects the key from now on.
    assert_eq!(run(&format!("set k w --fence {TOKEN}")), too_old);
    // A read needs no token.
    assert_eq!(run("get k"), "--- stdout\nx(no line feed)\n--- exit 0\n");
    assert_eq!(run("del k --fence-env"), "--- exit 0\n");
    assert_eq!(run("set k v"), "--- exit 0\n");
}

#[test]
fn a_token_in_a_file_overrides_one_in_a_variable() {
    let place = Place::new()
        .with_variable("MQKV_FENCING_TOKEN", OLDER)
        .with_variable("MQKV_FENCING_TOKEN_FILE", "token");
    let server = Server::start(&place, &["-q"]);
    place.write("token", format!("{NEWER}\n"));
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v", "--fence", TOKEN]), "--- exit 0\n");
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v", "--fence-env"]), "--- exit 0\n");
}

#[test]
fn a_token_from_the_future_is_refused() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let text = "the request fencing token timestamp is too far in the future; \
                ensure that the client and broker system clocks are synchronized";
    let hint = "use a token of the store, and synchronize the clocks with NTP";
    assert_eq!(place.run_at(&server.url(), &["set", "k", "v", "--fence", FAR_AHEAD]), refused(text, hint));
    assert_eq!(
        place.run_at(&server.url(), &["get", "k"]),
        "--- stderr\nerror: key not found: k\n--- exit 1\n"
    );
    assert_eq!(
        place.run_at(&server.url(), &["set", "k", "v", "--fence", FAR_AHEAD, "-j"]),
        format!(
            "--- stderr\n{{\"v\":1,\"error\":{{\"kind\":\"refused\",\"code\":76,\"message\":\"the store refused the request: \
             {text}\",\"hints\":[\"{hint}\"],\"outcome\":\"unchanged\",\"retryable\":false}}}}\n--- exit 76\n"
        )
    );
}

#[test]
fn a_client_whose_clock_is_ahead_by_more_than_a_minute_is_refused() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let address = server.url();
    let mut connection = Connection::new(TcpStream::connect(address.trim_start_matches("mqtt://")).unwrap());
    connection.send(&wire::connect("ahead"));
    connection.expect("CONNACK");
    connection.send(&wire::subscribe(1, "answers"));
    connection.expect("SUBACK");
    let ahead = |ms: u64| format!("{}:0:ahead", mqkv::clock::wall_ms() + ms);
    let mut send_request = |timestamp: String| {
        let request = Publish {
            topic: REQUEST.to_owned(),
            packet_id: 2,
            response_topic: "answers".to_owned(),
            correlation: timestamp.clone().into_bytes(),
            user_properties: vec![("__ts".to_owned(), timestamp)],
            payload: b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n".to_vec(),
        };
        connection.send(&request.encode());
        let packets = [connection.next().unwrap(), connection.next().unwrap()];
        let answer = packets.iter().find(|packet| packet.name() == "PUBLISH").unwrap();
        String::from_utf8(Publish::decode(answer).payload).unwrap()
    };
    assert_eq!(send_request(ahead(50_000)), "+OK\r\n");
    let refusal = send_request(ahead(90_000));
    assert!(refusal.starts_with("-ERR the request timestamp is too far in the future;"), "{refusal}");
}

#[test]
fn a_full_store_refuses_new_keys_until_one_is_deleted() {
    let place = Place::new();
    let server = Server::start(&place, &["-q", "--keys-max", "1"]);
    let run = |line: &str| place.run_at(&server.url(), &line.split_whitespace().collect::<Vec<_>>());
    let full = refused("the quota has been exceeded", "delete unused keys, or let them expire (--ttl)");
    assert_eq!(run("set a 1"), "--- exit 0\n");
    assert_eq!(run("set b 1"), full);
    assert_eq!(run("set b 1 --nx"), full);
    assert_eq!(run("set a 2"), "--- exit 0\n");
    assert_eq!(run("del a"), "--- exit 0\n");
    assert_eq!(run("set b 1"), "--- exit 0\n");
    assert_eq!(run("get b"), "--- stdout\n1(no line feed)\n--- exit 0\n");
}
