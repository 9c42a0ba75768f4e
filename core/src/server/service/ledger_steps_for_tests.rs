//! The work of the ledger, done in steps by a test: so that requests, commits and faults come between them.

use super::ledger_work::{Walk, needed_number};
use super::shared::{Committer, Shared};
use crate::ledger::FileLedger;
use crate::ledger::file::snapshot::SnapshotWriter;
use crate::ledger::file::work::{Done, Work};
use crate::store::Now;

/// Records that a step reads.
const RECORDS_PER_STEP: usize = 7;

/// What would be under way in the thread of the ledger.
#[derive(Debug, Default)]
pub struct LedgerSteps {
    snapshot: Option<Running>,
    pub snapshots: u64,
}

#[derive(Debug)]
struct Running {
    snapshot: SnapshotWriter,
    walk: Walk,
    needed: Option<u64>,
}

impl LedgerSteps {
    /// Whether a snapshot is being written.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Does up to `count` steps, unless the ledger has ended.
    pub fn step(&mut self, shared: &Shared, now: Now, count: u64) {
        let mut committer = shared.committer();
        let Some(Committer { storage: ledger, .. }) = &mut *committer else { return };
        if ledger.lack().is_some() {
            ledger.settle();
        }
        for _ in 0..count {
            match self.snapshot.take() {
                Some(running) => self.step_snapshot(running, shared, ledger, now),
                None => {
                    let work = {
                        let mut state = shared.lock();
                        let work = ledger.take_work(now, state.commit_queue.pending_bytes());
                        // A snapshot has begun with another segment.
                        let _ = state.set_room(ledger, now);
                        work
                    };
                    match work.map(Work::run) {
                        Some(Ok(done)) => drop(ledger.handle_done(done, now)),
                        Some(Err(snapshot)) => {
                            let (snapshot, walk) = (*snapshot, Walk::default());
                            self.snapshot = Some(Running { snapshot, walk, needed: None });
                        }
                        None => break,
                    }
                }
            }
            let _ = shared.lock().set_room(ledger, now);
        }
    }

    fn step_snapshot(&mut self, running: Running, shared: &Shared, ledger: &mut FileLedger, now: Now) {
        let Running { mut snapshot, mut walk, needed } = running;
        let result = if let Some(needed) = needed {
            if ledger.number() < needed {
                self.snapshot = Some(Running { snapshot, walk, needed: Some(needed) });
                return;
            }
            snapshot.finish(ledger.number(), ledger.metadata())
        } else {
            let records = walk.next(&shared.lock(), RECORDS_PER_STEP);
            let (written, needed) = match records {
                Some(records) => (snapshot.write_records(&records, now), None),
                None => (Ok(()), Some(needed_number(ledger, &shared.lock()))),
            };
            match written {
                Ok(()) => {
                    self.snapshot = Some(Running { snapshot, walk, needed });
                    return;
                }
                Err(kind) => {
                    // Its file becomes the reserve again before that is looked at.
                    drop(snapshot);
                    Err(kind)
                }
            }
        };
        self.snapshots += u64::from(result.is_ok());
        ledger.handle_done(Done::Snapshot(result), now);
    }
}
