//! Instances of a cluster on etcd: `mqkv serve --etcd` and `mqkv store --etcd`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use nix::sys::signal::Signal;

use super::etcd::EtcdCluster;
use super::{Place, StreamedProcess, reserved_port, wait_until};
use crate::a_watchdog::bounded;

/// A running instance; killed when dropped.
pub struct Instance {
    pub process: StreamedProcess,
    admin: u16,
}

impl Instance {
    /// Starts an instance of this name, with a verb and its options, and a short failover.
    pub fn start(place: &Place, etcd: &EtcdCluster, name: &str, words: &[&str]) -> Self {
        Self::start_by(place, etcd, name, words, |command| command)
    }

    /// The same with a change of the command that starts it.
    pub fn start_by(
        place: &Place,
        etcd: &EtcdCluster,
        name: &str,
        words: &[&str],
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let (urls, admin) = (etcd.urls().join(","), reserved_port());
        let admin_text = admin.to_string();
        let options = ["-v", "--etcd", &urls, "--instance", name, "--failover", "1s", "--admin", &admin_text];
        let mut command = change(place.command(&[words, &options].concat()));
        Self { process: StreamedProcess::start(&mut command), admin }
    }

    /// Starts `mqkv store` at a broker, with a client id of its own.
    pub fn start_store(place: &Place, etcd: &EtcdCluster, name: &str, url: &str) -> Self {
        let id = format!("store-{name}");
        Self::start(place, etcd, name, &["store", "-b", url, "-i", &id])
    }

    /// Waits for a line of the log that contains the text, and returns it.
    #[track_caller]
    pub fn log_line_with(&self, text: &str) -> String {
        loop {
            let line = self.process.log_line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Returns the status line and the body of `/healthz`; `None` while nothing listens.
    pub fn health(&self) -> Option<String> {
        self.get("/healthz")
    }

    /// Returns the status and the body of a page of the admin listener; `None` while nothing listens.
    pub fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        bounded(|| stream.read_to_string(&mut answer)).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some(format!("{} {}", head.split(' ').nth(1)?, body.trim_end()))
    }

    /// Kills the instance, as a crash would.
    pub fn kill(self) {
        self.process.signal(Signal::SIGKILL);
        self.process.end();
    }

    /// Ends the instance with SIGTERM and returns its exit code.
    pub fn stop(self) -> Option<i32> {
        self.process.signal(Signal::SIGTERM);
        self.process.end().2
    }
}

/// A cluster of `mqkv serve --etcd` whose instances listen on one port, as behind a virtual address.
pub struct ServedCluster {
    pub place: Place,
    pub etcd: EtcdCluster,
    port: u16,
}

impl ServedCluster {
    pub fn new(members: usize, options: &[&str]) -> Self {
        let place = Place::new();
        let etcd = EtcdCluster::start_with(&place, members, "http", options);
        // A client connects once there is a leader.
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(etcd.client());
        Self { place, etcd, port: reserved_port() }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Starts an instance that listens on the port of all when it owns the store.
    pub fn start(&self, name: &str) -> Instance {
        self.start_by(name, |command| command)
    }

    /// The same with a change of the command that starts it.
    pub fn start_by(&self, name: &str, change: impl FnOnce(Command) -> Command) -> Instance {
        let listen = format!("127.0.0.1:{}", self.port);
        Instance::start_by(&self.place, &self.etcd, name, &["serve", "--listen", &listen], change)
    }

    /// Starts an instance and waits until it owns the store.
    pub fn start_owner(&self, name: &str) -> Instance {
        let owner = self.start(name);
        owner.log_line_with("listening on ");
        owner
    }

    /// Starts an instance and waits until it follows.
    pub fn start_standby(&self, name: &str) -> Instance {
        let standby = self.start(name);
        standby.log_line_with("standby");
        standby
    }

    pub fn run(&self, words: &[&str]) -> String {
        self.place.run_at(&self.url(), words)
    }

    /// Writes a key, which must succeed.
    #[track_caller]
    pub fn set(&self, key: &str, value: &str) {
        assert_eq!(self.run(&["set", key, value]), "--- exit 0\n");
    }

    /// Returns the value of a key as soon as an instance answers.
    #[track_caller]
    pub fn get(&self, key: &str) -> String {
        wait_until("an instance answers", || {
            let output = bounded(|| self.place.command(&["get", key, "-b", &self.url()]).output()).unwrap();
            // A key that is absent has exit code 1: it is an answer, and not this one.
            assert_ne!(output.status.code(), Some(1), "{key} is absent");
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        })
    }

    /// Returns the version of a key, as it is printed.
    #[track_caller]
    pub fn version(&self, key: &str) -> String {
        let record = self.place.bytes_at(&self.url(), &["get", "-j", key]);
        let record = String::from_utf8(record).unwrap();
        let (_, rest) = record.split_once("\"version\":\"").unwrap_or_else(|| panic!("{record}"));
        rest.split('"').next().unwrap().to_owned()
    }
}
