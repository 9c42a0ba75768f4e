//! Tests of the leaf: expiry, joining, the outbox, restarts.

use super::super::frame::{ITEMS_MAX, LinkFrame};
use super::super::rules::tests::{all_keys, plant};
use super::super::testbed::{Testbed, content, key, new_leaf};
use super::*;

fn ttl(testbed: &Testbed, at: usize, text: &str) -> Option<u64> {
    testbed.leaves[at].store.content(&key(text)).and_then(|content| content.ttl_ms)
}

#[test]
fn the_time_that_is_left_travels_and_expiry_is_no_change() {
    let mut testbed = Testbed::joined(all_keys(), &["a", "b"]);
    testbed.disconnect(1);
    testbed.leaves[0].change("k", Some(content("v", Some(1_000))));
    testbed.pass(100);
    testbed.settle();
    assert_eq!(ttl(&testbed, 1, "k"), Some(900));
    let (ver, note) = (testbed.root.root().ver(), *testbed.leaves[1].leaf().note(&key("k")).unwrap());
    testbed.pass(900);
    testbed.settle();
    assert!(testbed.root.value("k").is_none() && testbed.leaves[1].value("k").is_none());
    assert_eq!(testbed.root.root().ver(), ver);
    let expired = *testbed.leaves[1].leaf().note(&key("k")).unwrap();
    assert_eq!((expired.ver, expired.mutex), (note.ver, note.mutex));
    testbed.leaves[1].set("k", "again");
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("again"));
    assert!(testbed.leaves.iter().all(|leaf| leaf.conflicts().is_empty()));
}

#[test]
fn what_only_a_leaf_has_is_offered_when_it_joins_and_what_both_have_is_the_roots() {
    let mut testbed = Testbed::new(plant(), &["press-7"]);
    testbed.root.put("line/1", Some(content("root", None)));
    for (key, value) in [("line/1", "leaf"), ("line/2", "own"), ("recipe/1", "r"), ("local", "l")] {
        testbed.leaves[0].put(key, Some(content(value, None)));
    }
    testbed.settle();
    assert_eq!(testbed.root.value("line/2").as_deref(), Some("own"));
    assert_eq!(testbed.leaves[0].value("line/1").as_deref(), Some("root"));
    assert_eq!(testbed.leaves[0].value("recipe/1"), None, "only the root changes it");
    assert_eq!((testbed.leaves[0].value("local").as_deref(), testbed.root.value("local")), (Some("l"), None));
    let lost = [("line/1", "leaf", "joined"), ("recipe/1", "r", "joined")];
    let lost = lost.map(|(key, value, reason)| (key.to_owned(), value.to_owned(), reason));
    assert_eq!(testbed.leaves[0].conflicts(), lost);
}

#[test]
fn with_discard_what_only_a_leaf_has_is_deleted_and_reported_when_it_joins() {
    let mut testbed = Testbed::new(all_keys(), &["a"]);
    testbed.leaves[0].exchange = new_leaf("a", OnJoin::Discard, 10, 10);
    testbed.leaves[0].put("k", Some(content("v", None)));
    testbed.settle();
    assert!(testbed.leaves[0].values().is_empty() && testbed.root.values().is_empty());
    assert_eq!(testbed.leaves[0].conflicts(), [("k".to_owned(), "v".to_owned(), "joined")]);
}

#[test]
fn changes_made_offline_are_offered_in_bounded_frames_after_a_restart() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    for at in 0..3_000 {
        testbed.leaves[0].set(&format!("k{at}"), "v");
    }
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    testbed.connect(0);
    testbed.poll();
    assert!(testbed.deliver_up(0));
    testbed.poll();
    assert!(testbed.deliver_down(0));
    testbed.poll();
    let frames = testbed.frames_up(0);
    let items =
        |frame: &LinkFrame| if let LinkFrame::Changes(changes) = frame { changes.items.len() } else { 0 };
    assert!(frames.len() == 8 && frames.iter().all(|frame| items(frame) == ITEMS_MAX));
    testbed.settle();
    assert_eq!(testbed.root.values().len(), 3_000);
    let counts = testbed.leaves[0].leaf().row().counts;
    assert_eq!((counts.made, counts.accepted, testbed.leaves[0].leaf().outbox().0), (3_000, 3_000, 0));
}

#[test]
fn a_leaf_restored_from_a_backup_offers_its_changes_again_and_none_is_applied_twice() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.leaves[0].set("kept", "1");
    testbed.leaves[0].set("deleted", "2");
    let backup = testbed.leaves[0].clone();
    testbed.settle();
    testbed.root.delete("deleted");
    testbed.settle();
    let ver = testbed.root.root().ver();
    testbed.disconnect(0);
    testbed.leaves[0] = backup;
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    testbed.settle();
    assert_eq!((testbed.root.values(), testbed.root.root().ver()), (vec![("kept".into(), "1".into())], ver));
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert_eq!(testbed.leaves[0].conflicts().len(), 1, "the deleted one");
}
