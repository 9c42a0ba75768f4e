//! What a key holds in files and in etcd, as bytes.

use bytes::{Buf, BufMut, Bytes};

use crate::ledger::RecordTooLong;
use crate::protocol::Timestamp;
use crate::store::{Now, StoredValue, Version};

const HAS_DEADLINE: u8 = 1;
const HAS_FENCE: u8 = 2;

/// Expiry of a key in a form that survives a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When the key expires, on the store's clock: see [`CommitMetadata::clock_ms_at`](super::CommitMetadata::clock_ms_at), or `StoreClock` in etcd.
    pub clock_ms: u64,
    /// The time to live when the record was written, in milliseconds.
    pub ttl_ms: u64,
}

/// What a key holds; or a tombstone, which is the last version of a key that holds nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    pub version: Version,
    pub fence: Option<Timestamp>,
    /// When the key expires; `None`: never.
    pub deadline: Option<Deadline>,
    pub value: Bytes,
}

impl KeyState {
    /// `clock_ms` is the store's clock at `now`.
    #[must_use]
    pub fn new(version: Version, stored: &StoredValue, now: Now, clock_ms: u64) -> Self {
        Self {
            version,
            fence: stored.fence.clone(),
            deadline: stored.deadline_ms.map(|at| Deadline::new(at, now, clock_ms)),
            value: stored.value.clone(),
        }
    }

    /// Returns the state of a key that holds nothing, and whose last version is ahead of the ceiling.
    #[must_use]
    pub fn tombstone(version: Version) -> Self {
        let deadline = Some(Deadline { clock_ms: 0, ttl_ms: 0 });
        Self { version, fence: None, deadline, value: Bytes::new() }
    }

    /// Whether this is a tombstone: the time to live of a value is never 0, see `Deadline::new`.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline.ttl_ms == 0)
    }

    /// Returns what the key holds. A deadline that has passed since the record was written is at `now` or before. One
    /// that has not passed is at most its original time to live away, even if the clocks have gone back since.
    /// `clock_ms` is the store's clock at `now`.
    #[must_use]
    pub fn stored_value(self, now: Now, clock_ms: u64) -> StoredValue {
        StoredValue {
            value: self.value,
            fence: self.fence,
            deadline_ms: self.deadline.map(|deadline| deadline.monotonic_ms(now, clock_ms)),
            persist: true,
        }
    }

    /// # Errors
    /// [`RecordTooLong`]: the fencing token does not fit. None that comes from a request is so long.
    pub fn encode(&self) -> Result<Bytes, RecordTooLong> {
        let mut out = Vec::with_capacity(96_usize.saturating_add(self.value.len()));
        self.put_head(&mut out)?;
        out.put_slice(&self.value);
        Ok(out.into())
    }

    /// Decodes what [`KeyState::encode`] has returned. The value shares the memory of `content`.
    #[must_use]
    pub fn decode(mut content: Bytes) -> Option<Self> {
        let head = Self::take_head(&mut content)?;
        Some(Self { value: content, ..head })
    }

    /// Appends everything but the value.
    ///
    /// # Errors
    /// As for [`KeyState::encode`].
    pub fn put_head(&self, out: &mut Vec<u8>) -> Result<(), RecordTooLong> {
        out.put_u64(self.version.ms);
        out.put_u32(self.version.counter);
        let has_deadline = self.deadline.map_or(0, |_| HAS_DEADLINE);
        out.put_u8(has_deadline | self.fence.as_ref().map_or(0, |_| HAS_FENCE));
        if let Some(Deadline { clock_ms, ttl_ms }) = self.deadline {
            out.put_u64(clock_ms);
            out.put_u64(ttl_ms);
        }
        let fence = self.fence.as_ref().map(Timestamp::to_string).unwrap_or_default();
        out.put_u16(u16::try_from(fence.len()).map_err(|_| RecordTooLong)?);
        out.put_slice(fence.as_bytes());
        Ok(())
    }

    /// Takes what [`KeyState::put_head`] has appended. The value is empty.
    #[must_use]
    pub fn take_head(from: &mut impl Buf) -> Option<Self> {
        let version = Version { ms: from.try_get_u64().ok()?, counter: from.try_get_u32().ok()? };
        let flags = from.try_get_u8().ok()?;
        let deadline = if flags & HAS_DEADLINE == 0 {
            None
        } else {
            Some(Deadline { clock_ms: from.try_get_u64().ok()?, ttl_ms: from.try_get_u64().ok()? })
        };
        let len = usize::from(from.try_get_u16().ok()?);
        if from.remaining() < len {
            return None;
        }
        let fence = from.copy_to_bytes(len);
        let fence =
            if flags & HAS_FENCE == 0 { None } else { Some(std::str::from_utf8(&fence).ok()?.parse().ok()?) };
        Some(Self { version, fence, deadline, value: Bytes::new() })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn a_key_state_decodes_unchanged(
            value in prop::collection::vec(any::<u8>(), 0..3_000),
            fence in prop::option::of((0_u64..1 << 48, 0_u32..9)),
            deadline in prop::option::of((any::<u64>(), any::<u64>())),
        ) {
            let state = KeyState {
                version: Version { ms: 7, counter: 3 },
                fence: fence.map(|(ms, counter)| Timestamp::of_store(ms, counter)),
                deadline: deadline.map(|(clock_ms, ttl_ms)| Deadline { clock_ms, ttl_ms }),
                value: value.into(),
            };
            prop_assert_eq!(KeyState::decode(state.encode().unwrap()), Some(state));
        }

        #[test]
        fn arbitrary_bytes_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = KeyState::decode(bytes.into());
        }
    }

    #[test]
    fn a_stored_deadline_passes_late_rather_than_early() {
        let deadline = Deadline::new(NOW.monotonic_ms + 100, NOW, NOW.wall_ms);
        let left = |clock_ms| deadline.monotonic_ms(Now { wall_ms: 0, monotonic_ms: 3 }, clock_ms) - 3;
        assert_eq!(left(NOW.wall_ms), 101);
        assert_eq!(left(NOW.wall_ms + 60), 41);
        assert_eq!(left(NOW.wall_ms + 1_000), 0);
        assert_eq!(left(0), 101, "the clock has gone back");
    }
}
