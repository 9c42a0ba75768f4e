//! The load of a bench as a state machine: which operation starts when, what is in flight, what was measured (pure).

use std::time::{Duration, Instant};

use super::histogram::Latencies;
use super::report::{BenchEnd, Failure, FailureCount, Limit, Measured, Workload};

/// How late an operation may be sent after the end: it was due before, and timers are not exact.
const GRACE: Duration = Duration::from_millis(10);
/// The most causes of failures that are counted separately. Further ones are counted with the first of their kind.
const CAUSES_MAX: usize = 16;
/// The most steps in which the waiting times of unsent operations are recorded.
const UNSENT_STEPS_MAX: u64 = 10_000;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub limit: Limit,
    pub warmup: Duration,
    /// Operations per second. None: each one follows the one before it.
    pub rate: Option<u32>,
}

/// An operation that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Counts from 0.
    pub number: u64,
    /// When it was due; its latency counts from then.
    pub due: Instant,
    sent: Instant,
    is_measured: bool,
}

/// What a slot is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Send(Operation),
    /// No operation is due.
    Wait,
    /// No operation will be due any more.
    Done,
}

/// A load of operations.
///
/// Contract: each slot has one operation in flight at most. It asks for one with [`Load::next`] and reports its result before it
/// asks again. With a rate, the owner calls [`Load::poll_due`] at the time that it has returned, and wakes as many waiting slots
/// as operations have become due.
///
/// With a rate, an operation is due at its time whether or not a slot is free, and its latency counts from then: a store that
/// stalls delays all operations that are due meanwhile, and all these delays are measured. Operations without an answer count
/// with the time that they have waited. Operations of the warm-up that were not sent by its end are dropped.
#[derive(Debug)]
pub struct Load {
    plan: Plan,
    begun: Instant,
    /// The end of the warm-up.
    measured_from: Instant,
    /// The end, if the limit is a time.
    until: Option<Instant>,
    /// The number of operations, where it is known before.
    total: Option<u64>,
    /// The number of the next operation.
    next: u64,
    /// The number of operations that [`Load::poll_due`] has reported.
    reported: u64,
    /// The operation of each slot.
    in_flight: Vec<Option<Operation>>,
    stopped: Option<(Instant, BenchEnd)>,
    /// When the store last answered.
    answered_at: Option<Instant>,
    /// The end of the last measured operation.
    ended_at: Option<Instant>,
    measured: u64,
    answered: u64,
    finished: u64,
    late: u64,
    failures: Vec<FailureCount>,
    names: &'static [&'static str],
    latencies: Vec<Latencies>,
}

impl Load {
    /// Starts a load with this number of slots; `empty` is an empty histogram.
    #[must_use]
    pub fn new(plan: Plan, workload: Workload, slots: usize, empty: &Latencies, now: Instant) -> Self {
        let measured_from = after(now, plan.warmup);
        let total = plan.rate.map(|rate| match plan.limit {
            Limit::Time(time) => due_within(plan.warmup.saturating_add(time), rate),
            Limit::Count(count) => due_within(plan.warmup, rate).saturating_add(count),
        });
        let names = workload.latencies();
        Self {
            plan,
            begun: now,
            measured_from,
            until: match plan.limit {
                Limit::Time(time) => Some(after(measured_from, time)),
                Limit::Count(_) => None,
            },
            total,
            next: 0,
            reported: 0,
            in_flight: vec![None; slots],
            stopped: None,
            answered_at: None,
            ended_at: None,
            measured: 0,
            answered: 0,
            finished: 0,
            late: 0,
            failures: Vec::new(),
            names,
            latencies: vec![empty.clone(); names.len()],
        }
    }

    /// Returns what a free slot is to do.
    pub fn next(&mut self, slot: usize, now: Instant) -> Next {
        if self.stopped.is_some() || self.total.is_some_and(|total| self.next >= total) {
            return Next::Done;
        }
        let due = match self.plan.rate {
            Some(rate) => {
                if now >= self.measured_from {
                    // Otherwise a rate that is too high would measure nothing: the backlog of the warm-up would come first.
                    self.next = self.next.max(due_within(self.plan.warmup, rate));
                }
                self.due(self.next, rate)
            }
            None => now,
        };
        if due > now {
            return Next::Wait;
        }
        let grace = if self.plan.rate.is_some() { GRACE } else { Duration::ZERO };
        if self.until.is_some_and(|until| now >= after(until, grace)) {
            return Next::Done;
        }
        let is_measured = due >= self.measured_from;
        if is_measured {
            if matches!(self.plan.limit, Limit::Count(count) if self.measured >= count) {
                return Next::Done;
            }
            self.measured = self.measured.saturating_add(1);
            let end = self.total.zip(self.plan.rate).map(|(total, rate)| self.due(total, rate));
            self.late = self.late.saturating_add(u64::from(end.is_some_and(|end| now > after(end, GRACE))));
        }
        let operation = Operation { number: self.next, due, sent: now, is_measured };
        self.next = self.next.saturating_add(1);
        if let Some(in_flight) = self.in_flight.get_mut(slot) {
            *in_flight = Some(operation);
        }
        Next::Send(operation)
    }

    /// Returns the number of operations that have become due since the last call, and when the next one is due; None if there
    /// is no further one.
    pub fn poll_due(&mut self, now: Instant) -> (u64, Option<Instant>) {
        let Some((rate, total)) = self.plan.rate.zip(self.total).filter(|_| self.stopped.is_none()) else {
            return (0, None);
        };
        // One more than those that were due before: the time itself counts.
        let elapsed = now.saturating_duration_since(self.begun).saturating_add(Duration::from_nanos(1));
        let due = due_within(elapsed, rate).min(total);
        let new = due.saturating_sub(self.reported);
        self.reported = self.reported.max(due);
        (new, (self.reported < total).then(|| self.due(self.reported, rate)))
    }

    /// Handles the end of a slot's operation at `at`; `parts` are the latencies of its parts, each with its index among
    /// [`Workload::latencies`].
    pub fn handle_answer(&mut self, slot: usize, at: Instant, parts: &[(usize, Duration)]) {
        let Some(operation) = self.take(slot) else { return };
        self.answered_at = self.answered_at.max(Some(at));
        if !operation.is_measured {
            return;
        }
        self.answered = self.answered.saturating_add(1);
        self.record(0, at.saturating_duration_since(operation.due), 1);
        parts.iter().for_each(|(part, latency)| self.record(*part, *latency, 1));
        self.ended_at = self.ended_at.max(Some(at));
    }

    /// Handles the failure of a slot's operation.
    pub fn handle_failure(&mut self, slot: usize, at: Instant, failure: Failure) {
        let Some(operation) = self.take(slot) else { return };
        if failure.is_timeout() {
            if self.answered_at.is_none_or(|answered| answered <= operation.sent) {
                self.stop(BenchEnd::Unanswered, at);
            }
            if operation.is_measured {
                self.record(0, at.saturating_duration_since(operation.due), 1);
            }
        } else if failure.is_final() {
            // The failures of this connection are counted, no new ones are added.
            if let Failure::Error(error) = &failure {
                self.stop(BenchEnd::Failed(error.clone()), at);
            }
        } else {
            self.answered_at = self.answered_at.max(Some(at));
        }
        if operation.is_measured {
            self.ended_at = self.ended_at.max(Some(at));
        }
        self.count(failure);
    }

    /// Ends the load; the first cause counts. Operations in flight are still measured.
    pub fn stop(&mut self, end: BenchEnd, now: Instant) {
        self.stopped.get_or_insert((now, end));
    }

    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns the part of the limit that is reached, and the limit: milliseconds or operations.
    #[must_use]
    pub fn progress(&self, now: Instant) -> (u64, u64) {
        match self.plan.limit {
            Limit::Count(count) => (self.answered.min(count), count),
            Limit::Time(time) => {
                let total = self.plan.warmup.saturating_add(time);
                let done = now.saturating_duration_since(self.begun).min(total);
                (milliseconds(done), milliseconds(total))
            }
        }
    }

    #[must_use]
    pub fn is_warmup(&self, now: Instant) -> bool {
        now < self.measured_from
    }

    /// Returns the number of operations that have ended, also during the warm-up and by a failure.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished
    }

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failures.iter().fold(0, |sum, failure| sum.saturating_add(failure.count))
    }

    #[must_use]
    pub fn p99(&self) -> Option<Duration> {
        self.latencies.first()?.quantile(0.99)
    }

    /// Returns what was measured. Operations that are still in flight, or due and not sent, are counted with the time that they
    /// have waited.
    #[must_use]
    pub fn finish(mut self, now: Instant) -> Measured {
        let mut unanswered = 0_u64;
        for operation in std::mem::take(&mut self.in_flight).into_iter().flatten() {
            if operation.is_measured {
                unanswered = unanswered.saturating_add(1);
                self.record(0, now.saturating_duration_since(operation.due), 1);
            }
        }
        let (stopped_at, end) = match self.stopped.take() {
            Some((at, end)) => (Some(at), end),
            None => (None, BenchEnd::Done),
        };
        let (due, unsent) = self.record_unsent(stopped_at, now);
        let planned = match stopped_at {
            Some(stopped) => Some(self.until.map_or(stopped, |until| until.min(stopped))),
            None => self.until,
        };
        let ended = self.ended_at.max(planned).unwrap_or(self.measured_from);
        let summaries = self.names.iter().zip(&self.latencies);
        Measured {
            elapsed: ended.saturating_duration_since(self.measured_from),
            answered: self.answered,
            failures: self.failures,
            unsent,
            late: self.late,
            unanswered,
            due,
            latencies: summaries.filter_map(|(name, latencies)| latencies.summary(name)).collect(),
            end,
        }
    }

    /// Records the waiting times of the measured operations that were due and were not sent. Returns the number of those due, and
    /// of those not sent.
    fn record_unsent(&mut self, stopped: Option<Instant>, now: Instant) -> (u64, u64) {
        let Some((rate, total)) = self.plan.rate.zip(self.total) else { return (self.measured, 0) };
        let due = match stopped {
            Some(stopped) => due_within(stopped.saturating_duration_since(self.begun), rate).min(total),
            None => total,
        };
        let first_measured = due_within(self.plan.warmup, rate);
        let mut number = self.next.max(first_measured);
        let unsent = due.saturating_sub(number);
        let step = unsent.div_ceil(UNSENT_STEPS_MAX).max(1);
        while number < due {
            let count = step.min(due.saturating_sub(number));
            self.record(0, now.saturating_duration_since(self.due(number, rate)), count);
            number = number.saturating_add(count);
        }
        (due.saturating_sub(first_measured), unsent)
    }

    fn take(&mut self, slot: usize) -> Option<Operation> {
        self.finished = self.finished.saturating_add(1);
        self.in_flight.get_mut(slot)?.take()
    }

    fn record(&mut self, kind: usize, latency: Duration, count: u64) {
        if let Some(latencies) = self.latencies.get_mut(kind) {
            latencies.record(latency, count);
        }
    }

    fn count(&mut self, failure: Failure) {
        let has_room = self.failures.len() < CAUSES_MAX;
        let same = |counted: &&mut FailureCount| {
            counted.failure.kind() == failure.kind()
                && (!has_room || counted.failure.message() == failure.message())
        };
        match self.failures.iter_mut().find(same) {
            Some(counted) => counted.count = counted.count.saturating_add(1),
            None => self.failures.push(FailureCount { failure, count: 1 }),
        }
    }

    /// Returns when an operation is due.
    fn due(&self, number: u64, rate: u32) -> Instant {
        let ns = u128::from(number).saturating_mul(1_000_000_000).checked_div(rate.into()).unwrap_or(0);
        after(self.begun, Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}

/// Returns the number of operations that are due before this time since the beginning.
fn due_within(time: Duration, rate: u32) -> u64 {
    let count = time.as_nanos().saturating_mul(rate.into()).div_ceil(1_000_000_000);
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn after(instant: Instant, duration: Duration) -> Instant {
    // A time that cannot be expressed is never reached.
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    instant.checked_add(duration).or_else(|| instant.checked_add(FAR)).unwrap_or(instant)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
