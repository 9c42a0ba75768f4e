//! A `mqkv serve` with several doors, and what it tells its operator.

use nix::sys::signal::Signal;

use super::{Place, Running};

/// A running server; killed when dropped.
pub struct Doors {
    server: Running,
    ready: String,
    ports: Vec<u16>,
}

impl Doors {
    /// Starts a server that tells everything, and waits until it listens. Its doors are on 127.0.0.1.
    pub fn open(place: &Place, options: &[&str]) -> Self {
        let server = Running::start(&mut place.command(&[&["serve", "-v"], options].concat()));
        let ready = loop {
            let line = server.words();
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

    /// The port of a door, in the order of the options.
    pub fn port(&self, number: usize) -> u16 {
        self.ports[number]
    }

    /// What was said of where it listens, the ports taken out.
    pub fn ready(&self) -> String {
        self.ports.iter().fold(self.ready.clone(), |text, port| text.replace(&format!(":{port}"), ":PORT"))
    }

    /// The server's process id.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        self.server.signal(signal);
    }

    /// The next line for the operator that has this in it.
    pub fn told_of(&self, what: &str) -> String {
        loop {
            let line = self.told();
            if line.contains(what) {
                return line;
            }
        }
    }

    /// The next line for the operator, without the port that it is from.
    pub fn told(&self) -> String {
        let line = self.server.words();
        let Some((before, after)) = line.split_once("from 127.0.0.1:") else { return line };
        format!("{before}from PORT{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
    }
}
