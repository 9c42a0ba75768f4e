//! Owners of recorded responses, by the memory that they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::turns::Turns;

/// The memory that each owner holds, and the order in which its clients lose responses.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// Not a hash table: a large one is rehashed at once, and all requests wait meanwhile.
    known: BTreeMap<Arc<str>, Owner>,
    /// The owners in the order of their memory, of which each is known up to an eighth: otherwise each write would change
    /// the order.
    ranking: BTreeSet<(usize, Arc<str>)>,
    /// Memory of all owners.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Owner {
    bytes: usize,
    /// Its memory when it was ranked.
    ranked: usize,
    /// The turns of its clients to lose a response.
    turns: Turns,
}

impl Owners {
    /// Returns the memory of all owners, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a client with what it holds. Returns its turn, which is after those of all others.
    pub(super) fn add(&mut self, name: &Arc<str>, place: usize, bytes: usize) -> u64 {
        if !self.known.contains_key(name) {
            self.known.insert(Arc::clone(name), Owner::default());
            self.ranking.insert((0, Arc::clone(name)));
        }
        let turn = self.known.get_mut(name).map_or(0, |owner| owner.turns.add(place));
        self.change(name, bytes, 0);
        turn
    }

    /// Removes a client with what it holds, and its owner if that has no other.
    pub(super) fn remove(&mut self, name: &Arc<str>, turn: u64, bytes: usize) {
        self.change(name, 0, bytes);
        let Some(owner) = self.known.get_mut(name) else { return };
        owner.turns.remove(turn);
        if owner.turns.is_empty() {
            self.ranking.remove(&(owner.ranked, Arc::clone(name)));
            self.known.remove(name);
        }
    }

    /// Changes what an owner holds.
    pub(super) fn change(&mut self, name: &Arc<str>, taken: usize, freed: usize) {
        // A client whose oldest response makes room for a new one changes nothing.
        if taken == freed {
            return;
        }
        self.bytes = self.bytes.saturating_add(taken).saturating_sub(freed);
        let Some(owner) = self.known.get_mut(name) else { return };
        owner.bytes = owner.bytes.saturating_add(taken).saturating_sub(freed);
        if owner.bytes.abs_diff(owner.ranked) > owner.ranked / 8 {
            self.ranking.remove(&(owner.ranked, Arc::clone(name)));
            owner.ranked = owner.bytes;
            self.ranking.insert((owner.ranked, Arc::clone(name)));
        }
    }

    /// Returns the owner that holds the most.
    pub(super) fn largest(&self) -> Option<&Arc<str>> {
        self.ranking.last().map(|(_, name)| name)
    }

    /// Returns the place of the client of an owner whose turn is the first.
    pub(super) fn first_of(&self, name: &str) -> Option<usize> {
        self.known.get(name)?.turns.first()
    }

    /// Gives a client a turn after those of all others, and returns it.
    pub(super) fn put_last(&mut self, name: &str, turn: u64) -> u64 {
        let Some(owner) = self.known.get_mut(name) else { return turn };
        owner.turns.remove(turn).map_or(turn, |place| owner.turns.add(place))
    }

    /// Returns the memory of an owner, if it has any clients.
    #[cfg(test)]
    pub(super) fn bytes_of(&self, name: &str) -> Option<usize> {
        self.known.get(name).map(|owner| owner.bytes)
    }

    /// Returns the number of owners, after a check that the order of their memory agrees with it.
    #[cfg(test)]
    pub(super) fn checked_len(&self) -> usize {
        let ranked: BTreeSet<_> =
            self.known.iter().map(|(name, owner)| (owner.ranked, Arc::clone(name))).collect();
        assert_eq!(self.ranking, ranked);
        assert!(self.known.values().all(|owner| owner.bytes.abs_diff(owner.ranked) <= owner.ranked / 8));
        assert_eq!(self.known.values().map(|owner| owner.bytes).sum::<usize>(), self.bytes);
        self.known.len()
    }
}
