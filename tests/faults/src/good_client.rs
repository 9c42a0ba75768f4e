//! A well-behaved client: how long it waits alone and beside others, and what it notices of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use crate::client::{Client, Origin, Reply, Verb};
use crate::effort::Effort;
use crate::server::{Server, give_way};

pub const MIB: u64 = 1024 * 1024;
/// Far longer than any answer takes.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// The client sends a request every so often. Its latency counts from the time at which a request is due, so a server that
/// is blocked for a second is slow for all requests of that second.
const INTERVAL: Duration = Duration::from_millis(2);
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Without an answer for this long, the client goes on to the next request.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// Enough requests after an attack to notice what it has left.
const AFTERMATH: Duration = Duration::from_millis(200);
const P99_MAX: Duration = Duration::from_millis(100);
/// A walk under a lock blocks the server for seconds. Other machines than an idle one can take a part of this by themselves.
const P99_BLOCKED: Duration = Duration::from_secs(1);
/// Below this, the scheduling of two cores decides, not the server.
const P99_NOISE: Duration = Duration::from_millis(10);
const QUIET_FACTOR: u32 = 5;

/// What was refused, and how often.
#[derive(Clone, Debug, Default)]
pub struct Refusals(BTreeMap<String, u64>);

impl Refusals {
    pub fn note(&mut self, result: Result<(), String>) {
        if let Err(refusal) = result {
            *self.0.entry(refusal).or_default() += 1;
        }
    }

    pub fn add(&mut self, others: Self) {
        for (refusal, count) in others.0 {
            *self.0.entry(refusal).or_default() += count;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("nothing refused");
        }
        let refusals = self.0.iter().map(|(refusal, count)| format!("{count} x {refusal}"));
        write!(out, "REFUSED: {}", refusals.collect::<Vec<_>>().join(", "))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Latencies {
    pub p50: Duration,
    pub p99: Duration,
    pub greatest: Duration,
}

impl Latencies {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort();
        let at = |percent: usize| all.get(all.len() * percent / 100).copied().unwrap_or(ANSWERED_WITHIN);
        Self { p50: at(50), p99: at(99), greatest: all.last().copied().unwrap_or(ANSWERED_WITHIN) }
    }
}

/// What the well-behaved client and the process showed.
#[derive(Clone, Debug)]
pub struct Measured {
    pub quiet: Latencies,
    pub beside: Latencies,
    pub refusals: Refusals,
    /// How often the connection of the client was lost.
    pub disconnects: u64,
    /// The greatest resident memory of the process.
    pub peak_bytes: u64,
}

impl Measured {
    /// Returns what is wrong.
    pub fn verdict(&self, effort: Effort, bytes_max: u64) -> Vec<&'static str> {
        // A short measurement on a machine that does something else is too noisy for more than the question whether the
        // server was blocked.
        let p99_max = match effort {
            Effort::Short => P99_BLOCKED,
            Effort::Long => (self.quiet.p99 * QUIET_FACTOR).clamp(P99_NOISE, P99_MAX),
        };
        let found = [
            (self.peak_bytes > bytes_max, "TOO MUCH MEMORY"),
            (self.beside.p99 > p99_max, "TOO SLOW"),
            (!self.refusals.is_empty(), "REFUSALS"),
            (self.disconnects > 0, "DISCONNECTS"),
        ];
        found.iter().filter(|(is_found, _)| *is_found).map(|(_, what)| *what).collect()
    }

    /// Prints the figures in one line, with what is wrong; returns whether nothing is.
    pub fn report(&self, name: &str, effort: Effort, bytes_max: u64) -> bool {
        let found = self.verdict(effort, bytes_max);
        println!("  {name}: {self}{}", found.iter().map(|what| format!("; {what}")).collect::<String>());
        found.is_empty()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quiet, beside, refusals, disconnects, peak_bytes } = self;
        write!(
            out,
            "{} MiB, p50 {:.2} ms (quiet {:.2}), p99 {:.1} ms (quiet {:.1}, greatest {:.1}), {refusals}, {disconnects} \
             disconnects",
            peak_bytes / MIB,
            ms(beside.p50),
            ms(quiet.p50),
            ms(beside.p99),
            ms(quiet.p99),
            ms(beside.greatest),
        )
    }
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// How far an attack is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    has_filled: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Progress {
    /// Whether the attack is to end.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub fn wait_until_over(&self) {
        wait(|| self.is_over());
    }

    /// The attack has taken what it can, and keeps it until it is over.
    pub fn set_filled(&self) {
        self.has_filled.store(true, Ordering::SeqCst);
    }

    pub fn wait_until_filled(&self) {
        wait(|| self.has_filled.load(Ordering::SeqCst));
    }
}

fn wait(is_reached: impl Fn() -> bool) {
    while !is_reached() {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Measures the well-behaved client alone, then during the attack, while `others` runs. The attack gives way to all others
/// and ends only after it has done all that it is about, and `others` has returned what was refused.
pub fn beside<T: Send>(
    server: &Server,
    origin: Origin,
    attack: impl FnOnce(&Progress) -> T + Send,
    others: impl FnOnce(&Progress) -> Refusals,
) -> (Measured, T) {
    let good = GoodClient::start(origin, server.port());
    thread::sleep(QUIET_TIME);
    let quiet = Latencies::of(good.take_latencies());
    let progress = Progress::default();
    let (mut refusals, attacked) = thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            give_way();
            let attacked = attack(&progress);
            progress.set_filled();
            attacked
        });
        let refusals = others(&progress);
        progress.is_over.store(true, Ordering::SeqCst);
        (refusals, attacker.join().unwrap())
    });
    thread::sleep(AFTERMATH);
    let notes = good.end();
    refusals.add(notes.refusals);
    let (beside, disconnects) = (Latencies::of(notes.latencies), notes.disconnects);
    (Measured { quiet, beside, refusals, disconnects, peak_bytes: server.peak_bytes() }, attacked)
}

/// What the client has noticed.
#[derive(Debug, Default)]
struct Notes {
    latencies: Vec<Duration>,
    refusals: Refusals,
    disconnects: u64,
}

/// A client that sets and gets one key at a steady rate.
struct GoodClient {
    notes: Arc<Mutex<Notes>>,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl GoodClient {
    fn start(origin: Origin, port: u16) -> Self {
        let (notes, is_over) = (Arc::<Mutex<Notes>>::default(), Arc::<AtomicBool>::default());
        let (shared, is_ended) = (Arc::clone(&notes), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut client = Client::new_at(origin, "good", port);
            let mut due = Instant::now();
            for number in 0_u64.. {
                if is_ended.load(Ordering::SeqCst) {
                    break;
                }
                let verb = if number % 2 == 0 { Verb::Set(format!("{number}")) } else { Verb::Get };
                let response = client.request("good", &verb, ANSWERED_WITHIN);
                let mut notes = shared.lock().unwrap();
                notes.latencies.push(due.elapsed());
                notes.refusals.note(match response.map(|response| response.reply) {
                    Ok(Reply::Done | Reply::Value(_)) => Ok(()),
                    Ok(other) => Err(format!("{other:?}")),
                    Err(_) => Err(client
                        .refused
                        .map_or("no answer".to_owned(), |code| format!("PUBACK {code:02X}"))),
                });
                notes.disconnects = client.losses;
                drop(notes);
                due += INTERVAL;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        });
        Self { notes, is_over, thread }
    }

    /// Returns the latencies since the last call.
    fn take_latencies(&self) -> Vec<Duration> {
        std::mem::take(&mut self.notes.lock().unwrap().latencies)
    }

    fn end(self) -> Notes {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        std::mem::take(&mut *self.notes.lock().unwrap())
    }
}

/// Allows this program as many files as the system lets it have.
pub fn raise_file_limit() -> Result<(), String> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|error| error.to_string())
}

/// Checks that the verdict notices a server that stands still for half of the time, one that refuses writes, one that ends
/// its connections, and one that takes more memory than allowed. Runs once.
pub fn detects() -> Result<(), String> {
    static CHECKED: OnceLock<Result<(), String>> = OnceLock::new();
    CHECKED
        .get_or_init(|| detects_slowness().and_then(|()| detects_refusals()).and_then(|()| detects_ends()))
        .clone()
}

fn finds(what: &'static str, measured: &Measured, bytes_max: u64) -> Result<(), String> {
    match measured.verdict(Effort::Short, bytes_max).contains(&what) {
        true => Ok(()),
        false => Err(format!("not detected: {what}: {measured}")),
    }
}

fn detects_slowness() -> Result<(), String> {
    let server = Server::start(&[]);
    let stop = |_: &Progress| {
        for _ in 0..2 {
            server.signal(Signal::SIGSTOP);
            thread::sleep(P99_BLOCKED + P99_BLOCKED / 2);
            server.signal(Signal::SIGCONT);
            thread::sleep(Duration::from_millis(200));
        }
    };
    let (measured, ()) = beside(&server, Origin::HERE, stop, |_| Refusals::default());
    finds("TOO SLOW", &measured, u64::MAX)
}

/// The store is full: the key of the client is the second one.
fn detects_refusals() -> Result<(), String> {
    let server = Server::start(&["--keys-max", "1"]);
    let response =
        Client::new("first", server.port()).request("first", &Verb::Set("x".repeat(8 << 20)), TIMEOUT);
    assert_eq!(response.map(|response| response.reply), Ok(Reply::Done));
    let (measured, ()) = beside(&server, Origin::HERE, |_| (), |_| Refusals::default());
    finds("REFUSALS", &measured, u64::MAX)?;
    finds("TOO MUCH MEMORY", &measured, 8 * MIB)
}

/// Another client takes the session over.
fn detects_ends() -> Result<(), String> {
    let server = Server::start(&[]);
    let take_over = |_: &Progress| {
        let response = Client::new("good", server.port()).request("other", &Verb::Get, TIMEOUT);
        assert_eq!(response.map(|response| response.reply), Ok(Reply::Absent));
    };
    let (measured, ()) = beside(&server, Origin::HERE, take_over, |_| Refusals::default());
    finds("DISCONNECTS", &measured, u64::MAX)
}
