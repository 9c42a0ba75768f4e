//! A `mqkv serve` with several listeners, whose log the test reads.

use nix::sys::signal::Signal;

use super::{Place, StreamedProcess};

/// A running server; killed when dropped.
pub struct LoggedServer {
    server: StreamedProcess,
    ready: String,
    ports: Vec<u16>,
}

impl LoggedServer {
    /// Starts a server with a verbose log and waits until it listens. Its listeners are on 127.0.0.1.
    pub fn start(place: &Place, options: &[&str]) -> Self {
        let server = StreamedProcess::start(&mut place.command(&[&["serve", "-v"], options].concat()));
        let ready = loop {
            let line = server.log_line();
            if line.starts_with("listening on ") {
                break line;
            }
        };
        let ports = ready.split("127.0.0.1:").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().unwrap()
        });
        Self { ports: ports.collect(), ready, server }
    }

    /// Returns the port of a listener, in the order of the options.
    pub fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    /// Returns the log line that names the listeners, with `PORT` for each port.
    pub fn ready(&self) -> String {
        self.ports.iter().fold(self.ready.clone(), |text, port| text.replace(&format!(":{port}"), ":PORT"))
    }

    pub fn id(&self) -> u32 {
        self.server.id()
    }

    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// Waits for the next log line that contains this text.
    pub fn log_line_with(&self, text: &str) -> String {
        loop {
            let line = self.log_line();
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for the next log line; `PORT` stands for the client's address.
    pub fn log_line(&self) -> String {
        let line = self.server.log_line();
        let Some((before, after)) = line.split_once("from 127.0.0.1:") else { return line };
        format!("{before}from PORT{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
    }
}
