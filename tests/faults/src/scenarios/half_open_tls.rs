//! Many connections that never finish their TLS handshake: clients from other addresses, and from the same one, log in.

use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Connection, Origin};
use crate::effort::Effort;
use crate::good_client::{self, MIB, Progress, Refusals, beside, ms, raise_file_limit};
use crate::port::reserved_port;
use crate::server::{Server, mqkv};

/// `--memory-max` has its default of 1 GiB.
const MEMORY_BYTES_MAX: u64 = (1024 + 128) * MIB;
/// How long a half-open connection must have stalled before it makes room for a client of its own address, and a margin.
const STALLED_AFTER: Duration = Duration::from_millis(1_500);
/// Far longer than a login takes.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// Type, version and length of a record that never comes.
const HANDSHAKE_BEGINNING: [u8; 5] = [0x16, 3, 1, 2, 0];
/// A self-signed certificate for 127.0.0.1 that is valid until 2126, with its key: it protects nothing.
const CERTIFICATE: &str = include_str!("../../keys/server.pem");
const KEY: &str = include_str!("../../keys/server.key");

pub fn run(effort: Effort) -> Result<String, String> {
    raise_file_limit()?;
    good_client::detects()?;
    detects()?;
    let (half_open, logins) = effort.pick((1_700, 20), (4_000, 200));
    let mut failures = 0;
    for (name, address) in
        [("another address", Ipv4Addr::new(127, 0, 0, 2)), ("the same address", Ipv4Addr::LOCALHOST)]
    {
        let tls = TlsServer::start(&[]);
        // Those that an address opens all the time keep its own clients out: it may be one client.
        let is_other = address != Ipv4Addr::LOCALHOST;
        let attack = |progress: &Progress| hold_half_open(tls.port, address, half_open, is_other, progress);
        let mut slowest = Duration::ZERO;
        let others = |progress: &Progress| {
            progress.wait_until_filled();
            if !is_other {
                thread::sleep(STALLED_AFTER);
            }
            log_in_again_and_again(&tls, logins, &mut slowest)
        };
        let (measured, opened) = beside(&tls.server, Origin::HERE, attack, others);
        let name = format!(
            "{opened} half-open connections of {name}, {logins} logins in at most {:.0} ms",
            ms(slowest)
        );
        failures += usize::from(!measured.report(&name, effort, MEMORY_BYTES_MAX));
    }
    match failures {
        0 => Ok(format!(
            "{logins} TLS logins beside {half_open} half-open connections; refused logins were detected"
        )),
        _ => Err("half-open connections refused logins".to_owned()),
    }
}

/// A server with a second listener, for TLS.
struct TlsServer {
    server: Server,
    port: u16,
}

impl TlsServer {
    fn start(options: &[&str]) -> Self {
        let port = reserved_port();
        let listen = format!("mqtts://127.0.0.1:{port}");
        let files = [("server.pem", CERTIFICATE), ("server.key", KEY)];
        let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--listen", &listen];
        Self { server: Server::start_with_files(&files, &[&tls, options].concat()), port }
    }

    fn log_in(&self) -> Result<(), String> {
        let url = format!("mqtts://127.0.0.1:{}", self.port);
        let words = ["set", "login", "1", "-q", "-b", &url, "-T", "server.pem", "--timeout", "5s"];
        let output = mqkv(self.server.folder(), &words).output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => {
                Err(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned())
            }
        }
    }
}

fn log_in_again_and_again(tls: &TlsServer, logins: usize, slowest: &mut Duration) -> Refusals {
    let mut refusals = Refusals::default();
    for _ in 0..logins {
        let begun = Instant::now();
        refusals.note(tls.log_in());
        *slowest = begun.elapsed().max(*slowest);
        if begun.elapsed() > LOGIN_MAX {
            refusals.note(Err(format!("a login takes over {} s", LOGIN_MAX.as_secs())));
        }
    }
    refusals
}

/// Opens connections that send nothing but the beginning of a handshake, and with `reopens` new ones for those that are closed.
/// Returns how many were open in the end.
fn hold_half_open(port: u16, from: Ipv4Addr, count: usize, reopens: bool, progress: &Progress) -> usize {
    let open = || {
        let mut connection = Connection::open_from(from, port).ok()?;
        connection.send(&HANDSHAKE_BEGINNING).ok()?;
        connection.stream().set_nonblocking(true).ok()?;
        Some(connection)
    };
    let mut connections: Vec<_> = (0..count).filter_map(|_| open()).collect();
    progress.set_filled();
    loop {
        // Nothing to read: it is open.
        connections.retain(|connection| {
            let read = connection.stream().read(&mut [0; 64]);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        let held = connections.len();
        if progress.is_over() {
            return held;
        }
        if reopens {
            connections.extend((held..count).filter_map(|_| open()));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that refused logins are noticed.
fn detects() -> Result<(), String> {
    let tls = TlsServer::start(&["--connections-max", "1"]);
    let _only = Connection::accepted(Origin::HERE, tls.server.port(), "only", false, LOGIN_MAX).unwrap();
    match tls.log_in() {
        Err(_) => Ok(()),
        Ok(()) => Err("a refused login was not noticed".to_owned()),
    }
}
