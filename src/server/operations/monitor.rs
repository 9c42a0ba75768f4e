//! State of a running server: phase, health and rates.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::metrics::Metrics;
use crate::broker::Broker;
use crate::clock;
use crate::server::identity::Identities;
use crate::server::service::Service;

/// Interval between samples of the counters.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of samples that a rate is computed over.
const SAMPLES_MAX: usize = 6;

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
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    /// In the order of the fields of [`Rates`].
    sums: [u64; 5],
}

/// Rates per second, over the last samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
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
        let phase = self.phase.load(Ordering::Acquire);
        if phase == Phase::Starting as u8 {
            Some("starting")
        } else if phase == Phase::Draining as u8 {
            Some("draining")
        } else if self.metrics().has_disk_failed() {
            Some("the disk has failed: no write is accepted")
        } else {
            None
        }
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

    fn take_sample(&self, at: Instant) {
        let metrics = self.metrics();
        let sums = [
            metrics.requests_total(),
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

    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
    pub(super) fn rates(&self) -> Rates {
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

impl fmt::Debug for ServerMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMonitor").field("phase", &self.phase).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{self, Hooks, Settings};
    use crate::server::event::Event;
    use crate::server::operations::metrics::{Outcome, Verb};
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
        monitor.set_phase(Phase::Serving);
        assert_eq!(monitor.unavailable_reason(), None);
        monitor.metrics().count_event(&broker::Event::AcceptFailed { reason: String::new() }.into());
        assert_eq!(monitor.unavailable_reason(), None);
        monitor.metrics().count_event(&Event::NotPersisted { reason: String::new() });
        assert!(monitor.unavailable_reason().unwrap().starts_with("the disk has failed"));
        monitor.set_phase(Phase::Draining);
        assert_eq!(monitor.unavailable_reason(), Some("draining"));
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
}
