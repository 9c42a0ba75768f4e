//! Single histories: one test for each rule of the exchange.

use bytes::Bytes;

use super::super::effects::Cause;
use super::super::frame::{Hello, LinkFrame, OLDEST_VERSION, Reason, VERSION};
use super::super::leaf::{ChangeError, JoinPolicy, Leaf};
use super::super::names::Name;
use super::super::row::{Identity, Row, RowId};
use super::super::rules::tests::plant;
use super::Model;
use super::world::{Action, Bounds, World, name};
use crate::protocol::Key;
use crate::protocol::exchange::{KeyState, LeafState};

const BOUNDS: Bounds = Bounds {
    leaves: 2,
    root_sets: 2,
    root_deletes: 2,
    leaf_sets: 3,
    leaf_deletes: 2,
    losses: 2,
    ..Bounds::NONE
};

/// Performs the actions, then brings the world to rest.
fn after(actions: &[Action]) -> World {
    let mut world = World::new(BOUNDS);
    for action in actions {
        world.perform(action).unwrap();
    }
    while let Some(action) = world.progress().first() {
        world.perform(action).unwrap();
    }
    world.check().unwrap();
    world
}

fn key() -> Key {
    Key::new("k").unwrap()
}

fn value(world: &World) -> Option<u8> {
    world.root_site.values.get(&key()).map(|value| value[0])
}

/// The reasons of the conflicts of a leaf, with the values that lost.
fn conflicts(world: &World, at: usize) -> Vec<(Reason, Option<u8>)> {
    let conflicts = world.leaves[at].0.conflicts().since(0);
    let parts = conflicts.map(|(_, lost)| (lost.reason, lost.lost.value().map(|value| value[0])));
    parts.collect()
}

#[test]
fn the_root_wins_over_a_change_that_it_has_not_decided() {
    let world = after(&[Action::LeafSet(0), Action::RootSet]);
    assert_eq!((value(&world), conflicts(&world, 0)), (Some(2), vec![(Reason::RootWins, Some(1))]));
    assert_eq!(world.root.conflicts().len(), 1, "the root reports it too");
}

#[test]
fn the_first_leaf_wins_whose_change_is_committed_at_the_root() {
    let world = after(&[Action::LeafSet(0), Action::LeafSet(1), Action::Up(1)]);
    assert_eq!((value(&world), conflicts(&world, 0)), (Some(2), vec![(Reason::FirstLeafWins, Some(1))]));
    assert!(conflicts(&world, 1).is_empty());
}

#[test]
fn changes_that_a_leaf_makes_offline_are_all_accepted_in_their_order() {
    let world = after(&[Action::Lose(0), Action::LeafSet(0), Action::LeafSet(0), Action::LeafDelete(0)]);
    assert_eq!((value(&world), conflicts(&world, 0).len()), (None, 0));
    assert_eq!(world.leaves[0].0.row().counts.accepted, 3);
}

#[test]
fn a_change_based_on_a_lost_one_is_lost_with_it() {
    let world = after(&[Action::LeafSet(0), Action::LeafSet(0), Action::RootSet]);
    let lost = vec![(Reason::RootWins, Some(1)), (Reason::RootWins, Some(2))];
    assert_eq!((value(&world), conflicts(&world, 0)), (Some(3), lost));
}

#[test]
fn a_key_can_be_made_again_after_its_tombstone_is_purged() {
    let mut world = after(&[Action::RootSet, Action::RootDelete]);
    assert_eq!(world.root.report().tombstones, 0, "all leaves have received it");
    world.perform(&Action::LeafSet(0)).unwrap();
    while let Some(action) = world.progress().first() {
        world.perform(action).unwrap();
    }
    assert_eq!((value(&world), conflicts(&world, 0).len()), (Some(2), 0));
}

#[test]
fn the_status_of_a_key_names_its_state() {
    let mut world = World::new(BOUNDS);
    assert_eq!(world.root.key_report(&key()).state, KeyState::Absent);
    world.perform(&Action::LeafSet(0)).unwrap();
    assert_eq!(world.leaves[0].0.key_report(&key()).state, KeyState::Proposed);
    world.perform(&Action::Up(0)).unwrap();
    assert_eq!(world.root.key_report(&key()).state, KeyState::Replicating);
    while let Some(action) = world.progress().first() {
        world.perform(action).unwrap();
    }
    assert_eq!(world.root.key_report(&key()).state, KeyState::Synchronized);
    assert_eq!(world.leaves[1].0.key_report(&key()).state, KeyState::Synchronized);
    assert!(world.root.report().leaves.iter().all(|leaf| leaf.state == LeafState::Synchronized));
}

#[test]
fn a_leaf_refuses_changes_that_the_rules_forbid() {
    let node = Name::new("press-7").unwrap();
    let identity = Identity { exchange: Name::new("plant").unwrap(), node, store: 5 };
    let mut leaf = Leaf::new(identity, JoinPolicy::default(), 1, 2);
    leaf.restore(RowId::Rules, Some(Row::Rules(plant())));
    let check = |key: &'static str, bytes| leaf.check_change(&Key::new(key).unwrap(), bytes);
    assert_eq!(check("recipe/9", 1), Err(ChangeError::RootOnly));
    assert_eq!((check("line/2", 1), check("other", usize::MAX)), (Ok(()), Ok(())));
    assert_eq!(check("line/2", super::super::leaf::OUTBOX_BYTES_MAX), Err(ChangeError::OutboxFull));
}

#[test]
fn a_leaf_that_is_not_the_one_of_its_name_is_refused() {
    let hello = Hello {
        version: VERSION,
        exchange: Name::new("plant").unwrap(),
        leaf: name(0),
        store: 10,
        run: 1,
        link: 1,
        stream: 1,
        acked: 0,
        cursor: 0,
        last_ver: 0,
        term: 0,
        rules: 0,
        software: String::new(),
        oldest_version: OLDEST_VERSION,
        is_resync: false,
        horizon: 0,
        last_seq: 0,
        is_busy: false,
    };
    let other = || Name::new("other").unwrap();
    let cases = [
        (Hello { version: 9, oldest_version: 9, ..hello.clone() }, "", Cause::Version),
        (Hello { version: 0, oldest_version: 0, ..hello.clone() }, "", Cause::Version),
        (Hello { exchange: other(), ..hello.clone() }, "", Cause::OtherExchange),
        (Hello { leaf: other(), ..hello.clone() }, "", Cause::OtherLeaf),
        (Hello { store: 99, ..hello.clone() }, "", Cause::OtherStore),
        (hello.clone(), "mallory", Cause::OtherPrincipal),
        (hello, "", Cause::SecondRun),
    ];
    for (hello, principal, cause) in cases {
        let mut world = World::new(BOUNDS);
        let principal = Bytes::from(principal);
        let site = world.root_site.clone();
        let _ = world.root.handle_frame(&name(0), &principal, LinkFrame::Hello(hello), 0, &site);
        let Some((_, LinkFrame::Refused(refused))) = world.root.poll_outgoing(0, &site) else {
            panic!("{cause:?} is accepted")
        };
        assert_eq!(refused.code, cause.as_str());
        assert_eq!(world.root.report().leaves.len(), 2);
    }
}
