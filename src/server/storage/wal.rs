//! Write-ahead log: one group of changes per commit, ahead of the tables.
//!
//! A group is one write and one sync of one file, where a transaction of the tables writes to seven places. When the
//! log is full, a checkpoint moves its changes to the tables.
//!
//! The file has a fixed length and is written from its beginning again and again. Every group carries a generation, a
//! random number that the checkpoint in the tables names: groups of other generations are left from earlier rounds
//! and ignored. The first group of the file is of this generation or of the last one with a group, which the checkpoint
//! names as obsolete; any other first group belongs to other tables. Each group begins at a block boundary, so that a torn write of one group cannot touch the one before.

use std::io;

use bytes::{Buf, BufMut, Bytes};
use redb::StorageBackend;

use super::error::StorageErrorKind;
use super::files::{TABLES_NAME, WAL_NAME};
use super::record::{
    CHECKSUM_SEED, CommitMetadata, EncodedGroup, OLD_FORMAT_VERSION, ParsedRecord, ROWS_FORMAT_VERSION,
    Record, RecordTooLong, extend_checksum, put_bytes, take_bytes,
};
use super::rows;
use super::staged_backend::{StagedBackend, SyncFailure};
use super::tables::Checkpoint;
use crate::protocol::Key;
use crate::store::Version;

/// The smallest unit that a disk writes, or a multiple of it.
const BLOCK_BYTES: usize = 4096;
/// The first bytes of a group.
const MAGIC: [u8; 4] = [0xA7, b'k', b'l', 0x04];
/// The first bytes of a group of the previous format, whose metadata has no store's clock.
const OLD_MAGIC: [u8; 4] = [0xA7, b'k', b'l', 0x03];
/// Magic bytes, length of the body, generation, number and checksum.
const HEADER_BYTES: usize = 4 + 4 + 8 + 8 + 8;
/// Greatest version, wall clock and the store's clock.
const METADATA_BYTES: usize = 8 + 4 + 8 + 8;
const IS_DELETED: u8 = 0;
const IS_RECORD: u8 = 1;
/// Only in groups that follow tables of [`ROWS_FORMAT_VERSION`].
const IS_ROW: u8 = 2;
const IS_DELETED_ROW: u8 = 3;

/// The default length of the file.
pub const WAL_BYTES: usize = 1024 * 1024;

/// When a write-ahead log is created, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalPolicy {
    /// Commits that go to the tables before a log is created: a process that writes little and ends needs none.
    pub commits_before: u32,
    /// Length of the file, a multiple of the block size.
    pub bytes: usize,
}

impl Default for WalPolicy {
    fn default() -> Self {
        Self { commits_before: 16, bytes: WAL_BYTES }
    }
}

/// A write-ahead log that groups are appended to.
#[derive(Debug)]
pub struct Wal {
    backend: StagedBackend,
    bytes: usize,
    generation: u64,
    /// Number of the next group; the first of a generation has 1.
    number: u64,
    /// Offset of the next group.
    at: usize,
    /// The encoded group, whose memory is used again.
    group: Vec<u8>,
}

/// What recovery reads from a write-ahead log.
#[derive(Debug, PartialEq, Eq)]
pub struct RecoveredWal {
    /// The last change of each key and row.
    pub changes: EncodedGroup,
    /// The metadata of the last group; `None` if there is no group.
    pub metadata: Option<CommitMetadata>,
    /// What is wrong with the log, if anything. A missing group before a later one is corruption; a missing last group
    /// is a commit that was not acknowledged.
    pub corruption: Option<String>,
    /// Whether the log begins with a group that neither follows the tables nor is in them.
    pub is_foreign: bool,
    number: u64,
    end: usize,
}

impl Wal {
    /// Initializes an empty file with its whole length, so that no append runs out of disk space or changes metadata
    /// of the file system. The log accepts groups after [`Wal::restart`].
    pub fn create(
        inner: Box<dyn StorageBackend>,
        policy: WalPolicy,
        sync_failure: &SyncFailure,
    ) -> io::Result<Self> {
        let WalPolicy { bytes, .. } = policy;
        inner.set_len(bytes as u64)?;
        inner.write(0, &vec![0; bytes])?;
        // Not through the staged backend: no data depends on this sync, so its failure raises no doubt about any.
        inner.sync_data()?;
        let backend = StagedBackend::direct(inner, sync_failure);
        Ok(Self { backend, bytes, generation: 0, number: 0, at: bytes, group: Vec::new() })
    }

    /// Reads the groups that follow a checkpoint; further groups are appended behind them. The log is `None` if the
    /// checkpoint names none.
    ///
    /// # Errors
    /// The log cannot be read, is corrupt, or belongs to other tables.
    pub fn open(
        inner: Option<Box<dyn StorageBackend>>,
        policy: WalPolicy,
        sync_failure: &SyncFailure,
        checkpoint: &Checkpoint,
        format: u64,
    ) -> Result<(Option<Self>, RecoveredWal), StorageErrorKind> {
        let backend = inner.map(|inner| StagedBackend::direct(inner, sync_failure));
        let read = |backend: &StagedBackend| -> io::Result<Vec<u8>> {
            // Of a file that is longer than the policy allows, only the expected length is read.
            let len = usize::try_from(backend.len()?).unwrap_or(usize::MAX);
            let mut bytes = vec![0; len.min(policy.bytes)];
            backend.read(0, &mut bytes)?;
            Ok(bytes)
        };
        let bytes = backend.as_ref().map(read).transpose()?;
        let mut recovered = recover(bytes.as_deref(), policy, checkpoint, format);
        if let Some(corruption) = recovered.corruption.take() {
            return Err(StorageErrorKind::CorruptWal(corruption));
        }
        let Some((backend, generation)) = backend.zip(checkpoint.wal_generation) else {
            return Ok((None, recovered));
        };
        // A process that was killed may have written the last group and not have synced it: reads return it, and a
        // power cut would take it back after it was served.
        backend.sync_data()?;
        let (number, at) = (recovered.number, recovered.end);
        let wal = Self { backend, bytes: policy.bytes, generation, number, at, group: Vec::new() };
        Ok((Some(wal), recovered))
    }

    /// Starts a new generation at the beginning of the file. The checkpoint that names it must be on disk.
    pub fn restart(&mut self, generation: u64) {
        (self.generation, self.number, self.at) = (generation, 1, 0);
    }

    /// Number of groups of this generation.
    pub fn groups(&self) -> u64 {
        self.number.saturating_sub(1)
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Appends a group and waits until it is on disk. Returns false if there is no room for it.
    ///
    /// # Errors
    /// It is unknown whether the group is on disk.
    pub fn append(
        &mut self,
        changes: &EncodedGroup,
        metadata: CommitMetadata,
    ) -> Result<bool, StorageErrorKind> {
        let change_bytes = |(key, record): (&Key, &Option<Vec<u8>>)| {
            record.as_ref().map_or_else(|| key.as_bytes().len().saturating_add(2), Vec::len).saturating_add(1)
        };
        let row_bytes = |(address, row): (&Bytes, &Option<Bytes>)| {
            rows::entry_bytes(address, row.as_ref()).saturating_add(1)
        };
        // The sum of lengths in memory does not overflow.
        let body_bytes = changes.changes.iter().map(change_bytes);
        let body_bytes = body_bytes.chain(changes.rows.iter().map(row_bytes));
        let body_bytes = body_bytes.fold(METADATA_BYTES, usize::saturating_add);
        let room = self.bytes.saturating_sub(self.at).saturating_sub(HEADER_BYTES);
        let Some(len) = u32::try_from(body_bytes).ok().filter(|_| body_bytes <= room) else {
            return Ok(false);
        };
        self.encode(len, changes, metadata)?;
        self.backend.write(self.at as u64, &self.group)?;
        self.backend.sync_data()?;
        self.at = self.at.saturating_add(self.group.len());
        self.number = self.number.saturating_add(1);
        Ok(true)
    }

    /// Encodes a group into whole blocks, filled up with zeros.
    fn encode(
        &mut self,
        len: u32,
        changes: &EncodedGroup,
        metadata: CommitMetadata,
    ) -> Result<(), RecordTooLong> {
        let Self { generation, number, group, .. } = self;
        group.clear();
        group.put_slice(&MAGIC);
        group.put_u32(len);
        group.put_u64(*generation);
        group.put_u64(*number);
        group.put_u64(0);
        group.put_u64(metadata.ceiling.ms);
        group.put_u32(metadata.ceiling.counter);
        group.put_u64(metadata.wall_ms);
        group.put_u64(metadata.clock_ms);
        for (key, record) in &changes.changes {
            match record {
                Some(record) => {
                    group.put_u8(IS_RECORD);
                    group.put_slice(record);
                }
                None => {
                    group.put_u8(IS_DELETED);
                    put_bytes(group, key.as_bytes())?;
                }
            }
        }
        for (address, row) in &changes.rows {
            group.put_u8(if row.is_some() { IS_ROW } else { IS_DELETED_ROW });
            rows::put_entry(group, address, row.as_ref())?;
        }
        let sum = checksum(*generation, *number, group.get(HEADER_BYTES..).unwrap_or_default());
        if let Some(at) = group.get_mut(HEADER_BYTES.saturating_sub(8)..HEADER_BYTES) {
            at.copy_from_slice(&sum.to_be_bytes());
        }
        group.resize(group.len().next_multiple_of(BLOCK_BYTES), 0);
        Ok(())
    }
}

/// Reads the groups that follow a checkpoint from the bytes of a log; `None` stands for a missing file.
///
/// A last group with a torn write does not count: its commit was never acknowledged.
pub fn recover(
    bytes: Option<&[u8]>,
    policy: WalPolicy,
    checkpoint: &Checkpoint,
    format: u64,
) -> RecoveredWal {
    let first = bytes.and_then(|bytes| group(bytes, format)).map(|group| group.generation);
    let belongs_to =
        |obsolete| first.is_none() || first == checkpoint.wal_generation || first == Some(obsolete);
    let is_foreign = !checkpoint.obsolete_generation.is_none_or(belongs_to);
    let corruption = match bytes {
        Some(_) if is_foreign => Some(format!("{WAL_NAME} does not belong to {TABLES_NAME}")),
        _ if checkpoint.wal_generation.is_none() => None,
        None => Some(format!("{WAL_NAME} is missing")),
        Some(bytes) if bytes.len() < policy.bytes => Some(format!("{WAL_NAME} is too short")),
        Some(_) => None,
    };
    let mut recovered = RecoveredWal {
        changes: EncodedGroup::default(),
        metadata: None,
        corruption,
        is_foreign,
        number: 1,
        end: 0,
    };
    let (bytes, mut at) = (bytes.unwrap_or_default(), 0);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let is_next = |group: &Group<'_>| {
            Some(group.generation) == checkpoint.wal_generation && group.number >= recovered.number
        };
        let Some(Group { number, body, .. }) = group(rest, format).filter(is_next) else {
            at = at.saturating_add(BLOCK_BYTES);
            continue;
        };
        if number > recovered.number {
            recovered.note_malformed(recovered.number);
        }
        match decode(body, format, &mut recovered.changes) {
            Some(metadata) => recovered.metadata = Some(metadata),
            None => recovered.note_malformed(number),
        }
        recovered.number = number.saturating_add(1);
        at = at.saturating_add(HEADER_BYTES.saturating_add(body.len()).next_multiple_of(BLOCK_BYTES));
        recovered.end = at;
    }
    recovered
}

impl RecoveredWal {
    fn note_malformed(&mut self, number: u64) {
        self.corruption.get_or_insert_with(|| format!("{WAL_NAME}: group {number} is malformed"));
    }
}

/// An intact group.
struct Group<'a> {
    generation: u64,
    number: u64,
    body: &'a [u8],
}

/// Returns the group with which `bytes` begins.
fn group(bytes: &[u8], format: u64) -> Option<Group<'_>> {
    let mut header = bytes.strip_prefix(if format == OLD_FORMAT_VERSION { &OLD_MAGIC } else { &MAGIC })?;
    let len = usize::try_from(header.try_get_u32().ok()?).ok()?;
    let (generation, number) = (header.try_get_u64().ok()?, header.try_get_u64().ok()?);
    let sum = header.try_get_u64().ok()?;
    let body = header.get(..len)?;
    (checksum(generation, number, body) == sum).then_some(Group { generation, number, body })
}

fn decode(mut body: &[u8], format: u64, into: &mut EncodedGroup) -> Option<CommitMetadata> {
    let (ms, counter) = (body.try_get_u64().ok()?, body.try_get_u32().ok()?);
    let wall_ms = body.try_get_u64().ok()?;
    let clock_ms = if format == OLD_FORMAT_VERSION { wall_ms } else { body.try_get_u64().ok()? };
    let metadata = CommitMetadata { ceiling: Version { ms, counter }, wall_ms, clock_ms };
    while !body.is_empty() {
        match body.try_get_u8().ok()? {
            IS_DELETED => {
                into.changes.insert(Key::new(take_bytes(&mut body)?.to_vec()).ok()?, None);
            }
            IS_RECORD => {
                let ParsedRecord::Record(record, len) = Record::parse(body) else { return None };
                let (bytes, rest) = body.split_at_checked(len)?;
                into.changes.insert(record.key, Some(bytes.to_vec()));
                body = rest;
            }
            kind @ (IS_ROW | IS_DELETED_ROW) if format == ROWS_FORMAT_VERSION => {
                let address = rows::take_part(&mut body)?;
                let row = if kind == IS_ROW { Some(rows::take_part(&mut body)?) } else { None };
                into.rows.insert(address, row);
            }
            _ => return None,
        }
    }
    Some(metadata)
}

/// The generation and the number are part of the checksum, so that a group of an earlier round is never taken for one
/// of this round after a torn write.
fn checksum(generation: u64, number: u64, body: &[u8]) -> u64 {
    let sum =
        extend_checksum(extend_checksum(CHECKSUM_SEED, &generation.to_be_bytes()), &number.to_be_bytes());
    extend_checksum(sum, body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::files::FileSystem;
    use super::super::record::{EncodedChanges, EncodedRows};
    use super::super::simulated::SimulatedDisk;
    use super::*;

    const GENERATION: u64 = 77;
    const CHECKPOINT: Checkpoint = Checkpoint {
        metadata: CommitMetadata { ceiling: Version { ms: 0, counter: 0 }, wall_ms: 0, clock_ms: 0 },
        wal_generation: Some(GENERATION),
        obsolete_generation: Some(GENERATION + 1),
    };
    const POLICY: WalPolicy = WalPolicy { commits_before: 0, bytes: 512 * 1024 };

    fn begin(disk: &mut SimulatedDisk) -> Wal {
        let mut wal = Wal::create(disk.create(WAL_NAME).unwrap(), POLICY, &SyncFailure::default()).unwrap();
        wal.restart(GENERATION);
        wal
    }

    fn bytes(disk: &mut SimulatedDisk) -> Vec<u8> {
        let below = disk.open(WAL_NAME).unwrap().unwrap();
        let mut bytes = vec![0; usize::try_from(below.len().unwrap()).unwrap()];
        below.read(0, &mut bytes).unwrap();
        bytes
    }

    fn entry(key: &str, value: Option<&[u8]>) -> (Key, Option<Vec<u8>>) {
        let key = Key::new(key.to_owned()).unwrap();
        let record = value.map(|value| {
            let (version, value) = (Version { ms: 5, counter: 1 }, Bytes::copy_from_slice(value));
            Record { key: key.clone(), version, fence: None, deadline: None, value }.encode().unwrap()
        });
        (key, record)
    }

    fn group_of<const N: usize>(changes: [(Key, Option<Vec<u8>>); N]) -> EncodedGroup {
        EncodedGroup { changes: changes.into(), rows: EncodedRows::new() }
    }

    fn metadata(ms: u64) -> CommitMetadata {
        CommitMetadata { ceiling: Version { ms, counter: 3 }, wall_ms: ms + 1, clock_ms: ms + 2 }
    }

    /// Returns the state of the keys after `groups`.
    fn sum(groups: &[EncodedGroup]) -> EncodedGroup {
        let mut sum = EncodedGroup::default();
        groups.iter().for_each(|group| sum.extend(group.clone()));
        sum
    }

    fn groups() -> impl Strategy<Value = Vec<EncodedGroup>> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..6_000));
        let entry = (0..8_u8, value).prop_map(|(key, value)| entry(&format!("k{key}"), value.as_deref()));
        let row = prop::option::of(prop::collection::vec(any::<u8>(), 0..3_000));
        let row = (prop::collection::vec(0..3_u8, 0..3), row);
        let row = row.prop_map(|(address, row)| (Bytes::from(address), row.map(Bytes::from)));
        let (changes, rows) = (prop::collection::vec(entry, 0..4), prop::collection::vec(row, 0..4));
        let group = (changes, rows).prop_map(|(changes, rows)| EncodedGroup {
            changes: EncodedChanges::from_iter(changes),
            rows: EncodedRows::from_iter(rows),
        });
        prop::collection::vec(group, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn recovery_reads_all_groups_in_order_except_a_torn_last_one(
            older in groups(),
            groups in groups(),
            at in any::<prop::sample::Index>(),
        ) {
            let disk = &mut SimulatedDisk::default();
            let mut wal = begin(disk);
            // The file begins with groups of another generation.
            wal.restart(GENERATION + 1);
            for group in &older {
                prop_assert!(wal.append(group, metadata(999)).unwrap());
            }
            wal.restart(GENERATION);
            let mut begins = Vec::new();
            for (number, group) in groups.iter().enumerate() {
                begins.push(wal.at);
                prop_assert!(wal.append(group, metadata(number as u64)).unwrap());
            }
            let (begin, end) = (*begins.last().unwrap(), wal.at);
            let mut bytes = bytes(disk);
            let whole = recover(Some(&bytes), POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION);
            prop_assert_eq!(&whole.changes, &sum(&groups));
            prop_assert_eq!(whole.metadata, Some(metadata(groups.len() as u64 - 1)));
            prop_assert_eq!((whole.corruption, whole.number, whole.end), (None, groups.len() as u64 + 1, end));
            // One byte of the last group did not reach the disk.
            let last = groups.len() - 1;
            let used = bytes[begin..end].iter().rposition(|byte| *byte != 0).unwrap() + 1;
            bytes[begin + at.index(used)] ^= 0x55;
            let cut = recover(Some(&bytes), POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION);
            prop_assert_eq!(&cut.changes, &sum(&groups[..last]));
            prop_assert_eq!((cut.corruption, cut.number, cut.end), (None, last as u64 + 1, begin));
            prop_assert_eq!(cut.metadata, last.checked_sub(1).map(|number| metadata(number as u64)));
        }

        #[test]
        fn a_corrupt_group_in_the_middle_is_reported_and_the_others_are_read(
            groups in groups(),
            which in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
        ) {
            let disk = &mut SimulatedDisk::default();
            let mut wal = begin(disk);
            let mut begins = Vec::new();
            for group in groups.iter().chain([&EncodedGroup::default()]) {
                begins.push(wal.at);
                prop_assert!(wal.append(group, metadata(1)).unwrap());
            }
            let mut bytes = bytes(disk);
            let which = which.index(groups.len());
            let group = &bytes[begins[which]..begins[which + 1]];
            let used = group.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            bytes[begins[which] + at.index(used)] ^= 0x55;
            let found = recover(Some(&bytes), POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION);
            prop_assert_eq!(found.corruption, Some(format!("store.log: group {} is malformed", which + 1)));
            let others = [&groups[..which], &groups[which + 1..]].concat();
            prop_assert_eq!(found.changes, sum(&others));
            let opened =
                Wal::open(disk.open(WAL_NAME).unwrap(), POLICY, &SyncFailure::default(), &CHECKPOINT, ROWS_FORMAT_VERSION);
            prop_assert!(opened.is_ok(), "the file is intact");
        }

        #[test]
        fn recovery_reads_arbitrary_bytes_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..9_000), len in any::<u32>()) {
            let head = |len: u32| [&MAGIC[..], &len.to_be_bytes(), &GENERATION.to_be_bytes(), &1_u64.to_be_bytes()].concat();
            for bytes in [bytes.clone(), [&head(len)[..], &bytes].concat(), [&head(100)[..], &bytes].concat()] {
                prop_assert_eq!(recover(Some(&bytes), POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION).changes, EncodedGroup::default());
            }
        }
    }

    #[test]
    fn a_group_that_does_not_fit_is_not_written() {
        let disk = &mut SimulatedDisk::default();
        let mut wal = begin(disk);
        let half = group_of([entry("k", Some(&[b'x'; POLICY.bytes / 2]))]);
        assert!(wal.append(&half, metadata(1)).unwrap());
        assert!(!wal.append(&half, metadata(2)).unwrap());
        // The next group fills the file to its last block.
        let overhead = HEADER_BYTES + METADATA_BYTES + 1 + entry("k", Some(b"")).1.unwrap().len();
        let rest = vec![b'y'; POLICY.bytes - wal.at - overhead];
        let too_much = group_of([entry("k", Some(&[&rest[..], b"y"].concat()))]);
        assert!(!wal.append(&too_much, metadata(2)).unwrap());
        let rest = group_of([entry("k", Some(&rest))]);
        assert!(wal.append(&rest, metadata(2)).unwrap());
        assert!(!wal.append(&EncodedGroup::default(), metadata(3)).unwrap());
        assert_eq!(recover(Some(&bytes(disk)), POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION).changes, rest);
    }

    #[test]
    fn a_missing_or_too_short_log_is_reported() {
        let disk = &mut SimulatedDisk::default();
        let mut wal = begin(disk);
        assert!(wal.append(&group_of([entry("k", Some(b"v"))]), metadata(1)).unwrap());
        let bytes = bytes(disk);
        let corruption =
            |bytes: Option<&[u8]>| recover(bytes, POLICY, &CHECKPOINT, ROWS_FORMAT_VERSION).corruption;
        assert_eq!(corruption(Some(&bytes)), None);
        assert_eq!(corruption(Some(&bytes[1..])), Some("store.log is too short".to_owned()));
        assert_eq!(corruption(None), Some("store.log is missing".to_owned()));
    }
}
