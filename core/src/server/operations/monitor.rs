//! State of a running server: phase, health, rates and trends.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::clock;
use crate::server::cluster::{Role, Status};
use crate::server::identity::Identities;
use crate::server::metrics::{BUCKETS, Metrics, quantile_us};
use crate::server::service::Service;

/// Interval between samples of the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Time that the samples cover.
pub(super) const TRENDS_SPAN: Duration = Duration::from_secs(600);
/// The most samples: one more than intervals.
const SAMPLES_MAX: usize = 301;
/// Number of samples that a rate is computed over: ten seconds.
const RATE_SAMPLES: usize = 6;

/// Phase of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The listeners are not open yet.
    Starting,
    Serving,
    /// The server is shutting down.
    Draining,
}

/// Read-only access to a running server for `$SYS` topics and the admin listener.
pub struct ServerMonitor {
    pub(super) broker: Broker,
    pub(super) service: Arc<Service>,
    pub(super) identities: Arc<Identities>,
    phase: AtomicU8,
    started: Instant,
    pub(super) started_ms: u64,
    samples: Mutex<VecDeque<Sample>>,
    /// Held while a page is made, so that all pages together take at most the time of one processor.
    pub(super) page_turn: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    /// In the order of the rates in [`Rates`].
    sums: [u64; 5],
    /// Counts of the requests' durations.
    latencies: [u64; BUCKETS],
    memory: Memory,
}

/// Memory of what clients make the server hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub store: u64,
    pub broker: u64,
}

/// The rates over the samples before one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Time since then.
    pub age: Duration,
    /// Answered requests per second.
    pub requests: f64,
    /// Latency of the requests in microseconds; `None` if there were none.
    pub latency_us: Option<Quantiles>,
    pub memory: Memory,
}

/// Latency of requests in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    pub p50: f64,
    pub p99: f64,
}

impl Quantiles {
    /// Returns the quantiles of the durations with these counts.
    pub fn of(counts: &[u64; BUCKETS]) -> Option<Self> {
        Some(Self { p50: quantile_us(counts, 0.5)?, p99: quantile_us(counts, 0.99)? })
    }

    fn between(first: &Sample, last: &Sample) -> Option<Self> {
        let mut counts = last.latencies;
        for (count, before) in counts.iter_mut().zip(first.latencies) {
            *count = count.saturating_sub(before);
        }
        Self::of(&counts)
    }
}

/// Rates per second, over the last samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Of the requests, in microseconds.
    pub latency_us: Option<Quantiles>,
    /// Answered requests.
    pub requests: f64,
    pub packets_received: f64,
    pub packets_sent: f64,
    pub bytes_received: f64,
    pub bytes_sent: f64,
}

impl ServerMonitor {
    /// Returns the monitor of a server whose listeners are closed.
    #[must_use]
    pub fn new(broker: Broker, service: Arc<Service>) -> Self {
        let clock::Reading { wall_ms, monotonic } = clock::now();
        Self {
            broker,
            service,
            identities: Arc::default(),
            phase: AtomicU8::new(Phase::Starting as u8),
            started: monotonic,
            started_ms: wall_ms,
            samples: Mutex::default(),
            page_turn: tokio::sync::Mutex::default(),
        }
    }

    /// Shows the logins of these identities.
    #[must_use]
    pub fn with_identities(self, identities: Arc<Identities>) -> Self {
        Self { identities, ..self }
    }

    pub fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(super) fn metrics(&self) -> &Metrics {
        self.service.metrics()
    }

    /// Returns why the server should get no requests now, or None if it is healthy.
    pub(super) fn unavailable_reason(&self) -> Option<&'static str> {
        self.unfit_reason()
            .or_else(|| {
                (!self.service.is_serving()).then_some("standby: this instance does not own the store")
            })
            .or_else(|| self.is_in(Phase::Starting).then_some("starting"))
    }

    /// Returns why the server can neither answer requests nor, as a standby, take the store over; None if it can.
    pub(super) fn not_ready_reason(&self) -> Option<&'static str> {
        if let Some(reason) = self.unfit_reason() {
            return Some(reason);
        }
        if self.service.is_serving() {
            return self.is_in(Phase::Starting).then_some("starting");
        }
        // A standby of `serve` opens its listeners when it takes over.
        match self.metrics().cluster.state().status {
            Some(Status { is_reached: false, .. }) => Some("not connected with the broker"),
            Some(Status { role: Role::Owner | Role::Follower, clock_off_ms: 0, .. }) => None,
            Some(Status { role: Role::Owner | Role::Follower, .. }) => Some("the clock is off"),
            Some(Status { role: Role::Incompatible, .. }) => Some("the state in etcd is incompatible"),
            Some(Status { role: Role::Loading | Role::Closed, .. }) | None => Some("reading the state"),
        }
    }

    fn unfit_reason(&self) -> Option<&'static str> {
        if self.is_in(Phase::Draining) {
            Some("draining")
        } else if self.metrics().is_etcd_unavailable() {
            Some("etcd is unavailable")
        } else if self.metrics().is_broker_lost() {
            Some("the connection with the broker is lost")
        } else if self.service.statistics().disk.is_some_and(|disk| disk.is_short_of_room) {
            Some("the disk is full: keys can only be deleted")
        } else if self.metrics().has_disk_failed() {
            Some("the disk has failed: no write is accepted")
        } else {
            None
        }
    }

    fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }

    pub(super) fn uptime(&self) -> Duration {
        clock::monotonic().saturating_duration_since(self.started)
    }

    /// Samples the counters at intervals. Never returns.
    pub async fn run_sampling(self: Arc<Self>) {
        loop {
            self.take_sample(clock::monotonic());
            tokio::time::sleep(SAMPLE_INTERVAL).await;
        }
    }

    pub(super) fn take_sample(&self, at: Instant) {
        let metrics = self.metrics();
        let sums = [
            metrics.requests_total(),
            metrics.broker.received.packets.get(),
            metrics.broker.sent.packets.get(),
            metrics.broker.received.bytes.get(),
            metrics.broker.sent.bytes.get(),
        ];
        let latencies = metrics.latency_counts();
        let memory = Memory {
            store: self.service.statistics().store.memory_bytes,
            broker: self.broker.memory().used() as u64,
        };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_back(Sample { at, sums, latencies, memory });
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
    pub(super) fn rates(&self) -> Rates {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let first = samples.len().saturating_sub(RATE_SAMPLES);
        let (Some(first), Some(last)) = (samples.get(first), samples.back()) else { return Rates::default() };
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return Rates::default();
        }
        let mut rates =
            last.sums.iter().zip(first.sums).map(|(last, first)| last.saturating_sub(first) as f64 / seconds);
        let mut next = || rates.next().unwrap_or_default();
        Rates {
            latency_us: Quantiles::between(first, last),
            requests: next(),
            packets_received: next(),
            packets_sent: next(),
            bytes_received: next(),
            bytes_sent: next(),
        }
    }

    /// Returns the rates at each sample but the first one, the oldest first.
    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
    pub(super) fn trends(&self, now: Instant) -> Vec<Trend> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let trend = |(first, last): (&Sample, &Sample)| {
            let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
            let age = now.saturating_duration_since(last.at);
            let ([before, ..], [after, ..]) = (first.sums, last.sums);
            (seconds > 0.0 && age <= TRENDS_SPAN).then(|| Trend {
                age,
                requests: after.saturating_sub(before) as f64 / seconds,
                latency_us: Quantiles::between(first, last),
                memory: last.memory,
            })
        };
        // A window that begins with the first sample grows until it has its length.
        let missing = RATE_SAMPLES.saturating_sub(2);
        let firsts = samples.iter().take(1).cycle().take(missing).chain(samples.iter());
        firsts.zip(samples.iter().skip(1)).filter_map(trend).collect()
    }
}

impl fmt::Debug for ServerMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMonitor").field("phase", &self.phase).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{self, Hooks, Settings};
    use crate::protocol::reply::Outcome;
    use crate::server::cluster::ClusterEvent;
    use crate::server::event::Event;
    use crate::server::event::external::ExternalEvent;
    use crate::server::metrics::Verb;
    use crate::server::service::StoreSettings;

    fn monitor() -> ServerMonitor {
        let service = Service::open(StoreSettings::default(), Arc::new(|_| {}), Arc::default()).unwrap();
        let hooks = Hooks::new(Arc::<Service>::clone(&service));
        ServerMonitor::new(Broker::new(Settings::default(), hooks), service)
    }

    #[test]
    fn a_server_is_healthy_while_it_serves_and_its_disk_works() {
        let monitor = monitor();
        assert_eq!(monitor.unavailable_reason(), Some("starting"));
        assert_eq!(monitor.not_ready_reason(), Some("starting"));
        monitor.set_phase(Phase::Serving);
        assert_eq!((monitor.unavailable_reason(), monitor.not_ready_reason()), (None, None));
        monitor.metrics().count_event(&broker::Event::AcceptFailed { reason: String::new() }.into());
        assert_eq!(monitor.unavailable_reason(), None);
        monitor.metrics().count_event(&Event::NotPersisted { reason: String::new() });
        assert!(monitor.unavailable_reason().unwrap().starts_with("the disk has failed"));
        monitor.metrics().count_event(&Event::PersistedAgain);
        let target = "broker:1883".to_owned();
        let lost = ExternalEvent::Lost { target: target.clone(), reason: String::new() };
        monitor.metrics().count_event(&lost.into());
        assert_eq!(monitor.unavailable_reason(), Some("the connection with the broker is lost"));
        monitor.metrics().count_event(&ExternalEvent::Connected { target, is_resumed: true }.into());
        assert_eq!(monitor.unavailable_reason(), None);
        monitor.set_phase(Phase::Draining);
        assert_eq!(monitor.unavailable_reason(), Some("draining"));
    }

    #[test]
    fn a_standby_that_could_take_over_is_ready_and_not_healthy() {
        let service = Service::in_cluster(&StoreSettings::default(), true, Arc::new(|_| {}), Arc::default());
        let hooks = Hooks::new(Arc::<Service>::clone(&service));
        let monitor = ServerMonitor::new(Broker::new(Settings::default(), hooks), Arc::clone(&service));
        let reasons = || (monitor.not_ready_reason(), monitor.unavailable_reason());
        let standby = Some("standby: this instance does not own the store");
        assert_eq!(reasons(), (Some("reading the state"), standby));
        let status = |role, is_reached, clock_off_ms| {
            let status = Status { is_reached, clock_off_ms, ..Status::test(role) };
            monitor.metrics().cluster.set_status(status);
        };
        for (role, is_reached, clock_off_ms, reason) in [
            (Role::Follower, false, 0, Some("not connected with the broker")),
            (Role::Loading, true, 0, Some("reading the state")),
            (Role::Follower, true, 40_000, Some("the clock is off")),
            (Role::Incompatible, true, 0, Some("the state in etcd is incompatible")),
            (Role::Follower, true, 0, None),
        ] {
            status(role, is_reached, clock_off_ms);
            assert_eq!(reasons(), (reason, standby));
        }
        monitor.metrics().count_event(&ClusterEvent::EtcdUnavailable { reason: String::new() }.into());
        assert_eq!(reasons(), (Some("etcd is unavailable"), Some("etcd is unavailable")));
    }

    #[test]
    fn rates_cover_the_last_samples() {
        let monitor = monitor();
        assert_eq!(monitor.rates(), Rates::default());
        let mut now = clock::monotonic();
        for round in 0..10_u64 {
            monitor.take_sample(now);
            assert!(monitor.rates().requests <= f64::from(u32::MAX), "round {round}");
            now += Duration::from_secs(2);
            for _ in 0..6 {
                monitor.metrics().count_request(Verb::Get, Outcome::Ok, Duration::ZERO);
            }
            monitor.metrics().broker.sent.bytes.add(2_000);
        }
        let Rates { requests, bytes_sent, bytes_received, .. } = monitor.rates();
        assert_eq!((requests, bytes_sent, bytes_received), (3.0, 1_000.0, 0.0));
    }

    #[test]
    fn trends_cover_ten_minutes_in_bounded_memory() {
        let monitor = monitor();
        assert!(monitor.trends(clock::monotonic()).is_empty());
        let mut now = clock::monotonic();
        for round in 0..1_000_u64 {
            monitor.take_sample(now);
            now += SAMPLE_INTERVAL;
            for _ in 0..round % 2 {
                monitor.metrics().count_request(Verb::Get, Outcome::Ok, Duration::from_micros(8));
            }
        }
        let now = now.checked_sub(SAMPLE_INTERVAL).unwrap();
        assert_eq!(monitor.samples.lock().unwrap().len(), SAMPLES_MAX);
        let trends = monitor.trends(now);
        assert_eq!(trends.len(), 300);
        let (first, last) = (trends[0], trends[299]);
        assert_eq!((first.age, last.age), (TRENDS_SPAN - SAMPLE_INTERVAL, Duration::ZERO));
        assert_eq!((first.requests, last.requests), (0.5, 0.2), "one request in 2 s; 2 requests in 10 s");
        assert_eq!(last.requests, monitor.rates().requests);
        assert_eq!([first, last].map(|trend| trend.latency_us.map(|us| us.p50)), [Some(7.5); 2]);
        assert_eq!(monitor.trends(now + TRENDS_SPAN).len(), 1, "older samples than that are left out");
    }
}
