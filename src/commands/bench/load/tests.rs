//! Tests of the load in simulated time.

use std::cell::Cell;

use super::*;
use crate::clock;
use crate::commands::bench::report::Latency;
use crate::commands::error::{CommandError, Kind};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A load in simulated time, with a store that answers each operation after a time that depends on when it was sent.
struct Simulation {
    load: Load,
    begun: Instant,
    now: Instant,
    /// The slot of each operation in flight, when it ends, and how.
    ends: Vec<(Instant, usize, Option<Failure>)>,
    sent: Vec<Operation>,
}

/// How a simulated store answers an operation that it receives at this time since the beginning.
type Store<'a> = &'a dyn Fn(Duration) -> (Duration, Option<Failure>);

fn plan(limit: Limit) -> Plan {
    Plan { limit, warmup: Duration::ZERO, rate: None }
}

fn timeout() -> Failure {
    Failure::Error(CommandError::new(Kind::Timeout, "no answer"))
}

fn refused() -> Failure {
    Failure::Error(CommandError::new(Kind::Refused, "quota exceeded"))
}

fn lost() -> Failure {
    Failure::Error(CommandError::new(Kind::Unavailable, "lost"))
}

impl Simulation {
    fn new(plan: Plan, slots: usize) -> Self {
        let begun = clock::monotonic();
        let load = Load::new(plan, Workload::Set, slots, &Latencies::new().unwrap(), begun);
        Self { load, begun, now: begun, ends: Vec::new(), sent: Vec::new() }
    }

    /// Runs until no slot has anything to do any more, and returns what was measured.
    fn run(mut self, slots: usize, store: Store<'_>) -> Measured {
        self.advance(slots, store, Duration::MAX);
        self.load.finish(self.now)
    }

    /// Runs until no slot has anything to do, or until a time.
    fn advance(&mut self, slots: usize, store: Store<'_>, until: Duration) {
        let mut free: Vec<usize> = (0..slots).collect();
        loop {
            let (_, due) = self.load.poll_due(self.now);
            let mut is_done = true;
            while let Some(slot) = free.pop() {
                match self.load.next(slot, self.now) {
                    Next::Send(operation) => {
                        let (took, failure) = store(self.now - self.begun);
                        self.ends.push((self.now + took, slot, failure));
                        self.sent.push(operation);
                    }
                    next => {
                        is_done = next == Next::Done;
                        free.push(slot);
                        break;
                    }
                }
            }
            let end = self.ends.iter().map(|(at, ..)| *at).min();
            let next = [end, due.filter(|_| !is_done && !free.is_empty())].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next - self.begun <= until) else { return };
            self.now = next;
            let (ended, pending) =
                std::mem::take(&mut self.ends).into_iter().partition(|(at, ..)| *at <= next);
            self.ends = pending;
            let ended: Vec<_> = ended;
            for (at, slot, failure) in ended {
                match failure {
                    None => self.load.handle_answer(slot, at, &[]),
                    Some(failure) => self.load.handle_failure(slot, at, failure),
                }
                free.push(slot);
            }
        }
    }
}

/// A store that answers after 1 ms, except that it answers nothing in this part of the time.
fn stalls(from: Duration, to: Duration) -> impl Fn(Duration) -> (Duration, Option<Failure>) {
    move |at| if at >= from && at < to { (to - at + MS, None) } else { (MS, None) }
}

fn whole(measured: &Measured) -> &Latency {
    measured.whole().unwrap()
}

/// Returns whether two durations differ by less than a hundredth.
fn is_near(duration: Duration, expected: Duration) -> bool {
    duration.abs_diff(expected) * 100 <= expected
}

#[test]
fn without_a_rate_each_operation_follows_the_one_before_it() {
    let measured = Simulation::new(plan(Limit::Time(SECOND)), 4).run(4, &|_| (2 * MS, None));
    assert_eq!((measured.answered, measured.elapsed), (2000, SECOND));
    assert_eq!(measured.per_second(), 2000);
    assert_eq!((measured.failed(), measured.unsent, measured.unanswered), (0, 0, 0));
    assert_eq!((whole(&measured).count, whole(&measured).max), (2000, 2 * MS));
    assert_eq!(measured.end, BenchEnd::Done);
    assert!(measured.is_rate_met());
}

#[test]
fn a_count_is_the_number_of_measured_operations() {
    for rate in [None, Some(500)] {
        let plan = Plan { rate, warmup: 100 * MS, ..plan(Limit::Count(123)) };
        let measured = Simulation::new(plan, 4).run(4, &|_| (MS, None));
        assert_eq!((measured.answered, whole(&measured).count), (123, 123), "{rate:?}");
        assert_eq!((measured.unsent, measured.late), (0, 0), "{rate:?}");
    }
}

#[test]
fn operations_of_the_warm_up_are_not_measured_but_their_failures_are_counted() {
    let plan = Plan { warmup: 100 * MS, ..plan(Limit::Time(SECOND)) };
    let cold = |at| if at < 100 * MS { (50 * MS, Some(refused())) } else { (MS, None) };
    let measured = Simulation::new(plan, 2).run(2, &cold);
    assert_eq!((measured.answered, measured.failed(), measured.elapsed), (2000, 4, SECOND));
    assert_eq!(whole(&measured).max, MS);
}

#[test]
fn a_backlog_of_the_warm_up_is_not_sent_during_the_measurement() {
    let plan = Plan { warmup: SECOND, rate: Some(1000), ..plan(Limit::Time(SECOND)) };
    let measured = Simulation::new(plan, 1).run(1, &|_| (10 * MS, None));
    assert!((99..=101).contains(&measured.answered), "{measured:?}");
    assert_eq!((measured.due, measured.unsent), (1000, 1000 - measured.answered));
    assert_eq!(whole(&measured).count, 1000);
    assert!(!measured.is_rate_met());
}

#[test]
fn with_a_rate_operations_are_due_at_equal_intervals() {
    let plan = Plan { rate: Some(100), ..plan(Limit::Time(SECOND)) };
    let mut simulation = Simulation::new(plan, 8);
    simulation.advance(8, &|_| (MS, None), Duration::MAX);
    let due: Vec<_> = simulation.sent.iter().map(|operation| operation.due - simulation.begun).collect();
    let expected: Vec<_> = (0..100).map(|number| number * 10 * MS).collect();
    assert_eq!(due, expected);
    let measured = simulation.load.finish(simulation.now);
    assert_eq!((measured.answered, measured.due, measured.elapsed), (100, 100, SECOND));
    assert!(measured.is_rate_met());
}

/// The figures are those of coordinated omission: one slot, a store that stalls for half of the time.
#[test]
fn a_stall_delays_all_operations_that_are_due_meanwhile() {
    let store = stalls(500 * MS, SECOND);
    let rate = Plan { rate: Some(100), ..plan(Limit::Time(2 * SECOND)) };
    let open = Simulation::new(rate, 1).run(1, &store);
    let closed = Simulation::new(plan(Limit::Time(2 * SECOND)), 1).run(1, &store);
    // 50 operations were due during the stall. The next one waits 9 ms less than the one before it: 10 ms, but 1 ms for its turn.
    assert_eq!(open.answered, 200);
    assert!(is_near(whole(&open).max, 501 * MS), "{open:?}");
    assert!(is_near(whole(&open).p90, 320 * MS), "{:?}", whole(&open).p90);
    assert!(whole(&open).mean > 60 * MS, "{:?}", whole(&open).mean);
    // Without a rate, one of 1500 operations has measured it.
    assert!(is_near(whole(&closed).p99_9, MS) && whole(&closed).max == 501 * MS, "{closed:?}");
}

#[test]
fn operations_that_were_due_and_not_sent_count_with_the_time_that_they_have_waited() {
    let plan = Plan { rate: Some(1000), ..plan(Limit::Time(SECOND)) };
    let measured = Simulation::new(plan, 1).run(1, &|_| (2 * MS, None));
    let sent = measured.answered;
    assert!((495..=510).contains(&sent), "{sent}");
    assert_eq!((measured.unsent, measured.due, measured.late), (1000 - sent, 1000, 0));
    assert!(!measured.is_rate_met());
    assert_eq!(whole(&measured).count, 1000);
    assert!(whole(&measured).max > 490 * MS, "{:?}", whole(&measured).max);
}

#[test]
fn a_store_that_is_too_slow_for_the_rate_of_a_count_gets_all_operations_late() {
    let plan = Plan { rate: Some(1000), ..plan(Limit::Count(1000)) };
    let measured = Simulation::new(plan, 1).run(1, &|_| (2 * MS, None));
    assert_eq!((measured.answered, measured.unsent), (1000, 0));
    assert!(measured.late > 400 && !measured.is_rate_met(), "{}", measured.late);
    assert_eq!(measured.per_second(), 500);
}

#[test]
fn many_unsent_operations_are_recorded_in_few_steps() {
    let plan = Plan { rate: Some(1_000_000), ..plan(Limit::Time(100 * SECOND)) };
    let measured = Simulation::new(plan, 1).run(1, &|_| (60 * SECOND, None));
    assert_eq!((measured.answered, measured.unsent), (2, 99_999_998));
    assert_eq!(whole(&measured).count, 100_000_000);
    assert!(is_near(whole(&measured).p50, 70 * SECOND), "{:?}", whole(&measured).p50);
}

#[test]
fn a_timeout_counts_with_the_time_that_was_waited() {
    let has_hung = Cell::new(false);
    let hangs = |at| match at >= 100 * MS && !has_hung.replace(true) {
        true => (10 * SECOND, Some(timeout())),
        false => (MS, None),
    };
    let measured = Simulation::new(plan(Limit::Count(1000)), 2).run(2, &hangs);
    assert_eq!((measured.answered, measured.failed()), (999, 1));
    assert_eq!(measured.end, BenchEnd::Done, "other operations were answered meanwhile");
    assert_eq!((whole(&measured).count, whole(&measured).max), (1000, 10 * SECOND));
}

#[test]
fn a_refused_operation_has_no_latency_and_does_not_end_the_load() {
    let measured = Simulation::new(plan(Limit::Count(10)), 1).run(1, &|_| (MS, Some(refused())));
    assert_eq!((measured.answered, measured.failed(), measured.whole()), (0, 10, None));
    assert_eq!(measured.failures, [FailureCount { failure: refused(), count: 10 }]);
    assert_eq!(measured.end, BenchEnd::Done);
}

#[test]
fn the_load_ends_if_no_operation_was_answered_while_one_has_timed_out() {
    let dies = |at| if at < SECOND { (MS, None) } else { (10 * SECOND, Some(timeout())) };
    let measured = Simulation::new(plan(Limit::Count(1_000_000)), 3).run(3, &dies);
    assert_eq!((measured.answered, measured.failed()), (3000, 3));
    assert_eq!(measured.end, BenchEnd::Unanswered);
    assert_eq!(measured.elapsed, 11 * SECOND);
}

#[test]
fn a_lost_connection_ends_the_load_and_operations_in_flight_are_still_counted() {
    let loses = |at| if at < SECOND { (MS, None) } else { (5 * MS, Some(lost())) };
    let measured = Simulation::new(plan(Limit::Time(60 * SECOND)), 8).run(8, &loses);
    assert_eq!((measured.answered, measured.failed()), (8000, 8));
    let BenchEnd::Failed(error) = measured.end else { panic!("{:?}", measured.end) };
    assert_eq!(error.kind, Kind::Unavailable);
}

#[test]
fn operations_in_flight_at_the_end_count_as_unanswered() {
    let plan = Plan { rate: Some(10), ..plan(Limit::Time(60 * SECOND)) };
    let mut simulation = Simulation::new(plan, 2);
    simulation.advance(2, &|_| (3600 * SECOND, None), SECOND);
    simulation.load.stop(BenchEnd::Interrupted, simulation.begun + SECOND);
    assert_eq!(simulation.load.next(0, simulation.begun + SECOND), Next::Done);
    let measured = simulation.load.finish(simulation.begun + 2 * SECOND);
    assert_eq!((measured.answered, measured.unanswered, measured.unsent), (0, 2, 8));
    assert_eq!((&measured.end, measured.elapsed), (&BenchEnd::Interrupted, SECOND));
    assert_eq!((whole(&measured).count, whole(&measured).max), (10, 2 * SECOND));
}

#[test]
fn many_causes_of_failures_are_counted_with_the_first_of_their_kind() {
    let mut load =
        Load::new(plan(Limit::Count(100)), Workload::Get, 1, &Latencies::new().unwrap(), clock::monotonic());
    for number in 0..100 {
        let now = load.begun + number * MS;
        assert!(matches!(load.next(0, now), Next::Send(_)));
        let error = CommandError::new(Kind::Refused, format!("cause {number}"));
        load.handle_failure(0, now, Failure::Error(error));
    }
    assert_eq!((load.failures.len(), load.failed()), (CAUSES_MAX, 100));
}

#[test]
fn an_operation_is_reported_as_due_once_and_at_its_time() {
    let plan = Plan { rate: Some(3), ..plan(Limit::Count(5)) };
    let mut load = Load::new(plan, Workload::Get, 1, &Latencies::new().unwrap(), clock::monotonic());
    let mut now = load.begun;
    for _ in 0..4 {
        let (count, next) = load.poll_due(now);
        assert_eq!(count, 1);
        assert!(next.is_some_and(|next| next > now));
        assert_eq!(load.poll_due(next.unwrap() - Duration::from_nanos(1)).0, 0);
        now = next.unwrap();
    }
    assert_eq!(load.poll_due(now), (1, None));
}
