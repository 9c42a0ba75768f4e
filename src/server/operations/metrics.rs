//! What is counted while the server works: relaxed atomics, no lock, so that counting costs a request next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::broker::counters::{Counter, Counters};

/// The bounds of the histograms' buckets, in microseconds; one more bucket has no bound.
pub const BOUNDS_US: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000,
];

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verb {
    /// SET.
    Set,
    /// GET.
    Get,
    /// DEL.
    Del,
    /// VDEL.
    VDel,
    /// KEYNOTIFY, also to stop.
    KeyNotify,
    /// SCAN.
    Scan,
    /// What is no request.
    #[default]
    Unknown,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Set, Self::Get, Self::Del, Self::VDel, Self::KeyNotify, Self::Scan, Self::Unknown];

    /// Its name, in lower case.
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

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, found, deleted.
    Ok,
    /// Not applied, not found, nothing deleted.
    No,
    /// Answered with an error.
    Refused,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ok, Self::No, Self::Refused];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::No => "no",
            Self::Refused => "refused",
        }
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By the first bound that is not exceeded; what exceeds all of them is in the last one.
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_ns: Counter,
}

impl Histogram {
    /// Counts one that took this long.
    pub fn observe(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum_ns.add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many took at most each of the bounds, and last how many there were.
    #[must_use]
    pub fn cumulative(&self) -> Vec<u64> {
        let sum = |sum: &mut u64, bucket: &Counter| {
            *sum = sum.saturating_add(bucket.get());
            Some(*sum)
        };
        self.buckets.iter().scan(0, sum).collect()
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.cumulative().last().copied().unwrap_or(0)
    }

    /// How long they took together, in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a sum of times need not be exact")]
    pub fn sum_s(&self) -> f64 {
        self.sum_ns.get() as f64 / 1e9
    }
}

/// All that one server counts.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: [[Counter; Outcome::ALL.len()]; Verb::ALL.len()],
    latencies: [Histogram; Verb::ALL.len()],
    /// What the commits to the disk took.
    pub commits: Histogram,
    /// The traffic of the broker.
    pub broker: Arc<Counters>,
    /// Connections that were not let in.
    pub refused: Counter,
    /// What the rules did not let clients do.
    pub not_authorized: Counter,
    /// Messages that did not reach whom they were for.
    pub dropped: Counter,
    /// Requests that nothing could be answered to.
    pub unanswerable: Counter,
    /// Whether the disk takes no write any more.
    pub has_disk_failed: AtomicBool,
}

impl Metrics {
    /// Counts a request that was answered, from when it was taken out of its connection's input until its answer was
    /// put into the queue of whoever asked: the wait for the disk is within, the network is not.
    pub fn count_request(&self, verb: Verb, outcome: Outcome, took: Duration) {
        if let Some(counter) = self.requests.get(verb as usize).and_then(|of| of.get(outcome as usize)) {
            counter.add(1);
        }
        if let Some(histogram) = self.latencies.get(verb as usize) {
            histogram.observe(took);
        }
    }

    /// How many requests of a kind came to this.
    #[must_use]
    pub fn requests(&self, verb: Verb, outcome: Outcome) -> u64 {
        self.requests.get(verb as usize).and_then(|of| of.get(outcome as usize)).map_or(0, Counter::get)
    }

    /// How many requests were answered.
    #[must_use]
    pub fn requests_of_all_kinds(&self) -> u64 {
        self.requests.iter().flatten().map(Counter::get).fold(0, u64::saturating_add)
    }

    /// What requests of a kind took.
    #[must_use]
    pub fn latency(&self, verb: Verb) -> Option<&Histogram> {
        self.latencies.get(verb as usize)
    }

    /// Whether the disk takes no write any more.
    #[must_use]
    pub fn has_disk_failed(&self) -> bool {
        self.has_disk_failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for us in [0, 50, 51, 2_500_000, 2_500_001] {
            histogram.observe(Duration::from_micros(us));
        }
        let cumulative = histogram.cumulative();
        assert_eq!((cumulative[0], cumulative[1], cumulative[14], cumulative[15]), (2, 3, 4, 5));
        assert_eq!(histogram.count(), 5);
        assert!((histogram.sum_s() - 5.000_102).abs() < 1e-9);
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
        assert_eq!(metrics.requests_of_all_kinds(), 3);
        assert_eq!(metrics.latency(Verb::Set).map(Histogram::count), Some(2));
    }

    #[test]
    fn the_place_of_a_verb_and_of_an_outcome_is_its_own() {
        for (at, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, at);
        }
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
    }
}
