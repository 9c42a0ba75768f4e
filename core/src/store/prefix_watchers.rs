//! Watches of all keys with a prefix: an extension of KEYNOTIFY (docs/protocol.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::protocol::{ConnectionId, ErrorReply, Key};

use super::authorization::KeyPermissions;
use super::glob::Pattern;
use super::watchers::{OWNER_FACTOR, WatchLimitReached, Watcher};

/// The longest prefix in bytes. Each change looks for the watched prefixes of its key, one lookup for each length.
const PREFIX_BYTES_MAX: usize = 256;
/// The longest pattern of such a prefix: each character can be in brackets.
const PATTERN_BYTES_MAX: usize = 3 * PREFIX_BYTES_MAX + 1;
/// The most watches of all connections together: a change may notify as many, and each change of the permissions and the end of
/// each connection looks at all.
const WATCHES_MAX: usize = 1_024;
/// The most watches of one connection.
const WATCHES_PER_CONNECTION_MAX: usize = 64;

/// A watch of all keys with a prefix that the client may read.
#[derive(Clone, Debug)]
pub(super) struct PrefixWatch {
    pub(super) watcher: Watcher,
    /// See [`StoreRequest::owner`](super::StoreRequest::owner).
    pub(super) owner: Arc<str>,
    /// The permissions in force, by which each notification is authorized; `None` if there are no rules.
    pub(super) permissions: Option<Arc<KeyPermissions>>,
}

impl PrefixWatch {
    fn may_read(&self, key: &[u8]) -> bool {
        self.permissions.as_ref().is_none_or(|permissions| permissions.read.contains(key))
    }
}

/// The watches of all prefixes of one length.
type OfLength = HashMap<Box<[u8]>, BTreeMap<ConnectionId, PrefixWatch>>;

/// All watches of prefixes, by the length of the prefix, the prefix and the connection.
#[derive(Debug, Default)]
pub(super) struct PrefixWatchers {
    by_length: BTreeMap<usize, OfLength>,
}

impl PrefixWatchers {
    /// Adds a watch, or replaces that of the same prefix and connection.
    pub(super) fn add(&mut self, prefix: &[u8], watch: PrefixWatch) -> Result<(), WatchLimitReached> {
        let connection = watch.watcher.connection;
        let of_prefix = self.by_length.get(&prefix.len()).and_then(|of_length| of_length.get(prefix));
        let is_new = !of_prefix.is_some_and(|of_prefix| of_prefix.contains_key(&connection));
        if is_new {
            let of_connection = self.count_of(connection);
            let of_owner = self.iter().filter(|other| other.owner == watch.owner).count();
            let free = WATCHES_MAX.saturating_sub(self.len());
            if of_connection >= WATCHES_PER_CONNECTION_MAX || of_owner >= free.saturating_mul(OWNER_FACTOR) {
                return Err(WatchLimitReached);
            }
        }
        let of_length = self.by_length.entry(prefix.len()).or_default();
        of_length.entry(prefix.into()).or_default().insert(connection, watch);
        Ok(())
    }

    /// Removes the watch of a prefix; returns whether there was one.
    pub(super) fn remove(&mut self, prefix: &[u8], connection: ConnectionId) -> bool {
        self.remove_if(|of, watch| of == prefix && watch.watcher.connection == connection)
    }

    /// Removes all watches of a connection.
    pub(super) fn remove_all(&mut self, connection: ConnectionId) {
        self.remove_if(|_, watch| watch.watcher.connection == connection);
    }

    /// Removes watches; returns whether there were any.
    fn remove_if(&mut self, is_removed: impl Fn(&[u8], &PrefixWatch) -> bool) -> bool {
        let before = self.len();
        self.by_length.retain(|_, of_length| {
            of_length.retain(|prefix, of_prefix| {
                of_prefix.retain(|_, watch| !is_removed(prefix, watch));
                !of_prefix.is_empty()
            });
            !of_length.is_empty()
        });
        self.len() < before
    }

    /// Replaces the permissions of a connection.
    pub(super) fn set_permissions(&mut self, connection: ConnectionId, permissions: &Arc<KeyPermissions>) {
        let all = self.by_length.values_mut().flat_map(HashMap::values_mut);
        for watch in all.filter_map(|of_prefix| of_prefix.get_mut(&connection)) {
            watch.permissions = Some(Arc::clone(permissions));
        }
    }

    /// Adds the watchers of all prefixes of a key to its own, each connection once.
    pub(super) fn add_to(&self, watchers: &mut Vec<Watcher>, key: &[u8]) {
        let own = watchers.len();
        watchers.extend(self.of(key).map(|watch| watch.watcher.clone()));
        if watchers.len() > own {
            watchers.sort_by_key(|watcher| watcher.connection);
            watchers.dedup_by(|next, first| {
                let is_same = next.connection == first.connection;
                first.details |= is_same && next.details;
                is_same
            });
        }
    }

    /// Returns the watches of all prefixes of a key that notify of it.
    pub(super) fn of(&self, key: &[u8]) -> impl Iterator<Item = &PrefixWatch> {
        let of_key = self.by_length.range(..=key.len()).filter_map(|(length, of_length)| {
            let of_prefix = of_length.get(key.get(..*length)?)?;
            Some(of_prefix.values().filter(|watch| watch.may_read(key)))
        });
        of_key.flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns the number of prefixes that a connection watches.
    pub(super) fn count_of(&self, connection: ConnectionId) -> usize {
        self.iter().filter(|watch| watch.watcher.connection == connection).count()
    }

    fn iter(&self) -> impl Iterator<Item = &PrefixWatch> {
        self.by_length.values().flat_map(HashMap::values).flat_map(BTreeMap::values)
    }
}

/// Returns the prefix that a KEYNOTIFY has as a pattern: nothing but a star follows it.
///
/// # Errors
/// The reply to another pattern.
pub(super) fn prefix_of(pattern: &Key) -> Result<String, ErrorReply> {
    if pattern.as_bytes().len() > PATTERN_BYTES_MAX {
        return Err(ErrorReply::KeyTooLongToWatch);
    }
    let parsed = std::str::from_utf8(pattern.as_bytes()).ok().and_then(|text| Pattern::parse(text).ok());
    let prefix = parsed.filter(Pattern::is_prefix).ok_or(ErrorReply::SyntaxError)?.literal_prefix();
    if prefix.len() > PREFIX_BYTES_MAX { Err(ErrorReply::KeyTooLongToWatch) } else { Ok(prefix) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::prefix_pattern;

    fn watch(connection: u64, owner: &str) -> PrefixWatch {
        let watcher = Watcher { connection: ConnectionId(connection), client_id: "c".into(), details: false };
        PrefixWatch { watcher, owner: owner.into(), permissions: None }
    }

    fn connections(watchers: &PrefixWatchers, key: &str) -> Vec<u64> {
        let mut found = Vec::new();
        watchers.add_to(&mut found, key.as_bytes());
        found.iter().map(|watcher| watcher.connection.0).collect()
    }

    #[test]
    fn a_key_has_the_watchers_of_all_its_prefixes_each_once() {
        let mut watchers = PrefixWatchers::default();
        for (prefix, connection) in [
            ("", 3),
            ("line1/", 2),
            ("line1/", 1),
            ("line1/temp", 2),
            ("line2/", 4),
            ("line1/temperature", 5),
        ] {
            watchers.add(prefix.as_bytes(), watch(connection, "")).unwrap();
        }
        assert_eq!(connections(&watchers, "line1/temp"), [1, 2, 3]);
        assert_eq!(connections(&watchers, "line1/"), [1, 2, 3]);
        assert_eq!(connections(&watchers, "line1"), [3]);
        assert_eq!((watchers.len(), watchers.count_of(ConnectionId(2))), (6, 2));
        watchers.remove_all(ConnectionId(2));
        assert_eq!(connections(&watchers, "line1/temp"), [1, 3]);
        assert!(watchers.remove(b"", ConnectionId(3)) && !watchers.remove(b"", ConnectionId(3)));
        for connection in [1, 4, 5] {
            watchers.remove_all(ConnectionId(connection));
        }
        assert!(watchers.by_length.is_empty());
    }

    #[test]
    fn a_connection_that_watches_key_and_prefix_is_notified_once_with_what_either_asks_for() {
        let mut watchers = PrefixWatchers::default();
        let mut detailed = watch(1, "");
        detailed.watcher.details = true;
        watchers.add(b"k", detailed.clone()).unwrap();
        let mut found = vec![watch(1, "").watcher, watch(2, "").watcher];
        watchers.add_to(&mut found, b"k");
        assert_eq!(found, [detailed.watcher, watch(2, "").watcher]);
    }

    #[test]
    fn each_key_is_authorized_by_the_permissions_in_force() {
        let permissions = |name: &[u8]| {
            let mut permissions = KeyPermissions::default();
            permissions.read.add(name);
            Arc::new(permissions)
        };
        let mut watchers = PrefixWatchers::default();
        watchers.add(b"k/", PrefixWatch { permissions: Some(permissions(b"k/1")), ..watch(1, "") }).unwrap();
        assert_eq!(["k/1", "k/2"].map(|key| connections(&watchers, key)), [vec![1], vec![]]);
        watchers.set_permissions(ConnectionId(2), &permissions(b"k/3"));
        watchers.set_permissions(ConnectionId(1), &permissions(b"k/2"));
        assert_eq!(["k/1", "k/2", "k/3"].map(|key| connections(&watchers, key)), [vec![], vec![1], vec![]]);
    }

    #[test]
    fn the_watches_of_a_connection_of_an_owner_and_of_all_are_limited() {
        let mut watchers = PrefixWatchers::default();
        let mut fill = |connections: std::ops::Range<u64>, owner: &str| {
            let mut added = 0;
            for connection in connections {
                for number in 0..=WATCHES_PER_CONNECTION_MAX {
                    let prefix = number.to_string();
                    added += usize::from(watchers.add(prefix.as_bytes(), watch(connection, owner)).is_ok());
                    // A repeated watch is not another one.
                    added -= usize::from(watchers.remove(prefix.as_bytes(), ConnectionId(connection)))
                        - usize::from(watchers.add(prefix.as_bytes(), watch(connection, owner)).is_ok());
                }
            }
            added
        };
        assert_eq!(fill(0..1, "a"), WATCHES_PER_CONNECTION_MAX);
        // An owner has at most four fifths, and others at most four fifths of the rest.
        assert_eq!(fill(1..100, "a"), 756);
        assert_eq!(fill(100..200, "b"), 164);
        assert!(watchers.len() < WATCHES_MAX);
    }

    #[test]
    fn only_prefixes_up_to_a_length_are_watched() {
        let prefix_of = |pattern: &[u8]| prefix_of(&Key::new(pattern.to_vec()).unwrap());
        for prefix in ["", "line1/", "a*b?[c]", &"*".repeat(PREFIX_BYTES_MAX)] {
            assert_eq!(prefix_of(&prefix_pattern(prefix.as_bytes())), Ok(prefix.to_owned()));
        }
        for pattern in ["k", "k*l", "k?*", "[ab]*", "k**", "[", "*k*"] {
            assert_eq!(prefix_of(pattern.as_bytes()), Err(ErrorReply::SyntaxError), "{pattern}");
        }
        assert_eq!(prefix_of(b"\xff*"), Err(ErrorReply::SyntaxError));
        for prefix in [PREFIX_BYTES_MAX + 1, 60_000].map(|len| "k".repeat(len)) {
            assert_eq!(prefix_of(&prefix_pattern(prefix.as_bytes())), Err(ErrorReply::KeyTooLongToWatch));
        }
    }
}
