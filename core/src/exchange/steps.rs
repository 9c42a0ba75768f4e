//! Steps of a node, and what is reached once they are committed.

use std::collections::{BTreeSet, VecDeque};

use super::effects::Effects;

/// The steps that are made and committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Steps<T> {
    made: u64,
    saved: u64,
    /// What each uncommitted step reaches.
    unsaved: VecDeque<(u64, T)>,
}

impl<T> Steps<T> {
    pub fn new() -> Self {
        Self { made: 0, saved: 0, unsaved: VecDeque::new() }
    }

    /// Whether rows are still loaded: no step was made.
    pub fn is_loading(&self) -> bool {
        self.made == 0
    }

    pub fn last(&self) -> u64 {
        self.made
    }

    /// Returns the number of the next step that has something to commit.
    pub fn next(&self) -> u64 {
        self.made.saturating_add(1)
    }

    /// Returns the step after which everything up to these effects is committed.
    pub fn number(&self, effects: &Effects) -> u64 {
        if effects.rows.is_empty() { self.made } else { self.next() }
    }

    /// Gives a step its number, if there is something to commit.
    pub fn finish(&mut self, effects: &mut Effects, reached: T) {
        if !effects.rows.is_empty() {
            self.made = self.next();
            effects.step = self.made;
            self.unsaved.push_back((self.made, reached));
        }
    }

    /// Takes what a step without anything to commit has reached: it counts with the last uncommitted step. Returns it
    /// if there is none.
    pub fn amend(&mut self, reached: T) -> Option<T> {
        let Some((_, last)) = self.unsaved.back_mut() else { return Some(reached) };
        *last = reached;
        None
    }

    pub fn is_saved(&self, step: u64) -> bool {
        step <= self.saved
    }

    /// Returns what the steps up to this one have reached, one after the other. The caller repeats it until `None`.
    pub fn pop_saved(&mut self, step: u64) -> Option<T> {
        self.saved = self.saved.max(step);
        self.unsaved.pop_front_if(|(made, _)| *made <= step).map(|(_, reached)| reached)
    }

    /// Reports that the uncommitted steps are undone.
    pub fn handle_undone(&mut self) {
        self.unsaved.clear();
        self.saved = self.made;
    }
}

/// Numbers of what uncommitted steps have removed: it is there again if their commit fails. Until then, no frame may pass it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UncommittedRemovals {
    numbers: BTreeSet<u64>,
    /// The steps, in their order, with what each has removed.
    steps: VecDeque<(u64, u64)>,
}

impl UncommittedRemovals {
    pub fn insert(&mut self, step: u64, number: u64) {
        self.numbers.insert(number);
        self.steps.push_back((step, number));
    }

    /// Returns the least number from `from` on.
    pub fn next(&self, from: u64) -> Option<u64> {
        self.numbers.range(from..).next().copied()
    }

    /// Reports that all steps up to this one are committed. Returns whether that is news.
    pub fn handle_saved(&mut self, step: u64) -> bool {
        let before = self.numbers.len();
        while let Some((_, number)) = self.steps.pop_front_if(|(awaited, _)| *awaited <= step) {
            self.numbers.remove(&number);
        }
        self.numbers.len() != before
    }

    /// Reports that the uncommitted steps are undone.
    pub fn handle_undone(&mut self) {
        self.numbers.clear();
        self.steps.clear();
    }
}
