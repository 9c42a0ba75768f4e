//! A TCP proxy that injects faults, and that can lie: a lying proxy is the broken store that each check must detect.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{REQUEST_TOPIC, timestamp};
use crate::random::Random;
use crate::wire::{self, Packet, Publish};

/// Packet identifiers of the proxy's own packets: clients use smaller ones.
const OWN_PACKET_ID: u16 = 60_000;
/// Marks the correlation data of a request that the proxy sends.
const OWN_CORRELATION: &[u8] = b"proxy";

/// A defect of the store that the proxy imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A GET is sometimes answered with an earlier answer.
    StaleRead,
    /// A SET is sometimes acknowledged and never applied.
    LostWrite,
    /// A SET is sometimes applied again later, as after a redelivery that was not recognized.
    DoubleWrite,
}

/// A running proxy; its connections are cut when it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    broker: u16,
    lie: Option<Lie>,
    connections: Mutex<Vec<TcpStream>>,
    /// Whether bytes for clients are held back.
    holds_replies: AtomicBool,
    delay_ms: AtomicU64,
    /// Whether new connections are closed at once.
    is_down: AtomicBool,
    is_ended: AtomicBool,
    /// Lies so far.
    lies: AtomicU64,
    seed: AtomicU64,
}

impl Proxy {
    pub fn start(broker: u16, lie: Option<Lie>, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            broker,
            lie,
            connections: Mutex::default(),
            holds_replies: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            lies: AtomicU64::new(0),
            seed: AtomicU64::new(seed),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_ended.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(client) = client else { continue };
                if accepting.is_down.load(Ordering::SeqCst) {
                    continue;
                }
                // A broker that was killed refuses: the client's connection is closed.
                let Ok(broker) = TcpStream::connect(("127.0.0.1", accepting.broker)) else { continue };
                forward(&accepting, client, broker);
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Cuts all connections and accepts none, or accepts them again.
    pub fn take_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
        self.shared.cut();
    }

    /// Accepts connections, and delays nothing any more. It cuts no connection.
    pub fn restore(&self) {
        self.shared.is_down.store(false, Ordering::SeqCst);
        self.delay(0);
    }

    /// Holds back, or no longer, what the broker sends: a cut then loses the answers to requests that were applied.
    pub fn hold_replies(&self, holds: bool) {
        self.shared.holds_replies.store(holds, Ordering::SeqCst);
    }

    /// Delays each transfer.
    pub fn delay(&self, ms: u64) {
        self.shared.delay_ms.store(ms, Ordering::SeqCst);
    }

    pub fn lies(&self) -> u64 {
        self.shared.lies.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::SeqCst);
        self.shared.cut();
        // Wakes the accepting thread, which then ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn forward(shared: &Arc<Shared>, client: TcpStream, broker: TcpStream) {
    let _ = (client.set_nodelay(true), broker.set_nodelay(true));
    let clone = |stream: &TcpStream| stream.try_clone().unwrap();
    shared.connections.lock().unwrap().extend([clone(&client), clone(&broker)]);
    let liar = shared.lie.map(|lie| {
        let seed = shared.seed.fetch_add(1, Ordering::SeqCst);
        Arc::new(Mutex::new(Liar {
            lie,
            random: Random::new(seed),
            gets: HashMap::new(),
            seen: HashMap::new(),
        }))
    });
    for (from, to, is_client) in
        [(clone(&client), clone(&broker), true), (clone(&broker), clone(&client), false)]
    {
        let back = clone(&from);
        let pump = Pump { shared: Arc::clone(shared), liar: liar.clone(), from, to, back, is_client };
        thread::spawn(move || pump.run());
    }
}

/// One direction of a connection.
struct Pump {
    shared: Arc<Shared>,
    liar: Option<Arc<Mutex<Liar>>>,
    from: TcpStream,
    to: TcpStream,
    /// Towards the sender, for answers of the proxy's own.
    back: TcpStream,
    is_client: bool,
}

impl Pump {
    fn run(mut self) {
        let mut bytes = vec![0; 65_536];
        let mut unread = Vec::new();
        while let Ok(len @ 1..) = self.from.read(&mut bytes) {
            let delay = self.shared.delay_ms.load(Ordering::SeqCst);
            if delay > 0 {
                thread::sleep(Duration::from_millis(delay));
            }
            let held_since = Instant::now();
            while !self.is_client
                && self.shared.holds_replies.load(Ordering::SeqCst)
                && held_since.elapsed() < Duration::from_secs(5)
            {
                thread::sleep(Duration::from_millis(1));
            }
            let is_sent = match self.liar.clone() {
                None => self.to.write_all(&bytes[..len]).is_ok(),
                Some(liar) => {
                    unread.extend_from_slice(&bytes[..len]);
                    self.lie(&liar, &mut unread)
                }
            };
            if !is_sent {
                break;
            }
        }
        let _ = (self.from.shutdown(Shutdown::Both), self.to.shutdown(Shutdown::Both));
    }

    fn lie(&mut self, liar: &Mutex<Liar>, unread: &mut Vec<u8>) -> bool {
        while let Some((packet, len)) = Packet::split(unread) {
            unread.drain(..len);
            let changed = match self.is_client {
                true => liar.lock().unwrap().for_broker(packet),
                false => liar.lock().unwrap().for_client(packet),
            };
            self.shared.lies.fetch_add(u64::from(changed.is_lie), Ordering::SeqCst);
            if changed.back.is_some_and(|bytes| self.back.write_all(&bytes).is_err())
                || self.to.write_all(&changed.forward).is_err()
            {
                return false;
            }
            if let Some(bytes) = changed.later {
                let mut to = self.to.try_clone().unwrap();
                thread::spawn(move || {
                    // A whole history takes some milliseconds.
                    thread::sleep(Duration::from_millis(1));
                    let _ = to.write_all(&bytes);
                });
            }
        }
        true
    }
}

/// What becomes of one packet.
#[derive(Default)]
struct Changed {
    forward: Vec<u8>,
    /// Sent to the sender of the packet.
    back: Option<Vec<u8>>,
    /// Forwarded later.
    later: Option<Vec<u8>>,
    is_lie: bool,
}

/// The state of a lie on one connection.
struct Liar {
    lie: Lie,
    random: Random,
    /// The key of each GET that is not answered yet, by its correlation data.
    gets: HashMap<Vec<u8>, Vec<u8>>,
    /// Answers to earlier GETs of each key.
    seen: HashMap<Vec<u8>, Publish>,
}

impl Liar {
    fn for_broker(&mut self, packet: Packet) -> Changed {
        let unchanged = |packet: &Packet| Changed { forward: packet.encode(), ..Changed::default() };
        if packet.name() == "PUBACK" && packet.packet_id() >= OWN_PACKET_ID {
            return Changed::default();
        }
        if packet.name() != "PUBLISH" {
            return unchanged(&packet);
        }
        let publish = Publish::decode(&packet);
        let mut words = publish.payload.split(|byte| *byte == b'\n').skip(2).step_by(2);
        let (verb, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if publish.topic != REQUEST_TOPIC {
            return unchanged(&packet);
        }
        match (self.lie, verb) {
            (Lie::StaleRead, b"GET\r") => {
                self.gets.insert(publish.correlation.clone(), key.to_vec());
                unchanged(&packet)
            }
            (Lie::LostWrite, b"SET\r") if self.random.one_in(8) => {
                let response = Publish {
                    topic: publish.response_topic,
                    packet_id: OWN_PACKET_ID,
                    correlation: publish.correlation,
                    user_properties: vec![("__ts".to_owned(), timestamp("StateStore"))],
                    payload: b"+OK\r\n".to_vec(),
                    response_topic: String::new(),
                };
                let back = [wire::puback(publish.packet_id, 0), response.encode()].concat();
                Changed { back: Some(back), is_lie: true, ..Changed::default() }
            }
            (Lie::DoubleWrite, b"SET\r") if self.random.one_in(4) => {
                let again =
                    Publish { packet_id: OWN_PACKET_ID, correlation: OWN_CORRELATION.to_vec(), ..publish };
                Changed { later: Some(again.encode()), is_lie: true, ..unchanged(&packet) }
            }
            _ => unchanged(&packet),
        }
    }

    fn for_client(&mut self, packet: Packet) -> Changed {
        let unchanged = Changed { forward: packet.encode(), ..Changed::default() };
        if packet.name() == "PUBACK" && packet.packet_id() >= OWN_PACKET_ID {
            return Changed::default();
        }
        if packet.name() != "PUBLISH" {
            return unchanged;
        }
        let publish = Publish::decode(&packet);
        if publish.correlation == OWN_CORRELATION {
            // It stays unacknowledged; the broker has room for many such answers.
            return Changed::default();
        }
        let Some(key) = self.gets.remove(&publish.correlation) else { return unchanged };
        match self.seen.get(&key) {
            Some(earlier) if earlier.payload != publish.payload && self.random.one_in(4) => {
                let stale = Publish {
                    packet_id: publish.packet_id,
                    correlation: publish.correlation,
                    ..earlier.clone()
                };
                Changed { forward: stale.encode(), is_lie: true, ..Changed::default() }
            }
            _ => {
                self.seen.insert(key, publish);
                unchanged
            }
        }
    }
}
