//! Simulation of an exchange on simulated disks: a root and its leaves write, lose links, frames, power and backups. In
//! the end all nodes have the same keys, and each acknowledged change of a leaf has a decision.

mod checks;
mod decision;
mod faults;
mod mistakes;
mod node;
mod world;

use std::thread;

use mistakes::Mistake;
use world::{Figures, World};

/// Runs seeds, and checks what has occurred.
fn run(seeds: u64, threads: usize) {
    Figures::check_seeds(seeds, threads, |seed| {
        let mut world = World::new(seed, None);
        let result = world.run().map_err(|error| format!("step {}: {error}", world.step));
        (world.figures, result)
    });
}

#[test]
fn after_any_faults_all_nodes_have_the_same_keys_and_each_change_has_a_decision() {
    run(100, 1);
}

/// `MQKV_EXCHANGE_SEEDS` is another number of seeds.
#[test]
#[ignore = "takes a minute: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn after_any_faults_of_a_thousand_seeds_all_nodes_have_the_same_keys() {
    let seeds = std::env::var("MQKV_EXCHANGE_SEEDS").map_or(1_000, |seeds| seeds.parse().unwrap());
    run(seeds, thread::available_parallelism().map_or(1, usize::from));
}

/// `MQKV_EXCHANGE_SEED` is one seed, to look at.
#[test]
#[ignore = "for one seed that fails: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn one_seed_leaves_all_nodes_with_the_same_keys() {
    let seed = std::env::var("MQKV_EXCHANGE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut world = World::new(seed, None);
    world.is_traced = true;
    world.run().unwrap_or_else(|error| panic!("seed {seed}, step {}: {error}", world.step));
}

/// A seed that has failed.
#[test]
fn a_settled_change_that_a_restored_root_accepts_again_is_shown_again() {
    World::new(51_556, None).run().unwrap();
}

/// A seed that has failed.
#[test]
fn a_restored_leaf_without_the_change_that_had_no_room_is_not_blocked() {
    World::new(84_531, None).run().unwrap();
}

/// Returns whether a check finds a mistake within some seeds: its error contains a text.
fn detects(mistake: Mistake, error: &str) -> bool {
    const SEEDS: u64 = 20;
    let finds = |seed| {
        let found = World::new(seed, Some(mistake)).run();
        found.is_err_and(|found| found.contains(error))
    };
    (0..SEEDS).any(finds)
}

#[test]
fn frames_that_are_sent_before_the_commit_are_detected() {
    assert!(detects(Mistake::SendsBeforeCommit, ""));
}

#[test]
fn rows_that_are_not_rolled_back_after_a_failed_commit_are_detected() {
    assert!(detects(Mistake::KeepsRowsOfFailedCommits, ""));
}

#[test]
fn rows_that_are_committed_before_their_values_are_detected() {
    assert!(detects(Mistake::CommitsRowsBeforeValues, ""));
}

#[test]
fn a_disk_that_ignores_syncs_is_detected() {
    assert!(detects(Mistake::IgnoresSyncs, ""));
}

#[test]
fn a_root_that_accepts_changes_with_an_obsolete_base_is_detected() {
    assert!(detects(Mistake::IgnoresBases, "I2: "));
}

#[test]
fn a_root_that_refuses_changes_of_what_it_holds_is_detected() {
    assert!(detects(Mistake::RefusesBases, "I4: "));
}

#[test]
fn changes_in_another_order_are_detected() {
    assert!(detects(Mistake::SwapsChanges, "I6: "));
}

#[test]
fn records_that_are_left_out_are_detected() {
    assert!(detects(Mistake::SkipsRecords, "I6: "));
}

#[test]
fn a_root_without_digests_is_detected() {
    assert!(detects(Mistake::SendsNoDigests, "has compared no digest"));
}

#[test]
fn a_wrong_digest_is_detected() {
    assert!(detects(Mistake::SendsWrongDigests, "has other records than the digest"));
}

#[test]
fn a_leaf_that_does_not_offer_its_keys_to_a_new_root_is_detected() {
    assert!(detects(Mistake::DiscardsOwnKeys, "the new root has"));
}
