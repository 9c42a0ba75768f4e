//! Ids of changes: digests that bind a change to the node that made it and to its content.

use std::cell::RefCell;
use std::marker::PhantomData;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::protocol::Key;

use super::names::{ChangeId, Name, Serial};

/// A digest of a value, for a change that travels without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ValueHash(pub [u8; 16]);

/// What a change leaves, as its id names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fingerprint {
    Deletion,
    Lasting(ValueHash),
    /// A value that expires. The time is not a part of it: it is what is left of it that travels.
    Expiring(ValueHash),
}

impl ValueHash {
    #[must_use]
    pub fn of(value: &[u8]) -> Self {
        Self(half(Sha256::digest(value).into()))
    }

    /// As [`ValueHash::of`]; takes the digest that [`PreparedHashes`] has, if any.
    fn of_shared(value: &Bytes) -> Self {
        let prepared = PREPARED.with_borrow(|prepared| {
            let is_same = |known: &Bytes| known.as_ptr() == value.as_ptr() && known.len() == value.len();
            prepared.iter().find(|(known, _)| is_same(known)).map(|(_, hash)| *hash)
        });
        #[cfg(test)]
        if prepared.is_none() && PreparedHashes::is_long(value) {
            UNPREPARED.set(UNPREPARED.get() + 1);
        }
        prepared.unwrap_or_else(|| Self::of(value))
    }
}

/// The digest of a shorter value takes no longer than what is done with it: some ten microseconds.
const PREPARED_BYTES_MIN: usize = 16 * 1024;

thread_local! {
    static PREPARED: RefCell<Vec<(Bytes, ValueHash)>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
thread_local! {
    /// How many digests of long values were not prepared.
    pub static UNPREPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The digests of long values that this thread is about to handle under a lock: a MiB takes half a millisecond to a few of
/// them, and all requests would wait meanwhile. Dropping it forgets them.
#[derive(Debug)]
pub struct PreparedHashes(PhantomData<*const ()>);

impl PreparedHashes {
    /// Computes the digests of the long ones of these values, which are recognized by where they are in memory.
    #[must_use]
    pub fn of<'a>(values: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let long = values.into_iter().filter(|value| Self::is_long(value));
        let hashes: Vec<_> = long.map(|value| (value.clone(), ValueHash::of(value))).collect();
        PREPARED.set(hashes);
        Self(PhantomData)
    }

    /// Whether the digest of a value is worth to be prepared.
    #[must_use]
    pub fn is_long(value: &[u8]) -> bool {
        value.len() >= PREPARED_BYTES_MIN
    }
}

impl Drop for PreparedHashes {
    fn drop(&mut self) {
        PREPARED.take();
    }
}

impl Fingerprint {
    #[must_use]
    pub fn of(value: Option<&Bytes>, expires: bool) -> Self {
        match value.map(ValueHash::of_shared) {
            None => Self::Deletion,
            Some(hash) if expires => Self::Expiring(hash),
            Some(hash) => Self::Lasting(hash),
        }
    }
}

impl ChangeId {
    /// Returns the id of a change of a leaf, or of the root if `owner` is `None`.
    ///
    /// The root makes the id of a proposal itself, with the name of the leaf that has sent it. So a leaf can neither use the
    /// id of another node's change, nor one of its own again for another content.
    #[must_use]
    pub fn of(owner: Option<&Name>, serial: Serial, key: &Key, content: Fingerprint) -> Self {
        #[cfg(test)]
        if unbound::is_on() {
            return Self::from_bytes(&serial.to_bytes()).unwrap_or(Self::NIL);
        }
        let (kind, hash) = match content {
            Fingerprint::Deletion => (0, ValueHash([0; 16])),
            Fingerprint::Lasting(hash) => (1, hash),
            Fingerprint::Expiring(hash) => (2, hash),
        };
        // All parts but the last one have a fixed length, or end with a byte that no name has.
        let owner = owner.map_or("", Name::as_str);
        let digest = Sha256::new()
            .chain_update([kind])
            .chain_update(hash.0)
            .chain_update(serial.to_bytes())
            .chain_update(owner)
            .chain_update([0])
            .chain_update(key.as_bytes());
        Self::from_bytes(&half(digest.finalize().into())).unwrap_or(Self::NIL)
    }
}

/// 128 bits: two inputs with the same ones cannot be found.
fn half(digest: [u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    half
}

/// Ids that are bound to nothing but the serial: a control of the explorer.
#[cfg(test)]
pub mod unbound {
    use std::cell::Cell;

    thread_local! {
        static IS_ON: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn is_on() -> bool {
        IS_ON.get()
    }

    /// Calls a function with such ids.
    pub fn with<T>(call: impl FnOnce() -> T) -> T {
        IS_ON.set(true);
        let result = call();
        IS_ON.set(false);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_depends_on_the_node_the_number_the_key_and_the_content() {
        let key = |text: &'static str| Key::new(text).unwrap();
        let name = |text| Name::new(text).unwrap();
        let (a, root, serial) = (name("a"), name("root"), Serial { run: 1, counter: 2 });
        let value = |text: &'static [u8], expires| Fingerprint::of(Some(&Bytes::from_static(text)), expires);
        let ids = [
            ChangeId::of(Some(&a), serial, &key("k"), value(b"v", false)),
            ChangeId::of(Some(&a), serial, &key("k"), value(b"v", true)),
            ChangeId::of(Some(&a), serial, &key("k"), value(b"", false)),
            ChangeId::of(Some(&a), serial, &key("k"), Fingerprint::Deletion),
            ChangeId::of(Some(&a), serial, &key("kk"), value(b"v", false)),
            ChangeId::of(Some(&name("ak")), serial, &key("k"), value(b"v", false)),
            ChangeId::of(Some(&a), Serial { counter: 3, ..serial }, &key("k"), value(b"v", false)),
            // A leaf may be called root.
            ChangeId::of(Some(&root), serial, &key("k"), value(b"v", false)),
            ChangeId::of(None, serial, &key("k"), value(b"v", false)),
        ];
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert!(different.len() == ids.len() && !ids.contains(&ChangeId::NIL), "{ids:?}");
        assert_eq!(ChangeId::of(Some(&a), serial, &key("k"), value(b"v", false)), ids[0]);
    }
}
