//! `doctor`: its checks of a sound connection, and its message and hint for each kind of failure.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::spawn;

use serde_json::Value;

use super::common::fake_broker::{Connection, FakeBroker, FakeBrokers};
use super::common::fake_store::{self, Faults, NO_FAULTS};
use super::common::pki::Ca;
use super::common::{LoggedServer, Place, Server, Terminal, non_mqtt_server, tls12, wire};
use crate::a_watchdog::bounded;

/// One check, as in the JSON array.
#[derive(Debug)]
struct Check(Value);

impl Check {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn detail(&self, name: &str) -> &Value {
        &self.0["details"][name]
    }
}

/// Runs `doctor` and returns its checks and its exit code. A run of more than half a minute fails the test.
#[track_caller]
fn run(place: &Place, line: &str) -> (Vec<Check>, i32) {
    let (checks, code, _) = run_with_errors(place, line);
    (checks, code)
}

/// Runs `doctor` as [`run`] does, and also returns its standard error.
#[track_caller]
fn run_with_errors(place: &Place, line: &str) -> (Vec<Check>, i32, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut child = place.command(&[&["doctor", "-j"], &words[..]].concat()).spawn().unwrap();
    super::common::bounded::wait_for_exit(&mut child);
    let output = bounded(|| child.wait_with_output()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let array: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let array = array.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let checks = array.as_array().unwrap().iter().cloned().map(Check).collect();
    (checks, output.status.code().unwrap(), errors)
}

/// Each check with its status.
fn outline(checks: &[Check]) -> String {
    let outline: Vec<_> =
        checks.iter().map(|check| format!("{} {}", check.text("check"), check.text("status"))).collect();
    outline.join(", ")
}

#[track_caller]
fn find<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    let found = checks.iter().find(|check| check.text("check") == name);
    found.unwrap_or_else(|| panic!("no {name} in {checks:?}"))
}

/// Runs `doctor` and returns its only failure: the check, its message and hint without the port, and the exit code.
#[track_caller]
fn failure(place: &Place, line: &str) -> (String, String, String, i32) {
    let (checks, code) = run(place, line);
    let failed: Vec<_> = checks.iter().filter(|check| check.text("status") == "fail").collect();
    let [failed] = failed.as_slice() else { panic!("{checks:?}") };
    assert_eq!(failed.0["code"], code, "{checks:?}");
    let text = |name: &str| without_ports(failed.text(name));
    (text("check"), text("message"), text("hint"), code)
}

fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("BROKER");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    out
}

fn failed(check: &str, message: &str, hint: &str, code: i32) -> (String, String, String, i32) {
    (check.to_owned(), message.to_owned(), hint.to_owned(), code)
}

/// Returns the only failure with a broker that runs a script.
#[track_caller]
fn failure_at(
    options: &str,
    script: impl FnOnce(&mut Connection) + Send + 'static,
) -> (String, String, String, i32) {
    let fake = FakeBroker::start(move |connection| {
        script(connection);
        connection.listen()
    });
    let found = failure(&Place::new(), &format!("-b {} {options}", fake.url()));
    fake.end();
    found
}

/// Starts a store that is faulty on the first connection, not on the one that checks early packets.
fn fake_store_with(faults: Faults) -> FakeBroker<Vec<String>> {
    FakeBroker::start_and_continue(
        move |connection| fake_store::serve(connection, &faults),
        |connection| drop(fake_store::serve(connection, &NO_FAULTS)),
    )
}

/// Runs `doctor` with a faulty store. Returns the checks, the exit code and the requests.
#[track_caller]
fn at_store(options: &str, faults: Faults) -> (Vec<Check>, i32, Vec<String>) {
    let fake = fake_store_with(faults);
    let (checks, code) = run(&Place::new(), &format!("-b {} {options}", fake.url()));
    (checks, code, fake.end())
}

/// A server with TLS; its certificate is in NAME.pem.
fn tls_server(place: &Place, name: &str, options: &[&str]) -> (Server, String) {
    let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
    let words = [&["-q", "--tls-cert", &certificate, "--tls-key", &key], options].concat();
    let server = Server::start(place, &words);
    let url = server.url().replace("mqtt://", "mqtts://");
    (server, url)
}

const SOUND_OUTLINE: &str = "dns ok, tcp ok, tls skipped, connack ok, subscribe ok, request ok, clock ok, \
                             notifications ok, early ok";
const LOG_HINT: &str = "see the broker's log, and every packet of this client with --trace";
const PORT_HINT: &str = "check the port; without TLS: -b mqtt://HOST:PORT or --notls";
const SUBSCRIBE_HINT: &str =
    "the rules of the broker must allow this user (-u) or client id (-i) to subscribe to that topic";
const PUBLISH_HINT: &str = "the rules of the broker must allow this user (-u) or client id (-i) to publish to \
                            statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke, and to receive the response \
                            on clients/CLIENT-ID/services/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke/response";
const EARLY_HINT: &str = "use --cautious, or cautious = true in the context";
const CLOCK_HINT: &str = "synchronize the clocks of this machine and of the broker with NTP";

#[test]
fn each_check_of_a_sound_connection_is_reported_and_the_test_key_is_deleted() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let (checks, code) = run(&place, &format!("-b {} -i me", server.url()));
    assert_eq!((outline(&checks).as_str(), code), (SOUND_OUTLINE, 0));
    assert_eq!(find(&checks, "dns").text("message"), "127.0.0.1 (an address, not a name)");
    assert_eq!(without_ports(find(&checks, "tcp").text("message")), "BROKER answers");
    let connack = find(&checks, "connack");
    assert!(connack.text("message").starts_with("accepted as me, QoS 2, packets up to "), "{connack:?}");
    assert_eq!((connack.detail("qos_max"), connack.detail("client_id")), (&2.into(), &"me".into()));
    assert_eq!(find(&checks, "subscribe").detail("qos"), 1);
    let key = find(&checks, "request").detail("key").as_str().unwrap();
    assert!(key.starts_with("mqkv-doctor/") && key.len() > 20, "{key}");
    let clock = find(&checks, "clock");
    let (ahead, margin) = (clock.detail("ahead_ms").as_i64(), clock.detail("margin_ms").as_i64());
    assert!(ahead.unwrap().abs() <= margin.unwrap() + 1, "one machine has one clock: {clock:?}");
    let notified = find(&checks, "notifications");
    assert!(
        notified.detail("set_ms").is_number() && notified.detail("delete_ms").is_number(),
        "{notified:?}"
    );
    for check in &checks {
        assert_eq!(check.0["ms"].is_number(), check.text("status") == "ok", "{check:?}");
    }
    assert_eq!(place.run_at(&server.url(), &["keys"]), "--- exit 0\n");
}

#[test]
fn output_in_a_pipe_has_one_line_per_check_and_output_on_a_terminal_has_symbols() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let shown = place.run_at(&server.url(), &["doctor"]);
    let heads: Vec<_> =
        shown.lines().filter_map(|line| line.rsplit_once('\t')).map(|(head, _)| head).collect();
    assert_eq!(heads.len(), 9, "{shown}");
    assert!(heads[0].starts_with("ok\tdns\t") && heads[0].ends_with(" ms"), "{shown}");
    assert_eq!(heads[2], "skipped\ttls\t-");
    let shown = place.run_at(&server.url(), &["doctor", "-o", "text", "--color", "always"]);
    assert!(shown.contains("\\x1b[32m✓ ok     \\x1b[0m dns "), "{shown}");
    let shown = place.run_bounded(&["doctor", "-b", "mqtt://127.0.0.1:1", "-o", "text"]);
    assert!(shown.contains("✗ FAIL    tcp "), "{shown}");
    assert!(shown.contains("– skipped connack                   tcp failed\n"), "{shown}");
}

#[test]
fn localhost_needs_no_lookup_and_each_address_is_tried() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url().replace("127.0.0.1", "localhost");
    let (checks, code) = run(&place, &format!("-b {url}"));
    assert_eq!(code, 0);
    assert_eq!(find(&checks, "dns").text("message"), "127.0.0.1 and ::1 (localhost)");
    let (checks, code) = run(&place, "-b mqtt://localhost:1");
    assert_eq!(code, 69);
    let tcp = find(&checks, "tcp");
    assert_eq!(tcp.text("message"), "connection refused: localhost:1");
    assert!(tcp.text("hint").contains("mqkv serve"), "{tcp:?}");
    assert_eq!(tcp.detail("missed").as_array().unwrap().len(), 2);
    let connack = find(&checks, "connack");
    assert_eq!((connack.text("status"), connack.text("message")), ("skipped", "tcp failed"));
}

#[test]
fn a_host_name_without_an_address_fails_the_dns_check() {
    let place = Place::new();
    let (checks, code) = run(&place, "-b mqtt://no..such");
    let dns = find(&checks, "dns");
    assert!(dns.text("message").starts_with("cannot resolve no..such:1883: "), "{dns:?}");
    assert_eq!(dns.text("hint"), "check the spelling of the host: -b mqtt://HOST or -n HOST");
    assert_eq!(code, 69);
}

#[test]
fn an_unusable_file_fails_the_settings_check_before_all_others() {
    let place = Place::new();
    place.write("empty", "");
    let (checks, code) = run(&place, "-n localhost -T nothing");
    assert!(outline(&checks).starts_with("settings fail, dns skipped, "), "{checks:?}");
    assert_eq!(code, 74);
    let (checks, code) = run(&place, "-b mqtt://localhost -u ann --password-file empty");
    assert!(outline(&checks).starts_with("settings fail, dns skipped, "), "{checks:?}");
    assert_eq!(code, 78);
}

#[test]
fn an_embedded_store_skips_the_network_checks() {
    let (checks, code) = run(&Place::new(), "--embedded");
    let expected = SOUND_OUTLINE.replace("dns ok, tcp ok", "dns skipped, tcp skipped");
    assert_eq!((outline(&checks), code), (expected, 0));
    assert_eq!(find(&checks, "tls").text("message"), "the store is inside this process");
}

#[test]
fn quiet_output_has_only_failures() {
    let place = Place::new();
    assert_eq!(place.run_bounded(&["doctor", "--embedded", "-q"]), "--- exit 0\n");
    assert_eq!(place.run_bounded(&["doctor", "--embedded", "-q", "-j"]), "--- stdout\n[]\n--- exit 0\n");
    let shown = place.run_bounded(&["doctor", "-q", "-b", "mqtt://127.0.0.1:1"]);
    assert_eq!(shown.lines().filter(|line| line.contains('\t')).count(), 1, "{shown}");
    assert!(shown.contains("FAIL\ttcp\t") && shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn the_tls_check_reports_chain_names_expiry_and_roots() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["localhost", "127.0.0.1"]);
    ca.issue(&place, "me", &["me"]);
    let (_server, url) = tls_server(&place, "server", &[]);
    let (checks, code) = run(&place, &format!("-b {url} -T ca.pem"));
    assert_eq!((outline(&checks), code), (SOUND_OUTLINE.replace("tls skipped", "tls ok"), 0));
    let tls = find(&checks, "tls");
    assert_eq!((tls.detail("version"), tls.detail("roots")), (&"1.3".into(), &"file".into()));
    assert_eq!(tls.detail("cafile"), "ca.pem");
    assert!(tls.detail("cipher").as_str().unwrap().starts_with("TLS13_"), "{tls:?}");
    let own = &tls.detail("chain")[0];
    assert!(own["issuer"].as_str().unwrap().contains("CN=ca.pem"), "{own}");
    assert_eq!(own["names"], serde_json::json!(["localhost", "127.0.0.1"]));
    assert_eq!(own["not_after"], "4096-01-01T00:00:00.000Z");
    assert!(own["days_left"].as_i64().unwrap() > 700_000, "{own}");
    assert!(tls.text("message").contains("CN=ca.pem; for localhost, 127.0.0.1; "), "{tls:?}");
    assert!(tls.text("message").ends_with("trusted: ca.pem; no client certificate requested"), "{tls:?}");
    let (checks, _) = run(&place, &format!("-b {url} -T ca.pem -C me.pem -K me.key"));
    let tls = find(&checks, "tls");
    assert!(tls.text("message").contains("client certificate CN=rcgen self signed cert not requested, "));
    let place = place.with_variable("SSL_CERT_FILE", "ca.pem");
    let (checks, _) = run(&place, &format!("-b {url}"));
    assert_eq!(find(&checks, "tls").detail("roots"), "platform");
}

#[test]
fn the_tls_check_reports_tls_1_2() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["localhost"]);
    let server = Server::start(&place, &["-q"]);
    let port = tls12::proxy(&place.path("server.pem"), &place.path("server.key"), server.port());
    let (checks, code) = run(&place, &format!("-b mqtts://localhost:{port} -T ca.pem"));
    assert_eq!((find(&checks, "tls").detail("version"), code), (&"1.2".into(), 0));
}

#[test]
fn the_tls_check_reports_a_missing_a_rejected_and_an_expiring_client_certificate() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    ca.issue_for_days(&place, "me", &["me"], 7);
    Ca::new(&place, "other.pem").issue(&place, "unknown", &["me"]);
    let (_server, url) = tls_server(&place, "server", &["--client-ca", "ca.pem"]);
    let line = |options: &str| format!("-b {url} -T ca.pem {options}");
    let (checks, code) = run(&place, &line("-C me.pem -K me.key"));
    let tls = find(&checks, "tls");
    assert_eq!((tls.text("message"), code), ("the client's certificate expires in 7 days", 0));
    assert_eq!(tls.text("hint"), "renew the client's certificate (-C and -K)");
    assert_eq!(tls.detail("asks_for_client_certificate"), true);
    assert_eq!(tls.detail("client_certificate")["days_left"], 7);
    assert_eq!(
        failure(&place, &line("")),
        failed(
            "tls",
            "BROKER requires a client certificate",
            "use a client certificate: -C FILE with the certificate, -K FILE with its key",
            69
        )
    );
    assert_eq!(
        failure(&place, &line("-C unknown.pem -K unknown.key")),
        failed(
            "tls",
            "BROKER rejected the client certificate: unknown CA (unknown.pem)",
            "use a valid certificate of a CA that the broker trusts: -C and -K",
            69
        )
    );
    let (checks, _) = run(&place, &line("-C unknown.pem -K unknown.key"));
    assert_eq!(find(&checks, "connack").text("message"), "tls failed");
}

#[test]
fn a_certificate_that_expires_soon_is_a_warning_and_an_expired_one_a_failure() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    let names = ["127.0.0.1"];
    for (name, days) in [("soon", 12), ("month", 30)] {
        ca.issue_for_days(&place, name, &names, days);
    }
    ca.issue_between(&place, "old", &names, [2020, 2021]);
    let (_server, url) = tls_server(&place, "soon", &[]);
    let (checks, code) = run(&place, &format!("-b {url} -T ca.pem"));
    let tls = find(&checks, "tls");
    assert_eq!((tls.text("status"), code), ("warn", 0));
    assert_eq!(tls.text("message"), "the broker's certificate expires in 12 days");
    let (_server, url) = tls_server(&place, "month", &[]);
    let (checks, _) = run(&place, &format!("-b {url} -T ca.pem"));
    assert_eq!(find(&checks, "tls").text("status"), "ok", "{checks:?}");
    let (_server, url) = tls_server(&place, "old", &[]);
    let (check, message, hint, code) = failure(&place, &format!("-b {url} -T ca.pem"));
    assert_eq!((check.as_str(), code), ("tls", 69));
    assert!(message.starts_with("the certificate of BROKER expired ") && message.ends_with(" days ago"));
    assert_eq!(hint, "renew the broker's certificate, or correct the clock of this machine");
    // With --insecure a connection ignores the dates; `doctor` checks them all the same.
    let (checks, code) = run(&place, &format!("-b {url} --insecure"));
    assert_eq!((outline(&checks), code), (SOUND_OUTLINE.replace("tls skipped", "tls fail"), 69));
    assert!(find(&checks, "tls").text("message").contains(" expired "), "{checks:?}");
}

#[test]
fn a_certificate_that_fails_verification_is_still_shown() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "plant", &["plant.example"]);
    Ca::new(&place, "other.pem");
    let (_server, url) = tls_server(&place, "plant", &[]);
    let message = "the certificate of BROKER is from an unknown CA: no CA in other.pem has signed it";
    let hint = "trust the CA that signed it: -T FILE, or MQKV_CAFILE=FILE";
    assert_eq!(failure(&place, &format!("-b {url} -T other.pem")), failed("tls", message, hint, 69));
    let (checks, _) = run(&place, &format!("-b {url} -T other.pem"));
    let own = &find(&checks, "tls").detail("chain")[0];
    assert!(own["issuer"].as_str().unwrap().contains("CN=ca.pem"), "{own}");
    let message = "the certificate of BROKER is for plant.example, not for 127.0.0.1";
    let hint = "use a name of the certificate: -n NAME, or --server-name NAME";
    assert_eq!(failure(&place, &format!("-b {url} -T ca.pem")), failed("tls", message, hint, 69));
    let (checks, code) = run(&place, &format!("-b {url} --insecure"));
    let tls = find(&checks, "tls");
    assert_eq!((tls.text("message"), code), ("--insecure: the broker is not authenticated", 0));
}

#[test]
fn a_mismatch_of_tls_and_plain_mqtt_is_recognized() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
    let (server, _) = tls_server(&place, "server", &[]);
    let hint = "use TLS: -b mqtts://HOST:PORT, or -n without --notls";
    let message = "BROKER requires TLS";
    assert_eq!(failure(&place, &format!("-b {}", server.url())), failed("tls", message, hint, 69));
    let plain = Server::start(&place, &["-q"]);
    let url = plain.url().replace("mqtt://", "mqtts://");
    let message = "BROKER does not speak TLS";
    assert_eq!(failure(&place, &format!("-b {url} -T ca.pem")), failed("tls", message, PORT_HINT, 69));
    // Most brokers just close the connection: `doctor` then tries a TLS handshake.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mqtt://{}", silent.local_addr().unwrap());
    let peer = spawn(move || {
        let mut bytes = [0; 65_536];
        let read = silent.accept().unwrap().0.read(&mut bytes).unwrap();
        assert_eq!((read > 0, bytes[0]), (true, 0x10), "CONNECT");
        let (mut second, _) = silent.accept().unwrap();
        let read = second.read(&mut bytes).unwrap();
        assert_eq!((read > 0, bytes[0]), (true, 0x16), "a ClientHello");
        second.write_all(b"\x15\x03\x03\0\x02\x02\x28").unwrap();
    });
    let message = "BROKER requires TLS";
    assert_eq!(failure(&place, &format!("-b {url}")), failed("tls", message, hint, 69));
    bounded(|| peer.join()).unwrap();
}

#[test]
fn each_kind_of_failed_handshake_has_its_own_message() {
    let place = Place::new();
    Ca::new(&place, "ca.pem");
    let with_timeout = |port: u16, timeout: &str| {
        let line = format!("-b mqtts://127.0.0.1:{port} -T ca.pem --connect-timeout {timeout}");
        failure(&place, &line)
    };
    let at = |port: u16| with_timeout(port, "1h");
    let message = "BROKER does not speak TLS";
    assert_eq!(
        at(non_mqtt_server(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        failed("tls", message, PORT_HINT, 69)
    );
    let message = "TLS handshake with BROKER failed: connection closed by the other side";
    assert_eq!(at(non_mqtt_server(b"\x16\x03\x03\0\x7a\x02")), failed("tls", message, PORT_HINT, 69));
    let message = "BROKER refused the TLS handshake: handshake failure";
    let hint = "if the broker requires a client certificate: -C and -K";
    assert_eq!(at(non_mqtt_server(b"\x15\x03\x03\0\x02\x02\x28")), failed("tls", message, hint, 69));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let message = "TLS handshake with BROKER timed out after 200ms";
    let port = silent.local_addr().unwrap().port();
    let hint = "the server is stopped or overloaded, or the port is wrong; without TLS: -b mqtt://HOST:PORT or --notls";
    assert_eq!(with_timeout(port, "200ms"), failed("tls", message, hint, 124));
}

#[test]
fn a_broker_that_closes_a_connect_of_mqtt_5_and_answers_one_of_mqtt_3_1_1_is_detected() {
    const LEVEL: usize = 6;
    // Anything else, such as the beginning of a TLS handshake, ends the connection, too.
    let serve = |_, connection: &mut Connection| {
        if connection.next().is_some_and(|packet| packet.body.get(LEVEL) == Some(&4)) {
            connection.send(b"\x20\x02\0\0");
            connection.listen();
        }
    };
    let found = failure(&Place::new(), &format!("-b {}", FakeBrokers::start(serve).url()));
    let message = "BROKER does not speak MQTT 5: the broker supports older versions only";
    let hint = "connect to a broker with MQTT 5: Azure IoT Operations, or `mqkv serve`";
    assert_eq!(found, failed("connack", message, hint, 76));
}

#[test]
fn a_rejected_connection_fails_the_connack_check() {
    let reject = |reason| {
        failure_at("", move |connection| {
            connection.expect("CONNECT");
            connection.send(&wire::connack(reason, &[]));
        })
    };
    let message = "BROKER rejected the connection: bad user name or password (0x86)";
    let hint = "check the user name (-u) and the password (--password-file or --ask-password)";
    assert_eq!(reject(0x86), failed("connack", message, hint, 77));
    let message = "BROKER rejected the connection: server busy (0x89)";
    let hint = "try again later, or use --retries N";
    assert_eq!(reject(0x89), failed("connack", message, hint, 69));
    let found = failure_at("", |connection| {
        connection.expect("CONNECT");
        connection.send(b"SSH-2.0-OpenSSH\r\n");
    });
    let hint = "check the port: 1883 is the default for MQTT without TLS";
    let message = "BROKER does not speak MQTT 5: received SSH-2.0-OpenSSH\\r\\n";
    assert_eq!(found, failed("connack", message, hint, 76));
    let found = failure_at("--connect-timeout 200ms", |connection| drop(connection.expect("CONNECT")));
    let message = "no CONNACK from BROKER within 200ms";
    let hint = "the server is stopped or overloaded, or the port is wrong: a TLS port does not answer plain MQTT, and a \
                broker without MQTT 5 may not answer";
    assert_eq!(found, failed("connack", message, hint, 124));
}

#[test]
fn the_connack_check_reports_the_limits_of_the_broker() {
    // QoS 1, no retained messages, 10 unacknowledged, packets of 1000 bytes, an hour, a client id, 5 s of keep-alive.
    let connack =
        b"\x24\x01\x25\0\x21\0\x0a\x27\0\0\x03\xe8\x11\0\0\x0e\x10\x12\0\x02ab\x13\0\x05\x22\0\x07\x28\0\x29\0\x2a\0";
    let (checks, code, _) = at_store("", Faults { connack: connack.to_vec(), ..NO_FAULTS });
    let connack = find(&checks, "connack");
    assert_eq!((connack.text("status"), code), ("ok", 0));
    let expected = serde_json::json!({
        "client_id": "ab", "client_id_assigned": true, "qos_max": 1, "retain": false, "packet_bytes_max": 1000,
        "receive_max": 10, "session_expiry_s": 3600, "keep_alive_s": 5, "topic_aliases_max": 7,
        "wildcard_subscriptions": false, "subscription_ids": false, "shared_subscriptions": false,
    });
    assert_eq!(connack.0["details"], expected);
}

#[test]
fn a_broker_without_qos_1_fails_a_check_of_its_own_after_its_connack() {
    let (checks, code, _) = at_store("", Faults { connack: b"\x24\0".to_vec(), ..NO_FAULTS });
    assert_eq!(find(&checks, "connack").text("status"), "ok");
    let qos = find(&checks, "qos");
    assert_eq!((qos.text("status"), code), ("fail", 76));
    let message = "supports only QoS 0, but requests to the store need QoS 1";
    assert!(qos.text("message").ends_with(message), "{qos:?}");
    assert_eq!(find(&checks, "subscribe").text("status"), "skipped");
}

#[test]
fn a_subscription_that_is_rejected_or_granted_a_lower_qos_is_reported() {
    let found = failure_at("-i me", |connection| {
        connection.accept_client();
        connection.subscribe(0x87);
    });
    let message = "the broker refused the subscription to clients/me/services/statestore/v1/\
                   FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke/response: not authorized (0x87)";
    assert_eq!(found, failed("subscribe", message, SUBSCRIBE_HINT, 77));
    let found = failure_at("--timeout 200ms", Connection::accept_client);
    let message = "no answer from BROKER within 200ms";
    assert_eq!(found, failed("subscribe", message, "increase --timeout", 124));
    let (checks, code, _) = at_store("", Faults { suback: 0, ..NO_FAULTS });
    let subscribe = find(&checks, "subscribe");
    assert_eq!((subscribe.text("status"), code), ("warn", 0));
    assert_eq!(subscribe.text("message"), "the broker grants QoS 0: replies may be lost");
}

#[test]
fn a_missing_a_silent_and_a_closing_store_have_different_messages() {
    let request = |options: &str, reason: Option<u8>| {
        failure_at(options, move |connection| {
            let request = connection.serve();
            match reason {
                Some(reason) => connection.send(&wire::puback(request.packet_id, reason)),
                None => connection.send(&wire::disconnect(0x8B)),
            }
        })
    };
    let message = "no state store at BROKER: no subscriber to its request topic";
    let hint = "connect to Azure IoT Operations or to `mqkv serve`, or connect a store to this broker: mqkv store -b URL";
    assert_eq!(request("", Some(0x10)), failed("request", message, hint, 69));
    let message = "no answer from BROKER within 1s";
    let silent = request("--timeout 1s", Some(0));
    assert_eq!((silent.0.as_str(), silent.1.as_str(), silent.3), ("request", message, 124));
    // Mosquitto accepts the subscription to a topic of which the client may receive nothing.
    let hint = "increase --timeout; if the store runs: the rules of the broker must allow this client to receive on clients/";
    assert!(silent.2.starts_with(hint) && silent.2.ends_with("/response"), "{silent:?}");
    let message = "the broker refused the request: not authorized (0x87)";
    assert_eq!(request("", Some(0x87)), failed("request", message, PUBLISH_HINT, 77));
    let message =
        "lost the connection to BROKER: the broker ended the connection: server shutting down (0x8B)";
    assert_eq!(request("", None), failed("request", message, LOG_HINT, 69));
}

#[test]
fn a_refusal_of_the_store_fails_the_check_with_a_hint() {
    let reply = |verb, text| at_store("", Faults { reply_instead: Some((verb, text)), ..NO_FAULTS });
    let (checks, code, requests) = reply("SET", "-ERR the quota has been exceeded\r\n");
    assert_eq!(
        outline(&checks),
        SOUND_OUTLINE.replace(
            "clock ok, notifications ok, early ok",
            "clock fail, notifications skipped, early skipped"
        )
    );
    let clock = find(&checks, "clock");
    assert_eq!(
        (clock.text("message"), code),
        ("the store refused the request: the quota has been exceeded", 76)
    );
    assert_eq!(clock.text("hint"), "delete unused keys, or let them expire (--ttl)");
    assert_eq!(requests.len(), 2, "{requests:?}");
    // A client without permission to read may still have permission to write.
    let (checks, code, _) = reply("GET", "-ERR not authorized\r\n");
    assert!(outline(&checks).ends_with("request warn, clock ok, notifications fail, early ok"), "{checks:?}");
    let message = find(&checks, "request").text("message").to_owned();
    assert!(
        message.starts_with("the store refuses the key of this check: not authorized: client id "),
        "{message}"
    );
    assert_eq!(code, 77);
    let (checks, code, _) = reply("KEYNOTIFY", "-ERR not authorized\r\n");
    assert!(outline(&checks).ends_with("clock ok, notifications fail, early ok"), "{checks:?}");
    assert_eq!(code, 77);
    let (checks, code, _) = reply("KEYNOTIFY", "-ERR the quota has been exceeded\r\n");
    let hint = "watch fewer keys at once, or raise `mqkv serve --watches-max N`";
    assert_eq!((find(&checks, "notifications").text("hint"), code), (hint, 76));
    let (checks, code, _) = reply("DEL", "-ERR something new\r\n");
    let notified = find(&checks, "notifications");
    assert_eq!((notified.text("message"), code), ("the store refused the request: something new", 76));
}

#[test]
fn an_answer_that_is_malformed_or_lacks_a_property_is_reported() {
    let (checks, code, _) = at_store("", Faults { reply_instead: Some(("GET", "+OK\r\n")), ..NO_FAULTS });
    let request = find(&checks, "request");
    let message = "malformed reply from the store: +OK is not a reply to GET";
    assert_eq!((request.text("message"), code), (message, 76));
    assert_eq!(find(&checks, "clock").text("status"), "skipped");
    let (checks, code, _) = at_store("", Faults { missing_property: "__stat", ..NO_FAULTS });
    let request = find(&checks, "request");
    assert_eq!((request.text("status"), code), ("warn", 0));
    assert_eq!(request.text("message"), "the reply has no __stat: Microsoft's clients reject it");
    let (checks, code, _) = at_store("", Faults { missing_property: "__ts", ..NO_FAULTS });
    let message = "malformed reply from the store: +OK to SET has no version (__ts)";
    assert_eq!((find(&checks, "clock").text("message"), code), (message, 76));
}

#[test]
fn the_clocks_are_compared_even_if_they_differ_by_more_than_the_limit() {
    for (ahead_ms, status, side, code) in [
        (5_000, "ok", "", 0),
        (-5_000, "ok", "", 0),
        (15_000, "warn", " s ahead of", 0),
        (-15_000, "warn", " s behind", 0),
        (90_000, "fail", " s ahead of", 76),
        (-90_000, "fail", " s behind", 76),
    ] {
        let (checks, exit, requests) = at_store("", Faults { clock_ahead_ms: ahead_ms, ..NO_FAULTS });
        let clock = find(&checks, "clock");
        assert_eq!((clock.text("status"), exit), (status, code), "{ahead_ms}: {clock:?}");
        let measured = clock.detail("ahead_ms").as_i64().unwrap();
        let margin = clock.detail("margin_ms").as_i64().unwrap();
        assert!((measured - ahead_ms).abs() <= margin, "{ahead_ms}: {clock:?}");
        if status != "ok" {
            let message = clock.text("message");
            let end = format!("{side} this machine's; the limit is 60 s");
            assert!(message.starts_with("the store's clock is ") && message.ends_with(&end), "{message}");
            // A machine that is synchronized with a time server knows which clock is wrong.
            let hint = clock.text("hint");
            assert!(
                hint == CLOCK_HINT || hint.ends_with("correct the clock of the broker's machine"),
                "{hint}"
            );
        }
        // The other checks run all the same, and their keys are deleted.
        assert_eq!(find(&checks, "notifications").text("status"), "ok", "{ahead_ms}: {checks:?}");
        let count = |verb: &str| requests.iter().filter(|request| request.starts_with(verb)).count();
        let writes = if ahead_ms >= 15_000 { 3 } else { 2 };
        assert_eq!((count("SET"), count("DEL")), (writes, writes), "{requests:?}");
    }
}

#[test]
fn versions_that_stand_still_ahead_of_the_clock_are_explained() {
    for (clock_ahead_ms, status, code) in [(30_000, "warn", 0), (3_600_000, "fail", 76)] {
        let faults = Faults { clock_ahead_ms, stands_still: true, ..NO_FAULTS };
        let (checks, exit, _) = at_store("", faults);
        let clock = find(&checks, "clock");
        assert_eq!((clock.text("status"), exit), (status, code), "{clock:?}");
        let message = clock.text("message");
        assert!(message.starts_with("the store's versions are "), "{message}");
        assert!(message.contains(" and stand still: the store's own clock was ahead before"), "{message}");
        assert!(clock.text("hint").starts_with("wait "), "{clock:?}");
    }
}

#[test]
fn a_missing_notification_exits_with_124_and_the_test_key_is_deleted() {
    for (unnotified_verb, code) in [("SET", 124), ("DEL", 124)] {
        let (checks, exit, requests) = at_store("--timeout 2s", Faults { unnotified_verb, ..NO_FAULTS });
        let notified = find(&checks, "notifications");
        let message =
            format!("timed out after 2s: no notification of the {unnotified_verb} of a watched key");
        assert_eq!((notified.text("message"), exit), (message.as_str(), code));
        assert!(notified.text("hint").contains("`mqkv monitor`"), "{notified:?}");
        assert!(requests.iter().rev().any(|request| request.starts_with("DEL mqkv-doctor/")), "{requests:?}");
    }
}

#[test]
fn read_only_writes_nothing() {
    let (checks, code, requests) = at_store("--read-only", NO_FAULTS);
    let expected =
        SOUND_OUTLINE.replace("clock ok, notifications ok", "clock skipped, notifications skipped");
    assert_eq!((outline(&checks), code), (expected, 0));
    assert_eq!(find(&checks, "clock").text("message"), "it writes, and --read-only is given");
    assert!(requests.len() == 1 && requests[0].starts_with("GET mqkv-doctor/"), "{requests:?}");
}

#[test]
fn a_read_only_context_is_written_to_only_with_force_write() {
    let fake = |options: &'static str| {
        let fake = fake_store_with(NO_FAULTS);
        let place = Place::new();
        place
            .write("config.toml", format!("[context.prod]\nbroker = \"{}\"\nread_only = true\n", fake.url()));
        let found = run(&place, &format!("--config config.toml -x prod {options}"));
        (found, fake.end())
    };
    let ((checks, code), requests) = fake("");
    assert_eq!((find(&checks, "notifications").text("status"), code), ("skipped", 0));
    let message = "it writes, and the context prod is read-only";
    assert_eq!(find(&checks, "clock").text("message"), message);
    assert_eq!(requests.len(), 1, "{requests:?}");
    let ((checks, code), _) = fake("--force-write");
    assert_eq!((outline(&checks).as_str(), code), (SOUND_OUTLINE, 0));
}

#[test]
fn at_the_prompt_doctor_uses_a_connection_of_its_own() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let mut terminal = Terminal::of_size(place.command(&["shell", "-b", &server.url(), "-i", "me"]), 30, 250);
    terminal.line("set k v");
    terminal.shows("stored k (1 byte)");
    terminal.line("doctor");
    terminal.shows("notifications");
    terminal.shows("accepted as me-");
    terminal.line("get k -j");
    terminal.shows("\"value\":\"v\"");
    assert!(!terminal.screen().contains("connection lost"), "{}", terminal.screen());
    terminal.line("\\q");
    assert_eq!(terminal.end(), Some(0));
    let mut terminal = Terminal::of_size(place.command(&["--embedded"]), 30, 250);
    terminal.line("set k v");
    terminal.shows("stored k (1 byte)");
    terminal.line("doctor -q");
    terminal.line("get k -j");
    terminal.shows("\"value\":\"v\"");
    terminal.line("\\q");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_web_socket_has_a_check_of_its_own() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    let files = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let listen = ["--listen", "ws://127.0.0.1:0/mqtt", "--listen", "wss://127.0.0.1:0"];
    let server = LoggedServer::start(&place, &[&listen[..], &files].concat());
    let url = format!("ws://127.0.0.1:{}", server.port(0));
    let with_web_socket = SOUND_OUTLINE.replace("connack ok", "ws ok, connack ok");
    let (checks, code) = run(&place, &format!("-b {url}"));
    assert_eq!((outline(&checks), code), (with_web_socket.clone(), 0));
    assert_eq!(find(&checks, "ws").text("message"), "MQTT over WebSocket at /mqtt");
    let (checks, code) = run(&place, &format!("-b wss://127.0.0.1:{} -T ca.pem", server.port(1)));
    assert_eq!((outline(&checks), code), (with_web_socket.replace("tls skipped", "tls ok"), 0));
    let message = "no WebSocket at BROKER: HTTP status 404";
    let hint = "check the path: -b ws://HOST:PORT/PATH; the default is /mqtt";
    assert_eq!(failure(&place, &format!("-b {url}/elsewhere")), failed("ws", message, hint, 69));
    let (checks, _) = run(&place, &format!("-b {url}/elsewhere"));
    assert!(outline(&checks).starts_with("dns ok, tcp ok, tls skipped, ws fail, connack skipped, "));
    let (checks, _) = run(&place, "-b ws://127.0.0.1:1");
    assert!(outline(&checks).contains("tls skipped, ws skipped, connack skipped"), "{checks:?}");
}

/// Runs `doctor` with a store whose second connection runs a script. Checks the status, and the beginnings of message and hint, of the
/// check of early packets, and the exit code.
#[track_caller]
fn assert_early(options: &str, second: fn(&mut Connection), status: &str, message: &str) {
    let broker = FakeBrokers::start(move |number, connection| match number {
        2 => second(connection),
        _ => drop(fake_store::serve(connection, &NO_FAULTS)),
    });
    let place = Place::new();
    place.write("token", "t");
    let (checks, code, errors) = run_with_errors(&place, &format!("-b {} {options}", broker.url()));
    let early = find(&checks, "early");
    let is_expected = early.text("status") == status && early.text("message").starts_with(message);
    let hint = if status == "warn" { EARLY_HINT } else { "" };
    assert!(
        is_expected && early.text("hint").starts_with(hint) && code == 0,
        "expected {status}: {message}\nexit {code} after {} connections: {checks:?}\n{errors}",
        broker.count()
    );
}

#[test]
fn a_broker_that_does_not_answer_early_packets_is_a_warning() {
    let closes = |connection: &mut Connection| {
        connection.expect("CONNECT");
        connection.expect("SUBSCRIBE");
    };
    let message = "the broker accepts no packets before its CONNACK: connection closed by the other side: ";
    assert_early("", closes, "warn", message);
    let exceeds = |connection: &mut Connection| {
        connection.accept_client();
        connection.subscribe(1);
        connection.send(&wire::disconnect(0x93));
    };
    let message =
        "the broker accepts no packets before its CONNACK: the broker ended the connection: receive maximum";
    assert_early("", exceeds, "warn", message);
    let drops = |connection: &mut Connection| {
        for packet in ["CONNECT", "SUBSCRIBE", "PUBLISH"] {
            connection.expect(packet);
        }
        connection.send(&wire::connack(0, &[]));
        connection.subscribe(1);
        let request = connection.request();
        connection.answer(&request, "$-1\r\n", &[]);
        connection.listen();
    };
    let message = "the broker does not answer packets that were sent before its CONNACK";
    assert_early("", drops, "warn", message);
    let answers_only_the_subscription = |connection: &mut Connection| {
        connection.accept_client();
        connection.subscribe(1);
        connection.listen();
    };
    assert_early("--timeout 1s", answers_only_the_subscription, "warn", message);
    let message = "the broker sends no CONNACK if packets follow the CONNECT";
    assert_early("--connect-timeout 1s", |connection| drop(connection.listen()), "warn", message);
}

#[test]
fn early_packets_are_not_checked_where_they_are_not_sent() {
    let none = |_: &mut Connection| panic!("a second connection");
    assert_early("--cautious", none, "skipped", "--cautious is in force");
    assert_early("--sat-file token", none, "skipped", "MQTT does not allow it with a token");
}
