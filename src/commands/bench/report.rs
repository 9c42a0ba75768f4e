//! The result of a bench, as data (pure).

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::commands::duration;
use crate::commands::error::{CommandError, Kind};
use crate::render::json;

/// What an operation of a bench does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Set a key
    Set,
    /// Get a key
    Get,
    /// Get and set, half each
    Mix,
    /// Acquire and release a lock
    Lock,
    /// Set a key, receive its notification
    Watch,
}

impl Workload {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Get => "get",
            Self::Mix => "mix",
            Self::Lock => "lock",
            Self::Watch => "watch",
        }
    }

    /// Returns the names of the measured latencies. The first is that of the whole operation.
    #[must_use]
    pub fn latencies(self) -> &'static [&'static str] {
        match self {
            Self::Set => &["set"],
            Self::Get => &["get"],
            Self::Mix => &["mix", "get", "set"],
            Self::Lock => &["lock", "acquire", "release"],
            Self::Watch => &["watch", "set"],
        }
    }

    /// Returns whether all clients use the same keys. Otherwise each request in flight has a key of its own.
    #[must_use]
    pub fn shares_keys(self) -> bool {
        matches!(self, Self::Set | Self::Get | Self::Mix)
    }
}

/// When a bench ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Limit {
    /// After this time.
    #[serde(rename = "duration_ms", serialize_with = "json::ms")]
    Time(Duration),
    /// After this number of measured operations.
    #[serde(rename = "count")]
    Count(u64),
}

/// The settings in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchSettings {
    pub workload: Workload,
    pub limit: Limit,
    pub warmup: Duration,
    pub clients: u32,
    /// Operations in flight per client.
    pub inflight: u32,
    /// Whether a smaller Receive Maximum of the broker replaces `inflight`.
    pub adapts_inflight: bool,
    /// Operations per second, of all clients together. None: each one follows the one before it.
    pub rate: Option<u32>,
    /// The size of a value in bytes; None for locks.
    pub size: Option<u64>,
    pub keys: u32,
    pub max_p99: Option<Duration>,
    /// The beginning of all keys, different in each run.
    pub prefix: Vec<u8>,
    /// The time to live of the keys.
    pub ttl: Duration,
}

/// Why a bench has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchEnd {
    /// The limit was reached.
    Done,
    /// By a signal.
    Interrupted,
    /// No operation was answered within the time limit of a request.
    Unanswered,
    /// By an error after which no operation can succeed.
    Failed(CommandError),
}

/// A cause for which operations failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureCount {
    pub failure: Failure,
    pub count: u64,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The store's answer was no.
    No(&'static str),
    Error(CommandError),
}

impl Failure {
    /// Returns the kind's name.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::No(_) => "no",
            Self::Error(error) => error.kind.name(),
        }
    }

    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::No(message) => message,
            Self::Error(error) => &error.message,
        }
    }

    pub(super) fn is_timeout(&self) -> bool {
        matches!(self, Self::Error(error) if error.kind == Kind::Timeout)
    }

    /// Returns whether later operations of the same client would fail, too.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Error(error) if error.kind == Kind::Unavailable)
    }
}

/// Latencies of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    #[serde(skip)]
    pub name: &'static str,
    pub count: u64,
    #[serde(rename = "mean_ms", serialize_with = "json::ms")]
    pub mean: Duration,
    #[serde(rename = "min_ms", serialize_with = "json::ms")]
    pub min: Duration,
    #[serde(rename = "p50_ms", serialize_with = "json::ms")]
    pub p50: Duration,
    #[serde(rename = "p90_ms", serialize_with = "json::ms")]
    pub p90: Duration,
    #[serde(rename = "p99_ms", serialize_with = "json::ms")]
    pub p99: Duration,
    #[serde(rename = "p99_9_ms", serialize_with = "json::ms")]
    pub p99_9: Duration,
    #[serde(rename = "max_ms", serialize_with = "json::ms")]
    pub max: Duration,
    /// The distribution, in ascending order.
    pub bands: Vec<Band>,
}

/// The number of latencies above the limit of the band before and up to this limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Band {
    #[serde(rename = "to_ms", serialize_with = "json::ms")]
    pub to: Duration,
    pub count: u64,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From the end of the warm-up to the last answer.
    pub elapsed: Duration,
    /// Measured operations that succeeded.
    pub answered: u64,
    /// Operations that failed, also during the warm-up.
    pub failures: Vec<FailureCount>,
    /// Operations that were due before the end and were not sent.
    pub unsent: u64,
    /// Operations that were sent too late for the rate.
    pub late: u64,
    /// Operations without an answer when a signal or an error ended the run.
    pub unanswered: u64,
    /// Measured operations that were due.
    pub due: u64,
    pub latencies: Vec<Latency>,
    pub end: BenchEnd,
}

impl BenchSettings {
    /// Handles the broker's Receive Maximum.
    pub(super) fn handle_receive_max(&mut self, receive_max: u16) {
        if self.adapts_inflight {
            self.inflight = self.inflight.min(receive_max.into());
        }
        if !self.workload.shares_keys() {
            self.keys = self.clients.saturating_mul(self.inflight);
        }
    }

    /// Returns the message that keys may be left for this cause.
    #[must_use]
    pub fn keys_left_message(&self, cause: &str) -> String {
        let (prefix, ttl) = (String::from_utf8_lossy(&self.prefix), duration::text(self.ttl));
        format!("keys {prefix}* may be left: {cause}; they expire within {ttl}")
    }
}

impl Measured {
    /// Returns the number of operations that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.iter().fold(0, |sum, failure| sum.saturating_add(failure.count))
    }

    /// Returns the number of answered operations per second, rounded down.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let count = u128::from(self.answered).saturating_mul(1_000_000_000);
        u64::try_from(count.checked_div(self.elapsed.as_nanos()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// Returns whether operations were sent at the rate: at most one in a hundred was not.
    #[must_use]
    pub fn is_rate_met(&self) -> bool {
        self.unsent.saturating_add(self.late).saturating_mul(100) <= self.due
    }

    /// Returns the latencies of whole operations; None if there are none.
    #[must_use]
    pub fn whole(&self) -> Option<&Latency> {
        self.latencies.first()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchReport {
    /// The broker's address.
    pub broker: String,
    pub settings: BenchSettings,
    /// The broker's Receive Maximum: the most requests of a client without a PUBACK.
    pub receive_max: u16,
    pub measured: Measured,
    /// Why keys may be left; None if all were deleted.
    pub keys_left: Option<String>,
}

impl BenchReport {
    /// Returns whether the broker accepts as many requests of a client as are in flight. Further ones wait in the client.
    #[must_use]
    pub fn is_inflight_met(&self) -> bool {
        self.settings.inflight <= self.receive_max.into()
    }

    /// Returns whether the 99th percentile is within `--max-p99`; None without that option.
    #[must_use]
    pub fn is_p99_met(&self) -> Option<bool> {
        let max = self.settings.max_p99?;
        Some(self.measured.whole().is_some_and(|latency| latency.p99 <= max))
    }
}

/// The progress of a bench; replaces the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchProgress {
    /// The part of the limit that is reached: milliseconds or operations.
    pub done: u64,
    pub total: u64,
    pub is_warmup: bool,
    /// Operations per second since the previous progress.
    pub per_second: u64,
    /// None before the first measured operation.
    pub p99: Option<Duration>,
    pub failed: u64,
}
