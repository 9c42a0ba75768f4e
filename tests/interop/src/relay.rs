//! A TCP relay in front of a broker that can close its connections and drop responses.

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

/// A running relay; its connections are closed when it is dropped.
pub struct Relay {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    dropped: Notify,
}

#[derive(Default)]
struct State {
    is_down: bool,
    drops_responses: bool,
    forwarding: Vec<AbortHandle>,
    sessions_present: Vec<bool>,
    reauthenticated: usize,
}

impl Relay {
    /// Starts a relay to the broker at this port.
    pub async fn start(broker_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, broker_port, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    /// Returns the port for clients.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and refuses new ones until [`Relay::mend`].
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_down = true;
        for forwarding in state.forwarding.drain(..) {
            forwarding.abort();
        }
    }

    /// Accepts connections again and forwards everything.
    pub fn restore(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_down = false;
        state.drops_responses = false;
    }

    /// Drops everything from the broker from now on.
    pub fn drop_responses(&self) {
        self.shared.state.lock().unwrap().drops_responses = true;
    }

    /// Waits until a response has been dropped: then the broker has handled the request.
    pub async fn response_dropped(&self) {
        self.shared.dropped.notified().await;
    }

    /// Returns how often re-authentication has succeeded, if its AUTH was the first packet of a read.
    pub fn reauthenticated(&self) -> usize {
        self.shared.state.lock().unwrap().reauthenticated
    }

    /// Returns the Session Present flag of each CONNACK.
    pub fn sessions_present(&self) -> Vec<bool> {
        self.shared.state.lock().unwrap().sessions_present.clone()
    }
}

impl Drop for Relay {
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
        // Otherwise the connection is dropped, and so closed.
        if !state.is_down {
            let forwarding = tokio::spawn(forward(client, broker, Arc::clone(&shared)));
            state.forwarding.push(forwarding.abort_handle());
        }
    }
}

async fn forward(client: TcpStream, broker: TcpStream, shared: Arc<Shared>) {
    let (from_client, to_client) = client.into_split();
    let (from_broker, to_broker) = broker.into_split();
    tokio::select! {
        () = forward_requests(from_client, to_broker) => {}
        () = forward_responses(from_broker, to_client, &shared) => {}
    }
}

async fn forward_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut bytes = vec![0; 65_536];
    loop {
        let len = from.read(&mut bytes).await.unwrap_or(0);
        if len == 0 || to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}

async fn forward_responses(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut bytes = vec![0; 65_536];
    let mut is_first = true;
    loop {
        let len = from.read(&mut bytes).await.unwrap_or(0);
        if len == 0 {
            return;
        }
        let is_dropped = {
            let mut state = shared.state.lock().unwrap();
            if is_first && bytes[0] == CONNACK {
                // CONNACK is short: its Remaining Length takes one byte, and a broker sends it in one write.
                let has_session = bytes[2] & 1 == 1;
                state.sessions_present.push(has_session);
            }
            is_first = false;
            // Without a reason code or with 0, Success: re-authentication is complete.
            if bytes[0] == AUTH && (bytes[1] == 0 || bytes[2] == 0) {
                state.reauthenticated += 1;
            }
            state.drops_responses
        };
        if is_dropped {
            shared.dropped.notify_one();
        } else if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
