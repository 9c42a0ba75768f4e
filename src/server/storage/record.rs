//! One key on disk, as bytes that can be told from all others: whatever happens to the file around it, a row is whole
//! or it is none.

use bytes::{Buf, BufMut, Bytes};

use crate::protocol::{Key, Timestamp};
use crate::store::{Now, StoredValue, Version};

/// What a row begins with.
const MARK: [u8; 4] = [0xA7, b'k', b'v', 0x02];
/// Mark, length and checksum.
const HEAD_BYTES: usize = 4 + 4 + 8;
/// The longest row that is believed to be one: the longest key and packet, and more than what else there is.
const BODY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Where a checksum begins.
pub const CHECKSUM_OF_NOTHING: u64 = 0xcbf2_9ce4_8422_2325;
const HAS_DEADLINE: u8 = 1;
const HAS_FENCE: u8 = 2;

/// When a key runs out, so that it can be known after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The Unix milliseconds at which it passes.
    pub wall_ms: u64,
    /// How many were left when it was written.
    pub left_ms: u64,
}

/// A key with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Key,
    /// The value's version.
    pub version: Version,
    /// The token that protects it, if any.
    pub fence: Option<Timestamp>,
    /// When it runs out, if ever.
    pub deadline: Option<Deadline>,
    /// The value.
    pub value: Bytes,
}

/// What stands at a place where a row may stand.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A row of so many bytes.
    Row(Box<Row>, usize),
    /// None.
    Nothing,
    /// A row perhaps, of so many bytes, of which these are too few.
    Cut(usize),
}

impl Row {
    /// What a key holds now, for the disk.
    pub fn new(key: &Key, version: Version, content: &StoredValue, now: Now) -> Self {
        Self {
            key: key.clone(),
            version,
            fence: content.fence.clone(),
            deadline: content.deadline_ms.map(|at| Deadline::new(at, now)),
            value: content.value.clone(),
        }
    }

    /// What the key holds. A deadline that has passed meanwhile is at `now` or before; one that lies ahead is at most as
    /// far away as it was when it was written, should the machine's clock have gone back since.
    pub fn content(&self, now: Now) -> StoredValue {
        StoredValue {
            value: self.value.clone(),
            fence: self.fence.clone(),
            deadline_ms: self.deadline.map(|deadline| deadline.monotonic_ms(now)),
            persist: true,
        }
    }

    /// The bytes of the row.
    pub fn encode(&self) -> Vec<u8> {
        let fence = self.fence.as_ref().map(Timestamp::to_string).unwrap_or_default();
        let key = self.key.as_bytes();
        let mut body = Vec::with_capacity(
            64_usize.saturating_add(fence.len()).saturating_add(key.len()).saturating_add(self.value.len()),
        );
        body.put_u64(self.version.ms);
        body.put_u32(self.version.counter);
        let has_deadline = self.deadline.map_or(0, |_| HAS_DEADLINE);
        body.put_u8(has_deadline | self.fence.as_ref().map_or(0, |_| HAS_FENCE));
        if let Some(Deadline { wall_ms, left_ms }) = self.deadline {
            body.put_u64(wall_ms);
            body.put_u64(left_ms);
        }
        put_text(&mut body, fence.as_bytes());
        put_text(&mut body, key);
        body.put_slice(&self.value);
        let mut row = Vec::with_capacity(HEAD_BYTES.saturating_add(body.len()));
        row.put_slice(&MARK);
        // A value has at most as many bytes as a packet, which has less than 2^28.
        row.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        row.put_u64(checksum(&body));
        row.append(&mut body);
        row
    }

    /// Reads a row that these bytes are, and nothing else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match Self::find(bytes) {
            Found::Row(row, len) if len == bytes.len() => Some(*row),
            _ => None,
        }
    }

    /// Looks for a row at the beginning of these bytes.
    pub fn find(bytes: &[u8]) -> Found {
        if !bytes.starts_with(&MARK) {
            return Found::Nothing;
        }
        let Some((mut head, rest)) = bytes.split_at_checked(HEAD_BYTES) else {
            return Found::Cut(HEAD_BYTES);
        };
        head.advance(MARK.len());
        let (len, sum) = (usize::try_from(head.get_u32()).unwrap_or(usize::MAX), head.get_u64());
        if len > BODY_BYTES_MAX {
            return Found::Nothing;
        }
        let row_bytes = HEAD_BYTES.saturating_add(len);
        let Some(body) = rest.get(..len) else {
            return Found::Cut(row_bytes);
        };
        if checksum(body) != sum {
            return Found::Nothing;
        }
        Self::decode_body(body).map_or(Found::Nothing, |row| Found::Row(Box::new(row), row_bytes))
    }

    fn decode_body(mut body: &[u8]) -> Option<Self> {
        let (ms, counter) = (body.try_get_u64().ok()?, body.try_get_u32().ok()?);
        let flags = body.try_get_u8().ok()?;
        let deadline = if flags & HAS_DEADLINE == 0 {
            None
        } else {
            Some(Deadline { wall_ms: body.try_get_u64().ok()?, left_ms: body.try_get_u64().ok()? })
        };
        let fence = take_text(&mut body)?;
        let fence =
            if flags & HAS_FENCE == 0 { None } else { Some(std::str::from_utf8(fence).ok()?.parse().ok()?) };
        let key = Key::new(take_text(&mut body)?.to_vec()).ok()?;
        let version = Version { ms, counter };
        Some(Self { key, version, fence, deadline, value: Bytes::copy_from_slice(body) })
    }
}

impl Deadline {
    /// Rounded up by the millisecond that two truncated clocks may differ by: late rather than early.
    fn new(monotonic_ms: u64, now: Now) -> Self {
        let left_ms = monotonic_ms.saturating_sub(now.monotonic_ms).saturating_add(1);
        Self { wall_ms: now.wall_ms.saturating_add(left_ms), left_ms }
    }

    fn monotonic_ms(self, now: Now) -> u64 {
        let left_ms = self.wall_ms.saturating_sub(now.wall_ms).min(self.left_ms);
        now.monotonic_ms.saturating_add(left_ms)
    }
}

/// Where the next row may begin; none: nowhere in these bytes, but for the last three.
pub fn next_mark(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|window| window == MARK)
}

/// Of 64 bits, against accidents: FNV-1a, which no release of any library can change.
fn checksum(bytes: &[u8]) -> u64 {
    checksum_on(CHECKSUM_OF_NOTHING, bytes)
}

/// The checksum of what has this one, and of these bytes behind it.
pub fn checksum_on(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Puts a key, which has at most 65,535 bytes, or a fence, which has far fewer.
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    out.put_slice(text);
}

/// Takes what [`put_text`] has put.
pub fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::from(from.try_get_u16().ok()?);
    let (text, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    fn row(key: &[u8], value: &[u8]) -> Row {
        Row {
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
        fn a_row_comes_out_as_it_went_in_and_a_changed_one_not_at_all(
            key in prop::collection::vec(any::<u8>(), 1..300),
            value in prop::collection::vec(any::<u8>(), 0..3_000),
            fence in prop::option::of((0_u64..1 << 48, 0_u32..9)),
            deadline in prop::option::of((any::<u64>(), any::<u64>())),
            at in any::<prop::sample::Index>(),
            flip in 1_u8..,
        ) {
            let row = Row {
                fence: fence.map(|(ms, counter)| Timestamp::of_store(ms, counter)),
                deadline: deadline.map(|(wall_ms, left_ms)| Deadline { wall_ms, left_ms }),
                ..row(&key, &value)
            };
            let mut bytes = row.encode();
            prop_assert_eq!(Row::decode(&bytes), Some(row));
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert_eq!(Row::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let marked = [&MARK[..], &bytes].concat();
            prop_assert_eq!(Row::decode(&bytes), None);
            prop_assert_eq!(Row::decode(&marked), None);
        }
    }

    #[test]
    fn a_row_that_is_cut_off_says_how_long_it_is() {
        let bytes = row(b"k", b"value").encode();
        assert_eq!(Row::find(&bytes[..6]), Found::Cut(HEAD_BYTES));
        assert_eq!(Row::find(&bytes[..bytes.len() - 1]), Found::Cut(bytes.len()));
        assert_eq!(Row::find(b"kv"), Found::Nothing);
        let endless = [&MARK[..], &[0xFF; 100]].concat();
        assert_eq!(Row::find(&endless), Found::Nothing);
    }

    #[test]
    fn a_deadline_is_kept_late_rather_than_early() {
        let deadline = Deadline::new(NOW.monotonic_ms + 100, NOW);
        let left = |wall_ms| deadline.monotonic_ms(Now { wall_ms, monotonic_ms: 3 }) - 3;
        assert_eq!(left(NOW.wall_ms), 101);
        assert_eq!(left(NOW.wall_ms + 60), 41);
        assert_eq!(left(NOW.wall_ms + 1_000), 0);
        assert_eq!(left(0), 101, "the machine does not know the time yet");
    }
}
