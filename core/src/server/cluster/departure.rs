//! Departure: when an owner leaves the store to another member.

use std::collections::BTreeMap;

use super::roster::Member;
use crate::store::Now;

/// How long clients may not reach an owner before it leaves the store to any other member.
const UNREACHED_MS: u64 = 500;

/// An owner leaves the store if clients do not reach it.
#[derive(Debug)]
pub struct Departure {
    instance: String,
    /// Since when clients do not reach the instance, in monotonic milliseconds.
    unreached_ms: Option<u64>,
}

impl Departure {
    /// Of an instance that clients reach.
    pub fn new(instance: &str) -> Self {
        Self { instance: instance.to_owned(), unreached_ms: None }
    }

    pub fn set_reached(&mut self, is_reached: bool, now: Now) {
        if is_reached {
            self.unreached_ms = None;
        } else {
            self.unreached_ms.get_or_insert(now.monotonic_ms);
        }
    }

    /// Whether the owner leaves the store now.
    pub fn is_due(&self, members: &BTreeMap<String, Member>, now: Now) -> bool {
        self.next_deadline(members).is_some_and(|due_ms| due_ms <= now.monotonic_ms)
    }

    /// Returns when the owner leaves the store, in monotonic milliseconds.
    pub fn next_deadline(&self, members: &BTreeMap<String, Member>) -> Option<u64> {
        let has_others = members.keys().any(|member| *member != self.instance);
        Some(self.unreached_ms.filter(|_| has_others)?.saturating_add(UNREACHED_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_ms: u64) -> Now {
        Now { wall_ms: 0, monotonic_ms }
    }

    fn members(names: &[&str]) -> BTreeMap<String, Member> {
        names.iter().map(|name| ((*name).to_owned(), Member { run: 1, mod_revision: 1 })).collect()
    }

    #[test]
    fn an_owner_that_is_not_reached_for_a_while_leaves_the_store_if_there_is_another_member() {
        let mut departure = Departure::new("z");
        departure.set_reached(false, at(10));
        departure.set_reached(false, at(300));
        assert_eq!(departure.next_deadline(&members(&["z"])), None);
        let both = members(&["a", "z"]);
        assert_eq!(departure.next_deadline(&both), Some(10 + UNREACHED_MS));
        assert!(
            !departure.is_due(&both, at(9 + UNREACHED_MS)) && departure.is_due(&both, at(10 + UNREACHED_MS))
        );
        departure.set_reached(true, at(5_000));
        assert!(!departure.is_due(&both, at(90_000)));
    }
}
