//! Connections whose clients do not log in: they do not keep others from it.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;

use super::common::pki::Ca;
use super::common::{LoggedServer, Place, wait_until};

const ENDED: &str = "refused: ended before its login was complete, to make room for others";

/// Connects `count` clients of an address, which send nothing.
fn half_open(runtime: &Runtime, from: &str, port: u16, count: usize) -> Vec<TcpStream> {
    let connect = || async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        socket.connect(([127, 0, 0, 1], port).into()).await.unwrap()
    };
    (0..count).map(|_| runtime.block_on(connect())).collect()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a server with TLS with room for 63 handshakes, and for 30 of one address.
fn start_tls(place: &Place) -> LoggedServer {
    Ca::new(place, "ca.pem").issue(place, "server", &["localhost"]);
    let options = ["--listen", "mqtts://127.0.0.1:0", "--tls-cert", "server.pem", "--tls-key", "server.key"];
    LoggedServer::start(place, &[&options[..], &["--memory-max", "16M"]].concat())
}

fn ping_with_tls(place: &Place, server: &LoggedServer) -> String {
    let url = format!("mqtts://localhost:{}", server.port(0));
    place.run(&["ping", "-q", "-T", "ca.pem", "-b", &url])
}

#[test]
fn half_open_tls_connections_of_one_address_do_not_keep_the_clients_of_another_one_from_logging_in() {
    let (place, runtime) = (Place::new(), runtime());
    let server = start_tls(&place);
    let _half_open = half_open(&runtime, "127.0.0.2", server.port(0), 70);
    for _ in 0..3 {
        let shown = ping_with_tls(&place, &server);
        assert!(shown.ends_with("--- exit 0\n"), "{shown}");
    }
    // Too many at a time; or, if the machine is busy, one that has stalled meanwhile.
    let line = server.log_line_with("refused: ");
    assert!(line.starts_with("connection from 127.0.0.2:"), "{line}");
}

#[test]
fn half_open_tls_connections_that_have_stalled_do_not_keep_clients_of_their_own_address_from_logging_in() {
    let (place, runtime) = (Place::new(), runtime());
    let server = start_tls(&place);
    let _half_open = half_open(&runtime, "127.0.0.1", server.port(0), 70);
    wait_until("a client logs in", || {
        // The log has a bounded number of events of an address: too many refusals would hide the line.
        sleep(Duration::from_millis(200));
        ping_with_tls(&place, &server).ends_with("--- exit 0\n").then_some(())
    });
    server.log_line_with(ENDED);
}

#[test]
fn connections_of_one_address_without_a_connect_do_not_use_up_the_connections_of_others() {
    let (place, runtime) = (Place::new(), runtime());
    let server = LoggedServer::start(&place, &["--listen", "127.0.0.1:0", "--connections-max", "50"]);
    let _half_open = half_open(&runtime, "127.0.0.2", server.port(0), 60);
    let url = format!("mqtt://127.0.0.1:{}", server.port(0));
    for _ in 0..3 {
        let shown = place.run_at(&url, &["set", "k", "v"]);
        assert_eq!(shown, "--- exit 0\n");
    }
    let line = server.log_line_with(ENDED);
    assert!(line.starts_with("connection from 127.0.0.2:"), "{line}");
}
