//! Keys of a cluster in etcd.
//!
//! | key below the prefix | value |
//! |---|---|
//! | `meta` | format, number of shards, hash key; created once |
//! | `compaction` | the revision before which the history was discarded |
//! | `m/<instance>` | a member, with a lease |
//! | `r/<shard>` | a request that the owner gives the shard up, with a lease |
//! | `s/<shard>/h` | the head of the shard |
//! | `s/<shard>/k/<key>` | a row |
//! | `s/<shard>/w/<length><key><client id>` | a registration; the length has 16 bits |
//! | `s/<shard>/d/<seq>` | the responses of a commit; the number has 16 hexadecimal digits |

use bytes::{BufMut, Bytes, BytesMut};

use super::operation::prefix_end;
use crate::protocol::Key;
use crate::server::storage::record::{CHECKSUM_SEED, extend_checksum};

const META: &[u8] = b"meta";
const COMPACTION: &[u8] = b"compaction";
const MEMBERS: &[u8] = b"m/";
const REQUESTS: &[u8] = b"r/";
const SEQ_DIGITS: usize = 16;

/// A range of keys in etcd: from the first on, below the second.
pub type KeyRange = (Bytes, Bytes);

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: Bytes,
}

/// Returns the shard of a key, below `shards`.
///
/// It depends on the key only, so that a request has a shard before its instance has read anything from etcd.
#[must_use]
pub fn shard_of(key: &Key, shards: u32) -> u32 {
    let hash = mixed(extend_checksum(CHECKSUM_SEED, key.as_bytes()));
    // The product of the hash's share of its range with the number of shards.
    let shard = u128::from(hash).wrapping_mul(u128::from(shards)) >> u64::BITS;
    u32::try_from(shard).unwrap_or_default()
}

/// Makes each bit of a checksum depend on each of its bytes, also the last ones (the finalizer of MurmurHash3).
#[must_use]
pub fn mixed(sum: u64) -> u64 {
    let sum = (sum ^ (sum >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let sum = (sum ^ (sum >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    sum ^ (sum >> 33)
}

/// What a key in etcd stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Member(String),
    Head,
    Row(Key),
    Registration { key: Key, client_id: String },
    Responses { seq: u64 },
}

impl Layout {
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("/mqkv/{cluster}/").into() }
    }

    /// Returns all keys of the cluster.
    #[must_use]
    pub fn all(&self) -> KeyRange {
        range(self.prefix.clone())
    }

    #[must_use]
    pub fn meta(&self) -> Bytes {
        self.key(&[META])
    }

    #[must_use]
    pub fn compaction(&self) -> Bytes {
        self.key(&[COMPACTION])
    }

    /// Returns the key by which an instance is a member. It needs a lease.
    #[must_use]
    pub fn member(&self, instance: &str) -> Bytes {
        self.key(&[MEMBERS, instance.as_bytes()])
    }

    #[must_use]
    pub fn members(&self) -> KeyRange {
        range(self.key(&[MEMBERS]))
    }

    /// Returns the key of a request that the owner gives a shard up. It needs a lease.
    #[must_use]
    pub fn request(&self, shard: u32) -> Bytes {
        self.key(&[REQUESTS, shard.to_string().as_bytes()])
    }

    #[must_use]
    pub fn shard(&self, shard: u32) -> KeyRange {
        range(self.in_shard(shard, &[]))
    }

    /// Returns the rows of a shard.
    #[must_use]
    pub fn rows(&self, shard: u32) -> KeyRange {
        range(self.in_shard(shard, &[b"k/"]))
    }

    #[must_use]
    pub fn head(&self, shard: u32) -> Bytes {
        self.in_shard(shard, &[b"h"])
    }

    #[must_use]
    pub fn row(&self, shard: u32, key: &Key) -> Bytes {
        self.in_shard(shard, &[b"k/", key.as_bytes()])
    }

    #[must_use]
    pub fn registration(&self, shard: u32, key: &Key, client_id: &str) -> Bytes {
        let key = key.as_bytes();
        // A key has at most 65,535 bytes.
        let len = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
        self.in_shard(shard, &[b"w/", &len, key, client_id.as_bytes()])
    }

    /// Returns the key of the responses of commit `seq`. The order of the keys is that of the commits.
    #[must_use]
    pub fn responses(&self, shard: u32, seq: u64) -> Bytes {
        self.in_shard(shard, &[b"d/", format!("{seq:016x}").as_bytes()])
    }

    /// Returns what a key of the members or of a shard stands for; `None` if it is none of these.
    #[must_use]
    pub fn place(&self, shard: u32, key: &[u8]) -> Option<Place> {
        let key = key.strip_prefix(&self.prefix[..])?;
        if let Some(instance) = key.strip_prefix(MEMBERS) {
            return text(instance).map(Place::Member);
        }
        let key = key.strip_prefix(format!("s/{shard}/").as_bytes())?;
        match key.split_at_checked(2) {
            None if key == b"h" => Some(Place::Head),
            Some((b"k/", key)) => Key::new(key.to_vec()).ok().map(Place::Row),
            Some((b"w/", registration)) => {
                let (len, rest) = registration.split_first_chunk()?;
                let (key, client_id) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
                let key = Key::new(key.to_vec()).ok()?;
                Some(Place::Registration { key, client_id: text(client_id)? })
            }
            Some((b"d/", seq)) => {
                let digits = std::str::from_utf8(seq).ok()?;
                let seq = u64::from_str_radix(digits, 16).ok()?;
                // The number in another notation would be another key.
                let is_usual = digits.len() == SEQ_DIGITS && format!("{seq:016x}") == digits;
                is_usual.then_some(Place::Responses { seq })
            }
            _ => None,
        }
    }

    /// Returns the number of the shard that a key belongs to; `None` if it belongs to none.
    #[must_use]
    pub fn shard_of_key(&self, key: &[u8]) -> Option<u32> {
        let rest = key.strip_prefix(&self.prefix[..])?.strip_prefix(b"s/")?;
        let digits = std::str::from_utf8(rest.split(|byte| *byte == b'/').next()?).ok()?;
        // The number in another notation would be another key.
        let shard: u32 = digits.parse().ok().filter(|shard: &u32| shard.to_string() == digits)?;
        self.is_of_shard(shard, key).then_some(shard)
    }

    /// Whether a key is that of a request that an owner gives its shard up.
    #[must_use]
    pub fn is_request(&self, key: &[u8]) -> bool {
        key.strip_prefix(&self.prefix[..]).is_some_and(|key| key.starts_with(REQUESTS))
    }

    /// Whether a key belongs to a shard.
    #[must_use]
    pub fn is_of_shard(&self, shard: u32, key: &[u8]) -> bool {
        key.strip_prefix(&self.prefix[..])
            .is_some_and(|key| key.starts_with(format!("s/{shard}/").as_bytes()))
    }

    fn in_shard(&self, shard: u32, parts: &[&[u8]]) -> Bytes {
        let number = format!("s/{shard}/");
        self.key(&[&[number.as_bytes()], parts].concat())
    }

    fn key(&self, parts: &[&[u8]]) -> Bytes {
        let len = parts.iter().fold(self.prefix.len(), |len, part| len.saturating_add(part.len()));
        let mut key = BytesMut::with_capacity(len);
        key.put_slice(&self.prefix);
        for part in parts {
            key.put_slice(part);
        }
        key.freeze()
    }
}

fn range(prefix: Bytes) -> KeyRange {
    let end = prefix_end(&prefix);
    (prefix, end)
}

fn text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout::new("prod")
    }

    #[test]
    fn keys_are_spread_evenly_and_stay_in_their_shard() {
        let mut counts = [0_u32; 8];
        for number in 0..8_000 {
            let key = Key::new(format!("line1/machine{number}/temperature")).unwrap();
            counts[shard_of(&key, 8) as usize] += 1;
            assert_eq!(shard_of(&key, 1), 0);
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        // Part of the format: an instance that computed another shard would not find the key.
        let shards = ["a", "line1/temp", "k"].map(|key| shard_of(&Key::new(key).unwrap(), 64));
        assert_eq!(shards, [32, 23, 10]);
    }

    #[test]
    fn keys_of_a_cluster_are_readable() {
        let key = Key::new("line1/temp").unwrap();
        let keys = [
            layout().meta(),
            layout().member("node1"),
            layout().head(0),
            layout().row(0, &key),
            layout().registration(0, &key, "client"),
            layout().responses(0, 255),
        ];
        let expected: [&[u8]; 6] = [
            b"/mqkv/prod/meta",
            b"/mqkv/prod/m/node1",
            b"/mqkv/prod/s/0/h",
            b"/mqkv/prod/s/0/k/line1/temp",
            b"/mqkv/prod/s/0/w/\0\x0aline1/tempclient",
            b"/mqkv/prod/s/0/d/00000000000000ff",
        ];
        assert_eq!(keys.each_ref().map(|key| &key[..]), expected);
    }

    #[test]
    fn keys_of_other_clusters_and_shards_stand_for_nothing() {
        let key = Key::new("k").unwrap();
        let others = [
            Layout::new("production").head(0),
            layout().head(1),
            layout().row(10, &key),
            layout().meta(),
            layout().compaction(),
        ];
        for other in others {
            assert_eq!(layout().place(0, &other), None, "{other:?}");
            assert!(!layout().is_of_shard(0, &other));
            assert_ne!(layout().shard_of_key(&other), Some(0));
        }
        let (from, to) = layout().shard(1);
        assert!(from <= layout().row(1, &key) && layout().row(1, &key) < to);
        assert!(layout().row(10, &key) >= to);
    }

    #[test]
    fn a_number_of_a_commit_has_one_notation() {
        for digits in ["ff", "00000000000000FF", "+0000000000000ff", "000000000000000ff", ""] {
            let key = [&layout().in_shard(0, &[b"d/"])[..], digits.as_bytes()].concat();
            assert_eq!(layout().place(0, &key), None, "{digits}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn each_key_stands_for_what_it_was_made_of(
            shard in any::<u32>(),
            key in prop::collection::vec(any::<u8>(), 1..300),
            client_id in ".{1,40}",
            seq in any::<u64>(),
        ) {
            let (layout, key) = (layout(), Key::new(key).unwrap());
            for (encoded, place) in [
                (layout.member(&client_id), Place::Member(client_id.clone())),
                (layout.head(shard), Place::Head),
                (layout.row(shard, &key), Place::Row(key.clone())),
                (
                    layout.registration(shard, &key, &client_id),
                    Place::Registration { key: key.clone(), client_id: client_id.clone() },
                ),
                (layout.responses(shard, seq), Place::Responses { seq }),
            ] {
                let is_in_shard = !matches!(place, Place::Member(_));
                prop_assert_eq!(layout.shard_of_key(&encoded), is_in_shard.then_some(shard));
                prop_assert_eq!(layout.place(shard, &encoded), Some(place));
            }
            prop_assert!(layout.responses(shard, seq) >= layout.responses(shard, seq / 2));
        }

        #[test]
        fn a_key_that_stands_for_something_is_the_only_one(suffix in prop::collection::vec(any::<u8>(), 0..40)) {
            let layout = layout();
            for kind in [&b"h"[..], b"k/", b"w/", b"d/", b"w/\0\x02", b"d/00000000000000", b""] {
                let encoded = layout.in_shard(0, &[kind, &suffix]);
                let again = layout.place(0, &encoded).map(|place| match place {
                    Place::Member(instance) => layout.member(&instance),
                    Place::Head => layout.head(0),
                    Place::Row(key) => layout.row(0, &key),
                    Place::Registration { key, client_id } => layout.registration(0, &key, &client_id),
                    Place::Responses { seq } => layout.responses(0, seq),
                });
                prop_assert!(again.is_none_or(|again| again == encoded));
            }
        }
    }
}
