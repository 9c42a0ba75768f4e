//! Entry of one key in as little memory as possible: a store may have millions.

use bytes::Bytes;

use crate::protocol::timestamp::{STORE_NODE, Timestamp};
use crate::protocol::{EncodedValue, Key, Value};

use super::limits::KEY_COST_BYTES;

/// The longest value that shares an allocation with its key and is copied into replies. Longer values are
/// shared with replies instead.
const PACKED_BYTES_MAX: usize = 1024;
/// Memory per value that does not share the allocation of its key: two more allocations, the count of references, and
/// its encoding.
const SPLIT_COST_BYTES: u64 = 160;
/// Memory per fencing token besides a node that is not the store: [`Timestamp`] in an allocation of its own.
const FENCE_COST_BYTES: u64 = 48;
/// Memory per allocation besides its content: a header, and what the length is rounded up by.
const ALLOCATION_COST_BYTES: u64 = 16;

/// Returns the memory in bytes that a key takes with its value and its fencing token.
pub(super) fn cost(key: &[u8], value: &[u8], fence: Option<&Timestamp>) -> u64 {
    let bytes = key.len().saturating_add(value.len()) as u64;
    let split = if is_long(value) { SPLIT_COST_BYTES } else { 0 };
    let fence = fence.map_or(0, |fence| match fence.node() {
        STORE_NODE => FENCE_COST_BYTES,
        node => (node.len() as u64).saturating_add(FENCE_COST_BYTES).saturating_add(ALLOCATION_COST_BYTES),
    });
    bytes.saturating_add(KEY_COST_BYTES).saturating_add(split).saturating_add(fence)
}

/// Whether a value has an allocation of its own.
pub(super) fn is_long(value: &[u8]) -> bool {
    value.len() > PACKED_BYTES_MAX
}

/// Version of a value: a timestamp whose node is the store (protocol §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Milliseconds since the Unix epoch.
    pub ms: u64,
    /// Orders versions within one millisecond.
    pub counter: u32,
}

impl Version {
    /// Returns the version that follows this one and `received`, at `wall_ms` or later.
    ///
    /// If only a `received` timestamp of the current millisecond stands in the way, the version moves to the
    /// next millisecond. On a fast network that is the case for every other request, and an SDK test expects
    /// two renewals of a lease to have equal counters (protocol §12). A second write in the same millisecond
    /// counts on from there, so that no version is more than one millisecond ahead for this reason.
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
    pub value: Value,
    /// The fencing token that protects the key (protocol §5).
    pub fence: Option<Timestamp>,
    /// Deadline in monotonic milliseconds; `None`: never.
    pub deadline_ms: Option<u64>,
    /// Whether the key is persistent.
    pub persist: bool,
}

/// A key with value, version and fencing token. Its deadline is in [`super::deadlines::Deadlines`].
///
/// The default has an empty key, which no request can have. It marks a vacant slot.
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
    /// The bytes of the key, then those of the value.
    Packed(Box<[u8]>),
    Split(Box<(Box<[u8]>, EncodedValue)>),
}

impl Default for Data {
    fn default() -> Self {
        Self::Packed(Box::default())
    }
}

impl Data {
    /// Copies key and value: a slice of the packet they arrived in would keep the whole packet in memory.
    fn new(key: &[u8], value: &[u8], encoded: Option<EncodedValue>) -> Self {
        if is_long(value) {
            Self::Split(Box::new((key.into(), encoded.unwrap_or_else(|| EncodedValue::new(value)))))
        } else {
            Self::Packed([key, value].concat().into_boxed_slice())
        }
    }
}

impl Entry {
    /// `encoded` is the value if it is long and was copied before.
    pub(super) fn new(
        key: &Key,
        (value, encoded): (&[u8], Option<EncodedValue>),
        version: Version,
        fence: Option<Timestamp>,
    ) -> Self {
        let key = key.as_bytes();
        Self {
            data: Data::new(key, value, encoded),
            fence: fence.map(Box::new),
            version_ms: version.ms,
            version_counter: version.counter,
            // The conversion cannot fail: `KEY_BYTES_MAX` is the greatest number of this type.
            key_len: u16::try_from(key.len()).unwrap_or(u16::MAX),
            persist: false,
        }
    }

    /// Makes the key persistent until it is deleted or expires.
    pub(super) fn set_persistent(&mut self) {
        self.persist = true;
    }

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
            Data::Split(both) => both.1.as_bytes(),
        }
    }

    /// Returns a long value with its encodings.
    pub(super) fn encoded(&self) -> Option<&EncodedValue> {
        match &self.data {
            Data::Packed(_) => None,
            Data::Split(both) => Some(&both.1),
        }
    }

    /// Returns the value for a reply. Copying a short value is cheaper than counting references to it.
    pub(super) fn to_value(&self) -> Value {
        match &self.data {
            Data::Packed(_) => Bytes::copy_from_slice(self.value()),
            Data::Split(both) => both.1.value(),
        }
    }

    pub(super) fn version(&self) -> Version {
        Version { ms: self.version_ms, counter: self.version_counter }
    }

    pub(super) fn fence(&self) -> Option<&Timestamp> {
        self.fence.as_deref()
    }

    /// Returns the memory in bytes that the entry takes.
    pub(super) fn cost(&self) -> u64 {
        cost(self.key(), self.value(), self.fence())
    }

    /// Replaces the value; in place if its length is the same, as with a renewed lease.
    pub(super) fn overwrite(
        &mut self,
        (value, encoded): (&[u8], Option<EncodedValue>),
        version: Version,
        fence: Option<Timestamp>,
    ) {
        let key_len = usize::from(self.key_len);
        match &mut self.data {
            Data::Packed(both) if both.len() == key_len.saturating_add(value.len()) => {
                if let Some((_, old)) = both.split_at_mut_checked(key_len) {
                    old.copy_from_slice(value);
                }
            }
            _ => self.data = Data::new(self.key(), value, encoded),
        }
        (self.version_ms, self.version_counter) = (version.ms, version.counter);
        self.fence = fence.map(Box::new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], value: &[u8]) -> Entry {
        Entry::new(&Key::new(key.to_vec()).unwrap(), (value, None), Version::default(), None)
    }

    #[test]
    fn an_entry_has_40_bytes() {
        assert_eq!(size_of::<Entry>(), 40);
    }

    #[test]
    fn keys_and_values_of_all_lengths_are_read_back_unchanged() {
        for key_len in [1, 16, 65_535] {
            let mut entry = entry(&vec![b'k'; key_len], b"");
            for value_len in [0, 5, 5, PACKED_BYTES_MAX, PACKED_BYTES_MAX + 1, 100_000, 3] {
                let value = vec![b'v'; value_len];
                entry.overwrite((&value, None), Version { ms: 7, counter: 1 }, None);
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
