//! What the store knows of one key, in as few bytes as it takes: there may be a million of them.

use bytes::Bytes;

use crate::protocol::timestamp::Timestamp;
use crate::protocol::{Key, Value};

/// Values up to this many bytes lie beside their key in one allocation and are copied into a reply; longer
/// ones are shared with the reply.
const PACKED_BYTES_MAX: usize = 1024;

/// The version of a value: a timestamp whose node is the store (protocol §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// Tells apart what happened within one millisecond.
    pub counter: u32,
}

impl Version {
    /// The version that follows this one and `received`, at `wall_ms` or later.
    ///
    /// Where only a timestamp of this very millisecond stands in the way, the version is of the next one: on a fast
    /// network that happens to every other request, and an SDK takes it for granted that the renewals of a lease
    /// have one counter (protocol §4). A key that is written again meanwhile counts on from there, so no version is
    /// more than a millisecond ahead for this.
    pub(super) fn next(self, received: &Timestamp, wall_ms: u64) -> Self {
        if received.ms == wall_ms && self.ms < wall_ms {
            return Self { ms: wall_ms.saturating_add(1), counter: 0 };
        }
        let Timestamp { ms, counter, .. } = Timestamp::from(self).merge(received, wall_ms);
        Self { ms, counter }
    }
}

impl From<Version> for Timestamp {
    fn from(version: Version) -> Self {
        Self::of_store(version.ms, version.counter)
    }
}

/// What a key holds besides its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The value.
    pub value: Value,
    /// The token that protects it, if any (protocol §5).
    pub fence: Option<Timestamp>,
    /// When it runs out, in monotonic milliseconds; none: never.
    pub deadline_ms: Option<u64>,
    /// Whether it is to be kept on disk, as once asked for.
    pub persist: bool,
}

/// A key, its value, version and fence. Its deadline is in [`super::expiry::Expiry`].
///
/// The default has an empty key, which no request can have: that is how a vacant slot looks.
#[derive(Debug, Default)]
pub(super) struct Entry {
    data: Data,
    fence: Option<Box<Timestamp>>,
    version_ms: u64,
    version_counter: u32,
    key_len: u16,
    persist: bool,
}

#[derive(Debug)]
enum Data {
    /// The key's bytes, then the value's.
    Packed(Box<[u8]>),
    Split(Box<(Box<[u8]>, Value)>),
}

impl Default for Data {
    fn default() -> Self {
        Self::Packed(Box::default())
    }
}

impl Data {
    /// Copies both out of the packet they came in, which a slice would keep in memory as a whole.
    fn new(key: &[u8], value: &[u8]) -> Self {
        if value.len() <= PACKED_BYTES_MAX {
            Self::Packed([key, value].concat().into_boxed_slice())
        } else {
            Self::Split(Box::new((key.into(), Bytes::copy_from_slice(value))))
        }
    }
}

impl Entry {
    pub(super) fn new(key: &Key, value: &[u8], version: Version, fence: Option<Timestamp>) -> Self {
        let key = key.as_bytes();
        Self {
            data: Data::new(key, value),
            fence: fence.map(Box::new),
            version_ms: version.ms,
            version_counter: version.counter,
            // A key has at most `KEY_BYTES_MAX` bytes, which is this type's greatest number.
            key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
            persist: false,
        }
    }

    /// Marks it as one that is to be kept on disk; it stays one for as long as it lives.
    pub(super) fn persist(&mut self) {
        self.persist = true;
    }

    /// Whether it is to be kept on disk.
    pub(super) fn is_persistent(&self) -> bool {
        self.persist
    }

    pub(super) fn key(&self) -> &[u8] {
        match &self.data {
            Data::Packed(both) => both.split_at_checked(self.key_len.into()).map_or(&[], |(key, _)| key),
            Data::Split(both) => &both.0,
        }
    }

    pub(super) fn value(&self) -> &[u8] {
        match &self.data {
            Data::Packed(both) => both.split_at_checked(self.key_len.into()).map_or(&[], |(_, value)| value),
            Data::Split(both) => &both.1,
        }
    }

    /// The value for a reply: a long one is shared, a short one is cheaper to copy than to count.
    pub(super) fn to_value(&self) -> Value {
        match &self.data {
            Data::Packed(_) => Bytes::copy_from_slice(self.value()),
            Data::Split(both) => both.1.clone(),
        }
    }

    pub(super) fn version(&self) -> Version {
        Version { ms: self.version_ms, counter: self.version_counter }
    }

    pub(super) fn fence(&self) -> Option<&Timestamp> {
        self.fence.as_deref()
    }

    /// Writes another value over this one; in place where the length stays, as with a renewed lease.
    pub(super) fn overwrite(&mut self, value: &[u8], version: Version, fence: Option<Timestamp>) {
        let key_len = usize::from(self.key_len);
        match &mut self.data {
            Data::Packed(both) if both.len() == key_len.saturating_add(value.len()) => {
                if let Some((_, old)) = both.split_at_mut_checked(key_len) {
                    old.copy_from_slice(value);
                }
            }
            _ => self.data = Data::new(self.key(), value),
        }
        (self.version_ms, self.version_counter) = (version.ms, version.counter);
        self.fence = fence.map(Box::new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], value: &[u8]) -> Entry {
        Entry::new(&Key::new(key.to_vec()).unwrap(), value, Version::default(), None)
    }

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn key_and_value_come_out_as_they_went_in_whatever_their_lengths() {
        for key_len in [1, 16, 65_535] {
            let mut entry = entry(&vec![b'k'; key_len], b"");
            for value_len in [0, 5, 5, PACKED_BYTES_MAX, PACKED_BYTES_MAX + 1, 100_000, 3] {
                let value = vec![b'v'; value_len];
                entry.overwrite(&value, Version { ms: 7, counter: 1 }, None);
                assert_eq!(entry.key(), vec![b'k'; key_len]);
                assert_eq!(entry.value(), value);
                assert_eq!(entry.to_value(), value);
                assert_eq!(entry.version(), Version { ms: 7, counter: 1 });
            }
        }
    }

    #[test]
    fn a_long_value_is_shared_with_its_reply() {
        let entry = entry(b"k", &[0; PACKED_BYTES_MAX + 1]);
        assert_eq!(entry.to_value().as_ptr(), entry.to_value().as_ptr());
    }

    #[test]
    fn a_version_follows_the_last_one_the_request_and_the_clock() {
        let last = Version { ms: 10, counter: 3 };
        let next = |ms, counter, wall_ms| last.next(&Timestamp::of_store(ms, counter), wall_ms);
        assert_eq!(next(9, 9, 11), Version { ms: 11, counter: 0 });
        assert_eq!(next(9, 9, 10), Version { ms: 10, counter: 4 });
        assert_eq!(next(10, 7, 10), Version { ms: 10, counter: 8 });
        assert_eq!(next(12, 7, 10), Version { ms: 12, counter: 8 });
    }

    #[test]
    fn a_full_counter_carries_into_the_milliseconds() {
        let full = Version { ms: 10, counter: i32::MAX as u32 };
        let next = full.next(&Timestamp::of_store(10, 0), 10);
        assert_eq!(next, Version { ms: 11, counter: 0 });
    }
}
