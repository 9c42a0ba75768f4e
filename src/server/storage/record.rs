//! One key on disk, as bytes with a checksum: a record is read whole or not at all, whatever is damaged around it.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};

use crate::protocol::{Key, Timestamp};
use crate::store::{Now, StoredValue, Version};

/// Version of the layout of the tables and of the write-ahead log, for a store without rows. Files of another version are
/// rejected, except for [`ROWS_FORMAT_VERSION`] and [`OLD_FORMAT_VERSION`].
pub const FORMAT_VERSION: u64 = 4;
/// The layout of a store with rows: [`FORMAT_VERSION`], a table of rows, and rows in the groups of the write-ahead log.
/// Programs without an exchange reject it: they would change values and leave their rows.
pub const ROWS_FORMAT_VERSION: u64 = 5;
/// The previous layout, which is read and replaced. Its checkpoints have no [`CommitMetadata::clock_ms`] and do not name
/// the log that they made obsolete.
pub const OLD_FORMAT_VERSION: u64 = 3;
/// The first bytes of a record, by which recovery finds records in a corrupt file.
const MAGIC: [u8; 4] = [0xA7, b'k', b'v', 0x02];
/// Magic bytes, length of the body and checksum.
const HEADER_BYTES: usize = 4 + 4 + 8;
/// The longest body that is accepted: more than the longest key, value and fencing token together. It bounds what
/// recovery reads on account of a corrupt length.
const BODY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Checksum of no bytes.
pub const CHECKSUM_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const HAS_DEADLINE: u8 = 1;
const HAS_FENCE: u8 = 2;

/// What every commit stores besides its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitMetadata {
    /// The version above which keys without a record continue. A key that was deleted, or that was in memory only, must
    /// not come back with a lower version than it had (protocol §4): that is at most this one, unless it has a tombstone.
    pub ceiling: Version,
    /// The wall clock at the commit, in Unix milliseconds; 0 before the first commit.
    pub wall_ms: u64,
    /// The store's clock at the commit, in milliseconds: see [`CommitMetadata::clock_ms_at`].
    pub clock_ms: u64,
}

impl CommitMetadata {
    /// Returns what the store's clock shows when the next process opens the store.
    ///
    /// The store's clock measures the deadlines on disk. While a process runs, it follows the monotonic clock, so that a
    /// step of the wall clock ends no time to live. Between two processes it follows the wall clock, but never goes back.
    pub fn clock_ms_at(&self, wall_ms: u64) -> u64 {
        self.clock_ms.saturating_add(wall_ms.saturating_sub(self.wall_ms))
    }
}

/// Expiry of a key in a form that survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When the key expires, on the store's clock: see [`CommitMetadata::clock_ms_at`].
    pub clock_ms: u64,
    /// The time to live when the record was written, in milliseconds.
    pub ttl_ms: u64,
}

/// A key with its version and what it holds; or a tombstone, which is a key without a value and its last version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: Key,
    pub version: Version,
    pub fence: Option<Timestamp>,
    /// When the key expires; `None`: never.
    pub deadline: Option<Deadline>,
    pub value: Bytes,
}

/// Changed keys: the encoded [`Record`], or `None` if the key was deleted.
pub type EncodedChanges = BTreeMap<Key, Option<Vec<u8>>>;

/// Changed rows of an exchange by their addresses; `None` if the row was deleted. The storage does not interpret them.
pub type EncodedRows = BTreeMap<Bytes, Option<Bytes>>;

/// The changes of a commit, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedGroup {
    pub changes: EncodedChanges,
    pub rows: EncodedRows,
}

impl EncodedGroup {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.rows.is_empty()
    }

    /// Adds later changes.
    pub fn extend(&mut self, later: Self) {
        self.changes.extend(later.changes);
        self.rows.extend(later.rows);
    }

    /// Takes the first changes: at most `entries_max`, and no further one after `bytes_max` bytes.
    pub fn take_portion(&mut self, entries_max: usize, bytes_max: usize) -> Self {
        let (mut portion, mut bytes) = (Self::default(), 0_usize);
        for _ in 0..entries_max {
            if bytes >= bytes_max {
                break;
            }
            let len = if let Some((key, record)) = self.changes.pop_first() {
                let len = record.as_ref().map_or(0, Vec::len);
                portion.changes.insert(key, record);
                len
            } else if let Some((address, row)) = self.rows.pop_first() {
                let len = row.as_ref().map_or(0, Bytes::len);
                portion.rows.insert(address, row);
                len
            } else {
                break;
            };
            bytes = bytes.saturating_add(len);
        }
        portion
    }

    pub fn clear(&mut self) {
        self.changes.clear();
        self.rows.clear();
    }
}

/// A key, a value or a row is too long for the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTooLong;

/// Result of parsing bytes that may begin with a record.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedRecord {
    /// A record, and its length in bytes.
    Record(Box<Record>, usize),
    /// No record begins here.
    Invalid,
    /// A record of this length may begin here, but fewer bytes are there.
    Truncated(usize),
}

impl Record {
    /// `clock_ms` is the store's clock at `now`.
    pub fn new(key: &Key, version: Version, stored: &StoredValue, now: Now, clock_ms: u64) -> Self {
        Self {
            key: key.clone(),
            version,
            fence: stored.fence.clone(),
            deadline: stored.deadline_ms.map(|at| Deadline::new(at, now, clock_ms)),
            value: stored.value.clone(),
        }
    }

    /// Returns the record of a key that holds nothing, and whose last version is ahead of the ceiling. For a program that
    /// knows no tombstones it is a key that has expired.
    pub fn tombstone(key: &Key, version: Version) -> Self {
        let deadline = Some(Deadline { clock_ms: 0, ttl_ms: 0 });
        Self { key: key.clone(), version, fence: None, deadline, value: Bytes::new() }
    }

    /// Whether this is a tombstone: the time to live of a value is never 0, see [`Deadline::new`].
    pub fn is_tombstone(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline.ttl_ms == 0)
    }

    /// Returns what the key holds. A deadline that has passed since the record was written is at `now` or before. One
    /// that has not passed is at most its original time to live away, even if the wall clock has gone back since.
    /// `clock_ms` is the store's clock at `now`.
    pub fn stored_value(&self, now: Now, clock_ms: u64) -> StoredValue {
        StoredValue {
            value: self.value.clone(),
            fence: self.fence.clone(),
            deadline_ms: self.deadline.map(|deadline| deadline.monotonic_ms(now, clock_ms)),
            persist: true,
        }
    }

    /// # Errors
    /// [`RecordTooLong`]: the key, the fencing token or the value does not fit. None of them does that comes from a
    /// request, for [`Key`] and the packet size are bounded far below.
    pub fn encode(&self) -> Result<Vec<u8>, RecordTooLong> {
        let fence = self.fence.as_ref().map(Timestamp::to_string).unwrap_or_default();
        let key = self.key.as_bytes();
        let mut record = Vec::with_capacity(
            64_usize.saturating_add(fence.len()).saturating_add(key.len()).saturating_add(self.value.len()),
        );
        record.put_bytes(0, HEADER_BYTES);
        record.put_u64(self.version.ms);
        record.put_u32(self.version.counter);
        let has_deadline = self.deadline.map_or(0, |_| HAS_DEADLINE);
        record.put_u8(has_deadline | self.fence.as_ref().map_or(0, |_| HAS_FENCE));
        if let Some(Deadline { clock_ms, ttl_ms }) = self.deadline {
            record.put_u64(clock_ms);
            record.put_u64(ttl_ms);
        }
        put_bytes(&mut record, fence.as_bytes())?;
        put_bytes(&mut record, key)?;
        record.put_slice(&self.value);
        let (mut header, body) = record.split_at_mut_checked(HEADER_BYTES).ok_or(RecordTooLong)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(RecordTooLong);
        }
        header.put_slice(&MAGIC);
        header.put_u32(u32::try_from(body.len()).map_err(|_| RecordTooLong)?);
        header.put_u64(checksum(body));
        Ok(record)
    }

    /// Decodes bytes that are one whole record.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match Self::parse(bytes) {
            ParsedRecord::Record(record, len) if len == bytes.len() => Some(*record),
            _ => None,
        }
    }

    /// Parses the record with which `bytes` begins.
    pub fn parse(bytes: &[u8]) -> ParsedRecord {
        if !bytes.starts_with(&MAGIC) {
            return ParsedRecord::Invalid;
        }
        let Some((mut header, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return ParsedRecord::Truncated(HEADER_BYTES);
        };
        header.advance(MAGIC.len());
        let len = usize::try_from(header.get_u32()).ok().filter(|len| *len <= BODY_BYTES_MAX);
        let sum = header.get_u64();
        let Some(len) = len else {
            return ParsedRecord::Invalid;
        };
        // `len` is bounded, so the sum does not overflow.
        let record_bytes = HEADER_BYTES.saturating_add(len);
        let Some(body) = rest.get(..len) else {
            return ParsedRecord::Truncated(record_bytes);
        };
        if checksum(body) != sum {
            return ParsedRecord::Invalid;
        }
        Self::decode_body(body)
            .map_or(ParsedRecord::Invalid, |record| ParsedRecord::Record(Box::new(record), record_bytes))
    }

    fn decode_body(mut body: &[u8]) -> Option<Self> {
        let (ms, counter) = (body.try_get_u64().ok()?, body.try_get_u32().ok()?);
        let flags = body.try_get_u8().ok()?;
        let deadline = if flags & HAS_DEADLINE == 0 {
            None
        } else {
            Some(Deadline { clock_ms: body.try_get_u64().ok()?, ttl_ms: body.try_get_u64().ok()? })
        };
        let fence = take_bytes(&mut body)?;
        let fence =
            if flags & HAS_FENCE == 0 { None } else { Some(std::str::from_utf8(fence).ok()?.parse().ok()?) };
        let key = Key::new(take_bytes(&mut body)?.to_vec()).ok()?;
        let version = Version { ms, counter };
        Some(Self { key, version, fence, deadline, value: Bytes::copy_from_slice(body) })
    }
}

impl Deadline {
    /// Adds one millisecond: both clocks are truncated to milliseconds and may differ by one, and a key must expire
    /// late rather than early.
    fn new(monotonic_ms: u64, now: Now, clock_ms: u64) -> Self {
        let ttl_ms = monotonic_ms.saturating_sub(now.monotonic_ms).saturating_add(1);
        Self { clock_ms: clock_ms.saturating_add(ttl_ms), ttl_ms }
    }

    fn monotonic_ms(self, now: Now, clock_ms: u64) -> u64 {
        let left_ms = self.clock_ms.saturating_sub(clock_ms).min(self.ttl_ms);
        now.monotonic_ms.saturating_add(left_ms)
    }
}

/// Returns the offset at which the next record may begin. `None` leaves the last three bytes open: they may be the
/// beginning of the magic bytes.
pub fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC.len()).position(|window| window == MAGIC)
}

/// FNV-1a with 64 bits. It detects accidents, not attacks, and is defined here because a checksum on disk must not
/// change with a release of a library.
fn checksum(bytes: &[u8]) -> u64 {
    extend_checksum(CHECKSUM_SEED, bytes)
}

/// Returns the checksum of the bytes that have the checksum `sum`, followed by `bytes`.
pub fn extend_checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Appends bytes with their length in 16 bits.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), RecordTooLong> {
    out.put_u16(u16::try_from(bytes.len()).map_err(|_| RecordTooLong)?);
    out.put_slice(bytes);
    Ok(())
}

/// Takes what [`put_bytes`] appended.
pub fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::from(from.try_get_u16().ok()?);
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    fn record(key: &[u8], value: &[u8]) -> Record {
        Record {
            key: Key::new(key.to_vec()).unwrap(),
            version: Version { ms: 7, counter: 3 },
            fence: None,
            deadline: None,
            value: Bytes::copy_from_slice(value),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn a_record_decodes_unchanged_and_not_at_all_after_any_byte_changes(
            key in prop::collection::vec(any::<u8>(), 1..300),
            value in prop::collection::vec(any::<u8>(), 0..3_000),
            fence in prop::option::of((0_u64..1 << 48, 0_u32..9)),
            deadline in prop::option::of((any::<u64>(), any::<u64>())),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let record = Record {
                fence: fence.map(|(ms, counter)| Timestamp::of_store(ms, counter)),
                deadline: deadline.map(|(clock_ms, ttl_ms)| Deadline { clock_ms, ttl_ms }),
                ..record(&key, &value)
            };
            let mut bytes = record.encode().unwrap();
            prop_assert_eq!(Record::decode(&bytes), Some(record));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_eq!(Record::decode(&bytes), None);
        }

        #[test]
        fn arbitrary_bytes_are_not_a_record(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let marked = [&MAGIC[..], &bytes].concat();
            prop_assert_eq!(Record::decode(&bytes), None);
            prop_assert_eq!(Record::decode(&marked), None);
        }
    }

    #[test]
    fn a_truncated_record_returns_its_length() {
        let bytes = record(b"k", b"value").encode().unwrap();
        assert_eq!(Record::parse(&bytes[..6]), ParsedRecord::Truncated(HEADER_BYTES));
        assert_eq!(Record::parse(&bytes[..bytes.len() - 1]), ParsedRecord::Truncated(bytes.len()));
        assert_eq!(Record::parse(b"kv"), ParsedRecord::Invalid);
        let endless = [&MAGIC[..], &[0xFF; 100]].concat();
        assert_eq!(Record::parse(&endless), ParsedRecord::Invalid);
    }

    #[test]
    fn a_stored_deadline_passes_late_rather_than_early() {
        let deadline = Deadline::new(NOW.monotonic_ms + 100, NOW, NOW.wall_ms);
        let left = |clock_ms| deadline.monotonic_ms(Now { wall_ms: 0, monotonic_ms: 3 }, clock_ms) - 3;
        assert_eq!(left(NOW.wall_ms), 101);
        assert_eq!(left(NOW.wall_ms + 60), 41);
        assert_eq!(left(NOW.wall_ms + 1_000), 0);
        assert_eq!(left(0), 101, "the wall clock is not set yet");
    }
}
