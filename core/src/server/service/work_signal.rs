//! Signal between the commit thread and the thread that does the work of the ledger.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest time between two checks for what no signal announces: a connection's thread that has committed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The time between two checks whether a commit is durable that a snapshot needs.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest time for which the commit thread leaves the ledger to the other thread.
const TURN_MAX: Duration = Duration::from_millis(20);

/// Signal for the thread of the ledger.
#[derive(Debug, Default)]
pub(super) struct WorkSignal {
    state: Mutex<Signal>,
    changed: Condvar,
    /// Whether the thread waits for the ledger: commits that follow each other leave it no time to take the lock.
    is_waiting: AtomicBool,
}

#[derive(Debug, Default)]
struct Signal {
    is_due: bool,
    is_closing: bool,
    /// Whether the ledger was left since the thread has last tried to take it.
    is_left: bool,
}

impl WorkSignal {
    fn lock(&self) -> MutexGuard<'_, Signal> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread look for work.
    pub(super) fn begin(&self) {
        self.lock().is_due = true;
        self.changed.notify_all();
    }

    /// Makes the thread end soon, and a snapshot be given up.
    pub(super) fn end(&self) {
        self.lock().is_closing = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.lock().is_closing
    }

    /// Waits until there is work. Returns false at the end.
    pub(super) fn wait(&self) -> bool {
        let is_idle = |signal: &mut Signal| !signal.is_due && !signal.is_closing;
        let waited = self.changed.wait_while(self.lock(), is_idle);
        let mut signal = waited.unwrap_or_else(PoisonError::into_inner);
        signal.is_due = false;
        !signal.is_closing
    }

    /// Announces that the thread is about to try to take the ledger.
    pub(super) fn begin_turn(&self) {
        self.lock().is_left = false;
        self.is_waiting.store(true, Ordering::SeqCst);
    }

    /// Notes that the thread has had its turn, or does not want it any more.
    pub(super) fn end_turn(&self) {
        let signal = self.lock();
        self.is_waiting.store(false, Ordering::SeqCst);
        drop(signal);
        self.changed.notify_all();
    }

    /// Waits until the ledger is left, or for some time.
    pub(super) fn wait_for_turn(&self) {
        let is_held = |signal: &mut Signal| !signal.is_left && !signal.is_closing;
        let _ = self.changed.wait_timeout_while(self.lock(), LOOK_INTERVAL, is_held);
    }

    /// Waits for the next commit, or for some time.
    pub(super) fn pause(&self) {
        let is_open = |signal: &mut Signal| !signal.is_closing;
        let _ = self.changed.wait_timeout_while(self.lock(), PAUSE, is_open);
    }

    /// Whether the thread waits for the ledger.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::SeqCst)
    }

    /// Makes the thread look whether what it waits for is cancelled.
    pub(super) fn notify(&self) {
        if self.is_waiting() {
            self.lock().is_left = true;
            self.changed.notify_all();
        }
    }

    /// Leaves the ledger to the thread, if that waits for it. The caller has just unlocked it.
    pub(super) fn leave_ledger(&self) {
        if self.is_waiting() {
            let mut signal = self.lock();
            signal.is_left = true;
            self.changed.notify_all();
            let is_waiting = |_: &mut Signal| self.is_waiting();
            let _ = self.changed.wait_timeout_while(signal, TURN_MAX, is_waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_gets_its_turn_although_another_one_takes_the_lock_again_at_once() {
        let (signal, ledger, is_done) = (WorkSignal::default(), Mutex::new(()), AtomicBool::new(false));
        let mut commits = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20 {
                    signal.begin_turn();
                    while ledger.try_lock().is_err() {
                        signal.wait_for_turn();
                    }
                    signal.end_turn();
                }
                is_done.store(true, Ordering::SeqCst);
            });
            while !is_done.load(Ordering::SeqCst) {
                let locked = ledger.lock().unwrap();
                // A commit.
                thread::sleep(Duration::from_millis(2));
                drop(locked);
                signal.leave_ledger();
                commits += 1;
            }
        });
        assert!(commits < 200, "{commits} commits for 20 turns");
    }
}
