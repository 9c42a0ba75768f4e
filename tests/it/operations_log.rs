//! What `serve` tells: as text and as JSON, not too much of one client, and to the service manager.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::common::{Place, Raw, Running, wire};

fn serve(place: &Place, options: &[&str]) -> (Running, u16) {
    let words = [&["serve", "--listen", "127.0.0.1:0"], options].concat();
    let server = Running::start(place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let ready = server.words();
    let rest = ready.split("127.0.0.1:").nth(1).unwrap();
    (server, rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap())
}

/// A value of a JSON line, as it stands there.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    let end = match rest.strip_prefix('"') {
        Some(text) => text.find("\",").or_else(|| text.find("\"}")).unwrap() + 2,
        None => rest.find([',', '}']).unwrap(),
    };
    Some(&rest[..end])
}

#[test]
fn each_event_of_a_connection_is_an_object_on_a_line() {
    let place = Place::new();
    let (server, port) = serve(&place, &["--log", "json"]);
    let mut client = Raw::connect(port);
    client.say(&wire::connect("a\"b\u{9b}31m"));
    assert_eq!(client.hear().unwrap().name(), "CONNACK");
    let line = server.words();
    assert!(line.starts_with(r#"{"v":1,"event":"connected","time":"20"#) && line.ends_with('}'), "{line}");
    assert_eq!(value(&line, "client_id"), Some(r#""a\"b\u009b31m""#), "{line}");
    assert!(value(&line, "remote").unwrap().starts_with("\"127.0.0.1:"), "{line}");
    assert_eq!(value(&line, "session"), Some("\"new\""));
    client.say(&wire::disconnect(0));
    let line = server.words();
    assert_eq!(
        (value(&line, "event"), value(&line, "reason")),
        (Some("\"disconnected\""), Some("\"it disconnected\""))
    );
    let mut stranger = Raw::connect(port);
    stranger.say(b"GET / HTTP/1.1\r\n\r\n");
    let line = server.words();
    assert_eq!(value(&line, "event"), Some("\"refused\""), "{line}");
    server.signal(Signal::SIGTERM);
    assert_eq!(value(&server.words(), "event"), Some("\"stopping\""));
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn quiet_is_quiet_and_text_tells_of_connections_when_asked() {
    let place = Place::new();
    let (server, port) = serve(&place, &["--log", "text"]);
    let mut client = Raw::connect(port);
    client.say(&wire::connect("me"));
    let line = server.words();
    assert!(line.starts_with("me connected from 127.0.0.1:"), "{line}");
    let words = ["serve", "-q", "--log", "json", "--listen", "127.0.0.1:0", "--exec", "--", "/bin/true"];
    assert_eq!(place.run_bounded(&words), "--- exit 0\n");
}

#[test]
fn one_client_does_not_fill_the_log() {
    for (format, more) in [
        ("text", "… and 399 more of flood within 10 s"),
        ("json", r#""subject":"flood","count":399,"message":"… and 399 more of flood within 10 s"}"#),
    ] {
        let place = Place::new();
        let (server, port) = serve(&place, &["--log", format]);
        let mut client = Raw::connect(port);
        client.say(&wire::connect("flood"));
        assert_eq!(client.hear().unwrap().name(), "CONNACK");
        let topic = mqkv::protocol::topic::REQUEST;
        // Each of them cannot be answered, which is told.
        client.say(&wire::publish_qos_0(topic, b"junk").repeat(499));
        client.say(&wire::disconnect(0));
        assert_eq!(client.rest(), b"");
        server.signal(Signal::SIGTERM);
        let (_, words, code) = server.end();
        assert_eq!(code, Some(0));
        let of_flood = words.iter().filter(|line| line.contains("flood")).count();
        // A hundred, how many more, and apart from them that it has come and gone.
        assert_eq!(of_flood, 103, "{words:#?}");
        assert!(words.iter().any(|line| line.ends_with(more)), "{words:#?}");
    }
}

#[test]
fn the_service_manager_hears_when_it_serves_and_when_it_stops() {
    let place = Place::new();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let path = place.path("notify").to_str().unwrap().to_owned();
    let place = place.with_variable("NOTIFY_SOCKET", &path);
    let told = || {
        let mut bytes = [0; 1_000];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let (server, port) = serve(&place, &[]);
    assert_eq!(told().trim_end(), format!("READY=1\nSTATUS=listening on 127.0.0.1:{port}, in memory"));
    server.signal(Signal::SIGTERM);
    assert_eq!(told().trim_end(), "STOPPING=1\nSTATUS=answering what has come in");
    assert_eq!(server.end().2, Some(0));
}
