//! A running `mqkv serve` with one listener.

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Place, peak_bytes, reserved_port, wait_until, wait_until_stopped};
use crate::a_watchdog::bounded;

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server on a free port and waits until it listens.
    pub fn start(place: &Place, options: &[&str]) -> Self {
        Self::start_at(place, reserved_port(), options)
    }

    /// Kills the server with SIGKILL, as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        bounded(|| self.child.wait()).unwrap();
    }

    /// Waits for the server to exit and returns its exit code.
    pub fn end(&mut self) -> Option<i32> {
        wait_until("the server exits", || self.child.try_wait().unwrap()).code()
    }

    /// Starts a server on the port of the killed one.
    pub fn start_again(&mut self, place: &Place, options: &[&str]) {
        *self = Self::start_at(place, self.port, options);
    }

    fn start_at(place: &Place, port: u16, options: &[&str]) -> Self {
        const TRIES_MAX: u32 = 1000;
        let listen = format!("127.0.0.1:{port}");
        let words = ["serve", "--listen", &listen, "--port-file", "port"];
        let _ = fs::remove_file(place.path("port"));
        let mut child = place
            .command(&[&words, options].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        for _ in 0..TRIES_MAX {
            let port = fs::read_to_string(place.path("port"));
            if let Some(port) = port.ok().and_then(|text| text.trim().parse().ok()) {
                return Self { child, port };
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the server has ended: {status}");
            }
            sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        panic!("the server writes no port file");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process with SIGSTOP and waits until it has stopped; SIGCONT resumes it.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        wait_until_stopped(self.child.id());
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Returns the most memory that the server has had.
    pub fn peak_bytes(&self) -> u64 {
        peak_bytes(&self.child)
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = bounded(|| self.child.wait());
    }
}
