//! Clients that read and write all the time, and the check of what they have recorded, segment by segment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::client::{Client, Reply, Response, Verb};
use crate::history::{self, Operation};
use crate::random::Random;
use crate::scenarios::linearizability::draw;

/// Each client reads one of the keys again in the next segment.
const CLIENTS_AND_KEYS: usize = 8;
/// Far longer than a takeover.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// The greatest pause between two requests of a client: without any, a segment has too many operations to be checked.
const PAUSE_MS_MAX: u64 = 60;

/// What has been checked so far, and the time without answers.
#[derive(Debug)]
pub struct Figures {
    begun: Instant,
    pub segments: AtomicU64,
    pub operations: AtomicU64,
    pub unknown: AtomicU64,
    /// The last answer, and the longest time between two answers since [`Figures::begin_gap`].
    gap: Mutex<Option<(Instant, Duration)>>,
    /// When the last operation that was answered had begun.
    answered_call: Mutex<Option<Instant>>,
}

impl Figures {
    fn new() -> Self {
        let (segments, operations, unknown) = Default::default();
        Self {
            begun: Instant::now(),
            segments,
            operations,
            unknown,
            gap: Mutex::default(),
            answered_call: Mutex::default(),
        }
    }

    /// Returns the seconds since the beginning of the traffic.
    pub fn seconds(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.begun).as_secs_f64()
    }

    /// Begins to measure the longest time between two answers.
    pub fn begin_gap(&self) {
        *self.gap.lock().unwrap() = Some((Instant::now(), Duration::ZERO));
    }

    pub fn longest_gap(&self) -> Duration {
        self.gap.lock().unwrap().map_or(Duration::ZERO, |(_, longest)| longest)
    }

    /// Whether an operation that has begun after this time was answered.
    pub fn is_answered_since(&self, time: Instant) -> bool {
        self.answered_call.lock().unwrap().is_some_and(|called| called >= time)
    }

    fn note(&self, called: Instant, operation: &Operation) {
        self.operations.fetch_add(1, Ordering::SeqCst);
        if operation.response.is_err() {
            self.unknown.fetch_add(1, Ordering::SeqCst);
            let Operation { client, key, verb, .. } = operation;
            println!("    {:.1} s: no answer to client {client}, {key}, {verb:?}", self.seconds(called));
            return;
        }
        let now = Instant::now();
        if let Some((last, longest)) = &mut *self.gap.lock().unwrap() {
            *longest = now.saturating_duration_since(*last).max(*longest);
            *last = now;
        }
        let mut answered = self.answered_call.lock().unwrap();
        *answered = (*answered).max(Some(called));
    }
}

/// Running clients. They end when this is dropped.
pub struct Traffic {
    pub figures: Arc<Figures>,
    is_over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
    checker: Option<JoinHandle<Result<(), String>>>,
}

impl Traffic {
    /// Starts clients of the broker at this port. `name` makes their keys differ from those of others.
    pub fn start(port: u16, name: &str, seed: u64, segment: Duration) -> Self {
        let (figures, is_over) = (Arc::new(Figures::new()), Arc::new(AtomicBool::new(false)));
        let (sender, receiver) = channel();
        let (order, begun) = (Arc::new(AtomicU64::new(0)), figures.begun);
        let clients = (0..CLIENTS_AND_KEYS).map(|number| {
            let (figures, is_over, order) = (Arc::clone(&figures), Arc::clone(&is_over), Arc::clone(&order));
            let recorder = Recorder { sender: sender.clone(), figures, order, number, name: name.to_owned() };
            let random = Random::new(seed.wrapping_mul(31).wrapping_add(number as u64));
            let number_of_segment = move || begun.elapsed().as_nanos() / segment.as_nanos();
            thread::spawn(move || recorder.run(port, random, &is_over, number_of_segment))
        });
        let clients = clients.collect();
        drop(sender);
        let (checked, is_over_too) = (Arc::clone(&figures), Arc::clone(&is_over));
        let checker = thread::spawn(move || {
            let result = check(&receiver, &checked);
            is_over_too.store(true, Ordering::SeqCst);
            result
        });
        Self { figures, is_over, clients, checker: Some(checker) }
    }

    /// Whether a check or a client has failed: [`Traffic::end`] returns why.
    pub fn has_failed(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Ends the clients and checks the rest.
    ///
    /// # Errors
    /// The first history that is not linearizable.
    pub fn end(mut self) -> Result<(), String> {
        self.is_over.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            client.join().map_err(|_| "a client has failed".to_owned())?;
        }
        let checker = self.checker.take().unwrap();
        checker.join().map_err(|_| "the check of the histories has failed".to_owned())?
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// One client.
struct Recorder {
    sender: Sender<(u64, Operation)>,
    figures: Arc<Figures>,
    order: Arc<AtomicU64>,
    number: usize,
    name: String,
}

impl Recorder {
    fn run(&self, port: u16, mut random: Random, is_over: &AtomicBool, segment: impl Fn() -> u128) {
        let mut client = Client::new(&format!("{}-c{}", self.name, self.number), port);
        let (mut seen, mut last) = (String::new(), 0);
        for step in 0_u64.. {
            let segment = u64::try_from(segment()).unwrap();
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            // What a segment has left must be there in the next one.
            for former in last..segment {
                self.record(&mut client, former, self.number, &Verb::Get);
            }
            last = segment;
            let key = usize::try_from(random.below(CLIENTS_AND_KEYS as u64)).unwrap();
            let verb = draw(&mut random, &seen, format!("v{}-{step}", self.number));
            if let Some(value) = self.record(&mut client, segment, key, &verb) {
                seen = value;
            }
            thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
        }
    }

    /// Sends a request and records it; returns the value that was read.
    fn record(&self, client: &mut Client, segment: u64, key: usize, verb: &Verb) -> Option<String> {
        let key = format!("{}/s{segment}/k{key}", self.name);
        let (began, called) = (Instant::now(), self.order.fetch_add(1, Ordering::SeqCst));
        let response = client.request(&key, verb, REQUEST_TIMEOUT);
        let returned = self.order.fetch_add(1, Ordering::SeqCst);
        let value = match &response {
            Ok(Response { reply: Reply::Value(value), .. }) => Some(value.clone()),
            _ => None,
        };
        let operation =
            Operation { client: self.number, key, verb: verb.clone(), response, called, returned };
        self.figures.note(began, &operation);
        // The checker has ended if a history is wrong.
        let _ = self.sender.send((segment, operation));
        value
    }
}

/// Checks each segment when no client records operations of it any more.
fn check(receiver: &Receiver<(u64, Operation)>, figures: &Figures) -> Result<(), String> {
    let mut segments: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    let mut reached = [0; CLIENTS_AND_KEYS];
    let check = |operations: Vec<Operation>| {
        figures.segments.fetch_add(1, Ordering::SeqCst);
        history::check(&operations)
    };
    for (segment, operation) in receiver {
        reached[operation.client] = segment.max(reached[operation.client]);
        segments.entry(segment).or_default().push(operation);
        // A client that has reached a segment has read the one before.
        let begun = reached.iter().min().copied().unwrap_or_default();
        while let Some(first) = segments.first_entry().filter(|first| *first.key() < begun) {
            check(first.remove())?;
        }
    }
    segments.into_values().try_for_each(check)
}
