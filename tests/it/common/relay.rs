//! A TCP relay in front of a broker that can drop a connection without FIN or RST, and hold responses back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::spawn;

use super::wait_until;
use super::wire::variable;

/// The high half of the first byte of a PUBLISH packet.
const PUBLISH: u8 = 3;

/// A running relay; its connections are closed when it is dropped.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    broker_port: u16,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Connections with lower numbers have been cut: nothing is forwarded on them any more.
    cut_before: usize,
    /// Nothing is forwarded on new connections either.
    is_down: bool,
    /// Responses are to be held back from the first request on.
    will_hold: bool,
    is_holding: bool,
    /// The bytes that the client of each connection has sent.
    sent: Vec<Vec<u8>>,
    /// The number of connections that the client has closed.
    closed: usize,
    sockets: Vec<TcpStream>,
}

impl Relay {
    /// Starts a relay on a free port.
    pub fn start(broker_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { broker_port, state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        // It ends with the test's process.
        spawn(move || listener.incoming().flatten().for_each(|client| accepting.connect(client)));
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("mqtt://127.0.0.1:{}", self.port)
    }

    /// Forwards nothing from now on; neither side receives a FIN or RST.
    pub fn cut(&self) {
        let mut state = self.shared.state();
        state.cut_before = state.sent.len();
        state.is_down = true;
    }

    /// Forwards new connections from now on; those that were cut stay cut.
    pub fn restore(&self) {
        let mut state = self.shared.state();
        state.cut_before = state.sent.len();
        state.is_down = false;
    }

    /// Holds back everything from the broker, from the first request until [`Relay::release`].
    pub fn hold(&self) {
        self.shared.state().will_hold = true;
    }

    /// Forwards what was held back.
    pub fn release(&self) {
        let mut state = self.shared.state();
        (state.will_hold, state.is_holding) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Returns the number of connections so far, closed ones included.
    pub fn connections(&self) -> usize {
        self.shared.state().sent.len()
    }

    /// Returns the number of requests on the first connection.
    pub fn requests(&self) -> usize {
        let state = self.shared.state();
        state.sent.first().map_or(0, |sent| packets(sent).filter(|packet| packet[0] >> 4 == PUBLISH).count())
    }

    /// Waits for `count` PINGREQ packets on the first connection.
    pub fn wait_for_pings(&self, count: usize) {
        wait_until("PINGREQ", || {
            let state = self.shared.state();
            let is_ping = |packet: &&[u8]| packet[0] == 0xC0;
            (packets(state.sent.first()?).filter(is_ping).count() >= count).then_some(())
        });
    }

    /// Waits until a client has sent these bytes.
    pub fn wait_for(&self, bytes: &[u8]) {
        wait_until("the bytes are sent", || {
            let found = |sent: &Vec<u8>| sent.windows(bytes.len()).any(|window| window == bytes);
            self.shared.state().sent.iter().any(found).then_some(())
        });
    }

    /// Waits until clients have closed `count` connections. Returns the packets of the last connection.
    pub fn wait_closed(&self, count: usize) -> Vec<Vec<u8>> {
        wait_until("the client closes the connection", || {
            (self.shared.state().closed >= count).then_some(())
        });
        let state = self.shared.state();
        packets(state.sent.last().unwrap()).map(<[u8]>::to_vec).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.release();
        for socket in self.shared.state().sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
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
        spawn(move || up.forward_requests(number, from_client, to_broker));
        spawn(move || down.forward_responses(number, from_broker, to_client));
    }

    fn forward_requests(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
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

    fn forward_responses(&self, number: usize, mut from: TcpStream, mut to: TcpStream) {
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

/// Returns the complete MQTT packets of a stream.
fn packets(mut stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length_bytes, len) = variable(stream.get(1..)?)?;
        let (packet, rest) = stream.split_at_checked(1 + length_bytes + len)?;
        stream = rest;
        Some(packet)
    })
}
