//! Signal for the thread that does the work of the ledger.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time between two looks whether a commit has ended, or whether it leaves the ledger.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Signal for the thread of the ledger.
#[derive(Debug, Default)]
pub(super) struct WorkSignal {
    state: Mutex<Signal>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    is_due: bool,
    is_closing: bool,
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

    /// Waits for the time between two looks.
    pub(super) fn pause(&self) {
        // It ends early at the end, or if it is woken: both do no harm.
        let _ = self.changed.wait_timeout(self.lock(), LOOK_INTERVAL);
    }
}
