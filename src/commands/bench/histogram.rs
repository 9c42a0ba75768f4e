//! Histogram of latencies, with an error below 0.1 %.

use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};

use super::bands::bands;
use super::report::Latency;

/// The smallest difference of two latencies that is recorded, in nanoseconds.
const LEAST_NS: u64 = 100;
/// The greatest latency, one hour, in nanoseconds. A longer one is recorded as this.
const GREATEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Latencies of one kind of operation. Its size does not depend on their number.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
    // The histogram has rounded values.
    min: Duration,
    max: Duration,
}

impl Latencies {
    /// Creates an empty histogram.
    ///
    /// # Errors
    /// Its limits are invalid.
    pub fn new() -> Result<Self, CreationError> {
        let histogram = Histogram::new_with_bounds(LEAST_NS, GREATEST_NS, DIGITS)?;
        Ok(Self { histogram, sum_ns: 0, min: Duration::MAX, max: Duration::ZERO })
    }

    /// Records a latency `count` times.
    pub fn record(&mut self, latency: Duration, count: u64) {
        let ns = latency.as_nanos();
        self.histogram.saturating_record_n(u64::try_from(ns).unwrap_or(u64::MAX), count);
        self.sum_ns = self.sum_ns.saturating_add(ns.saturating_mul(count.into()));
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
    }

    /// Returns the latency that this part of all latencies, 0 to 1, does not exceed; None if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let value = || self.exact(self.histogram.value_at_quantile(part));
        (!self.histogram.is_empty()).then(value)
    }

    /// Returns the summary; None if no latency was recorded.
    #[must_use]
    pub fn summary(&self, name: &'static str) -> Option<Latency> {
        let count = self.histogram.len();
        let mean_ns = self.sum_ns.checked_div(count.into())?;
        let recorded = self
            .histogram
            .iter_recorded()
            .map(|at| (self.exact(at.value_iterated_to()), at.count_at_value()));
        Some(Latency {
            name,
            count,
            mean: Duration::from_nanos(u64::try_from(mean_ns).unwrap_or(u64::MAX)),
            min: self.min,
            p50: self.quantile(0.5)?,
            p90: self.quantile(0.9)?,
            p99: self.quantile(0.99)?,
            p99_9: self.quantile(0.999)?,
            max: self.max,
            bands: bands(&recorded.collect::<Vec<_>>()),
        })
    }

    /// Returns a value of the histogram within the range of the recorded latencies.
    fn exact(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns).clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new().unwrap();
        values.into_iter().for_each(|us| latencies.record(Duration::from_micros(us), 1));
        latencies
    }

    #[test]
    fn percentiles_differ_from_the_exact_ones_by_less_than_a_thousandth() {
        let summary = of(1..=100_000).summary("set").unwrap();
        let near = |latency: Duration, us: u128| {
            let difference = latency.as_micros().abs_diff(us);
            assert!(difference * 1000 <= us, "{latency:?}, not {us} µs");
        };
        near(summary.p50, 50_000);
        near(summary.p90, 90_000);
        near(summary.p99, 99_000);
        near(summary.p99_9, 99_900);
        assert_eq!((summary.min, summary.max), (Duration::from_micros(1), Duration::from_millis(100)));
        assert_eq!((summary.count, summary.mean), (100_000, Duration::from_nanos(50_000_500)));
        assert_eq!(summary.bands.iter().map(|band| band.count).sum::<u64>(), 100_000);
    }

    #[test]
    fn one_latency_is_every_percentile() {
        let summary = of([1234]).summary("get").unwrap();
        let us = Duration::from_micros(1234);
        assert_eq!(
            [summary.min, summary.p50, summary.p99, summary.p99_9, summary.max, summary.mean],
            [us; 6]
        );
        assert_eq!(of([]).summary("get"), None);
        assert_eq!(of([]).quantile(0.99), None);
    }

    #[test]
    fn a_latency_beyond_the_range_is_not_lost() {
        let mut latencies = of([1]);
        latencies.record(Duration::from_secs(7200), 3);
        latencies.record(Duration::ZERO, 1);
        let summary = latencies.summary("set").unwrap();
        assert_eq!((summary.count, summary.min, summary.max), (5, Duration::ZERO, Duration::from_secs(7200)));
        assert!(summary.p99 >= Duration::from_secs(3599));
    }
}
