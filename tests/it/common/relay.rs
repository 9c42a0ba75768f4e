//! A line to a broker that can be cut without a word, and that sees what is sent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::spawn;

use super::running::wait_until;

/// The high half of the first byte of a PUBLISH packet.
const PUBLISH: u8 = 3;

/// A TCP relay in front of a broker.
pub struct Relay {
    port: u16,
    line: Arc<Line>,
}

struct Line {
    broker_port: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections before this one have been cut: nothing passes on them any more.
    cut_before: usize,
    /// Nothing passes on new connections either.
    is_down: bool,
    /// Hold answers back from the first request on.
    will_hold: bool,
    is_holding: bool,
    /// What each connection's client has sent.
    sent: Vec<Vec<u8>>,
    /// How many clients have closed their connection.
    closed: usize,
    sockets: Vec<TcpStream>,
}

impl Relay {
    /// Listens on a free port for connections to the broker.
    pub fn start(broker_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::new(Line { broker_port, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&line);
        // It ends with the test's process.
        spawn(move || listener.incoming().flatten().for_each(|client| accepting.connect(client)));
        Self { port, line }
    }

    /// The URL to connect to.
    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// From now on nothing passes, and nobody is told: no FIN, no RST.
    pub fn cut(&self) {
        let mut state = self.line.state();
        state.cut_before = state.sent.len();
        state.is_down = true;
    }

    /// From now on new connections pass; those that were cut stay so.
    pub fn heal(&self) {
        let mut state = self.line.state();
        state.cut_before = state.sent.len();
        state.is_down = false;
    }

    /// Holds back what the broker says from the first request on, until [`Relay::release`].
    pub fn hold(&self) {
        self.line.state().will_hold = true;
    }

    /// Lets pass what was held back.
    pub fn release(&self) {
        let mut state = self.line.state();
        (state.will_hold, state.is_holding) = (false, false);
        self.line.changed.notify_all();
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.line.state().sent.len()
    }

    /// How many requests have been sent on the first connection.
    pub fn requests(&self) -> usize {
        let state = self.line.state();
        state.sent.first().map_or(0, |sent| packets(sent).filter(|packet| packet[0] >> 4 == PUBLISH).count())
    }

    /// Waits until so many PINGREQ packets have been sent on the first connection.
    pub fn wait_for_pings(&self, count: usize) {
        wait_until("the client has asked whether the broker is there", || {
            let state = self.line.state();
            let is_ping = |packet: &&[u8]| packet[0] == 0xC0;
            (packets(state.sent.first()?).filter(is_ping).count() >= count).then_some(())
        });
    }

    /// Waits until a client has sent this.
    pub fn wait_for(&self, bytes: &[u8]) {
        wait_until("a client has sent it", || {
            let found = |sent: &Vec<u8>| sent.windows(bytes.len()).any(|window| window == bytes);
            self.line.state().sent.iter().any(found).then_some(())
        });
    }

    /// Waits until so many clients have closed their connection; the packets of the last one.
    pub fn wait_closed(&self, count: usize) -> Vec<Vec<u8>> {
        wait_until("the client has closed", || (self.line.state().closed >= count).then_some(()));
        let state = self.line.state();
        packets(state.sent.last().unwrap()).map(<[u8]>::to_vec).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.release();
        for socket in self.line.state().sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let number = {
            let mut state = self.state();
            state.sockets.push(client.try_clone().unwrap());
            state.sent.push(Vec::new());
            if state.is_down {
                return;
            }
            state.sent.len()
        };
        let Ok(broker) = TcpStream::connect(("127.0.0.1", self.broker_port)) else {
            let _ = client.shutdown(Shutdown::Both);
            return;
        };
        let _ = (client.set_nodelay(true), broker.set_nodelay(true));
        self.state().sockets.push(broker.try_clone().unwrap());
        let (from_client, to_client) = (client.try_clone().unwrap(), client);
        let (from_broker, to_broker) = (broker.try_clone().unwrap(), broker);
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        spawn(move || up.carry_requests(number, from_client, to_broker));
        spawn(move || down.carry_answers(number, from_broker, to_client));
    }

    fn carry_requests(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 65_536];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            {
                let mut state = self.state();
                if number <= state.cut_before {
                    return;
                }
                let sent = &mut state.sent[number - 1];
                sent.extend_from_slice(&bytes[..len]);
                let has_request = packets(sent).any(|packet| packet[0] >> 4 == PUBLISH);
                state.is_holding |= state.will_hold && has_request;
            }
            if to.write_all(&bytes[..len]).is_err() {
                return;
            }
        }
        let mut state = self.state();
        if number > state.cut_before {
            state.closed += 1;
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    fn carry_answers(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 65_536];
        loop {
            let len = from.read(&mut bytes).unwrap_or(0);
            let mut state = self.state();
            while state.is_holding {
                state = self.changed.wait(state).unwrap();
            }
            if number <= state.cut_before {
                return;
            }
            drop(state);
            if len == 0 || to.write_all(&bytes[..len]).is_err() {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// The MQTT packets in a stream, as far as they have come whole.
fn packets(mut stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let mut len = 0;
        let mut header = 1;
        loop {
            let byte = usize::from(*stream.get(header)?);
            len |= (byte & 0x7F) << (7 * (header - 1));
            header += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let packet = stream.get(..header + len)?;
        stream = &stream[header + len..];
        Some(packet)
    })
}
