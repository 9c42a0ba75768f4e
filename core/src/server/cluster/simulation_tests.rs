//! Simulation of a cluster: three instances over a model of etcd, with faults of processes, clocks, network and etcd. No
//! acknowledged write is lost, none is applied twice, no read is stale.

mod application;
mod archive;
mod etcd;
mod requests;
mod world;

use std::thread;

use world::{Figures, World, clock_search};

use crate::server::simulation::run_seeds;

/// A mistake that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Transactions are applied whatever the head is.
    NoComparison,
    /// Reads are answered without a confirmation.
    NoConfirmation,
    /// A new owner does not start above the versions of the last one.
    NoFloor,
    /// A new owner does not know the versions of keys that were removed while it followed.
    ForgetsRemoved,
    /// A new owner does not know the responses of the last one.
    ForgetsResponses,
}

/// Runs seeds, and checks what has occurred.
fn run(seeds: u64, threads: usize) {
    Figures::check_seeds(seeds, threads, |seed| {
        let mut world = World::new(seed, None);
        let result = world.run().map_err(|error| format!("{} ms: {error}", world.ms));
        (world.figures, result)
    });
}

/// Runs seeds in which a clock is set ahead for a while.
fn run_with_clock_steps(seeds: u64, threads: usize) {
    run_seeds(seeds, threads, |seed| {
        let mut world = World::with_clock_steps(seed);
        let result = world.run().map_err(|error| format!("{} ms: {error}", world.ms));
        assert!(result.is_err() || world.figures.clock_jumps > 0);
        result
    });
}

#[test]
fn a_cluster_loses_no_write_and_shows_no_stale_state_whatever_fails() {
    run(250, 2);
}

/// `MQKV_CLUSTER_SEEDS` is another number of seeds.
#[test]
#[ignore = "takes a minute: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn a_cluster_loses_no_write_in_ten_thousand_seeds() {
    let seeds = std::env::var("MQKV_CLUSTER_SEEDS").map_or(10_000, |seeds| seeds.parse().unwrap());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    run(seeds, threads);
    run_with_clock_steps(seeds, threads);
}

/// `MQKV_CLUSTER_SEED` is one seed, to look at.
#[test]
#[ignore = "for one seed that fails: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn one_seed_of_a_cluster_loses_no_write() {
    let seed = std::env::var("MQKV_CLUSTER_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut world = World::new(seed, None);
    world.is_traced = true;
    world.run().unwrap_or_else(|error| panic!("seed {seed}, {} ms: {error}", world.ms));
}

/// A seed that has failed.
#[test]
fn another_instance_follows_an_owner_whose_resignation_a_full_etcd_has_refused() {
    World::new(30_678, None).run().unwrap();
}

/// Searches the clocks of three instances and the orders of starting and killing them.
fn search_clocks(steps: u32, is_searched: impl Fn(&[usize]) -> bool) {
    let (cases, ahead) = clock_search::search(steps, is_searched).unwrap_or_else(|error| panic!("{error}"));
    // The first instance has nothing to compare its clock with, and of three, two may be wrong.
    assert!(0 < ahead && ahead < cases, "versions are ahead in {ahead} of {cases} cases");
}

#[test]
fn a_wrong_clock_puts_no_version_ahead_and_keeps_no_right_one_from_the_store() {
    search_clocks(4, |nodes| nodes[0] == 0 && nodes[1] != 0 && nodes[2] != 0 && nodes[1] != nodes[2]);
}

/// `MQKV_CLUSTER_STEPS` is another number of steps.
#[test]
#[ignore = "takes minutes: see CONTRIBUTING.md"]
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn a_wrong_clock_puts_no_version_ahead_in_all_orders_of_starts_and_kills() {
    let steps = std::env::var("MQKV_CLUSTER_STEPS").map_or(5, |steps| steps.parse().unwrap());
    search_clocks(steps, |_| true);
}

/// Checks that a mistake is found within some seeds, by an error that contains a text.
fn detects(mistake: Mistake, error: &str) {
    const SEEDS: u64 = 100;
    let finds = |seed| World::new(seed, Some(mistake)).run().is_err_and(|found| found.contains(error));
    assert!((0..SEEDS).any(finds), "{mistake:?}");
}

#[test]
fn a_commit_without_a_comparison_of_the_head_is_detected() {
    detects(Mistake::NoComparison, "the chain of commits is broken");
}

#[test]
fn a_read_without_a_confirmation_is_detected() {
    detects(Mistake::NoConfirmation, "is a stale read");
}

#[test]
fn a_takeover_without_a_floor_of_versions_is_detected() {
    detects(Mistake::NoFloor, "do not rise");
}

#[test]
fn a_takeover_without_the_versions_of_removed_keys_is_detected() {
    detects(Mistake::ForgetsRemoved, "do not rise");
}

#[test]
fn a_clock_that_is_set_up_to_a_minute_ahead_for_a_while_keeps_no_instance_from_the_store_afterwards() {
    run_with_clock_steps(50, 2);
}

#[test]
fn a_takeover_without_the_responses_to_earlier_writes_is_detected() {
    detects(Mistake::ForgetsResponses, "was applied twice");
}
