//! Records of `bench`: its result and its progress.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::report::{BenchEnd, BenchProgress, BenchReport, FailureCount, Latency, Limit};
use super::text;
use crate::render::duration::ms_text;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths};

/// The result as an object.
#[derive(Serialize)]
#[serde(tag = "op", rename = "bench")]
struct Object<'a> {
    workload: &'static str,
    broker: &'a str,
    clients: u32,
    inflight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    #[serde(flatten)]
    limit: Limit,
    #[serde(rename = "warmup_ms", serialize_with = "json::ms")]
    warmup: Duration,
    keys: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(flatten, serialize_with = "json::prefix")]
    prefix: &'a Vec<u8>,
    end: &'static str,
    #[serde(rename = "elapsed_ms", serialize_with = "json::ms")]
    elapsed: Duration,
    answered: u64,
    per_second: u64,
    failed: u64,
    unanswered: u64,
    #[serde(flatten)]
    rated: Option<Rated>,
    failures: Vec<FailureObject<'a>>,
    latency: Latencies<'a>,
    receive_max: u16,
    inflight_met: bool,
    #[serde(rename = "max_p99_ms", skip_serializing_if = "Option::is_none", serialize_with = "json::ms")]
    max_p99: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_met: Option<bool>,
    keys_deleted: bool,
    #[serde(rename = "keys_left_because", skip_serializing_if = "Option::is_none")]
    keys_left: Option<&'a str>,
}

/// How a rate was met.
#[derive(Serialize)]
struct Rated {
    due: u64,
    unsent: u64,
    late: u64,
    rate_met: bool,
}

#[derive(Serialize)]
struct FailureObject<'a> {
    kind: &'static str,
    message: &'a str,
    count: u64,
}

/// One member for each latency, in their order.
struct Latencies<'a>(&'a [Latency]);

impl Serialize for Latencies<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|latency| members.serialize_entry(latency.name, latency))?;
        members.end()
    }
}

impl<'a> From<&'a BenchReport> for Object<'a> {
    fn from(report: &'a BenchReport) -> Self {
        let BenchReport { broker, settings, receive_max, measured, keys_left } = report;
        let failure = |FailureCount { failure, count }: &'a FailureCount| FailureObject {
            kind: failure.kind(),
            message: failure.message(),
            count: *count,
        };
        Self {
            workload: settings.workload.name(),
            broker,
            clients: settings.clients,
            inflight: settings.inflight,
            rate: settings.rate,
            limit: settings.limit,
            warmup: settings.warmup,
            keys: settings.keys,
            size: settings.size,
            prefix: &settings.prefix,
            end: match measured.end {
                BenchEnd::Done => "done",
                BenchEnd::Interrupted => "interrupted",
                BenchEnd::Unanswered => "unanswered",
                BenchEnd::Failed(_) => "failed",
            },
            elapsed: measured.elapsed,
            answered: measured.answered,
            per_second: measured.per_second(),
            failed: measured.failed(),
            unanswered: measured.unanswered,
            rated: settings.rate.map(|_| Rated {
                due: measured.due,
                unsent: measured.unsent,
                late: measured.late,
                rate_met: measured.is_rate_met(),
            }),
            failures: measured.failures.iter().map(failure).collect(),
            latency: Latencies(&measured.latencies),
            receive_max: *receive_max,
            inflight_met: report.is_inflight_met(),
            max_p99: settings.max_p99,
            p99_met: report.is_p99_met(),
            keys_deleted: keys_left.is_none(),
            keys_left: keys_left.as_deref(),
        }
    }
}

impl Record for BenchReport {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(&Object::from(self))
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        text::text(self, style)
    }
}

impl fmt::Display for BenchProgress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p99 = self.p99.map_or_else(String::new, |p99| format!("  p99 {}", ms_text(p99)));
        let failed = if self.failed == 0 { String::new() } else { format!("  {} failed", self.failed) };
        let warmup = if self.is_warmup { "  warm-up" } else { "" };
        write!(out, "{}/s{p99}{failed}{warmup}", self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_has_its_rate_its_latency_and_its_failures() {
        let p99 = Some(Duration::from_micros(1234));
        let progress =
            BenchProgress { done: 3000, total: 10_000, is_warmup: false, per_second: 12_345, p99, failed: 0 };
        assert_eq!(progress.to_string(), "12345/s  p99 1.2 ms");
        let warmup = BenchProgress { is_warmup: true, p99: None, failed: 2, ..progress };
        assert_eq!(warmup.to_string(), "12345/s  2 failed  warm-up");
    }
}
