//! Keys of a cluster in etcd.
//!
//! | key below the prefix | value |
//! |---|---|
//! | `meta` | format, hash key; created once |
//! | `compaction` | the revision before which the history was discarded |
//! | `c/<instance>` | what a member announces: its clock, and what it reads; with its lease |
//! | `m/<instance>` | a member, with a lease |
//! | `r/0` | a request that the owner gives the store up, with a lease |
//! | `s/0/h` | the head |
//! | `s/0/k/<key>` | a row |
//! | `s/0/w/<length><key><client id>` | a registration; the length has 16 bits |
//! | `s/0/d/<seq>` | the responses of a commit; the number has 16 hexadecimal digits |
//!
//! The 0 is a part of the format: builds before the first release divided the keys.

use bytes::{BufMut, Bytes, BytesMut};

use super::operation::prefix_end;
use crate::protocol::Key;

const META: &[u8] = b"meta";
const COMPACTION: &[u8] = b"compaction";
const CLOCKS: &[u8] = b"c/";
const MEMBERS: &[u8] = b"m/";
const REQUEST: &[u8] = b"r/0";
const STATE: &[u8] = b"s/0/";
const SEQ_DIGITS: usize = 16;

/// A range of keys in etcd: from the first on, below the second.
pub type KeyRange = (Bytes, Bytes);

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: Bytes,
}

/// What a key in etcd stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Member(String),
    /// What a member announces.
    Clock(String),
    /// A request that the owner gives the store up.
    Request,
    Head,
    Row(Key),
    Registration {
        key: Key,
        client_id: String,
    },
    Responses {
        seq: u64,
    },
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

    /// Returns the key of the clock of an instance. It needs a lease.
    #[must_use]
    pub fn clock(&self, instance: &str) -> Bytes {
        self.key(&[CLOCKS, instance.as_bytes()])
    }

    /// Returns what members announce, the members, and the request, with a few other keys between them: one watch receives all.
    #[must_use]
    pub fn roster(&self) -> KeyRange {
        (self.key(&[CLOCKS]), range(self.request()).1)
    }

    /// Returns the key of a request that the owner gives the store up. It needs a lease.
    #[must_use]
    pub fn request(&self) -> Bytes {
        self.key(&[REQUEST])
    }

    /// Returns the command that allows a role of etcd to use the cluster.
    #[must_use]
    pub fn grant_command(&self) -> String {
        let prefix = String::from_utf8_lossy(&self.prefix);
        format!("etcdctl role grant-permission ROLE --prefix=true readwrite {prefix}")
    }

    /// Returns the head, all rows, registrations and responses.
    #[must_use]
    pub fn state(&self) -> KeyRange {
        range(self.key(&[STATE]))
    }

    #[must_use]
    pub fn rows(&self) -> KeyRange {
        range(self.key(&[STATE, b"k/"]))
    }

    #[must_use]
    pub fn head(&self) -> Bytes {
        self.key(&[STATE, b"h"])
    }

    #[must_use]
    pub fn row(&self, key: &Key) -> Bytes {
        self.key(&[STATE, b"k/", key.as_bytes()])
    }

    #[must_use]
    pub fn registration(&self, key: &Key, client_id: &str) -> Bytes {
        let key = key.as_bytes();
        // A key has at most 65,535 bytes.
        let len = u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes();
        self.key(&[STATE, b"w/", &len, key, client_id.as_bytes()])
    }

    /// Returns the key of the responses of commit `seq`. The order of the keys is that of the commits.
    #[must_use]
    pub fn responses(&self, seq: u64) -> Bytes {
        self.key(&[STATE, b"d/", format!("{seq:016x}").as_bytes()])
    }

    /// Returns what a key of the members, of the request or of the state stands for; `None` if it is none of these.
    #[must_use]
    pub fn place(&self, key: &[u8]) -> Option<Place> {
        let key = key.strip_prefix(&self.prefix[..])?;
        if let Some(instance) = key.strip_prefix(MEMBERS) {
            return text(instance).map(Place::Member);
        }
        if let Some(instance) = key.strip_prefix(CLOCKS) {
            return text(instance).map(Place::Clock);
        }
        if key == REQUEST {
            return Some(Place::Request);
        }
        let key = key.strip_prefix(STATE)?;
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

    /// Whether a key belongs to the state.
    #[must_use]
    pub fn is_state(&self, key: &[u8]) -> bool {
        key.strip_prefix(&self.prefix[..]).is_some_and(|key| key.starts_with(STATE))
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
    fn keys_of_a_cluster_are_readable() {
        let key = Key::new("line1/temp").unwrap();
        let keys = [
            layout().meta(),
            layout().member("node1"),
            layout().request(),
            layout().head(),
            layout().row(&key),
            layout().registration(&key, "client"),
            layout().responses(255),
        ];
        let expected: [&[u8]; 7] = [
            b"/mqkv/prod/meta",
            b"/mqkv/prod/m/node1",
            b"/mqkv/prod/r/0",
            b"/mqkv/prod/s/0/h",
            b"/mqkv/prod/s/0/k/line1/temp",
            b"/mqkv/prod/s/0/w/\0\x0aline1/tempclient",
            b"/mqkv/prod/s/0/d/00000000000000ff",
        ];
        assert_eq!(keys.each_ref().map(|key| &key[..]), expected);
    }

    #[test]
    fn keys_of_other_clusters_and_outside_the_state_stand_for_nothing() {
        let others = [
            Layout::new("production").head(),
            layout().key(&[b"s/1/h"]),
            layout().key(&[b"s/00/h"]),
            layout().meta(),
            layout().compaction(),
        ];
        let (from, to) = layout().state();
        let state = from..to;
        for other in others {
            assert_eq!(layout().place(&other), None, "{other:?}");
            assert!(!layout().is_state(&other) && !state.contains(&other));
        }
        let (from, to) = layout().roster();
        let watched = from..to;
        assert!([layout().member("a"), layout().request()].iter().all(|key| watched.contains(key)));
        assert!(watched.contains(&layout().clock("a")) && !watched.contains(&layout().head()));
        let row = layout().row(&Key::new("k").unwrap());
        assert!(layout().is_state(&row) && state.contains(&row));
    }

    #[test]
    fn a_number_of_a_commit_has_one_notation() {
        for digits in ["ff", "00000000000000FF", "+0000000000000ff", "000000000000000ff", ""] {
            let key = [&layout().key(&[STATE, b"d/"])[..], digits.as_bytes()].concat();
            assert_eq!(layout().place(&key), None, "{digits}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn each_key_stands_for_what_it_was_made_of(
            key in prop::collection::vec(any::<u8>(), 1..300),
            client_id in ".{1,40}",
            seq in any::<u64>(),
        ) {
            let (layout, key) = (layout(), Key::new(key).unwrap());
            for (encoded, place) in [
                (layout.member(&client_id), Place::Member(client_id.clone())),
                (layout.clock(&client_id), Place::Clock(client_id.clone())),
                (layout.request(), Place::Request),
                (layout.head(), Place::Head),
                (layout.row(&key), Place::Row(key.clone())),
                (
                    layout.registration(&key, &client_id),
                    Place::Registration { key: key.clone(), client_id: client_id.clone() },
                ),
                (layout.responses(seq), Place::Responses { seq }),
            ] {
                let is_outside = matches!(place, Place::Member(_) | Place::Clock(_) | Place::Request);
                prop_assert_eq!(layout.is_state(&encoded), !is_outside);
                prop_assert_eq!(layout.place(&encoded), Some(place));
            }
            prop_assert!(layout.responses(seq) >= layout.responses(seq / 2));
        }

        #[test]
        fn a_key_that_stands_for_something_is_the_only_one(suffix in prop::collection::vec(any::<u8>(), 0..40)) {
            let layout = layout();
            for kind in [&b"h"[..], b"k/", b"w/", b"d/", b"w/\0\x02", b"d/00000000000000", b""] {
                let encoded = layout.key(&[STATE, kind, &suffix]);
                let again = layout.place(&encoded).map(|place| match place {
                    Place::Member(instance) => layout.member(&instance),
                    Place::Clock(instance) => layout.clock(&instance),
                    Place::Request => layout.request(),
                    Place::Head => layout.head(),
                    Place::Row(key) => layout.row(&key),
                    Place::Registration { key, client_id } => layout.registration(&key, &client_id),
                    Place::Responses { seq } => layout.responses(seq),
                });
                prop_assert!(again.is_none_or(|again| again == encoded));
            }
        }
    }
}
