//! Work that the ledger needs and no commit waits for: the next segment of the log, the reserve, and files that go.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::disk::{Disk, DiskFile, RESERVE_NAME, SECOND_RESERVE_NAME, log_name};
use super::frame::BLOCK_BYTES;
use super::snapshot::{SnapshotWriter, Written};
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
    Reserve(Reservation),
    Remove(Arc<dyn Disk>, Vec<String>),
}

/// What has become of [`Work`].
#[derive(Debug)]
pub enum Done {
    Prepared(Result<OpenSegment, StorageErrorKind>),
    Snapshot(Result<Written, StorageErrorKind>),
    Reserved(Result<Reserved, StorageErrorKind>),
    Removed,
}

/// A segment that groups can be written to.
#[derive(Debug)]
pub struct OpenSegment {
    pub number: u64,
    pub file: Box<dyn DiskFile>,
    pub bytes: u64,
    /// The end of its last group.
    pub at: u64,
    /// Whether the system has promised its length, and the first group has to write it.
    pub is_blank: bool,
}

/// Preparation of a segment of the log with its whole length, so that no write to it runs out of disk space or changes
/// metadata of the file system.
#[derive(Debug)]
pub struct Preparation {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) number: u64,
    /// The length that is wanted, and the one that is enough.
    pub(super) bytes: u64,
    pub(super) least_bytes: u64,
    /// A segment that is no longer needed, and its length.
    pub(super) used: Option<(u64, u64)>,
    /// Whether a used segment is written and synced once: the disk may be one that cannot be written.
    pub(super) is_proof: bool,
    /// Whether the first group writes and syncs it, with the name: a process that writes once does so once.
    pub(super) is_blank: bool,
}

impl Preparation {
    pub(super) fn prepare(&self) -> Result<OpenSegment, StorageErrorKind> {
        let Self { disk, number, .. } = self;
        if let Some((used, bytes)) = self.used {
            let name = log_name(*number);
            disk.rename(&log_name(used), &name)?;
            // The next process must not find a segment whose name is not durable.
            disk.sync_names().inspect_err(|_| _ = disk.remove(&name))?;
            let opened = disk.open(&name).and_then(|file| {
                if self.is_proof {
                    prove(&*file)?;
                }
                Ok(OpenSegment { number: *number, file, bytes, at: 0, is_blank: false })
            });
            return opened.map_err(|kind| {
                let _ = disk.remove(&name);
                kind.of_file(&name)
            });
        }
        self.create(self.bytes).or_else(|kind| match kind.is_lack_of_room() {
            true if self.least_bytes < self.bytes => self.create(self.least_bytes),
            _ => Err(kind),
        })
    }

    fn create(&self, bytes: u64) -> Result<OpenSegment, StorageErrorKind> {
        let Self { disk, number, is_blank, .. } = self;
        let name = log_name(*number);
        let create = || {
            let file = disk.create(&name)?;
            // Without room nothing is written: a disk that is full for days is not worn out.
            promise(&*file, bytes)?;
            if !is_blank {
                write_zeros(&*file, 0, bytes)?;
                file.sync()?;
                disk.sync_names()?;
            }
            Ok(OpenSegment { number: *number, file, bytes, at: 0, is_blank: *is_blank })
        };
        create().map_err(|kind: StorageErrorKind| {
            let _ = disk.remove(&name);
            kind.of_file(&name)
        })
    }
}

/// Writes to a segment without a group, because the disk may be one that cannot be written.
pub(super) fn prove(file: &dyn DiskFile) -> Result<(), StorageErrorKind> {
    write_zeros(file, 0, BLOCK_BYTES as u64)?;
    Ok(file.sync()?)
}

/// Has the system promise the room of a file, if the file system can do so.
pub(super) fn promise(file: &dyn DiskFile, bytes: u64) -> io::Result<()> {
    match file.allocate(bytes) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        promised => promised,
    }
}

fn write_zeros(file: &dyn DiskFile, mut at: u64, to: u64) -> io::Result<()> {
    let part = vec![0; PART_BYTES];
    while at < to {
        let left = usize::try_from(to.saturating_sub(at)).unwrap_or(usize::MAX);
        file.write(at, part.get(..left.min(PART_BYTES)).unwrap_or_default())?;
        at = at.saturating_add(PART_BYTES as u64);
    }
    Ok(())
}

/// Change of the room of two files: the reserve, which the next snapshot is written to, and the file of the present snapshot, which is
/// the reserve after that.
#[derive(Debug)]
pub struct Reservation {
    pub(super) disk: Arc<dyn Disk>,
    /// How much of the room of the reserve is in a file that a snapshot is being written to.
    pub(super) in_use: u64,
    pub(super) second: String,
    /// The room that is wanted, and what is better than nothing.
    pub(super) bytes: u64,
    pub(super) least_bytes: u64,
    /// A file that is no longer needed, and takes the place of the reserve.
    pub(super) used: Option<String>,
}

/// Room of the two files in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    pub first: u64,
    pub second: u64,
}

impl Reservation {
    /// Returns the room of both. Nothing is synced: it is wanted for as long as the system runs.
    pub(super) fn reserve(&self) -> Result<Reserved, StorageErrorKind> {
        let Self { disk, in_use, second, bytes, least_bytes, used } = self;
        if let Some(used) = used {
            disk.rename(used, RESERVE_NAME)?;
        }
        let [wanted, least] = [*bytes, *least_bytes].map(|bytes| bytes.saturating_sub(*in_use));
        let first = take_room(&**disk, RESERVE_NAME, wanted, least, true)?;
        // The length of a snapshot is not changed: without a call for that, its file is as long as it is.
        let second = take_room(&**disk, second, *bytes, *least_bytes, second == SECOND_RESERVE_NAME)?;
        Ok(Reserved { first, second })
    }
}

/// Makes a file take so much room, or at least some of it. Returns how much it takes.
fn take_room(
    disk: &dyn Disk,
    name: &str,
    bytes: u64,
    least_bytes: u64,
    may_write: bool,
) -> Result<u64, StorageErrorKind> {
    let file = match disk.open(name) {
        Err(kind) if kind.is_not_found() => disk.create(name)?,
        opened => opened?,
    };
    let before = file.allocated()?;
    if before > bytes.saturating_mul(2) && may_write {
        file.set_len(bytes)?;
        return Ok(bytes);
    }
    let extend = |to: u64| -> io::Result<u64> {
        promise(&*file, to)?;
        if may_write && file.allocated()? < to {
            // The system has no such call.
            write_zeros(&*file, file.bytes()?, to)?;
        }
        Ok(if may_write { to } else { file.allocated()?.max(to) })
    };
    if before >= bytes {
        return Ok(before);
    }
    extend(bytes)
        .map_err(StorageErrorKind::from)
        .or_else(|kind| match kind.is_lack_of_room() {
            true if before >= least_bytes && before > 0 => Ok(before),
            true if least_bytes < bytes => Ok(extend(least_bytes)?),
            _ => Err(kind),
        })
        .map_err(|kind| kind.of_file(name))
}

impl Work {
    /// Does the work, but for a snapshot.
    ///
    /// # Errors
    /// The snapshot, which is for the caller.
    pub fn run(self) -> Result<Done, Box<SnapshotWriter>> {
        match self {
            Self::Prepare(preparation) => Ok(Done::Prepared(preparation.prepare())),
            Self::Reserve(reservation) => Ok(Done::Reserved(reservation.reserve())),
            Self::Remove(disk, names) => {
                // Files that stay take room, and are never read.
                names.iter().for_each(|name| _ = disk.remove(name));
                Ok(Done::Removed)
            }
            Self::Snapshot(writer) => Err(writer),
        }
    }
}
