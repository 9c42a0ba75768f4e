//! State that the broker's connections, the commit thread and the expiry task share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

use tokio::sync::Notify;

use super::cluster_state::ClusterSignals;
use super::state::State;
use super::wall_clock::{ClockStep, Observation, WallClock, trusted_ms};
use super::work_signal::WorkSignal;
use crate::clock;
use crate::ledger::{FileLedger, LedgerKind};
use crate::server::delivery::Publisher;
use crate::server::event::{Event, EventSink};
use crate::store::{Now, Version};

/// How often background work yields to threads that wait for the lock: enough for a few of them to wake.
const YIELDS_MAX: usize = 100;

/// What a commit needs. A thread that holds it commits; no other one does meanwhile.
pub(super) struct Committer {
    pub(super) storage: FileLedger,
    pub(super) publisher: Box<dyn Publisher>,
}

/// The state behind its lock, and the signals that go with it.
///
/// The lock is held from the handling of a request until its response and its notifications have been handed to the
/// broker. That keeps the notifications of a key in the order of its versions, whichever threads the requests arrive
/// on. The broker may be called under the lock; it calls the service without holding a lock of its own.
pub(super) struct Shared {
    state: Mutex<State>,
    /// `None` without a disk, and before and after the background tasks. Locked before the state. Only the commit thread
    /// waits for it. It is poisoned if a commit has panicked.
    pub(super) committer: Mutex<Option<Committer>>,
    /// Number of threads that wait for the lock.
    waiting: AtomicUsize,
    /// Signaled when there are changes to commit, and at the end.
    pub(super) has_uncommitted: Condvar,
    /// What the thread of the ledger is to do.
    pub(super) ledger_work: WorkSignal,
    /// Whether it is to be reported that the disk works again, as soon as it is known what it has room for.
    pub(super) owes_report: AtomicBool,
    /// Signaled when a key expires before the time at which the expiry task would wake.
    pub(super) has_earlier_deadline: Notify,
    /// Signaled when the exchange may have frames to send, or events to report: for its task, and for the uplink.
    pub(super) exchange_changed: Notify,
    pub(super) uplink_changed: Notify,
    /// Ends the delay before the next attempt of a leaf to connect.
    pub(super) uplink_retry: Notify,
    pub(super) cluster: ClusterSignals,
    pub(super) events: EventSink,
    /// The zero of the store's monotonic clock.
    origin: Instant,
    /// The zero of the clock by which steps of the wall clock are measured.
    boot_origin: Instant,
    /// What counts of the wall clock: see [`trusted_ms`].
    wall_offset_ms: AtomicI64,
}

impl Shared {
    pub(super) fn new(state: State, events: EventSink, origin: clock::Reading) -> Self {
        let observation = Observation { wall_ms: origin.wall_ms, boot_ms: 0 };
        // The files have been read since the origin.
        let since_origin = clock::monotonic().saturating_duration_since(origin.monotonic);
        let boottime = clock::boottime();
        Self {
            cluster: ClusterSignals::new(&state.cluster),
            state: Mutex::new(state),
            committer: Mutex::new(None),
            waiting: AtomicUsize::new(0),
            has_uncommitted: Condvar::new(),
            ledger_work: WorkSignal::default(),
            owes_report: AtomicBool::new(false),
            has_earlier_deadline: Notify::new(),
            exchange_changed: Notify::new(),
            uplink_changed: Notify::new(),
            uplink_retry: Notify::new(),
            events,
            origin: origin.monotonic,
            boot_origin: boottime.checked_sub(since_origin).unwrap_or(boottime),
            wall_offset_ms: AtomicI64::new(WallClock::new(observation).offset_ms()),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        if let Some(state) = self.try_lock() {
            return state;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Locks the state for a step of a long request, if it is free and no other request waits for it.
    ///
    /// The lock is not fair: a thread with several long requests takes it again before a waiting thread has woken, and
    /// would keep it for seconds.
    pub(super) fn lock_for_step(&self) -> Option<MutexGuard<'_, State>> {
        if self.waiting.load(Ordering::Relaxed) > 0 { None } else { self.try_lock() }
    }

    /// Locks the state for the next step of background work, after the requests that wait for it, within limits.
    ///
    /// A thread that locks again at once would overtake them: see [`Shared::lock_for_step`].
    pub(super) fn lock_after_others(&self) -> MutexGuard<'_, State> {
        for _ in 0..YIELDS_MAX {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                break;
            }
            thread::yield_now();
        }
        self.lock()
    }

    /// Handles the commit of a group in steps, between which other requests are handled: what waits for it is sent.
    pub(super) fn handle_commit(
        &self,
        sequence: u64,
        ceiling: Version,
        publisher: &dyn Publisher,
    ) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.handle_commit(sequence, ceiling, publisher) {
            drop(state);
            state = self.lock_after_others();
        }
        state
    }

    pub(super) fn committer(&self) -> MutexGuard<'_, Option<Committer>> {
        self.committer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn now(&self) -> Now {
        self.at(clock::monotonic())
    }

    /// Returns the present time, given the monotonic time that was read just now.
    pub(super) fn at(&self, monotonic: Instant) -> Now {
        let (offset_ms, monotonic_ms) =
            (self.wall_offset_ms.load(Ordering::Relaxed), ms_since(self.origin, monotonic));
        // The monotonic clock is never ahead of the one that advances during sleep, which is a clock reading more. Only a
        // wall clock that is ahead by this one too may be ahead by the other.
        let observation = Observation { wall_ms: clock::wall_ms(), boot_ms: monotonic_ms };
        let is_trusted = trusted_ms(offset_ms, observation) == observation.wall_ms;
        let wall_ms =
            if is_trusted { observation.wall_ms } else { trusted_ms(offset_ms, self.observation()) };
        Now { wall_ms, monotonic_ms }
    }

    /// Returns the present time with the wall clock as it is, also if versions do not follow it: the storage follows each
    /// step, so that no deadline depends on it.
    pub(super) fn now_unchecked(&self) -> Now {
        Now { wall_ms: clock::wall_ms(), ..self.now() }
    }

    fn observation(&self) -> Observation {
        let boot_ms = ms_since(self.boot_origin, clock::boottime());
        Observation { wall_ms: clock::wall_ms(), boot_ms }
    }

    /// Returns the machine that decides which steps of the wall clock count, for [`Shared::observe_wall_clock`].
    pub(super) fn wall_clock(&self) -> WallClock {
        WallClock::new(self.observation())
    }

    /// Follows the wall clock, and reports its steps. Must be called about once a second.
    pub(super) fn observe_wall_clock(&self, wall_clock: &mut WallClock) {
        let step = wall_clock.observe(self.observation());
        self.wall_offset_ms.store(wall_clock.offset_ms(), Ordering::Relaxed);
        if let Some(step) = step {
            (self.events)(match step {
                ClockStep::Ahead { by_ms } => Event::ClockAhead { by_ms },
                ClockStep::Lasting { by_ms } => Event::ClockFollowed { by_ms },
                ClockStep::Behind { by_ms } => Event::ClockBehind { by_ms },
            });
        }
    }

    /// Makes the commit thread, or with etcd the owner task, commit what is uncommitted, if anything is.
    pub(super) fn wake_commit_thread(&self, state: &mut State) {
        if state.commit_queue.has_uncommitted() {
            self.make_commit_due(state);
        }
    }

    /// Makes the commit thread, or with etcd the owner task, look for what there is to do.
    pub(super) fn make_commit_due(&self, state: &mut State) {
        if state.ledger() == LedgerKind::Etcd {
            return self.cluster.has_group.notify_one();
        }
        state.is_commit_due = true;
        // A signal is a system call, also while no thread waits for it.
        if std::mem::take(&mut state.is_commit_thread_idle) {
            self.has_uncommitted.notify_one();
        }
    }

    /// Reports whether persistent keys can be set again, or only deleted.
    pub(super) fn report_room(&self, storage: &FileLedger) {
        self.owes_report.store(false, Ordering::Relaxed);
        (self.events)(if storage.is_short_of_room() {
            Event::NotPersisted { reason: "the disk is full, and keys can only be deleted".to_owned() }
        } else {
            Event::PersistedAgain
        });
    }

    pub(super) fn wake_exchange(&self) {
        self.exchange_changed.notify_one();
        self.uplink_changed.notify_one();
    }

    pub(super) fn wake_expiry_task(&self, state: &mut State) {
        if let Some(next_ms) = state.next_expiry()
            && next_ms < state.expiry_wakes_ms
        {
            state.expiry_wakes_ms = next_ms;
            self.has_earlier_deadline.notify_one();
        }
    }
}

fn ms_since(origin: Instant, time: Instant) -> u64 {
    // The conversion cannot fail within 584 million years.
    u64::try_from(time.saturating_duration_since(origin).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::store::{Limits, Store};

    #[test]
    fn the_time_that_a_start_takes_is_no_step_of_the_wall_clock() {
        let (start, now) = (Duration::from_secs(10), clock::now());
        let begun = clock::Reading { wall_ms: now.wall_ms - 10_000, monotonic: now.monotonic - start };
        let state = State::new(Store::new(Limits::default()), LedgerKind::Memory, false, false);
        let shared = Shared::new(state, Arc::new(|_| {}), begun);
        let step_ms = shared.wall_clock().offset_ms() - shared.wall_offset_ms.load(Ordering::Relaxed);
        assert!(step_ms.abs() < 5_000, "{step_ms}");
    }
}
