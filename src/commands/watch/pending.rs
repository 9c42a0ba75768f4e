//! Changes that wait for the command: the latest of each key, in the order of the first (pure).

use std::collections::{HashMap, VecDeque};

use super::rules::{KeyUpdate, Trigger};
use crate::protocol::{Key, Timestamp, Value};

/// A change of a key, for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub trigger: Trigger,
    pub key: Key,
    /// Whether the key exists.
    pub found: bool,
    /// The value, if it is known.
    pub value: Option<Value>,
    pub version: Option<Timestamp>,
    /// Counts all changes from 1, including those that are replaced by later ones.
    pub sequence: u64,
}

impl Change {
    /// Creates a change from an update.
    #[must_use]
    pub fn new(update: &KeyUpdate<'_>, sequence: u64) -> Self {
        Self {
            trigger: update.trigger,
            key: update.key.clone(),
            found: update.found,
            value: update.value.cloned(),
            version: update.version.cloned(),
            sequence,
        }
    }
}

/// A queue with at most one change per key.
#[derive(Debug, Default)]
pub struct Pending {
    latest: HashMap<Key, Change>,
    order: VecDeque<Key>,
}

impl Pending {
    /// Adds a change, or replaces the one of the same key.
    pub fn push(&mut self, change: Change) {
        let key = change.key.clone();
        if self.latest.insert(key.clone(), change).is_none() {
            self.order.push_back(key);
        }
    }

    /// Removes and returns the next change.
    pub fn pop(&mut self) -> Option<Change> {
        let key = self.order.pop_front()?;
        self.latest.remove(&key)
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.latest.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(key: &'static str, sequence: u64) -> Change {
        let key = Key::new(key).unwrap();
        Change { trigger: Trigger::Set, key, found: true, value: None, version: None, sequence }
    }

    #[test]
    fn the_latest_change_of_a_key_has_the_place_of_its_first() {
        let mut pending = Pending::default();
        for (key, sequence) in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)] {
            pending.push(change(key, sequence));
        }
        let order: Vec<_> = std::iter::from_fn(|| pending.pop()).map(|change| change.sequence).collect();
        assert_eq!(order, [3, 5, 4]);
        assert_eq!(pending.pop(), None);
    }
}
