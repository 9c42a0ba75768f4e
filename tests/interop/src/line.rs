//! A line between a client and its broker that can be cut, and that can lose what the broker says.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

/// The first byte of a CONNACK packet.
const CONNACK: u8 = 0x20;
/// The first byte of an AUTH packet.
const AUTH: u8 = 0xF0;

/// A TCP relay in front of a broker.
pub struct Line {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    lost: Notify,
}

#[derive(Default)]
struct State {
    is_down: bool,
    loses_answers: bool,
    carrying: Vec<AbortHandle>,
    sessions_present: Vec<bool>,
    reauthenticated: usize,
}

impl Line {
    /// A line to the broker at this port.
    pub async fn to(broker_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, broker_port, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    /// Where a client connects.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections, and takes no more until [`Line::mend`].
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_down = true;
        for carrying in state.carrying.drain(..) {
            carrying.abort();
        }
    }

    /// Takes connections again, and carries everything.
    pub fn mend(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_down = false;
        state.loses_answers = false;
    }

    /// From now on nothing of what the broker says arrives.
    pub fn lose_answers(&self) {
        self.shared.state.lock().unwrap().loses_answers = true;
    }

    /// Waits until something has been lost: then the broker has done what it was asked.
    pub async fn has_lost(&self) {
        self.shared.lost.notified().await;
    }

    /// How often the broker has answered to another token, where it said nothing else meanwhile.
    pub fn reauthenticated(&self) -> usize {
        self.shared.state.lock().unwrap().reauthenticated
    }

    /// What the broker said of the session at each connection.
    pub fn sessions_present(&self) -> Vec<bool> {
        self.shared.state.lock().unwrap().sessions_present.clone()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, broker_port: u16, shared: Arc<Shared>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let broker = TcpStream::connect(("127.0.0.1", broker_port)).await.unwrap();
        client.set_nodelay(true).unwrap();
        broker.set_nodelay(true).unwrap();
        let mut state = shared.state.lock().unwrap();
        // Whoever is not carried finds the connection closed.
        if !state.is_down {
            let carrying = tokio::spawn(carry(client, broker, Arc::clone(&shared)));
            state.carrying.push(carrying.abort_handle());
        }
    }
}

async fn carry(client: TcpStream, broker: TcpStream, shared: Arc<Shared>) {
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = broker.into_split();
    tokio::select! {
        () = carry_requests(from_client, to_broker) => {}
        () = carry_answers(from_broker, to_client, &shared) => {}
    }
}

async fn carry_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut bytes = vec![0; 65_536];
    loop {
        let len = from.read(&mut bytes).await.unwrap_or(0);
        if len == 0 || to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}

async fn carry_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut bytes = vec![0; 65_536];
    let mut is_first = true;
    loop {
        let len = from.read(&mut bytes).await.unwrap_or(0);
        if len == 0 {
            return;
        }
        let is_lost = {
            let mut state = shared.state.lock().unwrap();
            if is_first && bytes[0] == CONNACK {
                // A CONNACK is short: its length takes one byte, and a broker sends it at once.
                let has_session = bytes[2] & 1 == 1;
                state.sessions_present.push(has_session);
            }
            is_first = false;
            // One without a reason code or with that of success: the session goes on.
            if bytes[0] == AUTH && (bytes[1] == 0 || bytes[2] == 0) {
                state.reauthenticated += 1;
            }
            state.loses_answers
        };
        if is_lost {
            shared.lost.notify_one();
        } else if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
