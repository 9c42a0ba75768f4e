//! Counters and histograms: relaxed atomics without a lock, so that counting costs a request next to nothing.

pub mod cluster;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::cluster::ClusterMetrics;
use crate::broker;
use crate::broker::counters::{Counter, Counters};
use crate::exchange::effects;
use crate::exchange::frame::Reason;
use crate::protocol::reply::Outcome;
use crate::server::cluster::ClusterEvent;
use crate::server::event::Event;
use crate::server::event::exchange::{EXCHANGE_EVENTS, ExchangeEvent};
use crate::server::event::external::ExternalEvent;

/// The upper bounds of the histograms' buckets, in microseconds. One more bucket has no bound.
pub const BOUNDS_US: [u64; 18] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000,
];

/// The number of buckets of a histogram.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The command of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    Set,
    Get,
    Del,
    VDel,
    /// KEYNOTIFY and KEYNOTIFY STOP.
    KeyNotify,
    Scan,
    /// An invalid request.
    #[default]
    Unknown,
}

impl Verb {
    pub const ALL: [Self; 7] =
        [Self::Set, Self::Get, Self::Del, Self::VDel, Self::KeyNotify, Self::Scan, Self::Unknown];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Del => "del",
            Self::VDel => "vdel",
            Self::KeyNotify => "keynotify",
            Self::Scan => "scan",
            Self::Unknown => "unknown",
        }
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Counts by the first bound that is not exceeded; the last bucket has the rest.
    buckets: [Counter; BUCKETS],
    sum_ns: Counter,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        // u64 nanoseconds are 584 years: neither conversion fails for a measured time.
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum_ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Returns for each bound how many durations do not exceed it, and last the number of all durations.
    #[must_use]
    pub fn cumulative(&self) -> Vec<u64> {
        let sum = |sum: &mut u64, bucket: &Counter| {
            *sum = sum.saturating_add(bucket.get());
            Some(*sum)
        };
        self.buckets.iter().scan(0, sum).collect()
    }

    /// Returns the counts of the buckets.
    #[must_use]
    pub fn counts(&self) -> [u64; BUCKETS] {
        self.buckets.each_ref().map(Counter::get)
    }

    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative().last().copied().unwrap_or(0)
    }

    /// Returns the sum of the durations, in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a sum of times need not be exact")]
    pub fn sum_s(&self) -> f64 {
        self.sum_ns.get() as f64 / 1e9
    }
}

/// Returns a quantile of durations in microseconds, given the counts of a histogram's buckets; `None` if there are none.
///
/// Durations are assumed to be spread evenly within a bucket, as by Prometheus. Those above the last bound count as equal
/// to it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "an estimate need not be exact")]
pub fn quantile_us(counts: &[u64; BUCKETS], quantile: f64) -> Option<f64> {
    let total: u64 = counts.iter().copied().fold(0, u64::saturating_add);
    if total == 0 {
        return None;
    }
    let rank = quantile * total as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (count, bound) in counts.iter().zip(BOUNDS_US) {
        let (count, upper) = (*count as f64, bound as f64);
        if count > 0.0 && below + count >= rank {
            return Some(lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
        lower = upper;
    }
    Some(lower)
}

/// The counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: [[Counter; Outcome::ALL.len()]; Verb::ALL.len()],
    latencies: [Histogram; Verb::ALL.len()],
    /// Durations of the commits to the disk, or to etcd.
    pub commits: Histogram,
    pub broker: Arc<Counters>,
    /// Rejected connections.
    pub refused: Counter,
    /// Actions of clients that the rules did not allow.
    pub not_authorized: Counter,
    /// Log events about dropped messages.
    pub dropped: Counter,
    /// Requests that could not be answered.
    pub unanswerable: Counter,
    exchange_events: [Counter; EXCHANGE_EVENTS.len()],
    conflicts: [Counter; Reason::ALL.len()],
    pub snapshots_failed: Counter,
    /// Whether the disk has failed, so that no write is accepted.
    pub has_disk_failed: AtomicBool,
    /// Whether the connection with an external broker is lost.
    is_broker_lost: AtomicBool,
    is_etcd_unavailable: AtomicBool,
    pub cluster: ClusterMetrics,
}

impl Metrics {
    /// Counts an answered request. `took` is the time from decoding the request to queueing the reply: it includes the wait for
    /// the disk, but not the network.
    pub fn count_request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        if let Some(counter) = self.requests.get(verb as usize).and_then(|of| of.get(outcome as usize)) {
            counter.add(1);
        }
        if let Some(histogram) = self.latencies.get(verb as usize) {
            histogram.observe(took);
        }
    }

    /// Returns the number of requests with this verb and outcome.
    #[must_use]
    pub fn requests(&self, verb: Verb, outcome: Outcome) -> u64 {
        self.requests.get(verb as usize).and_then(|of| of.get(outcome as usize)).map_or(0, Counter::get)
    }

    /// Returns the number of all answered requests.
    #[must_use]
    pub fn requests_total(&self) -> u64 {
        self.requests.iter().flatten().map(Counter::get).fold(0, u64::saturating_add)
    }

    /// Returns the counts of the buckets of all requests' durations.
    #[must_use]
    pub fn latency_counts(&self) -> [u64; BUCKETS] {
        let mut sums = [0; BUCKETS];
        for histogram in &self.latencies {
            for (sum, count) in sums.iter_mut().zip(histogram.counts()) {
                *sum = count.saturating_add(*sum);
            }
        }
        sums
    }

    /// Returns the durations of the requests with this verb.
    #[must_use]
    pub fn latency(&self, verb: Verb) -> Option<&Histogram> {
        self.latencies.get(verb as usize)
    }

    #[must_use]
    pub fn has_disk_failed(&self) -> bool {
        self.has_disk_failed.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_broker_lost(&self) -> bool {
        self.is_broker_lost.load(Ordering::Relaxed)
    }

    /// Whether the state is in etcd, and etcd does not answer.
    #[must_use]
    pub fn is_etcd_unavailable(&self) -> bool {
        self.is_etcd_unavailable.load(Ordering::Relaxed)
    }

    /// Counts an event of the log, if there is a metric for it.
    pub fn count_event(&self, event: &Event) {
        if let Event::Cluster(event) = event {
            self.cluster.count_event(event);
        }
        match event {
            Event::Broker(event) => self.count_broker_event(event),
            Event::KeyNotAuthorized { .. } => self.not_authorized.add(1),
            Event::Unanswerable { .. } => self.unanswerable.add(1),
            Event::SnapshotFailed { .. } => self.snapshots_failed.add(1),
            Event::NotPersisted { .. } => self.has_disk_failed.store(true, Ordering::Relaxed),
            Event::PersistedAgain => self.has_disk_failed.store(false, Ordering::Relaxed),
            Event::Exchange(_) => self.count_exchange_event(event),
            Event::External(ExternalEvent::Dropped { .. }) => self.dropped.add(1),
            Event::External(ExternalEvent::NoClient { .. }) => self.unanswerable.add(1),
            Event::External(ExternalEvent::Lost { .. }) => self.is_broker_lost.store(true, Ordering::Relaxed),
            Event::External(ExternalEvent::Connected { .. }) => {
                self.is_broker_lost.store(false, Ordering::Relaxed);
            }
            Event::Cluster(ClusterEvent::EtcdUnavailable { .. }) => {
                self.is_etcd_unavailable.store(true, Ordering::Relaxed);
            }
            Event::Cluster(ClusterEvent::EtcdAvailable) => {
                self.is_etcd_unavailable.store(false, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn count_broker_event(&self, event: &broker::Event) {
        match event {
            broker::Event::Denied { .. } | broker::Event::Refused { .. } => self.refused.add(1),
            broker::Event::NotAuthorized { .. } => self.not_authorized.add(1),
            broker::Event::Dropped { .. } | broker::Event::NotRetained { .. } => self.dropped.add(1),
            _ => {}
        }
    }

    fn count_exchange_event(&self, event: &Event) {
        let name = event.row().name;
        if let Some((_, counter)) =
            EXCHANGE_EVENTS.iter().zip(&self.exchange_events).find(|(of, _)| **of == name)
        {
            counter.add(1);
        }
        if let Event::Exchange(ExchangeEvent::Link(effects::Event::Conflict { conflict, .. })) = event
            && let Some(counter) = self.conflicts.get(conflict.reason as usize)
        {
            counter.add(1);
        }
    }

    /// Returns the number of events of an exchange by their names.
    pub fn each_exchange_event(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        EXCHANGE_EVENTS.into_iter().zip(self.exchange_events.iter().map(Counter::get))
    }

    /// Returns the number of conflicts of an exchange by their reasons.
    pub fn each_conflict(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().zip(self.conflicts.iter().map(Counter::get))
    }

    /// Returns the number of requests for each verb and outcome.
    pub fn each_request(&self) -> impl Iterator<Item = (Verb, Outcome, u64)> + '_ {
        Verb::ALL.into_iter().flat_map(move |verb| {
            Outcome::ALL.into_iter().map(move |outcome| (verb, outcome, self.requests(verb, outcome)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::names::{ChangeId, Name};
    use crate::exchange::row::Conflict;
    use crate::protocol::Key;

    #[test]
    fn a_duration_equal_to_a_bound_is_in_its_bucket() {
        let histogram = Histogram::default();
        for us in [0, 5, 6, 2_500_000, 2_500_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let cumulative = histogram.cumulative();
        assert_eq!((cumulative[0], cumulative[1], cumulative[17], cumulative[18]), (2, 3, 4, 5));
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum_s() - 5.000_012).abs() < 1e-9);
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let histogram = Histogram::default();
        assert_eq!(quantile_us(&histogram.counts(), 0.5), None);
        for us in [60, 70, 80, 90] {
            histogram.observe(Duration::from_micros(us));
        }
        let of = |quantile| quantile_us(&histogram.counts(), quantile).unwrap();
        assert!((of(0.5) - 75.0).abs() < 1e-9 && (of(0.99) - 99.5).abs() < 1e-9, "{} {}", of(0.5), of(0.99));
        histogram.observe(Duration::from_secs(60));
        assert!((quantile_us(&histogram.counts(), 0.99).unwrap() - 2.5e6).abs() < 1e-9);
    }

    #[test]
    fn requests_are_counted_by_verb_and_outcome() {
        let metrics = Metrics::default();
        for (verb, outcome) in
            [(Verb::Set, Outcome::Ok), (Verb::Set, Outcome::Ok), (Verb::Unknown, Outcome::Refused)]
        {
            metrics.count_request(verb, outcome, Duration::from_micros(60));
        }
        assert_eq!(metrics.requests(Verb::Set, Outcome::Ok), 2);
        assert_eq!(metrics.requests(Verb::Set, Outcome::No), 0);
        assert_eq!(metrics.requests(Verb::Unknown, Outcome::Refused), 1);
        assert_eq!(metrics.requests_total(), 3);
        assert_eq!(metrics.latency(Verb::Set).map(Histogram::count), Some(2));
    }

    #[test]
    fn conflicts_are_counted_by_their_reasons_and_events_by_their_names() {
        let metrics = Metrics::default();
        for (reason, count) in Reason::ALL.into_iter().zip(1..) {
            let conflict = Conflict {
                key: Key::new("k").unwrap(),
                leaf: Name::new("press-7").unwrap(),
                change_id: ChangeId::NIL,
                reason,
                lost: crate::exchange::row::LostContent::Deletion,
                winner: 0,
                owner: None,
                at_ms: 0,
            };
            let event = Event::Exchange(ExchangeEvent::Link(effects::Event::Conflict { id: 1, conflict }));
            (0..count).for_each(|_| metrics.count_event(&event));
        }
        let expected: Vec<_> = Reason::ALL.into_iter().zip(1..).collect();
        assert_eq!(metrics.each_conflict().collect::<Vec<_>>(), expected);
        let events: Vec<_> = metrics.each_exchange_event().filter(|(_, count)| *count > 0).collect();
        assert_eq!(events, [("exchange-conflict", 21)]);
    }

    #[test]
    fn verbs_and_outcomes_are_listed_in_the_order_of_their_indexes() {
        for (at, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, at);
        }
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }
}
