//! Tests of the root: which links are served, in which order, with which frames.

use super::super::frame::{FRAME_BYTES_MAX, ITEMS_MAX, LinkFrame, STALL_MS};
use super::super::rules::tests::all_keys;
use super::super::testbed::{Testbed, name, new_root};
use super::*;

#[test]
fn only_links_with_something_to_send_are_polled() {
    let names: Vec<_> = (0..LEAVES_MAX).map(|at| format!("leaf-{at}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut testbed = Testbed::joined(all_keys(), &names);
    assert!(testbed.root.root().ready.is_empty());
    testbed.leaves[7].set("k", "v");
    testbed.poll();
    assert!(testbed.deliver_up(7));
    assert_eq!(testbed.root.root().ready.len(), LEAVES_MAX, "each one gets the record");
    testbed.settle();
    assert!(testbed.root.root().ready.is_empty());
    testbed.disconnect(7);
    testbed.connect(7);
    testbed.poll();
    assert!(testbed.deliver_up(7));
    assert_eq!(testbed.root.root().ready, BTreeSet::from([name("leaf-7")]));
}

#[test]
fn links_take_turns() {
    let mut testbed = Testbed::joined(all_keys(), &["a", "b", "c"]);
    let large = "v".repeat(40_000);
    for at in 0..20 {
        testbed.root.set(&format!("k{at}"), &large);
    }
    let (mut turns, store) = (String::new(), testbed.root.store.clone());
    while let Some((name, frame)) = testbed.root.root().poll_outgoing(0, &store) {
        assert!(matches!(frame, LinkFrame::Records(_)));
        turns.push_str(name.as_str());
    }
    assert_eq!(turns, "abc".repeat(turns.len() / 3));
    assert!(turns.len() > 3, "{turns}");
}

#[test]
fn frames_are_bounded_in_items_and_bytes_and_stop_at_the_window() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    for at in 0..2_000 {
        testbed.root.set(&format!("k{at}"), "v");
    }
    testbed.poll();
    let frames = testbed.frames_down(0);
    let items =
        |frame: &LinkFrame| if let LinkFrame::Records(records) = frame { records.items.len() } else { 0 };
    assert!(frames.iter().all(|frame| items(frame) == ITEMS_MAX), "{}", frames.len());
    assert_eq!(frames.len(), 8, "the window is full");
    testbed.settle();
    let large = "v".repeat(FRAME_BYTES_MAX);
    testbed.root.set("a", &large);
    testbed.root.set("b", &large);
    testbed.poll();
    assert!(
        testbed.frames_down(0).iter().all(|frame| items(frame) == 1),
        "a large item has a frame of its own"
    );
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn a_link_without_an_acknowledgement_ends_after_the_stall_time() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("k", "v");
    testbed.poll();
    testbed.down[0].clear();
    testbed.pass(STALL_MS - 1);
    testbed.poll();
    assert_eq!(testbed.root.causes(), []);
    testbed.pass(1);
    testbed.poll();
    assert_eq!(testbed.root.causes(), [Cause::Stalled]);
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("v"));
}

#[test]
fn a_restored_root_wins_and_each_value_that_goes_is_a_conflict() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("both", "old");
    testbed.root.set("same", "s");
    testbed.settle();
    let backup = testbed.root.clone();
    testbed.root.set("both", "new");
    testbed.root.set("gone", "g");
    testbed.root.delete("same");
    testbed.settle();
    testbed.disconnect(0);
    testbed.root = backup;
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.root.set("other", "o");
    testbed.settle();
    let values = [("both", "old"), ("other", "o"), ("same", "s")];
    assert_eq!(testbed.leaves[0].values(), values.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let lost = [("both", "new", "restored"), ("gone", "g", "restored")];
    let lost = lost.map(|(key, value, reason)| (key.to_owned(), value.to_owned(), reason));
    assert_eq!(testbed.leaves[0].conflicts(), lost);
}
