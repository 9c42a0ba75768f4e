//! Explores all interleavings of a root and its leaves within small bounds, over the real state machines (§5.1).
//!
//! A breadth-first search: a state is the whole world, an action is one event of it. A state without further progress
//! must keep the promises of the exchange. The controls break a rule of the protocol on the way of the frames, and must
//! be found.

mod controls;
mod rows;
mod scenarios;
mod seed;
mod world;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};

use world::{Bounds, World};

/// A system whose reachable states can be enumerated.
trait Model: Clone + Hash {
    type Action: Clone + Debug;

    fn actions(&self) -> Vec<Self::Action>;

    /// # Errors
    /// A description of the promise that is broken.
    fn perform(&mut self, action: &Self::Action) -> Result<(), String>;

    /// Checks a state in which no progress is left to be made.
    ///
    /// # Errors
    /// A description of the promise that is broken.
    fn check(&self) -> Result<(), String>;
}

/// The number of states, or the first broken promise with the actions that lead to it.
fn explore<M: Model>(first: M, states_max: usize) -> Result<usize, String> {
    // 64 bits: among a million states, two have the same hash once in 30 million runs, with another seed each time.
    let hasher = RandomState::new();
    let fingerprint = |state: &M| hasher.hash_one(state);
    let mut seen = HashSet::from([fingerprint(&first)]);
    // Actions by their places in this list, each with the one before it.
    let mut steps: Vec<(Option<usize>, M::Action)> = Vec::new();
    let mut queue = std::collections::VecDeque::from([(first, None)]);
    let path = |steps: &[(Option<usize>, M::Action)], mut at: Option<usize>| {
        let mut path = Vec::new();
        while let Some(step) = at {
            path.push(format!("{:?}", steps[step].1));
            at = steps[step].0;
        }
        path.reverse();
        path.join(", ")
    };
    while let Some((state, at)) = queue.pop_front() {
        state.check().map_err(|broken| format!("{broken}: {}", path(&steps, at)))?;
        for action in state.actions() {
            let mut next = state.clone();
            let result = next.perform(&action);
            steps.push((at, action));
            let at = Some(steps.len() - 1);
            result.map_err(|broken| format!("{broken}: {}", path(&steps, at)))?;
            if seen.insert(fingerprint(&next)) {
                assert!(seen.len() <= states_max, "over {states_max} states");
                queue.push_back((next, at));
            } else {
                steps.pop();
            }
        }
    }
    Ok(seen.len())
}

fn states(name: &str, bounds: Bounds) {
    let states = explore(World::new(bounds), 1_000_000).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
}

#[test]
fn two_leaves_and_the_root_converge() {
    states("two leaves", Bounds { leaves: 2, root_sets: 1, leaf_sets: 1, ..Bounds::NONE });
}

#[test]
#[ignore = "takes minutes"]
fn two_leaves_and_the_root_converge_within_wider_bounds() {
    let bounds = Bounds { leaves: 2, root_sets: 1, leaf_sets: 1, leaf_deletes: 1, ..Bounds::NONE };
    states("two leaves, wider", bounds);
}

#[test]
fn a_leaf_converges_whatever_the_root_deletes() {
    let bounds = Bounds { root_sets: 1, root_deletes: 1, leaf_sets: 1, leaf_deletes: 1, ..Bounds::NONE };
    states("one leaf, deletions", bounds);
}

#[test]
fn a_lost_link_loses_nothing() {
    states("lost link", Bounds { root_sets: 1, root_deletes: 1, leaf_sets: 2, losses: 1, ..Bounds::NONE });
}

#[test]
fn frames_that_are_dropped_repeated_or_reordered_change_nothing() {
    let one = Bounds { root_sets: 1, leaf_sets: 2, ..Bounds::NONE };
    states("dropped frame", Bounds { drops: 1, ..one });
    states("repeated frame", Bounds { duplicates: 1, ..one });
    states("reordered frames", Bounds { reorders: 1, ..one });
    states("frame of an older link", Bounds { late: 1, losses: 1, ..one });
}

#[test]
fn a_crash_loses_nothing_that_was_sent() {
    let lazy = Bounds { root_sets: 1, leaf_sets: 1, is_lazy: true, ..Bounds::NONE };
    states("leaf crashes", Bounds { leaf_crashes: 1, ..lazy });
    states("root crashes", Bounds { root_crashes: 1, ..lazy });
    states("commit fails", Bounds { failed_commits: 1, ..lazy });
}

#[test]
fn a_restored_backup_converges() {
    let one = Bounds { root_deletes: 1, leaf_sets: 1, ..Bounds::NONE };
    states("leaf restored", Bounds { leaf_restores: 1, ..one });
    states("root restored", Bounds { root_restores: 1, ..one });
}

#[test]
fn a_resync_in_the_midst_of_changes_converges() {
    let one = Bounds { root_deletes: 1, leaf_sets: 1, leaf_deletes: 1, resyncs: 1, ..Bounds::NONE };
    states("resync", Bounds { losses: 1, leaf_deletes: 0, ..one });
    states("resyncs", Bounds { resyncs: 2, leaf_deletes: 0, ..one });
    states("resync, commits fail", Bounds { failed_commits: 1, is_lazy: true, leaf_deletes: 0, ..one });
}

#[test]
fn a_new_root_gets_what_the_leaves_have() {
    let one = Bounds { leaf_sets: 1, new_roots: 1, ..Bounds::NONE };
    states("new root", Bounds { root_sets: 1, leaf_deletes: 1, ..one });
    states("new root, leaf crashes", Bounds { leaf_crashes: 1, is_lazy: true, ..one });
}

#[test]
fn a_key_that_leaves_the_rules_and_comes_back_converges() {
    let one = Bounds { leaf_sets: 1, rule_changes: 2, ..Bounds::NONE };
    states("rules", Bounds { root_deletes: 1, ..one });
    states("rules, root crashes", Bounds { root_crashes: 1, rule_changes: 1, is_lazy: true, ..one });
}

#[test]
#[ignore = "takes minutes"]
fn a_key_that_leaves_the_rules_and_comes_back_converges_within_wider_bounds() {
    let one = Bounds { root_sets: 1, leaf_sets: 1, rule_changes: 2, ..Bounds::NONE };
    states("rules, wider", Bounds { root_deletes: 1, leaf_deletes: 1, ..one });
    states("rules, root crashes, wider", Bounds { root_crashes: 1, is_lazy: true, ..one });
}

#[test]
fn an_id_is_not_the_one_of_another_content_if_the_random_number_of_a_process_repeats() {
    let one = Bounds { leaf_sets: 2, leaf_restores: 1, repeats_runs: true, ..Bounds::NONE };
    states("run repeats", one);
    states("run repeats, root", Bounds { root_sets: 1, ..one });
}

#[test]
fn a_leaf_that_uses_the_serials_of_another_one_makes_changes_of_its_own_only() {
    let one = Bounds { leaf_sets: 1, forgeries: 1, ..Bounds::NONE };
    states("forged", Bounds { forgeries: 2, ..one });
    states("forged, lost link", Bounds { root_sets: 1, losses: 1, ..one });
}

#[test]
fn faults_that_meet_converge() {
    let one = Bounds { root_deletes: 1, leaf_sets: 1, ..Bounds::NONE };
    states("resync, root restored", Bounds { resyncs: 1, root_restores: 1, ..one });
    states("resync, leaf restored", Bounds { resyncs: 1, leaf_restores: 1, ..one });
    states("new root, lost link", Bounds { new_roots: 1, losses: 1, ..one });
}

#[test]
#[ignore = "takes minutes"]
fn faults_that_meet_converge_within_wider_bounds() {
    let one = Bounds { root_deletes: 1, leaf_sets: 1, ..Bounds::NONE };
    states("rules, leaf restored", Bounds { rule_changes: 2, leaf_restores: 1, ..one });
    states("rules, root restored", Bounds { rule_changes: 1, root_restores: 1, ..one });
    states("rules, resync", Bounds { rule_changes: 2, resyncs: 1, ..one });
    let lazy = Bounds { leaf_crashes: 1, is_lazy: true, ..one };
    states("rules, leaf crashes", Bounds { rule_changes: 2, root_deletes: 0, ..lazy });
    states("rules, lost link", Bounds { rule_changes: 2, losses: 1, ..one });
    states("new root, two leaves", Bounds { new_roots: 1, leaves: 2, root_deletes: 0, ..one });
    states("rules, two leaves", Bounds { rule_changes: 1, leaves: 2, ..one });
    states("resyncs, lost link", Bounds { resyncs: 2, losses: 1, leaf_sets: 2, ..one });
    states("resync, repeated frame", Bounds { resyncs: 1, duplicates: 1, leaf_sets: 2, ..one });
    states("resync, crashes", Bounds { resyncs: 1, root_crashes: 1, ..lazy });
    states("resync, two leaves", Bounds { resyncs: 1, leaves: 2, ..one });
}
