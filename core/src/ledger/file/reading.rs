//! Reading of all files: the newest snapshot, and the groups that follow.

use std::collections::{BTreeMap, HashMap};
use std::io;

use bytes::Bytes;

use super::codec::{self, End, Part};
use super::disk::{Disk, DiskFile, Names, log_name, snapshot_name};
use super::entry::{CommitMetadata, Entry, EntryGroup, Place};
use super::frame::{self, BLOCK_BYTES, Chain, Kind, body_bytes, frame_bytes};
use super::mark::{FORMAT, Mark};
use crate::ledger::StorageErrorKind;
use crate::platform::is_hardware_error;
use crate::protocol::Key;

/// Bytes of a snapshot that are read at once.
const READ_BYTES: usize = 1024 * 1024;

/// What the files of a directory hold, but for the entries of the snapshot.
#[derive(Debug, Default)]
pub struct Contents {
    pub mark: Mark,
    pub names: Names,
    /// The random number of the store; `None` if nothing was committed.
    pub store: Option<u64>,
    pub snapshot: Option<Snapshot>,
    /// The segments since the snapshot, in order.
    pub segments: Vec<Segment>,
    /// The last group.
    pub chain: Chain,
    pub metadata: CommitMetadata,
    /// The last content of each place that the log has.
    pub keys: HashMap<Key, Option<Bytes>>,
    pub rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Length of the groups.
    pub log_bytes: u64,
    /// Length of the entries that the log has set.
    pub set_bytes: u64,
    /// The first file that is not as it must be, and where.
    pub corruption: Option<String>,
}

/// The newest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub number: u64,
    pub bytes: u64,
    /// The last group before the segment with which it was begun.
    pub base: Chain,
    /// `None` if it cannot be read.
    pub end: Option<End>,
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub number: u64,
    pub bytes: u64,
    /// The end of its last group; 0 if it has none.
    pub end: u64,
}

impl Contents {
    fn note(&mut self, corruption: impl FnOnce() -> String) {
        if self.corruption.is_none() {
            self.corruption = Some(corruption());
        }
    }

    /// Whether the last process has ended in order: then the system's memory has what the disk has.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.mark.closed.map_or(self.names.logs.is_empty(), |closed| closed == self.chain)
    }

    /// Applies a group to the last contents.
    pub fn apply(&mut self, group: EntryGroup) {
        self.metadata = group.metadata;
        for entry in group.entries {
            self.set_bytes = self.set_bytes.saturating_add(entry.live_bytes());
            let Entry { place, content } = entry;
            match place {
                Place::Key(key) => drop(self.keys.insert(key, content)),
                Place::Row(row) => drop(self.rows.insert(row, content)),
            }
        }
    }
}

/// Reads the lock file, and then the names of the others. Returns the content of the lock file, too.
///
/// # Errors
/// The directory cannot be read, its files have another format, or they are all missing.
pub fn look(disk: &dyn Disk) -> Result<(Vec<u8>, Mark, Names), StorageErrorKind> {
    let lock = disk.read_lock()?;
    let (mark, names) = (Mark::decode(&lock), Names::sort(&disk.names()?));
    if let Some(name) = names.out_of_range {
        return Err(StorageErrorKind::OutOfRange(disk.path().join(name)));
    }
    let is_empty = names.logs.is_empty() && names.snapshots.is_empty();
    if let Some(format) = mark.format.filter(|format| *format != FORMAT) {
        return Err(StorageErrorKind::UnsupportedFormat(format));
    }
    if is_empty && names.is_old {
        return Err(StorageErrorKind::UnsupportedFormat(0));
    }
    if is_empty && mark.is_set {
        return Err(StorageErrorKind::Lost);
    }
    Ok((lock, mark, names))
}

/// Reads all files but the entries of the snapshot. Changes nothing.
///
/// # Errors
/// The files cannot be read, have another format, or are all missing. Corruption is no error here: see
/// [`Contents::corruption`].
pub fn read(disk: &dyn Disk) -> Result<Contents, StorageErrorKind> {
    let (_, mark, names) = look(disk)?;
    let is_empty = names.logs.is_empty() && names.snapshots.is_empty();
    let mut contents = Contents { mark, names, ..Contents::default() };
    let newest = contents.names.snapshots.last().copied();
    let first = newest.unwrap_or(1);
    if let Some(number) = newest {
        read_snapshot_ends(disk, number, &mut contents)?;
    }
    let logs: Vec<_> = contents.names.logs.iter().copied().filter(|number| *number >= first).collect();
    let is_first_missing = !is_empty && logs.first() != Some(&first);
    if is_first_missing && newest.is_some() {
        contents.note(|| format!("{} is missing", log_name(first)));
    }
    let has_groups = read_log(disk, &logs, &mut contents)?;
    // A new store begins with a later segment if its first commit has failed.
    let may_begin_later = contents.chain.number > 0 || !(has_groups || contents.mark.is_set);
    if is_first_missing && newest.is_none() && !may_begin_later {
        contents.corruption = Some(format!("{} is missing, and there is no snapshot", log_name(first)));
    }
    check_end(&mut contents);
    Ok(contents)
}

/// Reads the first and the last frame of a snapshot.
fn read_snapshot_ends(disk: &dyn Disk, number: u64, contents: &mut Contents) -> Result<(), StorageErrorKind> {
    let name = snapshot_name(number);
    let file = disk.open(&name).map_err(|kind| kind.of_file(&name))?;
    let bytes = file.bytes().map_err(|error| StorageErrorKind::from(error).of_file(&name))?;
    let mut snapshot = Snapshot { number, bytes, base: Chain::default(), end: None };
    let block = |at: Option<u64>| -> Result<Option<(u64, Part)>, StorageErrorKind> {
        let mut block = vec![0; BLOCK_BYTES];
        let Some(at) = at.filter(|at| at.saturating_add(BLOCK_BYTES as u64) <= bytes) else {
            return Ok(None);
        };
        match file.read(at, &mut block) {
            Err(error) if is_hardware_error(&error) => return Ok(None),
            read => read.map_err(|error| StorageErrorKind::from(error).of_file(&name))?,
        }
        let parsed = frame::parse(Kind::Snapshot, &block);
        let part = parsed
            .and_then(|frame| Some((frame.store, codec::take_part(Bytes::copy_from_slice(frame.body))?)));
        Ok(part)
    };
    match block(Some(0))? {
        Some((store, Part::Begin(base))) => (contents.store, snapshot.base) = (Some(store), base),
        _ => contents.note(|| format!("{name}: its beginning is damaged")),
    }
    match block(bytes.checked_sub(BLOCK_BYTES as u64))? {
        Some((store, Part::End(end))) if contents.store.is_none_or(|of| of == store) => {
            (snapshot.end, contents.metadata) = (Some(end), end.metadata);
            if contents.store.replace(store).is_none() {
                // Without the beginning: older groups, which a segment may have that was used before, do not count.
                snapshot.base.number = end.number;
            }
        }
        _ => contents.note(|| format!("{name}: its end is damaged or missing")),
    }
    contents.chain = snapshot.base;
    contents.snapshot = Some(snapshot);
    Ok(())
}

/// Reads the groups of these segments that continue the chain. Returns whether there are any, or others.
fn read_log(disk: &dyn Disk, logs: &[u64], contents: &mut Contents) -> Result<bool, StorageErrorKind> {
    // The greatest group that does not continue the chain, and its place.
    let mut beyond: Option<(u64, String)> = None;
    // Where the last group ends.
    let mut end_of_log = contents.snapshot.map_or_else(|| log_name(1), |snapshot| log_name(snapshot.number));
    for number in logs {
        let name = log_name(*number);
        let (bytes, unreadable) = read_file(disk, &name)?;
        unreadable.into_iter().for_each(|unreadable| contents.note(|| unreadable));
        if contents.store.is_none()
            && let Some(first) = frame::parse(Kind::Group, &bytes).filter(|first| first.chain.number == 1)
        {
            contents.store = Some(first.store);
            contents.chain = Chain::begin(first.store);
        }
        let mut end = 0_usize;
        for (at, frame) in frame::intact(Kind::Group, &bytes, contents.store) {
            if at == end && contents.chain.is_continued_by(&frame) {
                end = at.saturating_add(frame_bytes(frame.body.len()));
                contents.chain = frame.chain;
                let mark = contents.mark.closed.filter(|closed| closed.number == frame.chain.number);
                if mark.is_some_and(|closed| closed != frame.chain) {
                    contents.note(|| {
                        format!("{name}: group {} is not the one of the last end", frame.chain.number)
                    });
                }
                match codec::take_group(frame.chain.number, bytes.slice_ref(frame.body)) {
                    Some(group) => contents.apply(group),
                    None => contents.note(|| format!("{name}: group {} is malformed", frame.chain.number)),
                }
                end_of_log = format!("{name}, byte {end}");
            } else if beyond.as_ref().is_none_or(|(number, _)| *number < frame.chain.number) {
                beyond = Some((frame.chain.number, format!("{name}, byte {at}")));
            }
        }
        if end > 0 && is_cut_off(&bytes, end, contents) {
            contents.note(|| format!("{name}: it is cut off in the group at byte {end}"));
        }
        contents.log_bytes = contents.log_bytes.saturating_add(end as u64);
        contents.segments.push(Segment { number: *number, bytes: bytes.len() as u64, end: end as u64 });
    }
    let has_groups = contents.log_bytes > 0 || beyond.is_some();
    let next = contents.chain.number.saturating_add(1);
    if let Some((number, place)) = beyond.filter(|(number, _)| *number >= next) {
        contents.note(|| {
            format!("{end_of_log}: group {next} is damaged or missing, and group {number} is in {place}")
        });
    }
    Ok(has_groups)
}

/// Whether the next group of the chain begins at `end` and is longer than the file. A file has its whole length before its
/// first group is acknowledged.
fn is_cut_off(bytes: &Bytes, end: usize, contents: &Contents) -> bool {
    let Some(rest) = bytes.get(end..) else { return false };
    let Some(len) = body_bytes(Kind::Group, rest).filter(|len| frame_bytes(*len) > rest.len()) else {
        return false;
    };
    let header = frame::header(rest).filter(|_| len > 0);
    let next = contents.chain.number.checked_add(1);
    header.is_some_and(|[store, number, previous, _]| {
        (Some(store), Some(number), previous) == (contents.store, next, contents.chain.sum)
    })
}

/// Checks that the log does not end before what is known to have been durable.
fn check_end(contents: &mut Contents) {
    let last = contents.chain.number;
    // The first group is on disk before the lock file has any content.
    if contents.snapshot.is_none() && contents.mark.is_set && last == 0 {
        contents.note(|| format!("{}: the first group is damaged or missing", log_name(1)));
    }
    if let Some(Snapshot { number, base, end, .. }) = contents.snapshot {
        if let Some(end) = end.filter(|end| end.number > last) {
            let to = end.number;
            contents.note(|| {
                format!("the log ends with group {last}, and {} needs group {to}", snapshot_name(number))
            });
        }
        if contents.mark.closed.is_some_and(|closed| closed.number == base.number && closed != base) {
            contents.note(|| format!("{} does not belong to this log", snapshot_name(number)));
        }
    }
    if let Some(closed) = contents.mark.closed.filter(|closed| closed.number > last) {
        let to = closed.number;
        contents.note(|| {
            format!("the log ends with group {last}, and group {to} was the last one at the last end")
        });
    }
}

/// Reads a whole file. What the disk cannot read is zero; the place of the first such block is returned, too.
pub fn read_file(disk: &dyn Disk, name: &str) -> Result<(Bytes, Option<String>), StorageErrorKind> {
    let of_file = |kind: StorageErrorKind| kind.of_file(name);
    let file = disk.open(name).map_err(of_file)?;
    let len = file.bytes().map_err(|error| of_file(error.into()))?;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let first = read_readable(&*file, 0, &mut bytes).map_err(|error| of_file(error.into()))?;
    Ok((bytes.into(), first.map(|at| unreadable(name, at))))
}

/// Reads a part of a file, in halves where the whole cannot be read. Returns the offset of the first block that cannot be.
fn read_readable(file: &dyn DiskFile, at: u64, out: &mut [u8]) -> io::Result<Option<u64>> {
    match file.read(at, out) {
        Err(error) if !is_hardware_error(&error) => return Err(error),
        Ok(()) => return Ok(None),
        Err(_) if out.len() <= BLOCK_BYTES => {
            out.fill(0);
            return Ok(Some(at));
        }
        Err(_) => {}
    }
    let half = out.len().div_ceil(2).next_multiple_of(BLOCK_BYTES).min(out.len());
    let (first, second) = out.split_at_mut(half);
    let first = read_readable(file, at, first)?;
    let second = read_readable(file, at.saturating_add(half as u64), second)?;
    Ok(first.or(second))
}

fn unreadable(name: &str, at: u64) -> String {
    format!("{name}: the disk cannot read it at byte {at}")
}

/// Reads the entries of a snapshot in their order, and checks all of it. Returns the sum of their lengths.
///
/// # Errors
/// The file cannot be read, or is corrupt.
pub fn read_snapshot(
    disk: &dyn Disk,
    snapshot: &Snapshot,
    mut each: impl FnMut(Entry) -> Result<(), StorageErrorKind>,
) -> Result<u64, StorageErrorKind> {
    let name = snapshot_name(snapshot.number);
    let file = disk.open(&name).map_err(|kind| kind.of_file(&name))?;
    let (mut entries, mut live_bytes, mut end) = (0_u64, 0_u64, None);
    let frames = read_frames(&*file, snapshot.bytes, snapshot.number, |at, part| match part {
        Some(Part::Entries(portion)) if end.is_none() => {
            for entry in portion {
                entries = entries.saturating_add(1);
                live_bytes = live_bytes.saturating_add(entry.live_bytes());
                each(entry)?;
            }
            Ok(())
        }
        Some(Part::Begin(_)) if at == 0 => Ok(()),
        Some(Part::End(found)) if end.is_none() => {
            end = Some(found);
            Ok(())
        }
        _ => Err(damaged(&name, at)),
    });
    frames.map_err(|kind| kind.of_file(&name))?;
    match end {
        Some(end) if end.entries == entries => Ok(live_bytes),
        _ => Err(StorageErrorKind::Corrupt(format!("{name}: it is not complete"))),
    }
}

/// Reads a chain of frames from the beginning to the end of a snapshot.
fn read_frames(
    file: &dyn DiskFile,
    bytes: u64,
    number: u64,
    mut each: impl FnMut(u64, Option<Part>) -> Result<(), StorageErrorKind>,
) -> Result<(), StorageErrorKind> {
    let name = snapshot_name(number);
    let (mut at, mut chain, mut store) = (0_u64, Chain { number: 0, sum: number }, None);
    let mut wanted = READ_BYTES;
    while at < bytes {
        let left = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut read = vec![0; wanted.min(left)];
        if let Some(at) = read_readable(file, at, &mut read)? {
            return Err(StorageErrorKind::Corrupt(unreadable(&name, at)));
        }
        let read = Bytes::from(read);
        let mut done = 0_usize;
        wanted = READ_BYTES;
        while let Some(rest) = read.get(done..).filter(|rest| !rest.is_empty()) {
            let place = at.saturating_add(done as u64);
            let Some(frame) = frame::parse(Kind::Snapshot, rest) else {
                let whole = body_bytes(Kind::Snapshot, rest).map_or(0, frame_bytes);
                if whole > rest.len() && whole <= left.saturating_sub(done) {
                    // It is cut off: the next read has all of it.
                    wanted = whole.max(READ_BYTES);
                    break;
                }
                return Err(damaged(&name, place));
            };
            if !chain.is_continued_by(&frame) || store.is_some_and(|store| store != frame.store) {
                return Err(damaged(&name, place));
            }
            (chain, store) = (frame.chain, Some(frame.store));
            each(place, codec::take_part(read.slice_ref(frame.body)))?;
            done = done.saturating_add(frame_bytes(frame.body.len()));
        }
        at = at.saturating_add(done as u64);
    }
    Ok(())
}

fn damaged(name: &str, at: u64) -> StorageErrorKind {
    StorageErrorKind::Corrupt(format!("{name}: damaged at byte {at}"))
}
