//! Tests of the lock with simulated time, latency and loss.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const TTL: u64 = 30_000;
const RENEW: u64 = 10_000;
const MARGIN: u64 = 7_000;

fn options(wait_ms: Option<u64>) -> LeaseOptions {
    LeaseOptions {
        ttl: Duration::from_millis(TTL),
        renew: Duration::from_millis(RENEW),
        margin: Duration::from_millis(MARGIN),
        wait: wait_ms.map(Duration::from_millis),
        seed: 42,
    }
}

fn token(ms: u64) -> Timestamp {
    Timestamp::of_store(ms, 0)
}

/// A lock and a simulated clock.
struct Bench {
    lock: Lock,
    start: Instant,
    now_ms: u64,
}

impl Bench {
    fn new(wait_ms: Option<u64>) -> Self {
        let start = crate::clock::monotonic();
        Self { lock: Lock::new(options(wait_ms), start), start, now_ms: 0 }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.lock.handle_timeout(self.at(self.now_ms));
    }

    fn tried(&mut self, sent_ms: u64, tried: TryResult) {
        self.lock.handle_try_result(self.at(sent_ms), tried, self.at(self.now_ms));
    }

    fn change(&mut self, exists: bool) {
        self.lock.handle_change(exists, self.at(self.now_ms));
    }

    fn actions(&mut self) -> Vec<LockAction> {
        std::iter::from_fn(|| self.lock.poll_action()).collect()
    }

    fn events(&mut self) -> Vec<LockEvent> {
        std::iter::from_fn(|| self.lock.poll_event()).collect()
    }

    fn acquired() -> Self {
        let mut bench = Self::new(None);
        assert_eq!(bench.actions(), [LockAction::Try]);
        bench.tried(0, TryResult::Applied(token(1)));
        assert_eq!(bench.events(), [LockEvent::Acquired { token: token(1), end: bench.at(TTL) }]);
        bench
    }

    fn waiting(wait_ms: Option<u64>) -> Self {
        let mut bench = Self::new(wait_ms);
        bench.actions();
        bench.tried(0, TryResult::NotApplied);
        assert_eq!(bench.events(), [LockEvent::Busy]);
        assert_eq!(bench.actions(), [LockAction::Watch]);
        bench
    }
}

#[test]
fn a_lease_starts_when_the_attempt_was_sent() {
    let mut bench = Bench::new(None);
    bench.advance(500);
    bench.tried(100, TryResult::Applied(token(1)));
    assert_eq!(bench.events(), [LockEvent::Acquired { token: token(1), end: bench.at(100 + TTL) }]);
}

#[test]
fn each_renewal_has_a_newer_token() {
    let mut bench = Bench::acquired();
    for round in 1..10 {
        bench.advance(RENEW - 1);
        assert_eq!(bench.actions(), []);
        bench.advance(1);
        assert_eq!(bench.actions(), [LockAction::Try]);
        bench.tried(round * RENEW, TryResult::Applied(token(round + 1)));
        let end = bench.at(round * RENEW + TTL);
        assert_eq!(bench.events(), [LockEvent::Renewed { token: token(round + 1), end }]);
    }
}

#[test]
fn there_is_one_renewal_at_a_time() {
    let mut bench = Bench::acquired();
    bench.advance(RENEW);
    bench.advance(1_000);
    bench.advance(1_000);
    assert_eq!(bench.actions(), [LockAction::Try]);
}

#[test]
fn a_lease_that_cannot_be_renewed_is_lost_before_its_end() {
    let mut bench = Bench::acquired();
    let mut tries = 0;
    for _ in 0..(TTL - MARGIN - 1) / 100 {
        bench.advance(100);
        for _ in bench.actions() {
            tries += 1;
            bench.tried(bench.now_ms, TryResult::Unanswered);
        }
        assert_eq!(bench.events(), []);
    }
    assert!(tries > 5, "it tries again and again: {tries}");
    bench.advance(100);
    assert_eq!(bench.now_ms, TTL - MARGIN);
    let end = bench.at(TTL);
    assert_eq!(bench.events(), [LockEvent::Lost { reason: LossReason::NotRenewed, end }]);
}

#[test]
fn a_seed_of_zero_spreads_too() {
    let start = crate::clock::monotonic();
    let mut lock = Lock::new(LeaseOptions { seed: 0, ..options(None) }, start);
    lock.handle_try_result(start, TryResult::NotApplied, start);
    let spread = |lock: &mut Lock| {
        lock.handle_change(true, start);
        lock.poll_timeout().unwrap() - start
    };
    assert!((0..10).map(|_| spread(&mut lock)).collect::<std::collections::BTreeSet<_>>().len() > 1);
}

#[test]
fn a_renewal_that_fails_within_the_margin_loses_the_lock_at_once() {
    let mut bench = Bench::acquired();
    bench.advance(RENEW);
    bench.now_ms = TTL - MARGIN;
    bench.tried(RENEW, TryResult::Unanswered);
    let end = bench.at(TTL);
    assert_eq!(bench.events(), [LockEvent::Lost { reason: LossReason::NotRenewed, end }]);
}

#[test]
fn an_answer_after_the_end_changes_nothing() {
    for tried in [TryResult::Applied(token(2)), TryResult::NotApplied, TryResult::Unanswered] {
        let mut bench = Bench::acquired();
        bench.advance(TTL);
        bench.events();
        bench.tried(RENEW, tried);
        bench.change(false);
        bench.advance(TTL);
        assert_eq!((bench.events(), bench.actions()), (vec![], vec![]));
        assert!(!bench.lock.is_held() && bench.lock.poll_timeout().is_none());
    }
}

#[test]
fn an_unanswered_attempt_is_repeated_until_the_waiting_time_is_over() {
    let mut bench = Bench::new(Some(1_200));
    for sent_ms in [0, 500, 1_000] {
        assert_eq!(bench.actions(), [LockAction::Try], "{sent_ms}");
        assert_eq!(bench.lock.poll_timeout(), None, "its answer is awaited");
        bench.tried(sent_ms, TryResult::Unanswered);
        bench.advance(499.min(1_200 - sent_ms));
        if sent_ms < 1_000 {
            assert_eq!(bench.actions(), []);
            bench.advance(1);
        }
    }
    assert_eq!((bench.actions(), bench.events()), (vec![], vec![LockEvent::GaveUp]));
}

#[test]
fn a_waiter_tries_again_if_the_watch_reports_nothing() {
    let mut bench = Bench::waiting(None);
    bench.advance(TTL + 100);
    assert_eq!(bench.actions(), [LockAction::Try]);
    bench.tried(bench.now_ms, TryResult::NotApplied);
    assert_eq!(
        (bench.actions(), bench.events()),
        (vec![], vec![]),
        "it watches, and has reported that, already"
    );
}

#[test]
fn a_release_never_postpones_an_attempt() {
    let mut bench = Bench::new(None);
    bench.actions();
    bench.tried(0, TryResult::Unanswered);
    bench.advance(499);
    bench.change(false);
    bench.advance(1);
    assert_eq!(bench.actions(), [LockAction::Try]);
}

#[test]
fn a_loss_is_due_at_the_margin_while_a_renewal_is_awaited() {
    let mut bench = Bench::acquired();
    assert_eq!(bench.lock.poll_timeout(), Some(bench.at(RENEW)));
    bench.advance(RENEW);
    assert_eq!(bench.actions(), [LockAction::Try]);
    assert_eq!(bench.lock.poll_timeout(), Some(bench.at(TTL - MARGIN)));
}

#[test]
fn an_unanswered_renewal_is_repeated_no_later_than_the_next_one_would_be() {
    const FAST_MS: u64 = 100;
    let renew = Duration::from_millis(FAST_MS);
    for (renew, retry_ms) in [(renew, FAST_MS), (Duration::from_millis(RENEW), 500)] {
        let mut bench = Bench::new(None);
        bench.lock = Lock::new(LeaseOptions { renew, ..options(None) }, bench.start);
        bench.tried(0, TryResult::Applied(token(1)));
        bench.advance(u64::try_from(renew.as_millis()).unwrap());
        bench.actions();
        bench.tried(bench.now_ms, TryResult::Unanswered);
        assert_eq!(bench.lock.poll_timeout(), Some(bench.at(bench.now_ms + retry_ms)));
        bench.advance(retry_ms);
        assert_eq!(bench.actions(), [LockAction::Try]);
    }
}

#[test]
fn a_holder_that_was_stopped_beyond_its_lease_loses_the_lock_at_once() {
    let mut bench = Bench::acquired();
    bench.advance(3 * TTL);
    let end = bench.at(TTL);
    assert_eq!(bench.events(), [LockEvent::Lost { reason: LossReason::NotRenewed, end }]);
    assert_eq!(bench.actions(), [], "and does not take the lock back");
}

#[test]
fn a_lock_that_is_looked_at_is_renewed_at_once_or_lost_or_left_alone() {
    let mut held = Bench::acquired();
    held.lock.renew_now(held.at(1));
    held.lock.renew_now(held.at(2));
    assert_eq!(held.actions(), [LockAction::Try], "one renewal at a time");
    let mut late = Bench::acquired();
    late.lock.renew_now(late.at(TTL));
    assert_eq!((late.actions(), late.events().len()), (vec![], 1));
    let mut waiting = Bench::waiting(None);
    waiting.lock.renew_now(waiting.at(1));
    assert_eq!((waiting.actions(), waiting.events()), (vec![], vec![]));
}

#[test]
fn a_response_older_than_the_lease_does_not_renew_it() {
    let mut bench = Bench::acquired();
    bench.advance(RENEW);
    bench.now_ms = RENEW + TTL;
    bench.tried(RENEW, TryResult::Applied(token(2)));
    let end = bench.at(RENEW + TTL);
    assert_eq!(bench.events(), [LockEvent::Lost { reason: LossReason::NotRenewed, end }]);
}

#[test]
fn a_lock_taken_by_another_holder_is_lost_at_once() {
    let mut bench = Bench::acquired();
    bench.advance(RENEW);
    bench.tried(RENEW, TryResult::NotApplied);
    let end = bench.at(TTL);
    assert_eq!(bench.events(), [LockEvent::Lost { reason: LossReason::Taken, end }]);
}

#[test]
fn a_response_within_the_margin_does_not_acquire_the_lock() {
    let mut bench = Bench::new(None);
    bench.actions();
    bench.advance(TTL - MARGIN);
    bench.tried(0, TryResult::Applied(token(1)));
    assert_eq!(bench.events(), []);
    assert_eq!(bench.actions(), [LockAction::Try]);
}

#[test]
fn without_waiting_there_is_one_attempt() {
    let mut bench = Bench::new(Some(0));
    assert_eq!(bench.actions(), [LockAction::Try]);
    bench.tried(0, TryResult::NotApplied);
    assert_eq!(bench.events(), [LockEvent::Busy, LockEvent::GaveUp]);
    assert_eq!(bench.actions(), []);
}

#[test]
fn a_waiter_watches_and_does_not_poll() {
    let mut bench = Bench::waiting(None);
    for _ in 0..TTL - 1 {
        bench.advance(1);
        assert_eq!(bench.actions(), []);
    }
}

#[test]
fn a_renewal_by_the_holder_postpones_the_next_attempt() {
    let mut bench = Bench::waiting(None);
    for _ in 0..20 {
        bench.advance(TTL - 1);
        bench.change(true);
        assert_eq!(bench.actions(), []);
    }
}

#[test]
fn a_released_lock_is_tried_within_the_spread() {
    let mut bench = Bench::waiting(None);
    bench.advance(5_000);
    bench.change(false);
    bench.advance(100);
    assert_eq!(bench.actions(), [LockAction::Try]);
    bench.tried(bench.now_ms, TryResult::Applied(token(1)));
    assert_eq!(bench.actions(), [LockAction::Unwatch]);
    assert!(matches!(bench.events()[..], [LockEvent::Acquired { .. }]));
}

#[test]
fn a_waiter_that_sees_a_new_holder_does_not_try() {
    let mut bench = Bench::waiting(None);
    bench.change(false);
    bench.change(true);
    bench.advance(1_000);
    assert_eq!(bench.actions(), []);
}

#[test]
fn a_release_during_an_attempt_is_not_missed() {
    let mut bench = Bench::waiting(None);
    bench.change(false);
    bench.advance(100);
    assert_eq!(bench.actions(), [LockAction::Try]);
    bench.change(true);
    bench.change(false);
    bench.tried(100, TryResult::NotApplied);
    bench.advance(100);
    assert_eq!(bench.actions(), [LockAction::Try]);
    bench.tried(200, TryResult::NotApplied);
    bench.advance(TTL - 1);
    assert_eq!(bench.actions(), [], "a try answered since then knows better");
}

#[test]
fn waiting_ends_after_its_time_limit() {
    let mut bench = Bench::waiting(Some(2_000));
    assert_eq!(bench.lock.poll_timeout(), Some(bench.at(2_000)));
    bench.advance(2_000);
    assert_eq!(bench.events(), [LockEvent::GaveUp]);
    assert_eq!(bench.actions(), [LockAction::Unwatch]);
}

#[test]
fn waiters_spread_their_attempts() {
    let mut tries = std::collections::BTreeSet::new();
    let mut fallbacks = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let start = crate::clock::monotonic();
        let mut lock = Lock::new(LeaseOptions { seed: seed * 7919, ..options(None) }, start);
        lock.handle_try_result(start, TryResult::NotApplied, start);
        fallbacks.extend(lock.poll_timeout().map(|at| at - start));
        lock.handle_change(false, start);
        tries.extend(lock.poll_timeout().map(|at| at - start));
    }
    assert!(tries.len() > 10, "{tries:?}");
    assert!(tries.first() < Some(&SPREAD) && tries.last() < Some(&SPREAD), "{tries:?}");
    assert!(fallbacks.len() > 10, "{fallbacks:?}");
}

/// The lock in the store: its holder and the end of the lease, in milliseconds of true time.
#[derive(Default)]
struct Store {
    lease: Option<(usize, u64)>,
    versions: u64,
}

impl Store {
    fn set_nex(&mut self, holder: usize, now_ms: u64) -> Option<u64> {
        self.expire(now_ms);
        if self.lease.is_some_and(|(other, _)| other != holder) {
            return None;
        }
        self.versions += 1;
        self.lease = Some((holder, now_ms + TTL));
        Some(self.versions)
    }

    fn expire(&mut self, now_ms: u64) -> bool {
        self.lease.take_if(|(_, end)| *end <= now_ms).is_some()
    }
}

enum Parcel {
    Request { holder: usize, attempt: Attempt },
    Answer { holder: usize, attempt: Attempt, tried: TryResult },
    Change { holder: usize, exists: bool },
}

/// An attempt. Its number distinguishes its response from responses to abandoned attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    number: usize,
    sent_ms: u64,
}

/// Timeout of an attempt, in milliseconds.
const PATIENCE_MS: u64 = 8_000;

#[derive(Clone, Debug)]
struct Schedule {
    /// One-way latencies in milliseconds, used in turn.
    latencies: Vec<u64>,
    /// One of this number of messages is lost.
    loss: usize,
    /// Stopped processes: the holder, the start and the length of the stop.
    stops: Vec<(usize, u64, u64)>,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let stops = proptest::collection::vec((0..3usize, 0..200_000u64, 0..60_000u64), 0..4);
    (proptest::collection::vec(0..6_000u64, 1..20), 2..12usize, stops)
        .prop_map(|(latencies, loss, stops)| Schedule { latencies, loss, stops })
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// Simulates five minutes of three holders. At no true time may two hold the lock, and tokens must grow from
/// holder to holder. A stopped process counts as a holder until the end of its lease.
///
/// Returns the number of acquisitions.
fn simulate(schedule: &Schedule) -> Result<usize, String> {
    let start = crate::clock::monotonic();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut locks: Vec<Lock> =
        (0..3).map(|seed| Lock::new(LeaseOptions { seed, ..options(None) }, start)).collect();
    let mut ends: [Option<Instant>; 3] = [None; 3];
    let mut under_way: [Option<Attempt>; 3] = [None; 3];
    let mut attempts = 0;
    let mut greatest = 0;
    let mut store = Store::default();
    let mut wire: BTreeMap<(u64, usize), Parcel> = BTreeMap::new();
    let mut sent = 0usize;
    let mut acquired = 0;
    for now_ms in (0..300_000u64).step_by(50) {
        let runs = |holder: usize| {
            !schedule
                .stops
                .iter()
                .any(|(stopped, from, for_ms)| *stopped == holder && (*from..from + for_ms).contains(&now_ms))
        };
        let mut send = |wire: &mut BTreeMap<(u64, usize), Parcel>, parcel| {
            sent += 1;
            if !sent.is_multiple_of(schedule.loss) {
                wire.insert((now_ms + schedule.latencies[sent % schedule.latencies.len()], sent), parcel);
            }
        };
        if store.expire(now_ms) {
            for holder in 0..3 {
                send(&mut wire, Parcel::Change { holder, exists: false });
            }
        }
        let due: Vec<_> = wire.range(..(now_ms + 1, 0)).map(|(when, _)| *when).collect();
        for when in due {
            // Messages for a stopped process stay unread until it continues.
            let waits = match &wire[&when] {
                Parcel::Answer { holder, .. } | Parcel::Change { holder, .. } => !runs(*holder),
                Parcel::Request { .. } => false,
            };
            if waits {
                continue;
            }
            match wire.remove(&when) {
                Some(Parcel::Request { holder, attempt }) => {
                    let tried = match store.set_nex(holder, now_ms) {
                        Some(version) => TryResult::Applied(token(version)),
                        None => TryResult::NotApplied,
                    };
                    send(&mut wire, Parcel::Answer { holder, attempt, tried });
                }
                Some(Parcel::Answer { holder, attempt, tried })
                    if under_way[holder].take_if(|known| *known == attempt).is_some() =>
                {
                    locks[holder].handle_try_result(at(attempt.sent_ms), tried, at(now_ms));
                }
                Some(Parcel::Answer { .. }) => {}
                Some(Parcel::Change { holder, exists }) => locks[holder].handle_change(exists, at(now_ms)),
                None => {}
            }
        }
        for holder in 0..3 {
            if !runs(holder) {
                continue;
            }
            let late = |attempt: &mut Attempt| attempt.sent_ms + PATIENCE_MS <= now_ms;
            if let Some(attempt) = under_way[holder].take_if(late) {
                locks[holder].handle_try_result(at(attempt.sent_ms), TryResult::Unanswered, at(now_ms));
            }
            locks[holder].handle_timeout(at(now_ms));
            while let Some(step) = locks[holder].poll_action() {
                if step == LockAction::Try {
                    attempts += 1;
                    let attempt = Attempt { number: attempts, sent_ms: now_ms };
                    under_way[holder] = Some(attempt);
                    send(&mut wire, Parcel::Request { holder, attempt });
                }
            }
            while let Some(event) = locks[holder].poll_event() {
                match event {
                    LockEvent::Acquired { token, end } => {
                        ensure(token.ms > greatest, || format!("token {} after {greatest}", token.ms))?;
                        greatest = token.ms;
                        acquired += 1;
                        ends[holder] = Some(end);
                    }
                    LockEvent::Renewed { token, end } => {
                        ensure(token.ms > greatest, || format!("token {} after {greatest}", token.ms))?;
                        greatest = token.ms;
                        ends[holder] = Some(end);
                    }
                    // The lock counts as held until the end of the margin, when the work under it has stopped.
                    LockEvent::Lost { .. } => {
                        locks[holder] = Lock::new(options(None), at(now_ms));
                        under_way[holder] = None;
                    }
                    LockEvent::Busy | LockEvent::GaveUp => {}
                }
            }
        }
        let holding = |holder: &usize| ends[*holder].is_some_and(|end| end > at(now_ms));
        let holders: Vec<usize> = (0..3).filter(holding).collect();
        ensure(holders.len() <= 1, || format!("{holders:?} hold the lock at {now_ms} ms"))?;
    }
    Ok(acquired)
}

#[test]
fn on_a_reliable_network_one_holder_keeps_the_lock() {
    let schedule = Schedule { latencies: vec![20], loss: usize::MAX, stops: vec![] };
    assert_eq!(simulate(&schedule), Ok(1));
}

#[test]
fn a_stopped_holder_is_replaced_by_another() {
    let schedule = Schedule { latencies: vec![20], loss: usize::MAX, stops: vec![(0, 50_000, 60_000)] };
    assert_eq!(simulate(&schedule), Ok(2));
}

proptest! {
    /// A slow, lossy and reordering network, and processes that are stopped at any time.
    #[test]
    fn in_no_schedule_do_two_holders_have_the_lock(schedule in schedules()) {
        simulate(&schedule).map_err(TestCaseError::fail)?;
    }
}
