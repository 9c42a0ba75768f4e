//! Interoperability: Mosquitto's tools with our broker, and our client with Mosquitto.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::common::pki::Ca;
use super::common::{Place, Server, reserved_port, wait_until};
use crate::a_watchdog::bounded;

const REQUESTS: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Returns the command of a Mosquitto tool that connects with MQTT 5 to a broker of this machine.
fn tool(name: &str, url: &str, words: &[&str]) -> Command {
    let port = url.rsplit(':').next().unwrap();
    let mut command = Command::new(name);
    command.args(["-V", "5", "-h", "127.0.0.1", "-p", port]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn missing<T>(error: std::io::Error) -> T {
    panic!("{error}: apt-get install mosquitto mosquitto-clients")
}

#[track_caller]
fn succeed(mut command: Command) -> Output {
    let output = bounded(|| command.output()).unwrap_or_else(missing);
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A process that is killed when this is dropped.
pub(super) struct KilledOnDrop(Child);

impl KilledOnDrop {
    /// Ends Mosquitto with SIGTERM, so that it writes its sessions to its disk.
    pub(super) fn terminate(mut self) {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM).unwrap();
        bounded(|| self.0.wait()).unwrap();
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = bounded(|| self.0.wait());
    }
}

/// Starts Mosquitto on a free port of this machine.
pub(super) fn mosquitto(place: &Place) -> (KilledOnDrop, String) {
    mosquitto_with(place, "")
}

/// Starts Mosquitto with these additional lines for its listener.
fn mosquitto_with(place: &Place, listener: &str) -> (KilledOnDrop, String) {
    let (broker, [port]) =
        mosquitto_at(place, |[port]| format!("listener {port} 127.0.0.1\nallow_anonymous true\n{listener}"));
    (broker, format!("mqtt://127.0.0.1:{port}"))
}

/// Starts Mosquitto with a configuration for `N` free ports; it opens the last one last.
pub(super) fn mosquitto_at<const N: usize>(
    place: &Place,
    config: impl Fn([u16; N]) -> String,
) -> (KilledOnDrop, [u16; N]) {
    // Mosquitto cannot choose a port.
    let ports = [(); N].map(|()| reserved_port());
    // Started by root, Mosquitto would switch to a user that cannot read these files.
    place.write("mosquitto.conf", format!("user root\n{}", config(ports)));
    (mosquitto_again(place, &ports), ports)
}

/// Starts Mosquitto once more, with the configuration of the last start.
pub(super) fn mosquitto_again(place: &Place, ports: &[u16]) -> KilledOnDrop {
    let mut command = Command::new("/usr/sbin/mosquitto");
    command.arg("-c").arg(place.path("mosquitto.conf")).stdout(Stdio::null()).stderr(Stdio::null());
    let mut broker = KilledOnDrop(command.spawn().unwrap_or_else(missing));
    wait_until("mosquitto listens", || {
        assert_eq!(broker.0.try_wait().unwrap(), None, "mosquitto has ended");
        ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()).then_some(())
    });
    broker
}

/// Sends a request with `mosquitto_rr` and returns its output.
fn ask(url: &str, format: &str, properties: &[&str], request: &str) -> String {
    let mut command = tool("mosquitto_rr", url, &["-q", "1", "-t", REQUESTS, "-e", "clients/rr/response"]);
    command.args(["-D", "publish", "correlation-data", "0123456789abcdef", "-N", "-F", format]);
    command.args(properties).args(["-m", request]);
    String::from_utf8(succeed(command).stdout).unwrap()
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mosquitto_rr_gets_a_value_from_our_store() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    assert_eq!(place.run_at(&server.url(), &["set", "line1/temp", "21.5"]), "--- exit 0\n");
    let answer = ask(&server.url(), "%p", &[], "*2\r\n$3\r\nGET\r\n$10\r\nline1/temp\r\n");
    assert_eq!(answer.trim_end_matches('\n'), "$4\r\n21.5\r");
    let properties = ask(&server.url(), "%P", &[], "*2\r\n$3\r\nGET\r\n$10\r\nline1/temp\r\n");
    assert!(properties.contains("__stat:200") && properties.contains(":StateStore"), "{properties}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mosquitto_rr_sets_a_value_with_a_valid_timestamp_only() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let set = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    let with_timestamp = |ms: u64| {
        let timestamp = format!("{ms:015}:00000:rr");
        ask(&server.url(), "%p", &["-D", "publish", "user-property", "__ts", &timestamp], set)
    };
    let now = mqkv::clock::wall_ms();
    assert_eq!(with_timestamp(now).trim_end(), "+OK");
    assert_eq!(place.bytes_at(&server.url(), &["get", "k"]), b"v");
    let ahead = with_timestamp(now.saturating_add(120_000));
    assert!(ahead.starts_with("-ERR the request timestamp is too far in the future"), "{ahead}");
    assert_eq!(ask(&server.url(), "%p", &[], set).trim_end(), "-ERR missing timestamp");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn the_tools_exchange_messages_through_our_broker() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let url = server.url();
    let publish = |words: &[&str]| drop(succeed(tool("mosquitto_pub", &url, words)));
    publish(&["-t", "plant/old", "-m", "kept", "-q", "1", "-r"]);
    publish(&["-t", "ready", "-m", "1", "-r"]);
    let filters = ["-t", "plant/#", "-t", "+/single", "-t", "ready", "-q", "1"];
    let mut subscriber = tool("mosquitto_sub", &url, &filters);
    subscriber.args(["-F", "%t qos %q retain %r %p", "-C", "7"]);
    let mut subscriber = KilledOnDrop(subscriber.spawn().unwrap());
    let mut lines = BufReader::new(subscriber.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    // The retained messages show that the subscription is granted.
    assert_eq!(lines.next().unwrap(), "plant/old qos 1 retain 1 kept");
    assert_eq!(lines.next().unwrap(), "ready qos 0 retain 1 1");
    publish(&["-t", "plant/a", "-m", "zero", "-q", "0"]);
    publish(&["-t", "plant/a/b", "-m", "one", "-q", "1"]);
    publish(&["-t", "plant", "-m", "parent", "-q", "1"]);
    publish(&["-t", "other/deep/single", "-m", "no"]);
    publish(&["-t", "other/single", "-m", "single"]);
    publish(&["-t", "plant/new", "-m", "retained", "-q", "1", "-r"]);
    let received: Vec<String> = lines.collect();
    assert_eq!(
        received,
        [
            "plant/a qos 0 retain 0 zero",
            "plant/a/b qos 1 retain 0 one",
            "plant qos 1 retain 0 parent",
            "other/single qos 0 retain 0 single",
            "plant/new qos 1 retain 0 retained",
        ]
    );
    assert!(bounded(|| subscriber.0.wait()).unwrap().success());
    // An empty retained message deletes the stored one.
    publish(&["-t", "plant/old", "-n", "-r"]);
    let left = succeed(tool("mosquitto_sub", &url, &["-t", "plant/#", "-C", "1", "-F", "%t"]));
    assert_eq!(left.stdout, b"plant/new\n");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn a_broker_without_a_store_is_reported() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let no_store = |outcome: &str| {
        format!(
            "--- stderr\nerror: no state store at BROKER: no subscriber to its request topic\n{outcome}\
             hint: connect to Azure IoT Operations or to `mqkv serve`, or connect a store to this broker: mqkv store -b URL\n--- exit 69\n"
        )
    };
    assert_eq!(place.run_at(&url, &["get", "k", "-t", "1h"]), no_store(""));
    assert_eq!(place.run_at(&url, &["ping", "-t", "1h"]), no_store(""));
    assert_eq!(place.run_at(&url, &["set", "k", "v", "-t", "1h"]), no_store("  nothing was changed\n"));
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn doctor_reports_that_the_broker_has_no_store() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    let shown = place.run_at(&url, &["doctor", "-t", "1h"]);
    for line in ["ok\tconnack\t", "ok\tsubscribe\t", "FAIL\trequest\t", "skipped\tclock\t-\trequest failed"] {
        assert!(shown.contains(&format!("\n{line}")), "{line}: {shown}");
    }
    assert!(shown.contains("\tno state store at BROKER: no subscriber to its request topic\n"), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn doctor_distinguishes_plain_and_tls_listeners() {
    let place = Place::new();
    Ca::new(&place, "ca.pem").issue(&place, "server", &["127.0.0.1"]);
    let file = |name: &str| place.path(name).display().to_string();
    let listener = format!("certfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"));
    let (_secured, url) = mosquitto_with(&place, &listener);
    let shown = place.run_at(&url, &["doctor"]);
    assert!(shown.contains("\tBROKER requires TLS\n"), "{shown}");
    let place = Place::new();
    let (_plain, url) = mosquitto(&place);
    let shown = place.run_at(&url.replace("mqtt://", "mqtts://"), &["doctor", "--insecure"]);
    assert!(shown.contains("\tBROKER does not speak TLS; trusted: "), "{shown}");
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mosquitto_over_tls_connects_and_its_rejections_are_reported() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    ca.issue(&place, "me", &["me"]);
    Ca::new(&place, "other.pem").issue(&place, "untrusted", &["me"]);
    let file = |name: &str| place.path(name).display().to_string();
    let listener = format!(
        "cafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true\n",
        file("ca.pem"),
        file("server.pem"),
        file("server.key")
    );
    let (_broker, plain) = mosquitto_with(&place, &listener);
    let url = plain.replace("mqtt://", "mqtts://");
    let get = |options: &str| {
        let line = format!("get k -t 1h {options}");
        place.run_at(&url, &line.split_whitespace().collect::<Vec<_>>())
    };
    for (options, expected) in [
        ("-T ca.pem -C me.pem -K me.key", "no state store at BROKER"),
        (
            "-T other.pem -C me.pem -K me.key",
            "the certificate of BROKER is from an unknown CA: no CA in other.pem has signed it",
        ),
        ("-T ca.pem", "BROKER requires a client certificate"),
        ("-T ca.pem -C untrusted.pem -K untrusted.key", "BROKER rejected the client certificate: unknown CA"),
    ] {
        let shown = get(options);
        assert!(shown.contains(&format!("error: {expected}")), "{options}: {shown}");
        assert!(shown.ends_with("--- exit 69\n"), "{options}: {shown}");
    }
    let shown = place.run_at(&plain, &["get", "k"]);
    assert!(shown.ends_with("--- exit 69\n"), "{shown}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn the_tools_connect_to_our_broker_over_tls() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    ca.issue(&place, "me", &["me"]);
    let options = ["-q", "--tls-cert", "server.pem", "--tls-key", "server.key", "--client-ca", "ca.pem"];
    let server = Server::start(&place, &options);
    let files = [("--cafile", "ca.pem"), ("--cert", "me.pem"), ("--key", "me.key")];
    for version in ["tlsv1.2", "tlsv1.3"] {
        let mut publish = tool("mosquitto_pub", &server.url(), &["-t", "a", "-m", "b", "-q", "1"]);
        publish.args(["--tls-version", version]);
        for (option, file) in files {
            publish.arg(option).arg(place.path(file));
        }
        succeed(publish);
    }
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mosquitto_over_websockets_connects_with_and_without_tls() {
    let place = Place::new();
    let ca = Ca::new(&place, "ca.pem");
    ca.issue(&place, "server", &["127.0.0.1"]);
    // Debian's Mosquitto exits at once if all of its listeners are WebSockets.
    let web_sockets = |lines: &str| {
        let other = reserved_port();
        mosquitto_with(&place, &format!("protocol websockets\n{lines}listener {other} 127.0.0.1\n"))
    };
    let (_broker, plain) = web_sockets("");
    let url = plain.replace("mqtt://", "ws://");
    let no_store = |shown: String| {
        assert!(shown.starts_with("--- stderr\nerror: no state store at BROKER"), "{shown}");
        assert!(shown.ends_with("--- exit 69\n"), "{shown}");
    };
    no_store(place.run_at(&url, &["get", "k", "-t", "1h"]));
    place.write("big", vec![b'x'; 1_000_000]);
    no_store(place.run_at(&url, &["set", "k", "-f", "big", "-t", "1h"]));
    let file = |name: &str| place.path(name).display().to_string();
    let files = format!("certfile {}\nkeyfile {}\n", file("server.pem"), file("server.key"));
    let (_broker, plain) = web_sockets(&files);
    let url = plain.replace("mqtt://", "wss://");
    no_store(place.run_at(&url, &["get", "k", "-t", "1h", "-T", "ca.pem"]));
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn the_tools_authenticate_with_our_broker() {
    let place = Place::new();
    let add = ["serve", "user", "add", "users", "ann", "-q"];
    assert_eq!(place.run_with_input(&add, b"right"), "--- exit 0\n");
    let server = Server::start(&place, &["-q", "--users", "users"]);
    let publish = |login: &[&str]| {
        let mut command = tool("mosquitto_pub", &server.url(), &["-t", "a", "-m", "b", "-q", "1"]);
        bounded(|| command.args(login).output()).unwrap_or_else(missing)
    };
    assert!(publish(&["-u", "ann", "-P", "right"]).status.success());
    let words = |output: Output| String::from_utf8(output.stderr).unwrap();
    assert!(words(publish(&["-u", "ann", "-P", "wrong"])).contains("Bad User Name or Password"));
    assert!(words(publish(&[])).contains("Not authorized"));
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mqtt_3_1_1_reads_its_retained_message_and_3_1_is_rejected() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let run = |version: &str, name: &str, words: &[&str]| {
        let port = server.port().to_string();
        let words = [&["-V", version, "-h", "127.0.0.1", "-p", &port, "-t", "t"], words].concat();
        bounded(|| Command::new(name).args(words).stdin(Stdio::null()).output()).unwrap_or_else(missing)
    };
    assert!(run("311", "mosquitto_pub", &["-q", "2", "-r", "-m", "kept"]).status.success());
    let received = run("311", "mosquitto_sub", &["-q", "2", "-C", "1", "-W", "30"]);
    assert_eq!(String::from_utf8_lossy(&received.stdout), "kept\n");
    let refused = run("31", "mosquitto_pub", &["-m", "x"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("unacceptable protocol version"), "{error}");
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn a_bridge_of_mosquitto_with_its_default_settings_passes_each_message_on_once() {
    let place = Place::new();
    let server = Server::start(&place, &["-q"]);
    let bridge = format!("connection x\naddress 127.0.0.1:{}\ntopic # both\n", server.port());
    let (_broker, url) = mosquitto_with(&place, &bridge);
    let publish = |url: &str, words: &[&str]| drop(succeed(tool("mosquitto_pub", url, words)));
    let subscribe = |url: &str, count: &str| {
        let mut subscriber = tool("mosquitto_sub", url, &["-t", "plant/#", "-F", "%t %r %p", "-C", count]);
        let mut subscriber = KilledOnDrop(subscriber.spawn().unwrap());
        (BufReader::new(subscriber.0.stdout.take().unwrap()).lines().map(Result::unwrap), subscriber)
    };
    // The retained messages arrive once the bridge is connected.
    publish(&server.url(), &["-t", "plant/ours", "-m", "1", "-r"]);
    publish(&url, &["-t", "plant/other", "-m", "2", "-r"]);
    let (mut ours, _ours) = subscribe(&server.url(), "4");
    let (mut other, _other) = subscribe(&url, "4");
    let retained = |lines: &mut dyn Iterator<Item = String>| {
        let mut lines = [lines.next().unwrap(), lines.next().unwrap()];
        lines.sort();
        lines.map(|line| line.replace(" 1 ", " ").replace(" 0 ", " "))
    };
    for lines in [&mut ours as &mut dyn Iterator<Item = String>, &mut other] {
        assert_eq!(retained(lines), ["plant/other 2", "plant/ours 1"]);
    }
    // Our broker would send the first message back before the second one.
    for (from, line) in [(&url, "plant/live 0 3"), (&server.url(), "plant/live 0 4")] {
        publish(from, &["-t", "plant/live", "-m", &line[line.len() - 1..]]);
        assert_eq!((ours.next().unwrap(), other.next().unwrap()), (line.to_owned(), line.to_owned()));
    }
    // Retained in the other broker too, as they were published.
    for url in [&server.url(), &url] {
        let mut lines: Vec<String> = subscribe(url, "2").0.collect();
        lines.sort();
        assert_eq!(lines, ["plant/other 1 2", "plant/ours 1 1"]);
    }
}

#[test]
#[ignore = "needs Debian's mosquitto"]
fn mosquitto_answers_early_packets_and_the_error_of_a_rejected_client_is_the_rejection() {
    let place = Place::new();
    let (_broker, url) = mosquitto(&place);
    // Without a store: the PUBACK follows the CONNACK at once.
    let shown = place.run_at(&url, &["get", "k", "--trace=trace"]);
    assert!(shown.contains("error: no state store at BROKER"), "{shown}");
    let trace = std::fs::read_to_string(place.path("trace")).unwrap();
    let packets: Vec<&str> = trace.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(packets[2..8], ["CONNECT", "SUBSCRIBE", "PUBLISH", "CONNACK", "SUBACK", "PUBACK"], "{trace}");
    // Mosquitto closes the connection with the early packets unread.
    let (_broker, url) = mosquitto_with(&place, "allow_anonymous false\n");
    for words in [&["get", "k"][..], &["set", "k", "v"]] {
        for _ in 0..20 {
            let shown = place.run_at(&url, words);
            assert!(shown.contains("rejected the connection: not authorized (0x87)"), "{shown}");
            assert!(shown.ends_with("--- exit 77\n"), "{shown}");
        }
    }
}
