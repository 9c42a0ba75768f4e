//! Tests of the leaf: expiry, joining, the outbox, restarts.

use super::super::LinkPeer;
use super::super::frame::{DECISIONS_MAX, Hello, ITEMS_MAX, LinkFrame};
use super::super::rules::tests::{all_keys, plant};
use super::super::testbed::{Node, Testbed, content, key, name, new_leaf, new_root};
use super::*;
use crate::protocol::exchange::{LeafState, OwnState};

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
    assert_eq!((expired.ver, expired.change_id), (note.ver, note.change_id));
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

/// Without a commit, the key has never left the rules.
#[test]
fn what_was_set_under_rules_that_could_not_be_committed_is_offered_although_an_expired_change_is_pending() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    let leaf = &mut testbed.leaves[0];
    leaf.change("k", Some(content("expired", Some(1_000))));
    leaf.change("pending", Some(content("v", Some(10_000))));
    testbed.pass(1_000);
    let leaf = &mut testbed.leaves[0];
    leaf.put("k", Some(content("new", None)));
    let effects = leaf.exchange.handle_commit_failed(true);
    leaf.commit(effects);
    leaf.work();
    assert_eq!(leaf.leaf().outbox().0, 3);
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("new"));
    assert!(testbed.leaves[0].conflicts().is_empty() && testbed.root.conflicts().is_empty());
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
    // The second time, the root has another stream of the leaf than the backup.
    for number in 1..=2 {
        testbed.disconnect(0);
        testbed.leaves[0] = backup.clone();
        testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run + number));
        testbed.settle();
        let values = vec![("kept".to_owned(), "1".to_owned())];
        assert_eq!((testbed.root.values(), testbed.root.root().ver()), (values, ver), "{number}");
        assert_eq!(testbed.leaves[0].values(), testbed.root.values());
        assert_eq!(testbed.leaves[0].conflicts().len(), 1, "the deleted one");
    }
}

#[test]
fn a_leaf_without_room_is_blocked_and_skips_nothing() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.leaves[0].store.values_max = 1;
    testbed.root.set("a", "1");
    testbed.settle();
    testbed.root.delete("b");
    testbed.root.set("b", "2");
    testbed.root.set("a", "3");
    testbed.try_to_settle();
    assert_eq!(testbed.leaves[0].values(), [("a".to_owned(), "1".to_owned())]);
    assert!(testbed.leaves[0].leaf().report().state == OwnState::Blocked);
    assert!(testbed.leaves[0].causes().contains(&Cause::Blocked));
    testbed.leaves[0].store.values_max = 2;
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert_eq!(testbed.leaves[0].leaf().report().ended, None);
}

#[test]
fn a_leaf_whose_backup_lacks_the_change_without_room_is_not_shown_as_blocked() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.settle();
    let backup = testbed.leaves[0].clone();
    testbed.root.store.values_max = 1;
    testbed.root.set("a", "1");
    testbed.leaves[0].set("b", "2");
    testbed.try_to_settle();
    assert_eq!(testbed.root.root().report().leaves[0].state, LeafState::Blocked);
    testbed.disconnect(0);
    testbed.leaves[0] = backup;
    testbed.connect(0);
    testbed.settle();
    assert_eq!(testbed.root.root().report().leaves[0].state, LeafState::Synchronized);
}

#[test]
fn changes_wait_while_the_root_has_no_room_and_both_show_it() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.store.values_max = 1;
    testbed.leaves[0].set("a", "1");
    testbed.settle();
    testbed.leaves[0].set("b", "2");
    testbed.leaves[0].set("a", "3");
    testbed.try_to_settle();
    assert_eq!(testbed.root.values(), [("a".to_owned(), "1".to_owned())]);
    assert!(testbed.root.root().report().leaves[0].state == LeafState::Blocked);
    let report = testbed.leaves[0].leaf().report();
    assert_eq!(report.state, OwnState::Blocked);
    assert_eq!(report.ended.unwrap(), "the store has no room for a change");
    // A connection that is lost meanwhile does not hide it.
    let count = |testbed: &Testbed| {
        let events = testbed.leaves[0].events.iter();
        events.filter(|event| matches!(event, Event::EndedByRoot { .. })).count()
    };
    let before = count(&testbed);
    testbed.disconnect(0);
    testbed.leaves[0].leaf().handle_unreachable("timed out".to_owned());
    assert_eq!(testbed.leaves[0].leaf().report().ended.unwrap(), "timed out");
    testbed.try_to_settle();
    assert!(testbed.leaves[0].leaf().report().state == OwnState::Blocked);
    assert_eq!(count(&testbed), before, "it is reported once");
    testbed.root.store.values_max = 0;
    testbed.settle();
    assert_eq!(testbed.root.values(), testbed.leaves[0].values());
    assert_ne!(testbed.root.root().report().leaves[0].state, LeafState::Blocked);
    assert_eq!(testbed.leaves[0].leaf().report().ended, None);
}

#[test]
fn a_resync_that_the_root_asks_for_repairs_the_leaf_although_both_restart_before() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("lost", "1");
    testbed.root.set("wrong", "2");
    testbed.settle();
    testbed.leaves[0].lose("lost");
    testbed.leaves[0].put("wrong", Some(content("3", None)));
    let effects = testbed.root.root().resync(&name("a"));
    testbed.root.commit(effects);
    testbed.disconnect(0);
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    // The WELCOME is lost: the next one begins with the resync, too.
    testbed.connect(0);
    testbed.poll();
    assert!(testbed.deliver_up(0));
    testbed.poll();
    testbed.disconnect(0);
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert!(testbed.leaves[0].conflicts().is_empty());
    let epoch = testbed.leaves[0].leaf().row().epoch;
    testbed.disconnect(0);
    testbed.settle();
    assert_eq!(testbed.leaves[0].leaf().row().epoch, epoch, "one resync is enough");
}

#[test]
fn a_resync_that_the_leaf_asks_for_repairs_it_although_it_restarts_before() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("lost", "1");
    testbed.settle();
    testbed.leaves[0].lose("lost");
    let effects = testbed.leaves[0].leaf().resync(false);
    testbed.leaves[0].commit(effects);
    assert_eq!(testbed.leaves[0].causes(), [Cause::Resync]);
    testbed.disconnect(0);
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("lost").as_deref(), Some("1"));
    assert_eq!(testbed.leaves[0].leaf().row().due, None);
}

#[test]
fn a_resync_that_is_asked_for_twice_begins_with_the_next_link() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    for _ in 0..2 {
        let effects = testbed.leaves[0].leaf().resync(false);
        testbed.leaves[0].commit(effects);
    }
    testbed.connect(0);
    testbed.poll();
    assert!(matches!(testbed.frames_up(0)[..], [LinkFrame::Hello(Hello { is_resync: true, .. })]));
}

/// Returns a leaf that has left its root for an empty one, with changes that wait.
fn with_new_root() -> Testbed {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    for key in ["kept", "both", "changed", "deleted"] {
        testbed.leaves[0].set(key, "old");
    }
    testbed.settle();
    testbed.disconnect(0);
    testbed.leaves[0].set("changed", "1");
    testbed.leaves[0].set("changed", "2");
    testbed.leaves[0].delete("deleted");
    testbed.root = Node::new(new_root(all_keys(), 2, 50));
    testbed.root.set("both", "new");
    testbed
}

#[test]
fn a_leaf_refuses_a_new_root_until_an_operator_says_so() {
    let mut testbed = with_new_root();
    testbed.try_to_settle();
    assert!(testbed.leaves[0].causes().iter().all(|cause| *cause == Cause::OtherRoot));
    assert_eq!(testbed.leaves[0].leaf().ended().unwrap().code, "other-root");
    assert_eq!(testbed.root.values().len(), 1);
}

#[test]
fn a_leaf_offers_everything_that_it_has_to_a_new_root() {
    let mut testbed = with_new_root();
    let effects = testbed.leaves[0].leaf().resync(true);
    testbed.leaves[0].commit(effects);
    // Before and after a restart, what is changed has no base that the new root could know.
    testbed.leaves[0].set("kept", "3");
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    testbed.leaves[0].set("changed", "4");
    testbed.settle();
    let values = [("both", "new"), ("changed", "4"), ("kept", "3")];
    assert_eq!(testbed.root.values(), values.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert_eq!(testbed.leaves[0].conflicts(), [("both".to_owned(), "old".to_owned(), "joined")]);
    let counts = testbed.leaves[0].leaf().row().counts;
    assert_eq!(counts.made, counts.accepted + counts.refused + counts.merged);
    testbed.leaves[0].set("both", "5");
    testbed.leaves[0].delete("kept");
    testbed.settle();
    assert_eq!(testbed.root.value("both").as_deref(), Some("5"));
    assert_eq!((testbed.root.value("kept"), testbed.leaves[0].conflicts().len()), (None, 1));
}

#[test]
fn a_failed_commit_in_a_sweep_leaves_no_value_behind() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    for at in 0..600 {
        testbed.root.set(&format!("k{at:03}"), "v");
    }
    testbed.settle();
    testbed.disconnect(0);
    // The root is restored to a time before them.
    testbed.root = Node::new(new_root(all_keys(), 1, 50));
    testbed.connect(0);
    // The root does not know the leaf, which begins another stream: HELLO, WELCOME, HELLO, WELCOME, RECORDS.
    for _ in 0..5 {
        testbed.root.work();
        testbed.poll_frames();
        let _ = testbed.deliver_up(0) || testbed.deliver_down(0);
    }
    let leaf = &mut testbed.leaves[0];
    assert!(leaf.leaf().sweep.is_some() && leaf.values().len() < 600, "{}", leaf.values().len());
    let effects = leaf.exchange.handle_timeout(0, &leaf.store);
    assert!(effects.rows.len() >= 256);
    for change in effects.rows.into_iter().rev() {
        leaf.exchange.restore(change.id, change.before);
    }
    let effects = leaf.exchange.handle_commit_failed(false);
    leaf.commit(effects);
    testbed.settle();
    assert!(testbed.leaves[0].values().is_empty());
}

#[test]
fn a_full_outbox_refuses_changes_until_the_root_has_decided_some() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    let large = "v".repeat(1024 * 1024);
    let mut made = 0;
    while testbed.leaves[0].leaf().check_change(&key("k"), large.len()).is_ok() {
        testbed.leaves[0].set(&format!("k{made}"), &large);
        made += 1;
    }
    assert_eq!(made, 63, "the 64th has no room beside what each takes");
    let check = testbed.leaves[0].leaf().check_change(&key("k"), large.len());
    assert_eq!(check, Err(ChangeError::OutboxFull));
    testbed.settle();
    assert!(testbed.leaves[0].leaf().check_change(&key("k"), large.len()).is_ok());
    assert_eq!((testbed.root.values().len(), testbed.leaves[0].leaf().outbox()), (63, (0, 0)));
}

#[test]
fn over_half_of_the_outbox_only_changes_that_were_never_offered_are_merged() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    let large = "v".repeat(OUTBOX_BYTES_MAX / 2);
    testbed.leaves[0].set("large", &large);
    testbed.leaves[0].set("k", "1");
    testbed.poll();
    testbed.leaves[0].set("k", "2");
    testbed.leaves[0].set("k", "3");
    testbed.leaves[0].set("k", "4");
    let counts = testbed.leaves[0].leaf().row().counts;
    assert_eq!((counts.made, counts.merged, testbed.leaves[0].leaf().outbox().0), (5, 2, 3));
    testbed.settle();
    let counts = testbed.leaves[0].leaf().row().counts;
    assert_eq!((counts.accepted, testbed.root.value("k").as_deref()), (3, Some("4")));
}

#[test]
fn no_change_is_sent_before_one_that_an_uncommitted_step_has_merged() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    for number in 0..LIVE_PER_KEY_MAX {
        testbed.leaves[0].set("hot", &number.to_string());
    }
    testbed.leaves[0].set("other", "1");
    let merging = testbed.leaves[0].leaf().handle_change(&key("hot"), Some(&content("merged", None)), 0);
    testbed.poll_frames();
    let last = |frame: &LinkFrame| match frame {
        LinkFrame::Changes(changes) => changes.items.last().map(|item| item.seq),
        _ => None,
    };
    let sent = testbed.frames_up(0).iter().filter_map(last).max();
    assert_eq!(sent, Some(LIVE_PER_KEY_MAX as u64 - 1), "not beyond the one that was merged");
    let leaf = &mut testbed.leaves[0];
    for change in merging.rows.into_iter().rev() {
        leaf.leaf().restore(change.id, change.before);
    }
    let effects = leaf.leaf().handle_commit_failed(false);
    leaf.commit(effects);
    testbed.settle();
    assert_eq!(testbed.root.value("hot"), Some((LIVE_PER_KEY_MAX - 1).to_string()));
    assert_eq!(testbed.root.value("other").as_deref(), Some("1"));
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn the_changes_of_a_hot_key_are_merged_so_that_one_record_replaces_few() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    for at in 0..1_000 {
        testbed.leaves[0].set("k", &at.to_string());
    }
    assert_eq!(testbed.leaves[0].leaf().outbox().0, LIVE_PER_KEY_MAX);
    testbed.root.set("k", "root");
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("root"));
    let counts = testbed.leaves[0].leaf().row().counts;
    assert_eq!((counts.made, counts.made), (1_000, counts.refused + counts.merged));
    assert!(testbed.leaves[0].conflicts().contains(&("k".to_owned(), "999".to_owned(), "root-wins")));
}

#[test]
fn a_digest_that_differs_has_the_leaf_do_a_resync() {
    const DAY_MS: u64 = 86_400_000;
    let mut testbed = Testbed::joined(plant(), &["press-7", "mill"]);
    testbed.root.set("recipe/1", "1");
    testbed.root.set("recipe/secret", "2");
    testbed.root.set("local", "3");
    testbed.root.change("recipe/soon", Some(content("4", Some(1_000))));
    testbed.root.change("recipe/late", Some(content("5", Some(DAY_MS))));
    testbed.leaves[0].set("line/1", "6");
    testbed.leaves[0].change("line/2", Some(content("7", Some(DAY_MS))));
    testbed.settle();
    // One node removes the expired value earlier than the other one.
    let effects = testbed.root.exchange.handle_expired(&key("recipe/late"), 0);
    testbed.root.commit(effects);
    for _ in 0..3 {
        testbed.idle(600_000);
    }
    assert_eq!((testbed.leaves[0].causes(), testbed.leaves[1].causes()), (vec![], vec![]));
    testbed.leaves[1].lose("recipe/1");
    testbed.idle(600_000);
    assert_eq!((testbed.leaves[0].causes(), testbed.leaves[1].causes()), (vec![], vec![Cause::Diverged]));
    let diverged = |event: &Event| matches!(event, Event::Diverged { .. });
    assert_eq!(testbed.leaves[1].events.iter().filter(|event| diverged(event)).count(), 1);
    assert_eq!(testbed.leaves[1].value("recipe/1").as_deref(), Some("1"));
    testbed.idle(600_000);
    assert_eq!(testbed.leaves[1].causes(), [Cause::Diverged]);
}

#[test]
fn a_leaf_that_has_more_than_the_outbox_offers_it_in_several_walks() {
    let mut testbed = Testbed::new(all_keys(), &["a"]);
    let large = "v".repeat(8 * 1024 * 1024);
    for at in 0..20 {
        testbed.leaves[0].put(&format!("k{at}"), Some(content(&large, None)));
    }
    testbed.settle();
    assert_eq!(testbed.root.values().len(), 20);
    assert!(!testbed.leaves[0].leaf().row().is_walk_due);
}

#[test]
fn a_leaf_whose_commits_are_slow_sends_no_more_than_the_root_has_room_for() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    for number in 0..3 * DECISIONS_MAX {
        testbed.leaves[0].set(&format!("k{number}"), "v");
    }
    testbed.connect(0);
    let mut last_step = 0;
    for _ in 0..100 {
        testbed.poll_frames();
        while testbed.deliver_up(0) {}
        testbed.poll_frames();
        // WELCOME is committed, the decisions are not.
        let is_welcome = !testbed.leaves[0].leaf().is_linked();
        while let Some(payload) = testbed.down[0].pop_front() {
            let leaf = &mut testbed.leaves[0];
            let effects = leaf.exchange.handle_frame(LinkPeer::Root, &payload, testbed.now_ms, &leaf.store);
            last_step = effects.step.max(last_step);
            if is_welcome {
                leaf.exchange.handle_saved(last_step);
            }
        }
        assert!(testbed.root.causes().is_empty(), "{:?}", testbed.root.causes());
    }
    let decided = testbed.root.values().len();
    assert!(decided <= DECISIONS_MAX, "{decided}");
    testbed.leaves[0].exchange.handle_saved(last_step);
    testbed.settle();
    assert_eq!(testbed.root.values().len(), 3 * DECISIONS_MAX);
}

#[test]
fn a_change_that_the_root_does_not_accept_in_a_packet_holds_up_the_changes_and_is_named() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.leaves[0].leaf().set_frame_bytes_max(1_000);
    let check = |testbed: &mut Testbed, bytes| testbed.leaves[0].leaf().check_change(&key("k"), bytes);
    assert_eq!(check(&mut testbed, 100), Ok(()));
    assert_eq!(check(&mut testbed, 1_000), Err(ChangeError::TooLarge));
    // They were made before the limit was known.
    let large = "v".repeat(1_000);
    for (key, value) in [("1", "v"), ("2", "v"), ("large", &large), ("3", "v")] {
        testbed.leaves[0].set(key, value);
    }
    testbed.root.set("of-root", "v");
    testbed.settle();
    testbed.leaves[0].set("4", "v");
    testbed.settle();
    assert_eq!(testbed.root.values().len(), 3, "what comes before it is accepted");
    assert_eq!(testbed.leaves[0].value("of-root").as_deref(), Some("v"), "records are received");
    let now_ms = testbed.now_ms;
    for _ in 0..3 {
        // Neither the next look nor the next link reports it again.
        testbed.settle();
        let Node { exchange, store, .. } = &mut testbed.leaves[0];
        let effects = exchange.handle_timeout(now_ms, store);
        testbed.leaves[0].commit(effects);
        testbed.disconnect(0);
    }
    testbed.settle();
    let events = testbed.leaves[0].events.iter();
    let reported: Vec<_> = events.filter(|event| matches!(event, Event::TooLarge { .. })).collect();
    assert!(
        matches!(reported[..], [Event::TooLarge { key: k, bytes: 1_261, bytes_max: 1_000, .. }] if *k == key("large"))
    );
    let report = testbed.leaves[0].leaf().report();
    assert!(testbed.leaves[0].leaf().is_linked() && !report.is_synchronized);
    assert_eq!(report.state, OwnState::Blocked);
    assert_eq!(report.ended.unwrap(), "a change takes 1261 bytes in a packet, the root accepts 1000: large");
    testbed.disconnect(0);
    testbed.leaves[0].leaf().set_frame_bytes_max(2_000);
    testbed.settle();
    assert_eq!(testbed.root.values(), testbed.leaves[0].values());
    assert_eq!(testbed.leaves[0].leaf().report().ended, None);
}

#[test]
fn a_change_that_has_lost_holds_up_no_other_however_large_it_is() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    let large = "v".repeat(1_000);
    testbed.leaves[0].set("k", &large);
    testbed.leaves[0].set("next", "v");
    testbed.root.set("k", "1");
    testbed.leaves[0].leaf().set_frame_bytes_max(500);
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert_eq!(testbed.root.value("next").as_deref(), Some("v"));
    let values = |node: &Node| node.conflicts().into_iter().map(|(_, value, _)| value).collect::<Vec<_>>();
    assert_eq!(values(&testbed.leaves[0]), [large]);
    assert_eq!(values(&testbed.root), ["Unsent"], "only the leaf has the value");
}

#[test]
fn no_frame_is_larger_than_the_root_accepts() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    for at in 0..300 {
        testbed.leaves[0].set(&format!("k{at}"), &"v".repeat(at));
    }
    testbed.leaves[0].leaf().set_frame_bytes_max(700);
    testbed.connect(0);
    let mut largest = 0;
    loop {
        testbed.poll();
        largest = testbed.up[0].iter().map(Bytes::len).chain([largest]).max().unwrap();
        if !testbed.exchange_frames() {
            break;
        }
    }
    assert!((300..=700).contains(&largest), "{largest}");
    assert_eq!(testbed.root.values().len(), 300);
}

#[test]
fn a_resync_refuses_no_change_that_is_based_on_what_the_root_has() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("k", "1");
    testbed.settle();
    testbed.disconnect(0);
    testbed.leaves[0].set("k", "2");
    let effects = testbed.leaves[0].leaf().resync(false);
    testbed.leaves[0].commit(effects);
    testbed.connect(0);
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("2"));
    assert_eq!(testbed.leaves[0].conflicts(), []);
}

#[test]
fn a_record_that_comes_again_does_not_move_the_time_at_which_its_value_expires() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.change("k", Some(content("1", Some(1_000))));
    testbed.settle();
    let until = testbed.leaves[0].leaf().note(&key("k")).unwrap().until;
    let effects = testbed.leaves[0].leaf().resync(false);
    testbed.leaves[0].commit(effects);
    testbed.disconnect(0);
    testbed.connect(0);
    testbed.poll();
    while testbed.deliver_up(0) || testbed.deliver_down(0) {
        testbed.poll();
        testbed.pass(10);
    }
    testbed.settle();
    assert_eq!(testbed.leaves[0].leaf().row().resync, None);
    assert_eq!(testbed.leaves[0].leaf().note(&key("k")).unwrap().until, until);
}

#[test]
fn a_large_value_that_has_expired_holds_up_no_change() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.leaves[0].change("large", Some(content(&"v".repeat(1_000), Some(1_000))));
    testbed.leaves[0].set("small", "1");
    testbed.pass(2_000);
    testbed.leaves[0].leaf().set_frame_bytes_max(700);
    testbed.connect(0);
    testbed.settle();
    assert_eq!(testbed.root.value("small").as_deref(), Some("1"));
    assert_eq!(testbed.leaves[0].leaf().report().ended, None);
}

/// The root's value expires later than the one of the leaf that made it, by the time that the change took to arrive.
#[test]
fn a_leaf_replaces_its_own_value_that_has_expired_there_first() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.leaves[0].change("k", Some(content("1", Some(1_000))));
    testbed.poll();
    testbed.pass(100);
    testbed.settle();
    // A tombstone that is purged, above the version of the value.
    testbed.root.set("x", "1");
    testbed.root.delete("x");
    testbed.settle();
    testbed.pass(900);
    testbed.root.set("y", "1");
    testbed.settle();
    assert_eq!(testbed.leaves[0].leaf().note(&key("k")), None, "the leaf has forgotten its value");
    assert_eq!((testbed.leaves[0].value("k"), testbed.root.value("k").as_deref()), (None, Some("1")));
    testbed.leaves[0].set("k", "2");
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("2"));
    assert_eq!(testbed.leaves[0].conflicts(), []);
}

#[test]
fn a_restored_leaf_does_not_replace_its_newer_value_by_an_older_one() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.leaves[0].set("k", "1");
    testbed.leaves[0].change("k", Some(content("2", Some(1_000_000))));
    let backup = testbed.leaves[0].clone();
    testbed.connect(0);
    testbed.settle();
    // A tombstone that is purged, above the version of the value.
    testbed.root.set("x", "1");
    testbed.root.delete("x");
    testbed.settle();
    testbed.disconnect(0);
    testbed.leaves[0] = backup;
    let effects = testbed.leaves[0].leaf().resync(true);
    testbed.leaves[0].commit(effects);
    testbed.connect(0);
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("2"));
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("2"));
}

#[test]
fn a_leaf_that_has_never_been_linked_refuses_writes_unless_told_otherwise() {
    let (key, mut testbed) = (key("line/1"), Testbed::new(plant(), &["press-7"]));
    let leaf = testbed.leaves[0].leaf();
    assert_eq!(leaf.check_change(&key, 1), Err(ChangeError::NotJoined));
    let policy = JoinPolicy { before_join: BeforeJoin::Accept, ..JoinPolicy::default() };
    assert_eq!(Leaf::new(leaf.row().identity.clone(), policy, 1, 2).check_change(&key, 1), Ok(()));
    testbed.settle();
    let leaf = &mut testbed.leaves[0];
    assert_eq!(leaf.leaf().check_change(&key, 1), Ok(()));
    leaf.restart_as(|run| new_leaf("press-7", OnJoin::Offer, 10, run));
    assert_eq!(leaf.leaf().check_change(&key, 1), Ok(()), "it knows the rules, also while it is offline");
}

#[test]
fn a_restored_root_gets_no_report_that_would_take_the_room_of_changes() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    let backup = testbed.root.clone();
    let large = "v".repeat(OUTBOX_BYTES_MAX / 4);
    for at in 0..4 {
        testbed.root.set(&at.to_string(), &large);
    }
    testbed.settle();
    testbed.disconnect(0);
    testbed.root = backup;
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.connect(0);
    testbed.poll();
    while testbed.deliver_up(0) || testbed.deliver_down(0) {
        testbed.root.work();
        testbed.poll_frames();
        assert!(testbed.leaves[0].leaf().outbox().1 <= OUTBOX_BYTES_MAX * 3 / 4 + 1_000);
    }
    testbed.settle();
    assert!(testbed.leaves[0].values().is_empty());
}
