//! What an operator sees of a running server: counters, `$SYS`, and a page; nothing here changes anything.

pub mod admin;
pub mod metrics;
mod page;
mod prometheus;
pub mod sys;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use self::metrics::{Metrics, Outcome, Verb};
use super::event::Event;
use super::service::Service;
use crate::broker::{self, Broker};
use crate::clock;

/// How often rates are looked at.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Over how many of these intervals a rate is taken.
const SAMPLES_MAX: usize = 6;

/// What operators get to see, and where. Nothing, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationsSettings {
    /// Where the page, the metrics and the health are served.
    pub admin: Vec<AdminSettings>,
    /// How often the topics below `$SYS` are brought up to date.
    pub sys_interval: Option<Duration>,
}

/// A door for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSettings {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// The host names by which it may be asked for, beside `localhost` and any address: a page from elsewhere whose
    /// name was made to lead here must not read it.
    pub names: Vec<String>,
}

/// How far a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its doors are not open yet.
    Starting,
    /// It serves.
    Serving,
    /// It stops.
    Draining,
}

/// A running server, to be looked at.
pub struct Operations {
    broker: Broker,
    service: Arc<Service>,
    phase: AtomicU8,
    started: Instant,
    started_ms: u64,
    samples: Mutex<VecDeque<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    sums: [u64; 5],
}

/// What comes to pass a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Requests that are answered.
    pub requests: f64,
    /// MQTT packets from clients.
    pub packets_received: f64,
    /// MQTT packets to clients.
    pub packets_sent: f64,
    /// Bytes from clients.
    pub bytes_received: f64,
    /// Bytes to clients.
    pub bytes_sent: f64,
}

impl Operations {
    /// Begins with a server whose doors are closed.
    #[must_use]
    pub fn new(broker: Broker, service: Arc<Service>) -> Self {
        let clock::Reading { wall_ms, monotonic } = clock::now();
        Self {
            broker,
            service,
            phase: AtomicU8::new(Phase::Starting as u8),
            started: monotonic,
            started_ms: wall_ms,
            samples: Mutex::default(),
        }
    }

    /// The server has come further.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    fn metrics(&self) -> &Metrics {
        self.service.metrics()
    }

    /// Why a client should not come here now, if so.
    fn trouble(&self) -> Option<&'static str> {
        let phase = self.phase.load(Ordering::Acquire);
        if phase == Phase::Starting as u8 {
            Some("starting")
        } else if phase == Phase::Draining as u8 {
            Some("draining")
        } else if self.metrics().has_disk_failed() {
            Some("the disk has failed: no write is taken")
        } else {
            None
        }
    }

    fn uptime(&self) -> Duration {
        clock::monotonic().saturating_duration_since(self.started)
    }

    /// Looks at the counters now and then, for ever.
    pub async fn sample(self: Arc<Self>) {
        loop {
            self.take_sample(clock::monotonic());
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    fn take_sample(&self, at: Instant) {
        let metrics = self.metrics();
        let sums = [
            metrics.requests_of_all_kinds(),
            metrics.broker.received.packets.get(),
            metrics.broker.sent.packets.get(),
            metrics.broker.received.bytes.get(),
            metrics.broker.sent.bytes.get(),
        ];
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(Sample { at, sums });
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    /// What has come to pass a second lately.
    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
    fn rates(&self) -> Rates {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return Rates::default() };
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let mut rates =
            last.sums.iter().zip(first.sums).map(|(last, first)| last.saturating_sub(first) as f64 / seconds);
        let mut next = || rates.next().unwrap_or_default();
        Rates {
            requests: next(),
            packets_received: next(),
            packets_sent: next(),
            bytes_received: next(),
            bytes_sent: next(),
        }
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Counts what an operator is told.
    pub fn note(&self, event: &Event) {
        match event {
            Event::Broker(event) => self.note_broker_event(event),
            Event::KeyNotAuthorized { .. } => self.not_authorized.add(1),
            Event::Unanswerable { .. } => self.unanswerable.add(1),
            Event::NotPersisted { .. } => self.has_disk_failed.store(true, Ordering::Relaxed),
            Event::PersistedAgain => self.has_disk_failed.store(false, Ordering::Relaxed),
            Event::IdentityFile { .. }
            | Event::LeftOut { .. }
            | Event::Rules { .. }
            | Event::Certificates { .. }
            | Event::OutOfTime { .. }
            | Event::ClockBehind { .. } => {}
        }
    }

    fn note_broker_event(&self, event: &broker::Event) {
        match event {
            broker::Event::Denied { .. } | broker::Event::Refused { .. } => self.refused.add(1),
            broker::Event::NotAuthorized { .. } => self.not_authorized.add(1),
            broker::Event::Dropped { .. } | broker::Event::NotRetained { .. } => self.dropped.add(1),
            broker::Event::Connected { .. }
            | broker::Event::Disconnected { .. }
            | broker::Event::Reauthenticated { .. }
            | broker::Event::AcceptFailed { .. } => {}
        }
    }

    /// The requests by verb and outcome.
    fn each_request(&self) -> impl Iterator<Item = (Verb, Outcome, u64)> + '_ {
        Verb::ALL.into_iter().flat_map(move |verb| {
            Outcome::ALL.into_iter().map(move |outcome| (verb, outcome, self.requests(verb, outcome)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{Hooks, Settings};
    use crate::server::service::StoreSettings;

    fn operations() -> Operations {
        let service = Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap();
        let hooks = Hooks::new(Arc::<Service>::clone(&service));
        Operations::new(Broker::new(Settings::default(), hooks), service)
    }

    #[test]
    fn a_server_is_well_while_it_serves_and_its_disk_works() {
        let operations = operations();
        assert_eq!(operations.trouble(), Some("starting"));
        operations.enter(Phase::Serving);
        assert_eq!(operations.trouble(), None);
        operations.metrics().note(&broker::Event::AcceptFailed { reason: String::new() }.into());
        assert_eq!(operations.trouble(), None);
        operations.metrics().note(&Event::NotPersisted { reason: String::new() });
        assert!(operations.trouble().unwrap().starts_with("the disk has failed"));
        operations.enter(Phase::Draining);
        assert_eq!(operations.trouble(), Some("draining"));
    }

    #[test]
    fn rates_are_of_the_last_samples() {
        let operations = operations();
        assert_eq!(operations.rates(), Rates::default());
        let mut now = clock::monotonic();
        for round in 0..10_u64 {
            operations.take_sample(now);
            assert!(operations.rates().requests <= f64::from(u32::MAX), "round {round}");
            now += Duration::from_secs(2);
            for _ in 0..6 {
                operations.metrics().count_request(Verb::Get, Outcome::Ok, Duration::ZERO);
            }
            operations.metrics().broker.sent.bytes.add(2_000);
        }
        let Rates { requests, bytes_sent, bytes_received, .. } = operations.rates();
        assert_eq!((requests, bytes_sent, bytes_received), (3.0, 1_000.0, 0.0));
    }
}
