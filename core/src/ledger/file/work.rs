//! Work that the ledger needs and no commit waits for: the next segment of the log, the reserve, and files that go.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::disk::{Disk, DiskFile, RESERVE_NAME, log_name, new_name};
use super::frame::BLOCK_BYTES;
use super::snapshot::{Epoch, SYNC_BYTES, SnapshotWriter, Written};
use crate::clock;
use crate::ledger::StorageErrorKind;

/// Bytes that are written at once.
const PART_BYTES: usize = 256 * 1024;
/// The longest pause of work that writes much. It pauses after each part as long as that took.
pub const PAUSE_MAX: Duration = Duration::from_millis(100);

/// Work to be done without a lock, and reported with [`super::ledger::FileLedger::handle_done`].
#[derive(Debug)]
pub enum Work {
    Prepare(Preparation),
    /// It needs the records of the store: see [`SnapshotWriter`].
    Snapshot(Box<SnapshotWriter>),
    Reserve(Filling),
    /// A check for room for a group or a snapshot of this length.
    Probe(Arc<dyn Disk>, Epoch, Purpose, u64),
    Remove(Arc<dyn Disk>, Vec<String>),
}

/// What has become of [`Work`].
#[derive(Debug)]
pub enum Done {
    Prepared(Epoch, Result<OpenSegment, StorageErrorKind>),
    Snapshot(Epoch, Result<Written, StorageErrorKind>),
    /// The length of the reserve, and the one that was wanted.
    Reserve(Epoch, Result<(u64, u64), StorageErrorKind>),
    /// The length that was checked, if there is room for it.
    Probed(Epoch, Purpose, Option<u64>),
    Removed,
}

/// What the room is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Group,
    Snapshot,
}

/// A segment that groups can be written to.
#[derive(Debug)]
pub struct OpenSegment {
    pub number: u64,
    pub file: Box<dyn DiskFile>,
    pub bytes: u64,
    /// The end of its last group.
    pub at: u64,
}

/// Preparation of a segment of the log with its whole length, so that no write to it runs out of disk space or changes
/// metadata of the file system.
#[derive(Debug)]
pub struct Preparation {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) epoch: Epoch,
    pub(super) number: u64,
    /// The length that is wanted, and the one that is enough.
    pub(super) bytes: u64,
    pub(super) least_bytes: u64,
    /// A segment that is no longer needed, and its length.
    pub(super) used: Option<(u64, u64)>,
    /// How long the reserve may be made to have room, if so.
    pub(super) reserve_bytes: Option<u64>,
}

impl Preparation {
    #[must_use]
    pub fn run(self) -> Done {
        let prepared = self.prepare();
        Done::Prepared(self.epoch, prepared)
    }

    pub(super) fn prepare(&self) -> Result<OpenSegment, StorageErrorKind> {
        let Self { disk, number, .. } = self;
        if let Some((used, bytes)) = self.used {
            let name = log_name(*number);
            disk.rename(&log_name(used), &name)?;
            // The next process must not find a segment whose name is not durable.
            disk.sync_names().inspect_err(|_| _ = disk.remove(&name))?;
            return Ok(OpenSegment { number: *number, file: disk.open(&name)?, bytes, at: 0 });
        }
        let create = |bytes| create_segment(&**disk, *number, bytes);
        let smaller = |kind: StorageErrorKind| {
            if kind.is_lack_of_room() { create(self.least_bytes) } else { Err(kind) }
        };
        match create(self.bytes).or_else(smaller) {
            Err(kind)
                if kind.is_lack_of_room()
                    && let Some(bytes) = self.reserve_bytes =>
            {
                disk.open(RESERVE_NAME)?.set_len(bytes)?;
                create(self.least_bytes)
            }
            other => other,
        }
    }
}

fn create_segment(disk: &dyn Disk, number: u64, bytes: u64) -> Result<OpenSegment, StorageErrorKind> {
    let name = log_name(number);
    let create = || {
        let file = disk.create(&name)?;
        write_parts(&*file, 0, bytes, |_| {})?;
        file.sync()?;
        disk.sync_names()?;
        Ok(OpenSegment { number, file, bytes, at: 0 })
    };
    create().map_err(|kind: StorageErrorKind| {
        let _ = disk.remove(&name);
        kind.of_file(&name)
    })
}

/// Writes zeros from an offset on, as `fill` changes them.
fn write_parts(
    file: &dyn DiskFile,
    mut at: u64,
    to: u64,
    mut fill: impl FnMut(&mut [u8]),
) -> Result<(), StorageErrorKind> {
    let mut part = vec![0; PART_BYTES];
    while at < to {
        let left = usize::try_from(to.saturating_sub(at)).unwrap_or(usize::MAX);
        fill(&mut part);
        file.write(at, part.get(..left.min(PART_BYTES)).unwrap_or_default())?;
        at = at.saturating_add(PART_BYTES as u64);
    }
    Ok(())
}

/// Filling of the reserve.
#[derive(Debug)]
pub struct Filling {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) epoch: Epoch,
    pub(super) bytes: u64,
    /// Whether the reserve is in place, but for its length.
    pub(super) is_in_place: bool,
}

impl Filling {
    #[must_use]
    pub fn run(self) -> Done {
        let filled = self.fill();
        Done::Reserve(self.epoch, filled)
    }

    /// Returns the length of the reserve, and the one that was wanted.
    fn fill(&self) -> Result<(u64, u64), StorageErrorKind> {
        // What an earlier process has left, or a failed sync, may not be on disk.
        let existing = if self.is_in_place { self.disk.open(RESERVE_NAME).ok() } else { None };
        let file = existing.map_or_else(
            || {
                let _ = self.disk.remove(RESERVE_NAME);
                self.disk.create(RESERVE_NAME)
            },
            Ok,
        )?;
        let from = file.bytes()?;
        if from > self.bytes {
            file.set_len(self.bytes)?;
        }
        // A file system that compresses, or detects equal blocks, would reserve no room for others. Its blocks need no
        // secret: a generator is fast enough for gigabytes.
        let mut state = self.disk.random();
        let mut random = |part: &mut [u8]| {
            let (words, _) = part.as_chunks_mut::<8>();
            for word in words {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                *word = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB).to_le_bytes();
            }
        };
        let (mut at, mut part_bytes) = (from.min(self.bytes), PART_BYTES as u64);
        let (mut synced_at, mut begun) = (at, clock::monotonic());
        // It may take long: the end of the process does not wait for it.
        while at < self.bytes && !self.epoch.is_over() {
            let to = at.saturating_add(part_bytes).min(self.bytes);
            match write_parts(&*file, at, to, &mut random) {
                Ok(()) => {
                    at = to;
                    if at >= synced_at.saturating_add(SYNC_BYTES) {
                        // As for a snapshot, half of the disk's time is left to commits.
                        file.sync()?;
                        thread::sleep(clock::monotonic().saturating_duration_since(begun).min(PAUSE_MAX));
                        (synced_at, begun) = (at, clock::monotonic());
                    }
                }
                // As much as there is room for is better than nothing.
                Err(kind) if kind.is_lack_of_room() => {
                    file.set_len(at)?;
                    part_bytes /= 4;
                    if part_bytes < BLOCK_BYTES as u64 {
                        break;
                    }
                }
                Err(kind) => return Err(kind),
            }
        }
        file.sync()?;
        self.disk.sync_names()?;
        Ok((at, self.bytes))
    }
}

/// Gives the room of the reserve back to the disk.
pub fn release_reserve(disk: &dyn Disk) {
    if disk.remove(RESERVE_NAME).is_ok() {
        // Some file systems give room back when the removal is durable.
        let _ = disk.sync_names();
    }
}

/// Whether a file of this length can be made. Nothing is written: a disk that is full for days is not worn out.
fn has_room_for(disk: &dyn Disk, bytes: u64) -> bool {
    if bytes == 0 {
        return true;
    }
    let name = new_name(RESERVE_NAME);
    let allocated = disk.create(&name).and_then(|file| Ok(file.allocate(bytes)?));
    let _ = disk.remove(&name);
    // Any other error is for the next group to find.
    !allocated.is_err_and(|kind| kind.is_lack_of_room())
}

impl Work {
    /// Does the work, but for a snapshot.
    ///
    /// # Errors
    /// The snapshot, which is for the caller.
    pub fn run(self) -> Result<Done, Box<SnapshotWriter>> {
        match self {
            Self::Prepare(preparation) => Ok(preparation.run()),
            Self::Reserve(filling) => Ok(filling.run()),
            Self::Probe(disk, epoch, purpose, bytes) => {
                Ok(Done::Probed(epoch, purpose, has_room_for(&*disk, bytes).then_some(bytes)))
            }
            Self::Remove(disk, names) => {
                // Files that stay take room, and are never read.
                names.iter().for_each(|name| _ = disk.remove(name));
                Ok(Done::Removed)
            }
            Self::Snapshot(writer) => Err(writer),
        }
    }
}
