//! Departure: when an owner leaves its shard to another member.

use std::collections::BTreeMap;

use super::roster::Member;
use crate::store::Now;

/// How long clients may not reach an owner before it leaves the shard to any other member.
const UNREACHED_MS: u64 = 500;
/// How long a member that comes before the owner must have been there: it has read the shard by then.
const PRESENCE_MS: u64 = 30_000;
/// The same if the shard was left to it before, and it has not kept it.
const PRESENCE_AGAIN_MS: u64 = 600_000;

/// An owner leaves its shard if clients do not reach it; and one of several shards to the member that comes before it, so that all
/// members share them.
#[derive(Debug)]
pub struct Departure {
    instance: String,
    /// The only shard of a cluster stays where it is: to move it would balance nothing.
    is_balanced: bool,
    /// Since when clients do not reach the instance, in monotonic milliseconds.
    unreached_ms: Option<u64>,
    /// The member that comes before this one, with its run, and since when it could have the shard.
    better: Option<(String, u64, u64)>,
    /// The member that the shard was left to last, with its run.
    left_to: Option<(String, u64)>,
}

impl Departure {
    /// Of an instance that clients reach.
    pub fn new(instance: &str, shards: u32) -> Self {
        let instance = instance.to_owned();
        Self { instance, is_balanced: shards > 1, unreached_ms: None, better: None, left_to: None }
    }

    pub fn set_reached(&mut self, is_reached: bool, now: Now) {
        if is_reached {
            self.unreached_ms = None;
        } else {
            self.unreached_ms.get_or_insert(now.monotonic_ms);
        }
    }

    /// Notes the member that comes before this one, with its run.
    pub fn set_better(&mut self, better: Option<(&str, u64)>, now: Now) {
        let better = better.filter(|_| self.is_balanced);
        let known = self.better.as_ref().map(|(name, run, _)| (name.as_str(), *run));
        if known != better {
            self.better = better.map(|(name, run)| (name.to_owned(), run, now.monotonic_ms));
        }
    }

    /// Whether the owner leaves the shard now.
    pub fn is_due(&mut self, members: &BTreeMap<String, Member>, now: Now) -> bool {
        let is_passed = |due_ms: u64| due_ms <= now.monotonic_ms;
        let is_due = self.next_deadline(members).is_some_and(is_passed);
        if self.better_ms().is_some_and(is_passed) {
            self.left_to = self.better.as_ref().map(|(name, run, _)| (name.clone(), *run));
            self.begin(now);
        }
        is_due
    }

    /// Returns when the shard is left to the member that comes before this one.
    fn better_ms(&self) -> Option<u64> {
        let (name, run, since_ms) = self.better.as_ref()?;
        let is_again = self.left_to.as_ref().is_some_and(|(left_to, of)| left_to == name && of == run);
        Some(since_ms.saturating_add(if is_again { PRESENCE_AGAIN_MS } else { PRESENCE_MS }))
    }

    /// Begins an ownership: the member that comes before this one has left the shard to it.
    pub fn begin(&mut self, now: Now) {
        if let Some((_, _, since_ms)) = &mut self.better {
            *since_ms = now.monotonic_ms;
        }
    }

    /// Returns when the owner leaves the shard, in monotonic milliseconds.
    pub fn next_deadline(&self, members: &BTreeMap<String, Member>) -> Option<u64> {
        let has_others = members.keys().any(|member| *member != self.instance);
        let unreached = self.unreached_ms.filter(|_| has_others);
        let unreached = unreached.map(|since_ms| since_ms.saturating_add(UNREACHED_MS));
        unreached.into_iter().chain(self.better_ms()).min()
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

    /// Notes the better placed member at a time, and returns whether the shard is left to it.
    fn leaves(departure: &mut Departure, better: Option<(&str, u64)>, now_ms: u64) -> bool {
        departure.set_better(better, at(now_ms));
        departure.is_due(&members(&["a", "z"]), at(now_ms))
    }

    #[test]
    fn a_shard_is_left_to_a_member_that_has_been_there_for_long_enough() {
        let mut departure = Departure::new("z", 2);
        assert!(
            !leaves(&mut departure, Some(("a", 1)), 5) && !leaves(&mut departure, Some(("a", 1)), 30_004)
        );
        // Another run begins anew.
        assert!(!leaves(&mut departure, Some(("a", 2)), 30_005));
        assert_eq!(departure.next_deadline(&members(&["a", "z"])), Some(60_005));
        assert!(leaves(&mut departure, Some(("a", 2)), 60_005));
        // It has not kept the shard.
        assert!(!leaves(&mut departure, Some(("a", 2)), 70_000));
        assert!(!leaves(&mut departure, Some(("a", 2)), 600_000));
        assert!(leaves(&mut departure, Some(("a", 2)), 670_000));
        assert!(!leaves(&mut departure, None, 700_000));
        assert_eq!(departure.next_deadline(&members(&["a", "z"])), None);
    }

    #[test]
    fn the_only_shard_stays_where_clients_reach_it() {
        let mut departure = Departure::new("z", 1);
        assert!(
            !leaves(&mut departure, Some(("a", 1)), 0) && !leaves(&mut departure, Some(("a", 1)), 1_000_000)
        );
    }

    #[test]
    fn an_owner_that_is_not_reached_for_a_while_leaves_the_shard_if_there_is_another_member() {
        let mut departure = Departure::new("z", 1);
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
