//! Signals to `serve` and `store`: before they run, and while a sync of the disk hangs.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::common::{Place, Server, StreamedProcess, make_fifo, open_fifo, wait_until};
use crate::a_watchdog::bounded;

/// Writes to a pipe after `first`, which is called once a process has opened it.
fn write_after(place: &Place, name: &str, text: &str, first: impl FnOnce()) {
    let mut pipe = open_fifo(&place.path(name));
    first();
    pipe.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_sighup_before_a_server_runs_reloads_its_files_once_it_does() {
    let place = Place::new();
    place.write("rules", "rules: []\n");
    make_fifo(&place.path("server.toml"));
    let words = ["serve", "--listen", "127.0.0.1:0", "--log", "text", "--config", "server.toml"];
    let server = StreamedProcess::start(
        place.command(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    write_after(&place, "server.toml", "authz = 'rules'\n", || server.signal(Signal::SIGHUP));
    assert!(server.log_line().starts_with("listening on "));
    assert_eq!(server.log_line(), "rules reloaded: 0");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.end().2, Some(0));
}

#[test]
fn a_sighup_does_not_end_a_store_that_reads_its_configuration() {
    let place = Place::new();
    place.write("rules", "rules: []\n");
    make_fifo(&place.path("config.toml"));
    let words = [
        "store",
        "--config",
        "config.toml",
        "-x",
        "plant",
        "--authz",
        "rules",
        "--identity",
        "topic",
        "--requests",
        "mqkv/in/+",
    ];
    let store = StreamedProcess::start(
        place.command(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    // Nothing listens there: the store ends by itself, and not by the signal.
    let context = "[context.plant]\nbroker = 'mqtt://127.0.0.1:1'\n";
    write_after(&place, "config.toml", context, || store.signal(Signal::SIGHUP));
    let (_, errors, code) = store.end();
    assert_eq!(code, Some(69), "{errors:?}");
}

#[test]
fn a_sighup_to_a_server_that_has_nothing_to_reload_ends_it_during_the_start_too() {
    let place = Place::new();
    make_fifo(&place.path("seed"));
    let words = ["serve", "--listen", "127.0.0.1:0", "--seed", "seed"];
    let server = StreamedProcess::start(
        place.command(&words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()),
    );
    let _pipe = open_fifo(&place.path("seed"));
    server.signal(Signal::SIGHUP);
    assert_eq!(server.end().2, Some(129));
}

/// A server whose next sync hangs for ten minutes.
struct Hanging {
    server: Server,
    _clients: Vec<StreamedProcess>,
    strace: Child,
}

impl Hanging {
    /// `clients` write a key each, and are connected before: with several, another thread commits.
    fn start(place: &Place, options: &[&str], clients: usize) -> Self {
        let server = Server::start(place, &[&["--data", "kept"], options].concat());
        let batch = ["batch", "-b", &server.url(), "-"];
        let mut connected = Vec::new();
        for number in 0..clients {
            let mut command = place.command(&batch);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            writeln!(input, "set before-{number} v\nget before-{number}").unwrap();
            let client = StreamedProcess::read(child);
            assert!(client.line().ends_with('v'));
            connected.push((client, input));
        }
        let trace = place.path(&format!("trace-{clients}"));
        let strace = Command::new("strace")
            .args(["-f", "-q", "-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=600000000", "-o"])
            .args([trace.as_os_str(), "-p".as_ref(), server.id().to_string().as_ref()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: apt-get install strace"));
        // Threads are traced one after another: one that is not yet syncs without a delay.
        wait_until("a sync hangs", || {
            for (_, input) in &mut connected {
                writeln!(input, "set after v").unwrap();
            }
            fs::read_to_string(&trace).ok()?.contains("fdatasync(").then_some(())
        });
        let clients = connected.into_iter().map(|(client, input)| {
            std::mem::forget(input);
            client
        });
        Self { server, _clients: clients.collect(), strace }
    }
}

impl Hanging {
    /// Waits until the server ends although the sync hangs, and returns its exit code.
    fn end(&mut self) -> Option<i32> {
        let stat = format!("/proc/{}/stat", self.server.id());
        wait_until("the server exits", || {
            let stat = fs::read_to_string(&stat).unwrap();
            stat.rsplit(')').next()?.trim_start().starts_with('Z').then_some(())
        });
        // It holds back the thread that hangs, and with it the report of the end.
        self.strace.kill().unwrap();
        self.server.end()
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = bounded(|| self.strace.wait());
        self.server.kill();
    }
}

#[test]
#[ignore = "needs Debian's strace"]
fn a_second_sigterm_exits_at_once_while_a_sync_hangs() {
    for clients in [1, 3] {
        let place = Place::new();
        let mut hanging = Hanging::start(&place, &["--drain", "10m"], clients);
        hanging.server.signal(Signal::SIGTERM);
        // It listens no more: the first signal has been handled.
        let port = hanging.server.port();
        wait_until("it closes", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err().then_some(()));
        hanging.server.signal(Signal::SIGTERM);
        assert_eq!(hanging.end(), Some(143));
    }
}

#[test]
#[ignore = "needs Debian's strace"]
fn a_server_ends_after_drain_while_a_sync_hangs() {
    for clients in [1, 3] {
        let place = Place::new();
        let mut hanging = Hanging::start(&place, &["--drain", "300ms"], clients);
        hanging.server.signal(Signal::SIGTERM);
        assert_eq!(hanging.end(), Some(0));
    }
}
