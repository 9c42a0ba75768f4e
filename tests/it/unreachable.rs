//! Brokers that do not listen or do not answer.

use std::net::TcpListener;

use super::common::Place;

/// Returns a port of this machine without a listener.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_refused_connection_exits_with_69_and_suggests_serve() {
    let place = Place::new();
    let url = format!("mqtt://127.0.0.1:{}", closed_port());
    let shown = place.run(&["get", "k", "-b", &url]);
    assert!(shown.starts_with("--- stderr\nerror: connection refused: 127.0.0.1:"), "{shown}");
    assert!(shown.contains("or start a broker with `mqkv serve --listen 127.0.0.1:"), "{shown}");
    assert!(!shown.contains("nothing was changed"), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
fn a_write_that_was_never_sent_changed_nothing() {
    let place = Place::new();
    let url = format!("mqtt://127.0.0.1:{}", closed_port());
    let shown = place.run(&["set", "k", "-5", "-b", &url]);
    assert!(shown.contains("\n  nothing was changed\n"), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    let shown = place.run(&["set", "k", "--value", "-abc", "-b", &url, "-j"]);
    assert!(shown.contains("\"outcome\":\"unchanged\",\"retryable\":true"), "{shown}");
}

#[test]
fn a_silent_broker_exits_with_124() {
    // The kernel establishes connections in the listener's queue; no process answers them.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = Place::new();
    let url = format!("mqtt://{address}");
    assert_eq!(
        place.run(&["get", "k", "-b", &url, "--connect-timeout", "1s"]),
        format!(
            "--- stderr\nerror: no CONNACK from {address} within 1s\n\
             hint: the server is stopped or overloaded, or the port is wrong: a TLS port does not answer plain MQTT, and a broker \
             without MQTT 5 may not answer\n--- exit 124\n"
        )
    );
}

#[test]
fn a_short_timeout_bounds_connecting_to_a_server_that_hangs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let place = Place::new();
    let fails = |url: &str, verb: &[&str], step: &str| {
        let shown = place.run(&[verb, &["-b", url, "-t", "1s"]].concat());
        assert!(shown.contains(step), "{shown}");
        assert!(shown.contains("hint: the server is stopped or overloaded, or the port is wrong"), "{shown}");
        assert!(shown.ends_with("--- exit 124\n"), "{shown}");
    };
    std::thread::scope(|scope| {
        for (scheme, step) in [
            ("mqtt", format!("no CONNACK from {address} within 1s")),
            ("mqtts", format!("TLS handshake with {address} timed out after 1s")),
            ("ws", format!("WebSocket handshake with {address} timed out after 1s")),
        ] {
            for verb in [&["get", "k"][..], &["set", "k", "v"], &["ping"]] {
                let (step, fails) = (step.clone(), &fails);
                scope.spawn(move || fails(&format!("{scheme}://{address}"), verb, &step));
            }
        }
    });
}

#[test]
fn a_failed_get_does_not_modify_the_file() {
    let place = Place::new();
    place.write("kept", "as it was");
    let url = format!("mqtt://127.0.0.1:{}", closed_port());
    let shown = place.run(&["get", "-k", "k", "-f", "kept", "-b", &url]);
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    assert_eq!(std::fs::read(place.path("kept")).unwrap(), b"as it was");
    assert_eq!(std::fs::read_dir(place.folder()).unwrap().count(), 1);
}
