//! Tests of the root: which links are served, in which order, with which frames.

use super::super::LinkPeer;
use super::super::fingerprint::unbound;
use super::super::frame::{FRAME_BYTES_MAX, IDLE_MS, ITEMS_MAX, LinkFrame, SILENCE_MS, STALL_MS};
use super::super::frame::{Flags, Hello, OLDEST_VERSION, Proposal, Proposed, VERSION};
use super::super::leaf::OnJoin;
use super::super::names::Serial;
use super::super::row::Counts;
use super::super::rules::tests::{all_keys, keys, plant};
use super::super::testbed::{Node, Store, Testbed, content, key, name, new_leaf, new_root};
use super::*;
use crate::protocol::exchange::{LeafReport, LeafState};

#[test]
fn only_links_with_something_to_send_are_polled() {
    let names: Vec<_> = (0..LEAVES_PER_IDENTITY_MAX).map(|at| format!("leaf-{at}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut testbed = Testbed::joined(all_keys(), &names);
    assert!(testbed.root.root().ready.is_empty());
    testbed.leaves[7].set("k", "v");
    testbed.poll();
    assert!(testbed.deliver_up(7));
    assert_eq!(testbed.root.root().ready.len(), LEAVES_PER_IDENTITY_MAX, "each one gets the record");
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
    let mut testbed = Testbed::joined(all_keys(), &["a", "b"]);
    testbed.root.set("both", "old");
    testbed.root.set("same", "s");
    testbed.settle();
    let backup = testbed.root.clone();
    testbed.root.set("both", "new");
    testbed.root.set("gone", "g");
    testbed.root.delete("same");
    testbed.settle();
    testbed.disconnect(0);
    testbed.disconnect(1);
    testbed.root = backup;
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.root.set("other", "o");
    testbed.settle();
    let values = [("both", "old"), ("other", "o"), ("same", "s")];
    assert_eq!(testbed.leaves[0].values(), values.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let lost = [("both", "new", "restored"), ("gone", "g", "restored")];
    let lost = lost.map(|(key, value, reason)| (key.to_owned(), value.to_owned(), reason));
    assert_eq!(testbed.leaves[0].conflicts(), lost);
    assert_eq!(testbed.leaves[1].conflicts(), lost);
    assert_eq!(testbed.root.conflicts(), lost, "the root lists what its leaves lose, each value once");
    let leaf = testbed.leaves[0].leaf();
    assert_eq!(
        (leaf.outbox().0, leaf.row().counts),
        (0, Counts::default()),
        "they are no changes of the leaf"
    );
    assert_eq!(testbed.root.root().report().leaves[0].refused, 0);
}

#[test]
fn a_restored_root_is_not_told_of_keys_that_do_not_concern_the_leaf() {
    let mut testbed = Testbed::joined(keys(&["a/*"]), &["leaf"]);
    let seq = 1;
    let mut proposal = Proposal {
        seq,
        key: key("b/1"),
        serial: Serial::default(),
        base: ChangeId::NIL,
        flags: Flags { is_lost: true, is_restored: true, ..Flags::default() },
        content: Proposed::Value(content("v", None)),
    };
    let store = testbed.root.store.clone();
    for (key_text, reason) in [("b/1", "forbidden"), ("a/1", "restored")] {
        proposal.key = key(key_text);
        let mut effects = Effects::default();
        let root = testbed.root.root();
        root.propose(&name("leaf"), proposal.clone(), 0, &store, &mut effects).unwrap();
        let lost = root.conflicts().latest().next().unwrap().1;
        assert_eq!((lost.key.clone(), lost.reason.as_str()), (key(key_text), reason));
        proposal.seq += 1;
    }
}

#[test]
fn a_leaf_acknowledges_nothing_of_the_lost_future_of_a_restored_root() {
    for has_changes in [false, true] {
        let mut testbed = Testbed::joined(all_keys(), &["a"]);
        let backup = testbed.root.clone();
        testbed.root.set("k", "1");
        if has_changes {
            // The leaf is ahead with its changes, too: it begins another stream.
            testbed.leaves[0].set("own", "1");
        }
        testbed.settle();
        testbed.disconnect(0);
        testbed.root = backup;
        testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
        testbed.connect(0);
        // A commit between the connection and WELCOME, none after it for a while.
        testbed.leaves[0].set("x", "1");
        let mut last_step = 0;
        for _ in 0..8 {
            testbed.root.work();
            testbed.poll_frames();
            while testbed.deliver_up(0) {}
            testbed.poll_frames();
            let now_ms = testbed.now_ms;
            let leaf = &mut testbed.leaves[0];
            for payload in std::mem::take(&mut testbed.down[0]) {
                let effects = leaf.exchange.handle_frame(LinkPeer::Root, &payload, now_ms, &leaf.store);
                last_step = leaf.write(effects).max(last_step);
                if !leaf.leaf().is_linked() {
                    leaf.exchange.handle_saved(last_step);
                }
            }
            if leaf.exchange.is_walk_due() {
                let effects = leaf.exchange.handle_walked();
                last_step = leaf.write(effects).max(last_step);
            }
        }
        let regular = [Cause::Replaced].into_iter().filter(|_| has_changes).collect::<Vec<_>>();
        assert_eq!((testbed.leaves[0].leaf().is_linked(), testbed.root.causes()), (true, regular.clone()));
        testbed.leaves[0].exchange.handle_saved(last_step);
        testbed.settle();
        assert_eq!(testbed.root.causes(), regular);
        assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    }
}

/// Returns whether all leaves have the values of the root after one has made a change with the number of an earlier one.
fn converges_after_a_number_repeats() -> bool {
    let mut testbed = Testbed::joined(all_keys(), &["a", "b"]);
    // A machine goes on from an earlier state of its memory: the numbers of its changes repeat.
    let earlier = testbed.leaves[0].clone();
    testbed.leaves[0].set("k", "1");
    testbed.settle();
    testbed.disconnect(1);
    testbed.root.set("k", "2");
    testbed.disconnect(0);
    testbed.leaves[0] = earlier;
    testbed.connect(0);
    while testbed.exchange_frames() {}
    testbed.leaves[0].set("k", "3");
    while testbed.exchange_frames() {}
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("3"));
    assert!(testbed.leaves.iter().all(|leaf| leaf.conflicts().is_empty()));
    testbed.leaves[1].values() == testbed.root.values()
}

#[test]
fn a_change_that_is_made_again_with_another_value_replaces_the_one_of_a_leaf_that_was_offline() {
    assert!(converges_after_a_number_repeats());
    assert!(!unbound::with(converges_after_a_number_repeats), "the id was the number alone");
}

#[test]
fn a_refused_change_is_reported_with_what_the_root_got_of_it() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.leaves[0].change("k", Some(content("short", Some(1_000))));
    testbed.leaves[0].delete("d");
    testbed.root.set("k", "root");
    testbed.root.set("d", "root");
    testbed.pass(2_000);
    testbed.settle();
    let lost = |node: &Node| node.conflicts().into_iter().map(|(_, lost, _)| lost).collect::<Vec<_>>();
    assert_eq!(lost(&testbed.root), ["Expired", "-"]);
    assert_eq!(lost(&testbed.leaves[0]), ["short", "-"], "the leaf has the value");
    assert_eq!(testbed.root.value("k").as_deref(), Some("root"));
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn a_change_whose_value_expires_on_the_way_is_known_by_the_same_id_on_both_sides() {
    let mut testbed = Testbed::joined(all_keys(), &["a", "b"]);
    // A tombstone stays while a leaf that is known may lack it.
    let effects = testbed.root.root().add_leaf(&name("absent"), false);
    testbed.root.commit(effects);
    testbed.disconnect(0);
    testbed.leaves[0].change("k", Some(content("short", Some(1_000))));
    let pending = testbed.leaves[0].leaf().pending(&key("k")).unwrap().1.change_id;
    testbed.pass(2_000);
    testbed.settle();
    assert_eq!(testbed.root.root().record(&key("k")).map(|record| record.change_id), Some(pending));
    testbed.leaves[0].set("k", "next");
    testbed.settle();
    assert_eq!(testbed.leaves[1].value("k").as_deref(), Some("next"));
    assert!(testbed.root.conflicts().is_empty());
}

#[test]
fn the_number_of_conflicts_that_made_room_is_the_same_after_a_restart() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    let large = "v".repeat(super::super::conflict_log::CONFLICT_BYTES_MAX / 2);
    testbed.disconnect(0);
    for key in ["1", "2", "3"] {
        testbed.leaves[0].set(key, &large);
        testbed.root.set(key, "root");
    }
    testbed.settle();
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run));
    let kept = |node: &Node| (node.exchange.conflicts().len(), node.exchange.dropped_conflicts());
    assert_eq!((kept(&testbed.root), kept(&testbed.leaves[0])), ((1, 2), (1, 2)));
}

#[test]
fn leaves_that_the_file_of_the_root_names_are_expected_until_they_come() {
    let mut testbed = Testbed::new(all_keys(), &["m"]);
    let text = |text: &str| super::super::rules::Text { text: text.to_owned(), at: Default::default() };
    let admit = ["z", "m", "a-*", "b"].map(text);
    let admit = Patterns::parse(&admit, Default::default(), "admit").unwrap();
    testbed.root.root().set_admit(admit);
    testbed.settle();
    let root = testbed.root.root();
    let shown = |leaves: &[LeafReport]| {
        leaves
            .iter()
            .map(|leaf| (leaf.name.to_string(), leaf.state != LeafState::Expected))
            .collect::<Vec<_>>()
    };
    let all = [("b".to_owned(), false), ("m".to_owned(), true), ("z".to_owned(), false)];
    assert_eq!(shown(&root.report().leaves), all);
    assert_eq!(shown(&root.report_after(None, 1, 0).leaves), all[..1]);
    assert_eq!(shown(&root.report_after(Some(&name("b")), 2, 0).leaves), all[1..]);
    assert_eq!(root.report_of(&name("z"), 0).unwrap().leaves[0].state, LeafState::Expected);
    assert_eq!(root.report_of(&name("a-1"), 0), None);
    assert_eq!(root.leaf_count(), 1, "they take no room");
}

#[test]
fn a_restored_root_sends_what_a_leaf_was_not_sent_because_the_lost_future_had_replaced_it() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.disconnect(0);
    testbed.root.set("replaced", "old");
    for at in 0..200 {
        testbed.root.set(&format!("k/{at}"), "v");
    }
    let backup = testbed.root.clone();
    testbed.root.set("replaced", "new");
    testbed.connect(0);
    // HELLO, WELCOME, and the first RECORDS only: it passes the version that the backup has.
    testbed.poll();
    assert!(testbed.deliver_up(0));
    testbed.poll();
    assert!(testbed.deliver_down(0) && testbed.deliver_down(0));
    let row = testbed.leaves[0].leaf().row().clone();
    assert!(
        row.resync.is_none() && row.cursor > 1 && testbed.leaves[0].value("replaced").is_none(),
        "{row:?}"
    );
    testbed.disconnect(0);
    testbed.root = backup;
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.root.set("other", "o");
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    assert_eq!(testbed.leaves[0].value("replaced").as_deref(), Some("old"));
}

#[test]
fn a_backup_with_a_change_whose_commit_was_reported_as_failed_is_another_history() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.root.set("before", "1");
    testbed.settle();
    testbed.root.put("k", Some(content("failed", None)));
    let failed = testbed.root.root().handle_change(&key("k"), Some(&content("failed", None)));
    let mut backup = testbed.root.clone();
    for change in &failed.rows {
        backup.disk.insert(change.id.clone(), change.after.clone().unwrap());
    }
    testbed.root.put("k", None);
    for change in failed.rows.into_iter().rev() {
        testbed.root.root().restore(change.id, change.before);
    }
    let effects = testbed.root.root().handle_commit_failed(false);
    testbed.root.commit(effects);
    testbed.root.set("other", "2");
    testbed.settle();
    testbed.disconnect(0);
    testbed.root = backup;
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    testbed.settle();
    let values = [("before", "1"), ("k", "failed")];
    assert_eq!(testbed.root.values(), values.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

/// Changes the rules of a root, while it runs or between two starts.
fn set_rules(testbed: &mut Testbed, rules: Rules, is_restart: bool) {
    if is_restart {
        testbed.disconnect(0);
        testbed.root.restart_as(|run| new_root(rules, 1, run));
    } else {
        let effects = testbed.root.root().set_rules(rules);
        testbed.root.commit(effects);
    }
}

#[test]
fn rules_that_were_in_use_for_a_moment_only_leave_no_difference() {
    let mut testbed = Testbed::joined(keys(&["a/*"]), &["leaf"]);
    testbed.root.set("a/1", "1");
    testbed.settle();
    set_rules(&mut testbed, keys(&["b/*"]), true);
    // The root has done nothing yet but what these clients ask for.
    testbed.root.delete("a/1");
    testbed.root.set("b/1", "2");
    set_rules(&mut testbed, keys(&["a/*"]), true);
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("a/1"), None);
    testbed.root.set("b/1", "3");
    set_rules(&mut testbed, keys(&["a/*", "b/*"]), true);
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("b/1").as_deref(), Some("3"));
}

#[test]
fn keys_that_leave_the_rules_stay_local_and_keys_that_enter_are_taken_over() {
    for is_restart in [false, true] {
        let mut testbed = Testbed::joined(keys(&["a/*"]), &["leaf"]);
        for at in 0..600 {
            testbed.root.set(&format!("a/{at}"), "1");
        }
        testbed.settle();
        testbed.root.set("b/root", "2");
        testbed.leaves[0].set("b/leaf", "3");
        set_rules(&mut testbed, keys(&["b/*", "a/7"]), is_restart);
        testbed.settle();
        assert_eq!(testbed.leaves[0].values(), testbed.root.values());
        assert_eq!(testbed.root.values().len(), 602);
        assert_eq!(testbed.root.root().records.len(), 3, "restart: {is_restart}");
        assert_eq!(testbed.leaves[0].leaf().row().resync, None);
        testbed.root.set("a/1", "local");
        testbed.leaves[0].set("b/root", "4");
        testbed.settle();
        assert_eq!(testbed.leaves[0].value("a/1").as_deref(), Some("1"));
        assert_eq!(testbed.root.value("b/root").as_deref(), Some("4"));
        assert!(testbed.leaves[0].conflicts().is_empty());
        testbed.idle(600_000);
        let diverged = testbed.leaves[0].causes().contains(&Cause::Diverged);
        assert!(!diverged && testbed.root.root().digest(&name("leaf")).is_some());
    }
}

#[test]
fn a_record_that_is_back_after_a_failed_commit_or_a_restart_reaches_all_leaves() {
    // Commits take a while: a record can be replaced before it is committed.
    for (is_replaced_first, is_restart) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut testbed = Testbed::joined(all_keys(), &["a"]);
        testbed.root.set("before", "1");
        let mut made = Vec::new();
        for name in ["k", "x"] {
            testbed.root.put(name, Some(content("1", None)));
            made.push(testbed.root.root().handle_change(&key(name), Some(&content("1", None))));
        }
        let mut failed = None;
        for is_made in [is_replaced_first, !is_replaced_first] {
            if is_made {
                failed = Some(testbed.root.root().handle_change(&key("k"), Some(&content("2", None))));
            } else {
                made.drain(..).for_each(|effects| testbed.root.commit(effects));
            }
        }
        let failed = failed.unwrap();
        let store = testbed.root.store.clone();
        let root = testbed.root.root();
        let (_, frame) = root.poll_outgoing(0, &store).unwrap();
        let LinkFrame::Records(records) = &frame else { panic!() };
        assert_eq!((records.items.len(), records.to), (1, 1), "not beyond the record that may come back");
        assert_eq!(root.poll_outgoing(0, &store), None);
        testbed.down[0].push_back(frame.encode());
        assert!(testbed.deliver_down(0));
        if is_restart {
            testbed.disconnect(0);
            testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
            testbed.connect(0);
        } else {
            let root = testbed.root.root();
            for change in failed.rows.into_iter().rev() {
                root.restore(change.id, change.before);
            }
            let effects = root.handle_commit_failed(false);
            testbed.root.commit(effects);
        }
        testbed.settle();
        assert_eq!(testbed.leaves[0].values(), testbed.root.values());
    }
}

#[test]
fn values_that_were_set_under_rules_that_could_not_be_committed_are_taken_over() {
    for before in ["none", "tombstone", "expired", "pending deletion"] {
        for is_root in [false, true] {
            let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
            testbed.root.set("other", "1");
            // A tombstone stays while a leaf that is known may lack it.
            let effects = testbed.root.root().add_leaf(&name("absent"), false);
            testbed.root.commit(effects);
            if before != "none" {
                testbed.root.change("k", Some(content("1", (before == "expired").then_some(100))));
                testbed.settle();
            }
            match before {
                "tombstone" => testbed.root.delete("k"),
                "expired" => testbed.pass(200),
                "pending deletion" => {
                    testbed.disconnect(0);
                    if is_root { testbed.root.delete("k") } else { testbed.leaves[0].delete("k") }
                }
                _ => {}
            }
            if before != "pending deletion" {
                testbed.settle();
            }
            // The key took no part.
            let node = if is_root { &mut testbed.root } else { &mut testbed.leaves[0] };
            node.put("k", Some(content("2", None)));
            let effects = node.exchange.handle_commit_failed(true);
            node.commit(effects);
            testbed.settle();
            assert_eq!(testbed.root.value("k").as_deref(), Some("2"), "{before} {is_root}");
            assert_eq!(testbed.leaves[0].values(), testbed.root.values());
        }
    }
}

#[test]
fn the_digest_is_that_of_the_rules_in_use_after_other_rules_could_not_be_committed() {
    let mut testbed = Testbed::joined(keys(&["a/*"]), &["leaf"]);
    testbed.root.set("a/1", "1");
    testbed.settle();
    let digest = testbed.root.root().digest(&name("leaf"));
    assert!(digest.is_some_and(|digest| digest != 0));
    for rules in [keys(&["b/*"]), keys(&["a/*"])] {
        let root = testbed.root.root();
        for change in root.set_rules(rules).rows.into_iter().rev() {
            root.restore(change.id, change.before);
        }
        let effects = root.handle_commit_failed(false);
        testbed.root.commit(effects);
    }
    testbed.settle();
    assert_eq!(testbed.root.root().digest(&name("leaf")), digest);
}

#[test]
fn what_happened_while_a_key_had_no_rule_reaches_a_leaf_that_was_offline() {
    let mut testbed = Testbed::joined(keys(&["*"]), &["leaf"]);
    for key in ["same", "changed", "deleted"] {
        testbed.root.set(key, "1");
    }
    testbed.settle();
    testbed.disconnect(0);
    // The leaf has the rules of the last step, and every version that has a record.
    set_rules(&mut testbed, keys(&["other"]), false);
    testbed.root.set("changed", "2");
    testbed.root.delete("deleted");
    testbed.root.work();
    set_rules(&mut testbed, keys(&["*"]), false);
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn a_local_change_before_the_sweep_has_reached_its_key_is_sent_when_the_rules_come_back() {
    let mut testbed = Testbed::joined(keys(&["*"]), &["leaf"]);
    testbed.root.set("k", "1");
    testbed.settle();
    set_rules(&mut testbed, keys(&["other"]), false);
    testbed.root.set("k", "2");
    set_rules(&mut testbed, keys(&["*"]), false);
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("2"));
}

#[test]
fn a_change_that_waits_while_its_key_leaves_the_rules_is_a_conflict_and_stays_local() {
    let mut testbed = Testbed::joined(keys(&["*"]), &["leaf"]);
    testbed.disconnect(0);
    testbed.leaves[0].set("k", "1");
    set_rules(&mut testbed, keys(&["other"]), false);
    testbed.settle();
    assert_eq!((testbed.root.value("k"), testbed.leaves[0].value("k").as_deref()), (None, Some("1")));
    assert_eq!(testbed.leaves[0].conflicts(), [("k".to_owned(), "1".to_owned(), "forbidden")]);
    set_rules(&mut testbed, keys(&["*"]), false);
    testbed.settle();
    assert_eq!(testbed.root.value("k").as_deref(), Some("1"));
}

#[test]
fn a_malformed_frame_of_another_identity_ends_no_link() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    let other = testbed.root.root().handle_malformed(&name("leaf"), &"other".into());
    assert!(other.events.is_empty());
    let own = testbed.root.root().handle_malformed(&name("leaf"), &bytes::Bytes::new());
    assert!(matches!(&own.events[..], [Event::Ended { cause: Cause::Malformed, .. }]));
}

fn hello(testbed: &mut Testbed) -> Hello {
    testbed.disconnect(0);
    testbed.connect(0);
    testbed.poll();
    let Some(LinkFrame::Hello(hello)) = testbed.frames_up(0).pop() else { panic!("no HELLO") };
    hello
}

/// Returns the answer to a HELLO.
fn answer(testbed: &mut Testbed, hello: Hello) -> LinkFrame {
    testbed.up[0] = [LinkFrame::Hello(hello).encode()].into();
    testbed.down[0].clear();
    assert!(testbed.deliver_up(0));
    testbed.poll();
    testbed.frames_down(0).remove(0)
}

#[test]
fn both_sides_use_the_highest_version_that_they_have_in_common() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    let later = Hello { version: VERSION + 5, ..hello(&mut testbed) };
    let LinkFrame::Welcome(welcome) = answer(&mut testbed, later) else { panic!("refused") };
    assert_eq!(welcome.version, VERSION);
    let other = Hello { version: 9, oldest_version: 8, ..hello(&mut testbed) };
    let LinkFrame::Refused(refused) = answer(&mut testbed, other) else { panic!("accepted") };
    let text = format!("the root has {OLDEST_VERSION} to {VERSION}, the leaf has 8 to 9");
    assert_eq!(refused.text, format!("{}: {text}", Cause::Version.text()));
}

#[test]
fn a_refusal_names_what_an_operator_can_do() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    let known = hello(&mut testbed);
    // Also while commits fail.
    let mut unsaved = |hello: Hello| {
        let root = testbed.root.root();
        let effects =
            root.handle_frame_unsaved(&name("leaf"), &bytes::Bytes::new(), &LinkFrame::Hello(hello));
        let [Event::Refused { cause, .. }] = effects.events[..] else { panic!("{:?}", effects.events) };
        cause
    };
    assert_eq!(unsaved(Hello { store: 99, ..known.clone() }), Cause::OtherStore);
    assert_eq!(unsaved(known.clone()), Cause::NotCommitted);
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    let known = hello(&mut testbed);
    let cases = [
        (
            Hello { store: 99, ..known.clone() },
            "another data folder has this name; \
             to replace it, at the root: mqkv exchange add-leaf leaf --replace",
        ),
        (
            Hello { exchange: name("mine"), ..known.clone() },
            "the root is of the exchange 'plant', the leaf of 'mine'",
        ),
        (Hello { leaf: name("mill"), ..known }, "the topic is of the leaf 'leaf', the frame of 'mill'"),
    ];
    for (hello, text) in cases {
        let LinkFrame::Refused(refused) = answer(&mut testbed, hello) else { panic!("accepted") };
        assert_eq!(refused.text, text);
    }
}

#[test]
fn of_a_cloned_disk_the_process_that_is_heard_keeps_the_link_and_a_fork_loses_nothing() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    let mut clone = testbed.leaves[0].clone();
    testbed.leaves[0].set("k", "1");
    testbed.settle();
    clone.restart_as(|run| new_leaf("leaf", OnJoin::Offer, 10, run));
    let original = std::mem::replace(&mut testbed.leaves[0], clone);
    testbed.leaves[0].set("k", "2");
    testbed.leaves[0].set("own", "3");
    // The clone tries again and again, and nothing else has to be sent for long.
    let mut other = std::mem::replace(&mut testbed.leaves[0], original);
    for _ in 0..4 {
        std::mem::swap(&mut testbed.leaves[0], &mut other);
        testbed.connect(0);
        testbed.poll();
        assert!(testbed.deliver_up(0));
        testbed.poll_frames();
        let probes = testbed.down[0].clone();
        while testbed.deliver_down(0) {}
        // All frames go to both, which ignore those of another link.
        std::mem::swap(&mut testbed.leaves[0], &mut other);
        testbed.down[0] = probes;
        while testbed.deliver_down(0) {}
        testbed.poll_frames();
        while testbed.deliver_up(0) {}
        testbed.pass(STALL_MS);
        testbed.root.work();
    }
    assert_eq!(testbed.root.causes(), [Cause::SecondRun; 4]);
    assert_eq!(testbed.root.value("k").as_deref(), Some("1"));
    // The connection of the other process is gone.
    testbed.disconnect(0);
    let original = std::mem::replace(&mut testbed.leaves[0], other);
    testbed.settle();
    assert_eq!(testbed.root.values(), testbed.leaves[0].values());
    assert_eq!(testbed.root.value("own").as_deref(), Some("3"));
    assert_eq!(testbed.leaves[0].conflicts(), [("k".to_owned(), "2".to_owned(), "first-leaf-wins")]);
    testbed.leaves[0] = original;
    testbed.disconnect(0);
    testbed.settle();
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn a_leaf_that_starts_again_after_a_power_loss_is_linked_before_its_old_connection_ends() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    testbed.leaves[0].restart_as(|run| new_leaf("leaf", OnJoin::Offer, 10, run));
    testbed.connect(0);
    while testbed.exchange_frames() {}
    testbed.pass(STALL_MS);
    testbed.settle();
    assert_eq!(testbed.root.causes(), [Cause::SecondRun, Cause::Stalled]);
    testbed.root.set("k", "1");
    testbed.settle();
    assert_eq!(testbed.leaves[0].value("k").as_deref(), Some("1"));
}

#[test]
fn a_leaf_that_is_offline_was_heard_with_its_last_frame() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    testbed.pass(1_000);
    testbed.leaves[0].set("k", "1");
    testbed.settle();
    testbed.pass(5_000);
    testbed.disconnect(0);
    let state = |testbed: &mut Testbed| {
        let leaf = testbed.root.root().report_after(None, 1, 10_000).leaves.remove(0);
        (leaf.is_linked(), leaf.heard_ms)
    };
    assert_eq!(state(&mut testbed), (false, Some(9_000)));
    // A refused frame does not count.
    let other = Hello { store: 99, ..hello(&mut testbed) };
    assert!(matches!(answer(&mut testbed, other), LinkFrame::Refused(_)));
    assert_eq!(state(&mut testbed), (false, Some(9_000)));
    testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
    assert_eq!(state(&mut testbed), (false, None));
    testbed.leaves[0].leaf().handle_lost();
    testbed.settle();
    assert_eq!(state(&mut testbed), (true, Some(4_000)));
}

#[test]
fn one_identity_does_not_take_the_room_of_all_leaves() {
    let mut testbed = Testbed::new(all_keys(), &["leaf"]);
    let hello = hello(&mut testbed);
    let join = |root: &mut Root, leaf: &str, principal: &'static str| {
        let hello = LinkFrame::Hello(Hello { leaf: name(leaf), ..hello.clone() });
        let effects = root.handle_frame(&name(leaf), &principal.into(), hello, 0, &Store::default());
        effects.events.iter().find_map(|event| match event {
            Event::Refused { cause, .. } => Some(*cause),
            _ => None,
        })
    };
    let root = testbed.root.root();
    for at in 0..LEAVES_PER_IDENTITY_MAX {
        assert_eq!(join(root, &format!("a-{at}"), "greedy"), None);
    }
    assert_eq!(join(root, "one-more", "greedy"), Some(Cause::TooManyOfIdentity));
    assert_eq!(join(root, "a-0", "greedy"), None, "a known one is linked");
    assert_eq!(join(root, "other", "modest"), None);
    let _ = root.add_leaf(&name("one-more"), false);
    assert_eq!(join(root, "one-more", "greedy"), None, "an operator has added it");
}

#[test]
fn a_tombstone_waits_for_each_leaf_until_it_is_dropped() {
    let mut testbed = Testbed::joined(all_keys(), &["a", "b"]);
    testbed.root.set("k", "1");
    testbed.settle();
    testbed.disconnect(1);
    testbed.root.delete("k");
    for _ in 0..5 {
        testbed.exchange_frames();
    }
    assert_eq!(testbed.root.root().report().tombstones, 1);
    let effects = testbed.root.root().drop_leaf(&name("b"));
    testbed.root.commit(effects);
    testbed.root.work();
    assert_eq!(testbed.root.root().report().tombstones, 0);
    assert!(!testbed.root.root().has_leaf(&name("b")));
    testbed.settle();
    assert_eq!(testbed.leaves[1].values(), [], "it joins again, with a resync");
}

#[test]
fn a_leaf_that_was_dropped_brings_no_deleted_key_back_with_or_without_a_resync() {
    for asks_for_resync in [false, true] {
        let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
        testbed.leaves[0].set("k", "1");
        testbed.poll();
        while testbed.deliver_up(0) {}
        assert_eq!(testbed.root.value("k").as_deref(), Some("1"));
        testbed.disconnect(0);
        testbed.root.delete("k");
        let effects = testbed.root.root().drop_leaf(&name("leaf"));
        testbed.root.commit(effects);
        if asks_for_resync {
            let effects = testbed.leaves[0].leaf().resync(false);
            testbed.leaves[0].commit(effects);
        }
        testbed.settle();
        assert_eq!((testbed.root.values(), testbed.leaves[0].values()), (vec![], vec![]));
    }
}

#[test]
fn without_leaves_no_tombstone_is_kept() {
    let mut testbed = Testbed::new(all_keys(), &[]);
    for at in 0..10 {
        testbed.root.set(&at.to_string(), "1");
        testbed.root.delete(&at.to_string());
    }
    testbed.root.work();
    assert_eq!(testbed.root.root().report().tombstones, 0);
}

#[test]
fn tombstones_beyond_the_maximum_go_and_leaves_that_miss_one_do_a_resync() {
    let mut testbed = Testbed::joined(all_keys(), &["linked", "offline"]);
    testbed.root.set("k", "1");
    testbed.settle();
    testbed.disconnect(1);
    testbed.root.delete("k");
    // The link is too slow to send it.
    let ver = testbed.root.root().ver();
    for at in 1..=TOMBSTONES_MAX as u64 {
        let record =
            Record { ver: ver + at, change_id: ChangeId::NIL, owner: None, kind: RecordKind::Tombstone };
        testbed.root.root().restore(RowId::Key(key(&format!("t{at}"))), Some(Row::Record(record)));
    }
    let row = RootRow { ver: ver + TOMBSTONES_MAX as u64, ..testbed.root.root().row.clone() };
    testbed.root.root().restore(RowId::Node, Some(Row::Root(row)));
    testbed.root.set("t", "1");
    testbed.root.delete("t");
    testbed.root.work();
    assert_eq!(testbed.root.root().tombstones.len(), TOMBSTONES_MAX);
    assert_eq!(testbed.root.causes(), [Cause::Purged]);
    testbed.settle();
    assert_eq!((testbed.leaves[0].values(), testbed.leaves[1].values()), (vec![], vec![]));
    assert!(testbed.leaves.iter_mut().all(|leaf| leaf.leaf().row().resync.is_none()));
}

#[test]
fn a_resync_goes_on_where_a_lost_link_has_left_it_although_older_tombstones_are_gone() {
    let mut testbed = Testbed::joined(all_keys(), &["leaf"]);
    for at in 0..3_000 {
        testbed.root.set(&at.to_string(), "1");
    }
    testbed.root.delete("7");
    testbed.settle();
    assert!(testbed.root.root().row.purged > 3_000);
    let effects = testbed.leaves[0].leaf().resync(false);
    testbed.leaves[0].commit(effects);
    testbed.connect(0);
    for _ in 0..5 {
        testbed.poll();
        let _ = testbed.deliver_up(0) || testbed.deliver_down(0);
    }
    let (cursor, epoch) = (testbed.leaves[0].leaf().row().cursor, testbed.leaves[0].leaf().row().epoch);
    assert!(cursor > 0 && testbed.leaves[0].leaf().row().resync.is_some());
    testbed.disconnect(0);
    testbed.settle();
    assert_eq!(testbed.leaves[0].leaf().row().epoch, epoch, "it is the same resync");
    assert_eq!(testbed.leaves[0].values(), testbed.root.values());
}

#[test]
fn each_leaf_gets_the_notice_that_its_link_has_ended() {
    let names: Vec<_> = (0..200).map(|at| format!("leaf-{at}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut testbed = Testbed::joined(all_keys(), &names);
    // Refused HELLOs of others take no room from the notices.
    let hello = hello(&mut testbed);
    let other = LinkFrame::Hello(Hello { exchange: name("other"), ..hello }).encode();
    let peer_name = name("leaf-0");
    for _ in 0..2 * REFUSALS_MAX {
        let peer = LinkPeer::Leaf(&peer_name, &bytes::Bytes::new());
        let effects = testbed.root.exchange.handle_frame(peer, &other, 0, &testbed.root.store);
        testbed.root.commit(effects);
    }
    assert_eq!(testbed.root.root().refusals.len(), REFUSALS_MAX);
    let effects = testbed.root.root().set_rules(keys(&["recipe/**"]));
    testbed.root.commit(effects);
    testbed.poll_frames();
    for at in 1..names.len() {
        assert!(testbed.deliver_down(at));
        let ended = testbed.leaves[at].leaf().ended().map(|end| end.code.clone());
        assert_eq!(ended.as_deref(), Some("rules-changed"), "{at}");
    }
}

#[test]
fn an_idle_link_lives_and_ends_when_either_side_is_gone() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    testbed.idle(20 * IDLE_MS);
    assert_eq!((testbed.root.causes(), testbed.leaves[0].causes()), (vec![], vec![]));
    let mut half = testbed.clone();
    // The root has no link any more, and the leaf does not learn it.
    testbed.root.root().handle_all_lost(&name("a"));
    testbed.pass(SILENCE_MS - 1);
    testbed.poll();
    assert_eq!(testbed.leaves[0].causes(), []);
    testbed.pass(1);
    testbed.poll();
    assert_eq!(testbed.leaves[0].causes(), [Cause::Stalled]);
    half.leaves[0].leaf().handle_lost();
    half.pass(IDLE_MS);
    half.poll();
    assert_eq!(half.frames_down(0).len(), 1);
    half.down[0].clear();
    half.pass(STALL_MS);
    half.poll();
    assert_eq!(half.root.causes(), [Cause::Stalled]);
}

#[test]
fn a_change_costs_a_leaf_that_it_does_not_concern_nothing_until_it_is_idle() {
    let mut testbed = Testbed::joined(plant(), &["press-7", "mill"]);
    let cursor = testbed.leaves[1].leaf().row().cursor;
    for at in 0..3_000 {
        testbed.root.set("line/1", &at.to_string());
    }
    testbed.root.delete("line/1");
    testbed.poll_frames();
    assert!(!testbed.frames_down(0).is_empty());
    assert!(testbed.frames_down(1).is_empty() && testbed.root.root().ready.is_empty());
    testbed.settle();
    assert!(testbed.root.root().report().leaves.iter().all(|leaf| leaf.state == LeafState::Synchronized));
    assert_eq!(testbed.leaves[1].leaf().row().cursor, cursor);
    assert_eq!(testbed.root.root().report().tombstones, 1);
    testbed.pass(IDLE_MS);
    testbed.poll();
    assert_eq!(testbed.frames_down(1).len(), 1);
    testbed.settle();
    assert_eq!(testbed.leaves[1].leaf().row().cursor, testbed.root.root().ver());
    assert_eq!(testbed.root.root().report().tombstones, 0);
    let epoch = testbed.leaves[1].leaf().row().epoch;
    testbed.disconnect(1);
    testbed.settle();
    assert_eq!(testbed.leaves[1].leaf().row().epoch, epoch, "it has missed nothing");
}

#[test]
fn a_leaf_that_comes_back_is_told_at_once_of_versions_that_do_not_concern_it() {
    let mut testbed = Testbed::joined(plant(), &["press-7", "mill"]);
    testbed.disconnect(1);
    for at in 0..5_000 {
        testbed.root.set(&format!("line/{at}"), "1");
    }
    testbed.root.set("recipe/1", "2");
    testbed.settle();
    assert_eq!(testbed.leaves[1].leaf().row().cursor, testbed.root.root().ver());
    assert_eq!(testbed.leaves[1].value("recipe/1").as_deref(), Some("2"));
    assert!(testbed.leaves[1].leaf().report().is_synchronized);
}

/// Compares what both nodes report of themselves with what they have.
fn check_status(testbed: &mut Testbed) -> (bool, bool) {
    let at_root =
        testbed.root.root().report().leaves.iter().any(|leaf| leaf.state == LeafState::Synchronized);
    let at_leaf = testbed.leaves[0].leaf().report().is_synchronized;
    if at_root || at_leaf {
        assert!(testbed.root.values() == testbed.leaves[0].values(), "root: {at_root}, leaf: {at_leaf}");
    }
    (at_root, at_leaf)
}

#[test]
fn a_node_that_says_it_is_synchronized_is_so_at_every_step() {
    for (is_known, at_root, at_leaf) in
        [(true, 3_000, 0), (true, 0, 3_000), (true, 2_000, 2_000), (false, 300, 300), (false, 0, 0)]
    {
        let mut testbed =
            if is_known { Testbed::joined(all_keys(), &["a"]) } else { Testbed::new(all_keys(), &["a"]) };
        if is_known {
            testbed.disconnect(0);
        }
        for at in 0..at_root {
            let (key, value) = (format!("root-{at}"), content("1", None));
            if is_known {
                testbed.root.change(&key, Some(value))
            } else {
                testbed.root.put(&key, Some(value))
            }
        }
        for at in 0..at_leaf {
            let (key, value) = (format!("leaf-{at}"), content("1", None));
            let leaf = &mut testbed.leaves[0];
            if is_known { leaf.change(&key, Some(value)) } else { leaf.put(&key, Some(value)) }
        }
        testbed.connect(0);
        loop {
            testbed.poll_frames();
            check_status(&mut testbed);
            let is_delivered = testbed.deliver_up(0) || testbed.deliver_down(0);
            check_status(&mut testbed);
            testbed.root.work();
            check_status(&mut testbed);
            testbed.leaves[0].work();
            check_status(&mut testbed);
            testbed.poll_frames();
            if !is_delivered && testbed.up[0].is_empty() && testbed.down[0].is_empty() {
                break;
            }
        }
        assert_eq!(check_status(&mut testbed), (true, true), "{is_known} {at_root} {at_leaf}");
        assert_eq!(testbed.root.values().len(), at_root + at_leaf);
    }
}

#[test]
fn the_number_of_a_conflict_is_not_used_again_after_a_restart() {
    let mut testbed = Testbed::joined(all_keys(), &["a"]);
    for expected in 1..4 {
        testbed.disconnect(0);
        testbed.leaves[0].set("k", &expected.to_string());
        testbed.root.set("k", "root");
        testbed.settle();
        for node in std::iter::once(&mut testbed.root).chain(&mut testbed.leaves) {
            let ids: Vec<_> = node.exchange.conflicts().since(0).map(|(id, _)| id).collect();
            assert_eq!(ids, [expected]);
            let effects = node.exchange.clear_conflict(expected);
            node.commit(effects);
        }
        testbed.disconnect(0);
        testbed.root.restart_as(|run| new_root(all_keys(), 1, run));
        testbed.leaves[0].restart_as(|run| new_leaf("a", OnJoin::Offer, 10, run + 7));
    }
}

#[test]
fn keys_that_expire_together_are_purged_in_steps() {
    let mut testbed = Testbed::new(all_keys(), &[]);
    testbed.root.work();
    let count = PURGED_PER_STEP_MAX * 2;
    for at in 0..count {
        testbed.root.change(&at.to_string(), Some(content("v", Some(1_000))));
    }
    testbed.pass(1_000);
    assert_eq!(testbed.root.root().report().tombstones, count as u64, "expiry itself purges nothing");
    for left in [PURGED_PER_STEP_MAX, 0] {
        assert_eq!(testbed.root.exchange.poll_timeout(), Some(0));
        let effects = testbed.root.root().handle_timeout(1_000);
        testbed.root.commit(effects);
        assert_eq!(testbed.root.root().report().tombstones, left as u64);
    }
}
