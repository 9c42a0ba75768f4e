//! Values of a cluster in etcd, as bytes. Each begins with the version of its format.

use bytes::{Buf, BufMut, Bytes};

use super::row::{self, put_bytes, take_bytes};
use crate::ledger::{KeyState, LoweredVersions, ResponseRecord};
use crate::protocol::Key;
use crate::protocol::reply::Outcome;
use crate::store::{Now, StoredValue, Version};

/// The version of the format of all values.
pub const FORMAT: u8 = 1;
/// Length of the hash key of a cluster in bytes.
pub const CLUSTER_KEY_BYTES: usize = 32;
/// The parts of the keys, in the meta record. Builds before the first release divided them by a hash, into up to 16 shards.
const SHARDS: u32 = 1;

/// What all instances of a cluster agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The key of the hashes that must be the same in all instances.
    pub hash_key: [u8; CLUSTER_KEY_BYTES],
}

/// The value has another format, or is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    OtherFormat(u8),
    Malformed,
}

/// The head of the state: every commit changes it, and compares the revision of its last change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// `None`: the last owner has given the store up.
    pub owner: Option<Owner>,
    /// Number of the ownership.
    pub epoch: u64,
    /// Number of the commit. It counts on over all owners.
    pub seq: u64,
    /// The greatest version ever given out.
    pub greatest: Version,
    /// The owner's wall clock, or that of an earlier head if that is greater.
    pub wall_ms: u64,
    /// The store's clock, which deadlines are measured by: see [`StoreClock`].
    pub clock_ms: u64,
    /// The number of other keys that this commit writes.
    pub puts: u32,
    /// The number of keys that it deletes, without those of old responses.
    pub deletions: u32,
    /// Differs in each commit that a run of an instance has begun: one that was given up without a known outcome differs from the next
    /// one, which has the same `seq`.
    pub attempt: u64,
}

/// The store's clock: time that some instance has counted, in milliseconds, by its monotonic clock. No wall clock moves it.
///
/// An owner counts on from its first head, and writes the clock in each head. A follower counts from the reception of a head, which
/// is later than its writing. So the clock of each instance advances no faster than time, whichever instances own the store one after
/// the other, and a deadline by it passes late rather than early: by the time in which no instance followed an owner, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreClock {
    clock_ms: u64,
    /// When it showed that, in monotonic milliseconds.
    at_ms: u64,
}

impl StoreClock {
    /// Returns the clock that shows `clock_ms` now.
    #[must_use]
    pub fn new(clock_ms: u64, now: Now) -> Self {
        Self { clock_ms, at_ms: now.monotonic_ms }
    }

    #[must_use]
    pub fn at(&self, now: Now) -> u64 {
        self.clock_ms.saturating_add(now.monotonic_ms.saturating_sub(self.at_ms))
    }
}

/// The owner of the store: one run of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub instance: String,
    /// Differs in each run of an instance.
    pub run: u64,
}

/// Encodes the run of a member, as the value of its key.
#[must_use]
pub fn encode_run(run: u64) -> Bytes {
    format!("{run:016x}").into()
}

/// Returns the run of a member; 0 if the value is none.
#[must_use]
pub fn decode_run(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    u64::from_str_radix(text, 16).unwrap_or_default()
}

/// What a member announces, with a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberState {
    pub wall_ms: u64,
    /// By how much the instance has found its clock to be ahead, or behind; 0: it may own the store.
    pub off_ms: i64,
    /// The revision at which it reads the state; 0: it does not. History from there on must not be discarded.
    pub reads_at: u64,
}

impl MemberState {
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = vec![FORMAT];
        out.put_u64(self.wall_ms);
        out.put_i64(self.off_ms);
        out.put_u64(self.reads_at);
        out.into()
    }

    /// # Errors
    /// [`DecodeError`]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(body(bytes)?, |body| {
            Some(Self {
                wall_ms: body.try_get_u64().ok()?,
                off_ms: body.try_get_i64().ok()?,
                reads_at: body.try_get_u64().ok()?,
            })
        })
    }
}

/// Encodes a request that the owner with this epoch gives the store up.
#[must_use]
pub fn encode_request(epoch: u64) -> Bytes {
    let mut out = vec![FORMAT];
    out.put_u64(epoch);
    out.into()
}

/// Returns the epoch of a request; `None` if the value is none.
#[must_use]
pub fn decode_request(value: &[u8]) -> Option<u64> {
    whole(body(value).ok()?, |body| body.try_get_u64().ok()).ok()
}

/// When the value of a deadline was received, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// By a watch: the time left when it was written counts from now on.
    Watched,
    /// In a read: it may have been written long before. The store's clock shows `clock_ms` now.
    Read { clock_ms: u64 },
}

impl Meta {
    #[must_use]
    pub fn encode(self) -> Bytes {
        let mut out = vec![FORMAT];
        out.put_u32(SHARDS);
        out.put_slice(&self.hash_key);
        out.into()
    }

    /// # Errors
    /// Why this program cannot use the cluster.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let body = body(bytes).and_then(|body| {
            whole(body, |body| {
                let shards = body.try_get_u32().ok()?;
                let mut hash_key = [0; CLUSTER_KEY_BYTES];
                body.try_copy_to_slice(&mut hash_key).ok()?;
                Some((shards, Self { hash_key }))
            })
        });
        match body {
            Ok((SHARDS, meta)) => Ok(meta),
            Ok((shards, _)) => {
                Err(format!("{shards} shards: export the keys with the earlier build that has written them"))
            }
            Err(DecodeError::OtherFormat(format)) => Err(format!("format {format}")),
            Err(DecodeError::Malformed) => Err("the meta record is invalid".to_owned()),
        }
    }
}

impl Head {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let Self { owner, epoch, seq, greatest, wall_ms, clock_ms, puts, deletions, attempt } = self;
        let mut out = vec![FORMAT];
        let instance = owner.as_ref().map_or("", |owner| &owner.instance);
        // The name of an instance is far shorter than 65,535 bytes; a head without one would name no owner.
        let _ = put_bytes(&mut out, instance.as_bytes());
        out.put_u64(owner.as_ref().map_or(0, |owner| owner.run));
        out.put_u64(*epoch);
        out.put_u64(*seq);
        put_version(&mut out, *greatest);
        out.put_u64(*wall_ms);
        out.put_u64(*clock_ms);
        out.put_u32(*puts);
        out.put_u32(*deletions);
        // Of the format; it has had no meaning since the deletion of a written key is a commit of its own.
        out.put_u32(0);
        out.put_u64(*attempt);
        out.into()
    }

    /// # Errors
    /// [`DecodeError`]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        whole(body(bytes)?, |body| {
            let instance = std::str::from_utf8(take_bytes(body)?).ok()?.to_owned();
            let run = body.try_get_u64().ok()?;
            let owner = match (instance.is_empty(), run) {
                (false, _) => Some(Owner { instance, run }),
                (true, 0) => None,
                (true, _) => return None,
            };
            let head = Self {
                owner,
                epoch: body.try_get_u64().ok()?,
                seq: body.try_get_u64().ok()?,
                greatest: take_version(body)?,
                wall_ms: body.try_get_u64().ok()?,
                clock_ms: body.try_get_u64().ok()?,
                puts: body.try_get_u32().ok()?,
                deletions: body.try_get_u32().ok()?,
                attempt: 0,
            };
            body.try_get_u32().ok()?;
            Some(Self { attempt: body.try_get_u64().ok()?, ..head })
        })
    }
}

/// Returns a row; `None` if it is too long for any request. `clock_ms` is the store's clock now.
pub fn encode_row(
    key: &Key,
    version: Version,
    stored: &StoredValue,
    now: Now,
    clock_ms: u64,
) -> Option<Bytes> {
    let record = row::encode(key, &KeyState::new(version, stored, now, clock_ms)).ok()?;
    Some([&[FORMAT], &record[..]].concat().into())
}

/// # Errors
/// [`DecodeError`], also if it is the row of another key.
pub fn decode_row(
    key: &Key,
    bytes: &[u8],
    reception: Reception,
    now: Now,
) -> Result<(Version, StoredValue), DecodeError> {
    let state = decode_state(key, bytes)?;
    Ok((state.version, state.stored_value(now, reception.clock_ms())))
}

/// Lowers the version and the fencing token of a row to `wall_ms` if they are too far ahead of it. Returns what was lowered so far, with this
/// row, the version of the row, and the row if it has changed.
///
/// # Errors
/// [`DecodeError`], also if it is the row of another key.
pub fn lower_row(
    key: &Key,
    bytes: &[u8],
    lowered: LoweredVersions,
    wall_ms: u64,
) -> Result<(LoweredVersions, Version, Option<Bytes>), DecodeError> {
    let mut state = decode_state(key, bytes)?;
    let after = lowered.lower(&mut state, wall_ms);
    if after == lowered {
        return Ok((after, state.version, None));
    }
    let encoded = row::encode(key, &state).map_err(|_| DecodeError::Malformed)?;
    Ok((after, state.version, Some([&[FORMAT], &encoded[..]].concat().into())))
}

fn decode_state(key: &Key, bytes: &[u8]) -> Result<KeyState, DecodeError> {
    let decoded = row::decode(body(bytes)?).filter(|(found, _)| found == key);
    Ok(decoded.ok_or(DecodeError::Malformed)?.1)
}

impl Reception {
    /// Returns the clock that a deadline is compared with: at most the store's.
    fn clock_ms(self) -> u64 {
        match self {
            Self::Watched => 0,
            Self::Read { clock_ms } => clock_ms,
        }
    }
}

/// The value of a registration.
#[must_use]
pub fn presence() -> Bytes {
    Bytes::from_static(&[FORMAT])
}

/// # Errors
/// [`DecodeError`]
pub fn decode_presence(bytes: &[u8]) -> Result<(), DecodeError> {
    whole(body(bytes)?, |_| Some(()))
}

/// The responses to the writes of a commit, as they are built.
#[derive(Debug, Default)]
pub struct EncodedResponses {
    bytes: Vec<u8>,
    count: u32,
    /// The last time until which one of them is stored, on the store's clock.
    until_ms: u64,
}

/// The responses of a commit.
#[derive(Debug, PartialEq, Eq)]
pub struct DecodedResponses {
    pub until_ms: u64,
    pub responses: Vec<ResponseRecord>,
}

/// The bytes of a response besides client id and payload.
const RESPONSE_BYTES_MIN: usize = 2 + 8 + 1 + 1 + 8 + 8 + 4;

impl EncodedResponses {
    /// Adds a response; `clock_ms` is the store's clock now.
    pub fn push(&mut self, response: &ResponseRecord, now: Now, clock_ms: u64) {
        let ResponseRecord { client_id, fingerprint, payload, version, outcome, until_ms } = response;
        let kept_ms = until_ms.saturating_sub(now.monotonic_ms);
        let until_ms = clock_ms.saturating_add(kept_ms);
        let mut out = Vec::with_capacity(payload.len().saturating_add(client_id.len()).saturating_add(64));
        // A client id is a string of MQTT: it has at most 65,535 bytes.
        if put_bytes(&mut out, client_id.as_bytes()).is_err() {
            return;
        }
        out.put_u64(*fingerprint);
        out.put_u8(match outcome {
            Outcome::Ok => 0,
            Outcome::No => 1,
            Outcome::Refused => 2,
        });
        out.put_u8(u8::from(version.is_some()));
        if let Some(version) = version {
            put_version(&mut out, *version);
        }
        out.put_u64(until_ms);
        out.put_u64(kept_ms);
        // A payload is shorter than a packet.
        out.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        out.put_slice(payload);
        self.bytes.append(&mut out);
        self.count = self.count.saturating_add(1);
        self.until_ms = self.until_ms.max(until_ms);
    }

    pub fn append(&mut self, later: &mut Self) {
        self.bytes.append(&mut later.bytes);
        self.count = self.count.saturating_add(std::mem::take(&mut later.count));
        self.until_ms = self.until_ms.max(later.until_ms);
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn until_ms(&self) -> u64 {
        self.until_ms
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns a record of these responses and of later ones.
    pub fn encode_with(&self, later: &Self) -> Bytes {
        let len = self.bytes.len().saturating_add(later.bytes.len());
        let mut out = Vec::with_capacity(len.saturating_add(16));
        out.put_u8(FORMAT);
        out.put_u64(self.until_ms.max(later.until_ms));
        out.put_u32(self.count.saturating_add(later.count));
        out.put_slice(&self.bytes);
        out.put_slice(&later.bytes);
        out.into()
    }

    /// # Errors
    /// [`DecodeError`]
    pub fn decode(bytes: &[u8], reception: Reception, now: Now) -> Result<DecodedResponses, DecodeError> {
        whole(body(bytes)?, |body| {
            let until_ms = body.try_get_u64().ok()?;
            let count = usize::try_from(body.try_get_u32().ok()?).ok()?;
            // A count that the bytes cannot hold allocates nothing.
            if count > body.len() / RESPONSE_BYTES_MIN {
                return None;
            }
            let mut responses = Vec::with_capacity(count);
            for _ in 0..count {
                responses.push(take_response(body, reception, now)?);
            }
            Some(DecodedResponses { until_ms, responses })
        })
    }
}

fn take_response(body: &mut &[u8], reception: Reception, now: Now) -> Option<ResponseRecord> {
    let client_id = std::str::from_utf8(take_bytes(body)?).ok()?.into();
    let fingerprint = body.try_get_u64().ok()?;
    let outcome = match body.try_get_u8().ok()? {
        0 => Outcome::Ok,
        1 => Outcome::No,
        2 => Outcome::Refused,
        _ => return None,
    };
    let version = match body.try_get_u8().ok()? {
        0 => None,
        1 => Some(take_version(body)?),
        _ => return None,
    };
    let (until_ms, kept_ms) = (body.try_get_u64().ok()?, body.try_get_u64().ok()?);
    let len = usize::try_from(body.try_get_u32().ok()?).ok()?;
    let (payload, rest) = body.split_at_checked(len)?;
    *body = rest;
    let left_ms = until_ms.saturating_sub(reception.clock_ms()).min(kept_ms);
    Some(ResponseRecord {
        client_id,
        fingerprint,
        payload: Bytes::copy_from_slice(payload),
        version,
        outcome,
        until_ms: now.monotonic_ms.saturating_add(left_ms),
    })
}

fn put_version(out: &mut Vec<u8>, version: Version) {
    out.put_u64(version.ms);
    out.put_u32(version.counter);
}

fn take_version(body: &mut &[u8]) -> Option<Version> {
    Some(Version { ms: body.try_get_u64().ok()?, counter: body.try_get_u32().ok()? })
}

fn body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match bytes.split_first() {
        Some((&FORMAT, body)) => Ok(body),
        Some((format, _)) => Err(DecodeError::OtherFormat(*format)),
        None => Err(DecodeError::Malformed),
    }
}

/// Decodes all bytes: nothing may be left.
fn whole<T>(mut body: &[u8], decode: impl FnOnce(&mut &[u8]) -> Option<T>) -> Result<T, DecodeError> {
    decode(&mut body).filter(|_| body.is_empty()).ok_or(DecodeError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Timestamp;
    use proptest::prelude::*;

    const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

    fn version() -> impl Strategy<Value = Version> {
        (any::<u64>(), any::<u32>()).prop_map(|(ms, counter)| Version { ms, counter })
    }

    fn head() -> impl Strategy<Value = Head> {
        let owner = prop::option::of(("[a-z0-9.-]{1,40}", any::<u64>()));
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let counts = (any::<u32>(), any::<u32>());
        (owner, numbers, version(), counts).prop_map(
            |(owner, (epoch, seq, wall_ms, clock_ms, attempt), greatest, (puts, deletions))| Head {
                owner: owner.map(|(instance, run)| Owner { instance, run }),
                epoch,
                seq,
                greatest,
                wall_ms,
                clock_ms,
                puts,
                deletions,
                attempt,
            },
        )
    }

    fn response() -> impl Strategy<Value = ResponseRecord> {
        let outcome = prop::sample::select(&Outcome::ALL[..]);
        let payload = prop::collection::vec(any::<u8>(), 0..40);
        (".{0,20}", any::<u64>(), payload, prop::option::of(version()), outcome, 0..100_000_u64).prop_map(
            |(client_id, fingerprint, payload, version, outcome, left_ms)| ResponseRecord {
                client_id: client_id.into(),
                fingerprint,
                payload: payload.into(),
                version,
                outcome,
                until_ms: NOW.monotonic_ms + left_ms,
            },
        )
    }

    /// Checks that a value cannot be decoded after a byte was added or removed, or in another format.
    fn is_strict<T, E>(
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, E>,
        of_other_format: impl Fn(E) -> bool,
    ) -> bool {
        let other = [&[FORMAT + 1], &bytes[1..]].concat();
        decode(bytes).is_ok()
            && decode(&[bytes, &[0]].concat()).is_err()
            && (0..bytes.len()).all(|len| decode(&bytes[..len]).is_err())
            && decode(&other).is_err_and(of_other_format)
    }

    fn is_of_format_2(error: DecodeError) -> bool {
        error == DecodeError::OtherFormat(2)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

        #[test]
        fn heads_decode_unchanged_and_whole_only(head in head()) {
            let bytes = head.encode();
            prop_assert_eq!(Head::decode(&bytes), Ok(head));
            prop_assert!(is_strict(&bytes, Head::decode, is_of_format_2));
        }

        #[test]
        fn the_meta_record_decodes_unchanged_and_whole_only(hash_key in any::<[u8; CLUSTER_KEY_BYTES]>()) {
            let meta = Meta { hash_key };
            prop_assert_eq!(Meta::decode(&meta.encode()), Ok(meta));
            prop_assert!(is_strict(&meta.encode(), Meta::decode, |error| error == "format 2"));
        }

        #[test]
        fn a_cluster_of_another_number_of_shards_is_refused(shards in any::<u32>().prop_filter("not 1", |shards| *shards != 1)) {
            let mut record = Meta { hash_key: [7; CLUSTER_KEY_BYTES] }.encode().to_vec();
            record[1..5].copy_from_slice(&shards.to_be_bytes());
            let refusal = Meta::decode(&record).unwrap_err();
            let expected = format!("{shards} shards: export the keys");
            prop_assert!(refusal.starts_with(&expected), "{}", refusal);
        }

        #[test]
        fn responses_decode_unchanged_and_whole_only(responses in prop::collection::vec(response(), 0..5)) {
            let mut encoded = EncodedResponses::default();
            responses.iter().for_each(|response| encoded.push(response, NOW, NOW.wall_ms));
            let bytes = EncodedResponses::default().encode_with(&encoded);
            let decode = |bytes: &[u8]| EncodedResponses::decode(bytes, Reception::Watched, NOW);
            let until_ms = responses.iter().map(|it| it.until_ms - NOW.monotonic_ms + NOW.wall_ms).max();
            let until_ms = until_ms.unwrap_or_default();
            prop_assert_eq!(decode(&bytes), Ok(DecodedResponses { until_ms, responses }));
            prop_assert!(is_strict(&bytes, decode, is_of_format_2));
        }

        #[test]
        fn rows_decode_unchanged_and_whole_only(
            key in prop::collection::vec(any::<u8>(), 1..30),
            value in prop::collection::vec(any::<u8>(), 0..50),
            version in version(),
            fence in prop::option::of((0_u64..1 << 48, 0_u32..9)),
            left_ms in prop::option::of(1..100_000_u64),
        ) {
            let key = Key::new(key).unwrap();
            let stored = StoredValue {
                value: value.into(),
                fence: fence.map(|(ms, counter)| Timestamp::of_store(ms, counter)),
                deadline_ms: left_ms.map(|left_ms| NOW.monotonic_ms + left_ms),
                persist: true,
            };
            let bytes = encode_row(&key, version, &stored, NOW, NOW.wall_ms).unwrap();
            let decode = |bytes: &[u8]| decode_row(&key, bytes, Reception::Watched, NOW);
            // A deadline is rounded up.
            let deadline_ms = stored.deadline_ms.map(|deadline_ms| deadline_ms + 1);
            prop_assert_eq!(decode(&bytes), Ok((version, StoredValue { deadline_ms, ..stored })));
            prop_assert!(is_strict(&bytes, decode, is_of_format_2));
            let other = Key::new("another key").unwrap();
            prop_assert!(decode_row(&other, &bytes, Reception::Watched, NOW).is_err());
        }

        #[test]
        fn states_of_members_decode_unchanged_and_whole_only(wall_ms in any::<u64>(), off_ms in any::<i64>(), reads_at in any::<u64>()) {
            let clock = MemberState { wall_ms, off_ms, reads_at };
            prop_assert_eq!(MemberState::decode(&clock.encode()), Ok(clock));
            prop_assert!(is_strict(&clock.encode(), MemberState::decode, is_of_format_2));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&[FORMAT][..], &bytes].concat();
            let _ = (Head::decode(&bytes), Meta::decode(&bytes), decode_presence(&bytes));
            let read = Reception::Read { clock_ms: 5 };
            let _ = EncodedResponses::decode(&bytes, read, NOW);
            let _ = decode_row(&Key::new("k").unwrap(), &bytes, read, NOW);
        }
    }

    #[test]
    fn a_count_of_responses_that_the_bytes_cannot_hold_is_malformed() {
        let mut bytes = vec![FORMAT];
        bytes.put_u64(0);
        bytes.put_u32(u32::MAX);
        let decoded = EncodedResponses::decode(&bytes, Reception::Watched, NOW);
        assert_eq!(decoded, Err(DecodeError::Malformed));
    }

    #[test]
    fn time_left_counts_by_the_clock_of_the_store_whatever_wall_clocks_show() {
        const CLOCK_MS: u64 = 70_000;
        let key = Key::new("k").unwrap();
        let stored =
            StoredValue { value: "v".into(), fence: None, deadline_ms: Some(105_000), persist: true };
        let bytes = encode_row(&key, Version::default(), &stored, NOW, CLOCK_MS).unwrap();
        let written = 100_001;
        for wall_ms in [0, NOW.wall_ms - 3_600_000.min(NOW.wall_ms), NOW.wall_ms, u64::MAX] {
            let now = Now { wall_ms, monotonic_ms: 7 };
            let left =
                |reception| decode_row(&key, &bytes, reception, now).unwrap().1.deadline_ms.unwrap() - 7;
            let read = |clock_ms| left(Reception::Read { clock_ms });
            assert_eq!(left(Reception::Watched), written);
            assert_eq!((read(0), read(CLOCK_MS)), (written, written), "at most what was left");
            assert_eq!(read(CLOCK_MS + 30_000), written - 30_000);
            assert_eq!(read(CLOCK_MS + 200_000), 0);
        }
    }

    #[test]
    fn the_clock_of_the_store_counts_elapsed_time_from_what_a_head_shows() {
        let clock = StoreClock::new(50, Now { wall_ms: 9_000, monotonic_ms: 700 });
        assert_eq!(clock.at(Now { wall_ms: 1, monotonic_ms: 1_000 }), 350);
        assert_eq!(clock.at(Now { wall_ms: u64::MAX, monotonic_ms: 600 }), 50, "never back");
    }
}
