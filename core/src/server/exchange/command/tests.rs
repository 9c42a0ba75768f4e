//! Tests of the answers to operator requests.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::exchange::LinkPeer;
use crate::exchange::frame::Content;
use crate::exchange::leaf::JoinPolicy;
use crate::exchange::row::Identity;
use crate::exchange::rules::{Patterns, Position, RuleSource, Rules, Text};
use crate::protocol::Key;
use crate::protocol::exchange::{KeyState, LeafReport, LeafState, OwnState, RuleReport};

const NOW_MS: u64 = 1_000_000;

/// A node with its values. Each step is committed at once.
struct Node {
    exchange: Exchange,
    values: BTreeMap<Key, Content>,
}

impl Values for BTreeMap<Key, Content> {
    fn content(&self, key: &Key) -> Option<Content> {
        self.get(key).cloned()
    }

    fn has_room(&self, _: &Key, _: &Content) -> bool {
        true
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(text: &'static str) -> Key {
    Key::new(text).unwrap()
}

fn identity(node: &str, store: u64) -> Identity {
    Identity { exchange: name("plant"), node: name(node), store }
}

fn texts(texts: &[&str]) -> Vec<Text> {
    texts.iter().map(|text| Text { text: (*text).to_owned(), at: Position::default() }).collect()
}

impl Node {
    fn root() -> Self {
        let rule = |keys: &[&str], change: &str, leaves: Option<&[&str]>| RuleSource {
            at: Position::default(),
            keys: Some(texts(keys)),
            change: texts(&[change]).pop(),
            leaves: leaves.map(texts),
        };
        let rules = Rules::parse(&[
            rule(&["recipe/**"], "root", None),
            rule(&["line/*", "state/*"], "leaves", Some(&["press-*"])),
        ]);
        let admit = Patterns::parse(&texts(&["press-*"]), Position::default(), "admit").unwrap();
        let root = Root::new(identity("root", 1), rules.unwrap(), admit, 11);
        Self { exchange: Exchange::Root(Box::new(root)), values: BTreeMap::new() }
    }

    fn leaf(node: &str, store: u64) -> Self {
        let leaf = Leaf::new(identity(node, store), JoinPolicy::default(), store, store);
        Self { exchange: Exchange::Leaf(Box::new(leaf)), values: BTreeMap::new() }
    }

    fn take(&mut self, effects: Effects) {
        for change in effects.values {
            match change.content {
                Some(content) => drop(self.values.insert(change.key, content)),
                None => drop(self.values.remove(&change.key)),
            }
        }
        self.exchange.handle_saved(effects.step);
    }

    fn set(&mut self, key: Key, value: &'static str) {
        let content = Content { value: value.into(), ttl_ms: None };
        let effects = self.exchange.handle_change(&key, Some(&content), NOW_MS);
        self.values.insert(key, content);
        self.take(effects);
    }

    fn ask(&mut self, command: Command) -> Answer {
        let changes = command.changes();
        let (answer, effects) = execute(&mut self.exchange, command, NOW_MS, &self.values);
        assert!(changes || effects == Effects::default(), "a request that reads changes nothing");
        self.take(effects);
        answer
    }

    fn conflicts(&mut self, leaf: Option<&str>, since: u64, max: u64) -> ConflictPage {
        let leaf = leaf.map(str::to_owned);
        let Answer::Conflicts(page) = self.ask(Command::Conflicts { leaf, since, max }) else { panic!() };
        page
    }
}

fn connect(leaf: &mut Node, link: u64) {
    let Exchange::Leaf(leaf) = &mut leaf.exchange else { panic!() };
    leaf.handle_connected(link, NOW_MS);
}

/// Exchanges frames until neither side has any.
fn settle(root: &mut Node, leaf: &mut Node) {
    loop {
        let mut is_idle = true;
        for node in [&mut *root, &mut *leaf] {
            if node.exchange.is_walk_due() {
                let effects = node.exchange.handle_walked();
                node.take(effects);
            }
        }
        while let Some(outgoing) = leaf.exchange.poll_outgoing(NOW_MS, &leaf.values) {
            is_idle = false;
            let principal = Bytes::from_static(b"anonymous");
            let peer = LinkPeer::Leaf(&outgoing.leaf, &principal);
            let effects = root.exchange.handle_frame(peer, &outgoing.payload, NOW_MS, &root.values);
            root.take(effects);
        }
        while let Some(outgoing) = root.exchange.poll_outgoing(NOW_MS, &root.values) {
            is_idle = false;
            let effects = leaf.exchange.handle_frame(LinkPeer::Root, &outgoing.payload, NOW_MS, &leaf.values);
            leaf.take(effects);
        }
        if is_idle {
            return;
        }
    }
}

/// Returns a root and a leaf whose change of `line/a` has lost to one of the root.
fn conflicting() -> (Node, Node) {
    let (mut root, mut leaf) = (Node::root(), Node::leaf("press-7", 7));
    connect(&mut leaf, 1);
    settle(&mut root, &mut leaf);
    root.set(key("line/a"), "75");
    leaf.set(key("line/a"), "80");
    settle(&mut root, &mut leaf);
    (root, leaf)
}

#[test]
fn the_status_of_a_root_has_its_leaves() {
    let (mut root, _) = conflicting();
    let Answer::Root(report) = root.ask(Command::Status { leaf: None }) else { panic!() };
    assert_eq!((report.exchange.as_str(), report.ver, report.records), ("plant", 1, 1));
    let expected = LeafReport {
        name: "press-7".to_owned(),
        state: LeafState::Synchronized,
        behind: 0,
        pending: Some(0),
        conflicts: 1,
        heard_ms: Some(0),
        accepted: 0,
        refused: 1,
    };
    assert_eq!((report.leaves.as_slice(), report.conflicts), ([expected].as_slice(), 1));
    assert!(report.is_synchronized());
    assert_eq!(root.ask(Command::Status { leaf: Some("press-9".to_owned()) }), Answer::NotFound);
}

#[test]
fn a_leaf_that_is_not_linked_is_not_synchronized() {
    let (mut root, _) = conflicting();
    root.exchange.handle_lost(LinkPeer::Leaf(&name("press-7"), &Bytes::new()), 1);
    root.ask(Command::AddLeaf { name: "mill".to_owned(), is_replaced: false });
    root.set(key("recipe/1"), "r");
    let Answer::Root(report) = root.ask(Command::Status { leaf: None }) else { panic!() };
    let states: Vec<_> = report
        .leaves
        .iter()
        .map(|leaf| (leaf.name.as_str(), leaf.state, leaf.behind, leaf.pending))
        .collect();
    let expected = [("mill", LeafState::Expected, 2, None), ("press-7", LeafState::Offline, 1, None)];
    assert_eq!(states, expected);
    assert!(!report.is_synchronized());
}

#[test]
fn the_status_of_a_leaf_counts_its_changes() {
    let (mut root, mut leaf) = conflicting();
    leaf.set(key("line/b"), "1");
    settle(&mut root, &mut leaf);
    leaf.set(key("line/b"), "22");
    let Answer::Leaf(report) = leaf.ask(Command::Status { leaf: Some("press-7".to_owned()) }) else {
        panic!()
    };
    assert_eq!((report.state, report.received, report.outbox, report.conflicts), (OwnState::Linked, 2, 1, 1));
    assert_eq!((report.made, report.accepted, report.refused, report.merged), (3, 1, 1, 0));
    assert!(!report.is_synchronized);
    assert_eq!(leaf.ask(Command::Status { leaf: Some("press-9".to_owned()) }), Answer::NotFound);
}

#[test]
fn a_key_is_reported_with_its_rule_and_state() {
    let (mut root, mut leaf) = conflicting();
    let report = |node: &mut Node, text: &'static str| match node.ask(Command::Key { key: key(text) }) {
        Answer::Key(report) => report,
        other => panic!("{other:?}"),
    };
    let at_root = report(&mut root, "line/a");
    assert_eq!((at_root.state, at_root.ver, at_root.owner), (KeyState::Synchronized, 1, Origin::Root));
    let rule = RuleReport {
        number: 2,
        keys: vec!["line/*".to_owned(), "state/*".to_owned()],
        is_for_leaves: true,
        leaves: Some(vec!["press-*".to_owned()]),
    };
    assert_eq!(at_root.rule, Some(rule));
    assert_eq!(report(&mut leaf, "line/a").change_id, at_root.change_id);
    assert_eq!(report(&mut leaf, "other").state, KeyState::Local);
    assert_eq!(report(&mut leaf, "recipe/1").state, KeyState::Absent);
    leaf.set(key("line/b"), "1");
    let proposed = report(&mut leaf, "line/b");
    assert_eq!((proposed.state, proposed.ver, proposed.change_id), (KeyState::Proposed, 0, None));
    settle(&mut root, &mut leaf);
    let accepted = report(&mut root, "line/b");
    assert_eq!((accepted.change_id, accepted.owner), (proposed.pending, Origin::Leaf("press-7".to_owned())));
    root.set(key("recipe/1"), "r");
    assert_eq!(report(&mut root, "recipe/1").state, KeyState::Replicating);
}

#[test]
fn a_conflict_has_both_values_until_the_winner_is_replaced() {
    let (mut root, mut leaf) = conflicting();
    for node in [&mut root, &mut leaf] {
        let page = node.conflicts(None, 0, 10);
        let [conflict] = page.conflicts.as_slice() else { panic!("{page:?}") };
        assert_eq!((conflict.reason.as_str(), conflict.leaf.as_str()), ("root-wins", "press-7"));
        assert_eq!(conflict.lost, Lost::of(Some(&"80".into())));
        assert_eq!((&conflict.owner, conflict.winner), (&Origin::Root, 1));
        assert_eq!(conflict.won, Some(Lost::of(Some(&"75".into()))));
        assert_eq!(node.ask(Command::Value { id: 1 }), Answer::Value(Ok("80".into())));
        assert_eq!(node.ask(Command::Value { id: 2 }), Answer::NotFound);
    }
    root.set(key("line/a"), "76");
    assert_eq!(root.conflicts(None, 0, 10).conflicts[0].won, None);
}

#[test]
fn pages_of_conflicts_join_without_a_gap() {
    let (mut root, mut leaf) = conflicting();
    for value in ["81", "82", "83"] {
        root.set(key("line/a"), "75");
        leaf.set(key("line/a"), value);
        settle(&mut root, &mut leaf);
    }
    let first = root.conflicts(None, 0, 3);
    assert_eq!((first.conflicts.len(), first.last, first.is_complete), (3, 3, false));
    let second = root.conflicts(None, first.last, 3);
    assert_eq!((second.conflicts.len(), second.last, second.is_complete), (1, 4, true));
    let other = root.conflicts(Some("press-9"), 0, 3);
    assert_eq!((other.conflicts.len(), other.last, other.is_complete), (0, 4, true));
}

#[test]
fn conflicts_are_cleared_by_id_or_all() {
    let (mut root, mut leaf) = conflicting();
    assert_eq!(root.ask(Command::Clear { ids: Some(vec![1, 1, 9]) }), Answer::Done { count: 1 });
    assert_eq!(root.ask(Command::Clear { ids: Some(vec![1]) }), Answer::NotFound);
    assert_eq!(leaf.ask(Command::Clear { ids: None }), Answer::Done { count: 1 });
    assert_eq!(leaf.ask(Command::Clear { ids: None }), Answer::NotFound);
}

#[test]
fn leaves_are_added_and_dropped_at_the_root_only() {
    let (mut root, mut leaf) = conflicting();
    let add = |text: &str| Command::AddLeaf { name: text.to_owned(), is_replaced: false };
    let drop_leaf = |text: &str| Command::DropLeaf { name: text.to_owned() };
    assert_eq!(root.ask(add("mill")), Answer::Done { count: 1 });
    assert_eq!(root.ask(add("mill")), Answer::Done { count: 0 });
    assert_eq!(root.ask(add("Mill 1")), Answer::Refused(Refusal::InvalidName));
    assert_eq!(root.ask(drop_leaf("mill")), Answer::Done { count: 1 });
    assert_eq!(root.ask(drop_leaf("mill")), Answer::NotFound);
    assert_eq!(leaf.ask(add("mill")), Answer::Refused(Refusal::RootOnly));
    assert_eq!(leaf.ask(drop_leaf("mill")), Answer::Refused(Refusal::RootOnly));
    for number in 1..LEAVES_MAX {
        root.ask(add(&format!("l{number}")));
    }
    assert_eq!(root.ask(add("one-more")), Answer::Refused(Refusal::TooManyLeaves));
    let Answer::Root(report) = root.ask(Command::Status { leaf: None }) else { panic!() };
    assert_eq!(report.leaves.len(), LEAVES_PER_STEP_MAX, "requests wait meanwhile");
}

#[test]
fn a_resync_is_asked_for_at_either_side_and_a_new_root_at_the_leaf() {
    let resync =
        |name: Option<&str>, is_new_root| Command::Resync { name: name.map(str::to_owned), is_new_root };
    let (mut root, mut leaf) = conflicting();
    settle(&mut root, &mut leaf);
    assert_eq!(root.ask(resync(Some("press-8"), false)), Answer::NotFound);
    assert_eq!(root.ask(resync(None, true)), Answer::Refused(Refusal::LeafOnly));
    assert_eq!(root.ask(resync(None, false)), Answer::Done { count: 1 });
    assert_eq!(root.ask(resync(Some("press-7"), false)), Answer::Done { count: 1 });
    assert_eq!(leaf.ask(resync(Some("mill"), false)), Answer::Refused(Refusal::RootOnly));
    assert_eq!(leaf.ask(resync(None, true)), Answer::Done { count: 1 });
    let Exchange::Leaf(leaf) = &leaf.exchange else { panic!() };
    assert_eq!(leaf.row().root, None);
}
