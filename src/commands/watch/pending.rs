//! The changes that wait for the command: the latest of each key, in the order of their first (pure).

use std::collections::{HashMap, VecDeque};

use super::rules::{News, Trigger};
use crate::protocol::{Key, Timestamp, Value};

/// What the command is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub trigger: Trigger,
    /// The key.
    pub key: Key,
    /// Whether the key exists now.
    pub found: bool,
    /// Its value, where that is told.
    pub value: Option<Value>,
    /// The version that came with it.
    pub version: Option<Timestamp>,
    /// Counts the changes from 1, also those that are collapsed.
    pub sequence: u64,
}

impl Change {
    /// What news are to a command.
    #[must_use]
    pub fn new(news: &News<'_>, sequence: u64) -> Self {
        Self {
            trigger: news.trigger,
            key: news.key.clone(),
            found: news.found,
            value: news.value.cloned(),
            version: news.version.cloned(),
            sequence,
        }
    }
}

/// Changes that wait; never more than there are keys.
#[derive(Debug, Default)]
pub struct Pending {
    latest: HashMap<Key, Change>,
    order: VecDeque<Key>,
}

impl Pending {
    /// Adds a change; one of the same key that still waits is forgotten.
    pub fn push(&mut self, change: Change) {
        let key = change.key.clone();
        if self.latest.insert(key.clone(), change).is_none() {
            self.order.push_back(key);
        }
    }

    /// Takes the next change.
    pub fn pop(&mut self) -> Option<Change> {
        let key = self.order.pop_front()?;
        self.latest.remove(&key)
    }

    /// Forgets all.
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
    fn the_latest_of_a_key_stands_where_its_first_stood() {
        let mut pending = Pending::default();
        for (key, sequence) in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5)] {
            pending.push(change(key, sequence));
        }
        let order: Vec<_> = std::iter::from_fn(|| pending.pop()).map(|change| change.sequence).collect();
        assert_eq!(order, [3, 5, 4]);
        assert_eq!(pending.pop(), None);
    }
}
