//! The work of the ledger, done in steps by a test: so that requests, commits and faults come between them.

use super::ledger_work::{Walk, needed_number};
use super::shared::Shared;
use crate::ledger::FileLedger;
use crate::ledger::file::snapshot::SnapshotWriter;
use crate::ledger::file::work::Done;
use crate::store::Now;

/// Records that a step reads.
const RECORDS_PER_STEP: usize = 7;

/// What would be under way in the thread of the ledger.
#[derive(Debug, Default)]
pub struct LedgerSteps {
    snapshot: Option<Running>,
    pub snapshots: u64,
    pub cancelled: u64,
}

#[derive(Debug)]
struct Running {
    snapshot: SnapshotWriter,
    walk: Walk,
    needed: Option<u64>,
}

impl LedgerSteps {
    /// Does up to `count` steps.
    pub fn step(&mut self, shared: &Shared, ledger: &mut FileLedger, now: Now, count: u64) {
        if ledger.lacks_room() {
            ledger.retry_work();
        }
        for _ in 0..count {
            match self.snapshot.take() {
                Some(running) => self.step_snapshot(running, shared, ledger, now),
                None => {
                    match ledger.take_work(now, shared.lock().store.persistent_bytes()).map(|work| work.run())
                    {
                        Some(Ok(done)) => drop(ledger.handle_done(done, now)),
                        Some(Err(snapshot)) => {
                            let (snapshot, walk) = (*snapshot, Walk::default());
                            self.snapshot = Some(Running { snapshot, walk, needed: None });
                        }
                        None => break,
                    }
                }
            }
        }
        shared.lock().set_room(ledger);
    }

    fn step_snapshot(&mut self, running: Running, shared: &Shared, ledger: &mut FileLedger, now: Now) {
        let Running { mut snapshot, mut walk, needed } = running;
        let epoch = snapshot.epoch();
        if epoch.is_over() {
            self.cancelled += 1;
            return;
        }
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
                None => (Ok(()), needed_number(ledger, &shared.lock())),
            };
            match written {
                Ok(()) => {
                    self.snapshot = Some(Running { snapshot, walk, needed });
                    return;
                }
                Err(kind) => Err(kind),
            }
        };
        self.snapshots += u64::from(result.is_ok());
        ledger.handle_done(Done::Snapshot(epoch, result), now);
    }
}
