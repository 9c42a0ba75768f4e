//! Histories of several clients under cuts, delays, redeliveries, SIGSTOP and kill -9 are linearizable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::client::{Client, Reply, Response, Verb};
use crate::effort::Effort;
use crate::history::{self, Operation};
use crate::proxy::{Lie, Proxy};
use crate::random::Random;
use crate::server::Server;

/// Stores that are tested side by side: faults are mostly waiting.
const STORES: u64 = 4;
const CLIENTS: usize = 5;
const KEYS: u64 = 2;
const OPERATIONS_PER_CLIENT: usize = 24;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Histories within which each lie must be detected.
const LIES_WITHIN: u64 = 20;

#[derive(Debug, Default)]
struct Figures {
    histories: AtomicU64,
    operations: AtomicU64,
    unknown: AtomicU64,
    redelivered: AtomicU64,
    cuts: AtomicU64,
    lost_replies: AtomicU64,
    stops: AtomicU64,
    kills: AtomicU64,
}

pub fn run(effort: Effort) -> Result<String, String> {
    for lie in [Lie::StaleRead, Lie::LostWrite, Lie::DoubleWrite] {
        detects(lie)?;
    }
    let figures = Arc::new(Figures::default());
    let until = Instant::now() + effort.pick(Duration::from_secs(15), Duration::from_secs(1200));
    let stores: Vec<_> = (0..STORES)
        .map(|number| {
            let figures = Arc::clone(&figures);
            thread::spawn(move || run_store(number, until, &figures))
        })
        .collect();
    for store in stores {
        store.join().map_err(|_| "a client or the server failed".to_owned())??;
    }
    let figures = &*figures;
    let of = |figure: &AtomicU64| figure.load(Ordering::SeqCst);
    let counted = [
        &figures.unknown,
        &figures.redelivered,
        &figures.cuts,
        &figures.lost_replies,
        &figures.stops,
        &figures.kills,
    ];
    if counted.iter().any(|figure| of(figure) == 0) {
        return Err(format!("a kind of fault did not occur: {figures:?}"));
    }
    Ok(format!(
        "{} histories with {} operations ({} with an unknown outcome) linearizable; {} redeliveries, {} cuts, {} cuts \
         with lost replies, {} stops, {} kills; 3 of 3 lies detected",
        of(&figures.histories),
        of(&figures.operations),
        of(&figures.unknown),
        of(&figures.redelivered),
        of(&figures.cuts),
        of(&figures.lost_replies),
        of(&figures.stops),
        of(&figures.kills),
    ))
}

/// Tests one store. Every other one keeps its keys on disk, and is killed sometimes.
fn run_store(number: u64, until: Instant, figures: &Figures) -> Result<(), String> {
    let is_durable = number.is_multiple_of(2);
    let mut server = Server::start(if is_durable { &["--data", "data"] } else { &[] });
    let proxy = Proxy::start(server.port(), None, number);
    let mut seed = number << 32;
    while Instant::now() < until {
        seed += 1;
        let operations = record(&mut server, &proxy, is_durable, seed, figures);
        history::check(&operations).map_err(|error| format!("seed {seed}: {error}"))?;
        figures.histories.fetch_add(1, Ordering::SeqCst);
        figures.operations.fetch_add(operations.len() as u64, Ordering::SeqCst);
        let unknown = operations.iter().filter(|operation| operation.response.is_err()).count();
        figures.unknown.fetch_add(unknown as u64, Ordering::SeqCst);
    }
    Ok(())
}

/// Records a history while faults are injected.
fn record(
    server: &mut Server,
    proxy: &Proxy,
    is_durable: bool,
    seed: u64,
    figures: &Figures,
) -> Vec<Operation> {
    let running = Arc::new(AtomicBool::new(true));
    let clients = Clients::start(proxy.port(), seed, &running);
    let mut random = Random::new(seed);
    let pause = |random: &mut Random, ms: u64| thread::sleep(Duration::from_millis(1 + random.below(ms)));
    while running.load(Ordering::SeqCst) {
        pause(&mut random, 15);
        match random.below(10) {
            0..3 => {
                figures.cuts.fetch_add(1, Ordering::SeqCst);
                proxy.cut();
            }
            3..6 => {
                figures.lost_replies.fetch_add(1, Ordering::SeqCst);
                proxy.hold_replies(true);
                pause(&mut random, 10);
                proxy.cut();
                proxy.hold_replies(false);
            }
            6 | 7 => {
                proxy.delay(random.below(8));
                pause(&mut random, 20);
                proxy.delay(0);
            }
            8 => {
                figures.stops.fetch_add(1, Ordering::SeqCst);
                server.signal(Signal::SIGSTOP);
                pause(&mut random, 30);
                server.signal(Signal::SIGCONT);
            }
            _ if is_durable => {
                figures.kills.fetch_add(1, Ordering::SeqCst);
                server.kill();
                server.start_again();
            }
            _ => {}
        }
    }
    let (operations, redelivered) = clients.join();
    figures.redelivered.fetch_add(redelivered, Ordering::SeqCst);
    operations
}

/// The operations of one client, and how many requests it sent again.
type Recorded = (Vec<Operation>, u64);

/// Clients that work on keys of their own.
struct Clients(Vec<thread::JoinHandle<Recorded>>);

impl Clients {
    /// Starts the clients; `running` turns false when the first of them is done.
    fn start(port: u16, seed: u64, running: &Arc<AtomicBool>) -> Self {
        let order = Arc::new(AtomicU64::new(0));
        let client = |number| {
            let (order, running) = (Arc::clone(&order), Arc::clone(running));
            thread::spawn(move || {
                let recorded = run_client(port, number, seed, &order);
                running.store(false, Ordering::SeqCst);
                recorded
            })
        };
        Self((0..CLIENTS).map(client).collect())
    }

    fn join(self) -> Recorded {
        let (mut operations, mut redelivered) = (Vec::new(), 0);
        for client in self.0 {
            let recorded = client.join().unwrap();
            operations.extend(recorded.0);
            redelivered += recorded.1;
        }
        (operations, redelivered)
    }
}

fn run_client(port: u16, number: usize, seed: u64, order: &AtomicU64) -> Recorded {
    let mut client = Client::new(&format!("c{number}-{seed}"), port);
    let mut random = Random::new(seed.wrapping_mul(31).wrapping_add(number as u64));
    let (mut operations, mut seen) = (Vec::new(), String::new());
    for step in 0..OPERATIONS_PER_CLIENT {
        let key = format!("h{seed}/k{}", random.below(KEYS));
        let verb = draw(&mut random, &seen, format!("v{number}-{step}"));
        let called = order.fetch_add(1, Ordering::SeqCst);
        let response = client.request(&key, &verb, REQUEST_TIMEOUT);
        let returned = order.fetch_add(1, Ordering::SeqCst);
        if let Ok(Response { reply: Reply::Value(value), .. }) = &response {
            seen.clone_from(value);
        }
        operations.push(Operation { client: number, key, verb, response, called, returned });
    }
    (operations, client.redelivered)
}

/// Chooses a request: `seen` is a value that was read, `new` one that no other request has.
pub fn draw(random: &mut Random, seen: &str, new: String) -> Verb {
    match random.below(12) {
        0..3 => Verb::Set(new),
        3 => Verb::SetAbsent(new),
        4 => Verb::SetAbsentOrEqual(if random.one_in(2) { seen.to_owned() } else { new }),
        5 => Verb::Del,
        6 => Verb::VDel(seen.to_owned()),
        _ => Verb::Get,
    }
}

/// Checks that a store with this defect is detected, without any fault of the network.
fn detects(lie: Lie) -> Result<(), String> {
    let server = Server::start(&[]);
    let proxy = Proxy::start(server.port(), Some(lie), 1);
    for seed in 0..LIES_WITHIN {
        let (operations, _) = Clients::start(proxy.port(), seed, &Arc::default()).join();
        let is_detected = history::check(&operations).is_err();
        if is_detected {
            return Ok(());
        }
    }
    Err(format!("{lie:?} was not detected in {LIES_WITHIN} histories and {} lies", proxy.lies()))
}
