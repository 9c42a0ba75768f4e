//! Two services with simulated disks as root and leaf: what is set on one side is there on the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::tests::{TestService, del, get, key, message, peer, set, set_with, value, watch};
use super::*;
use crate::broker::{Application, Verdict};
use crate::exchange::names::Name;
use crate::exchange::row::{Row, RowId};
use crate::exchange::rules::tests::plant;
use crate::ledger::file::simulated::SimulatedDisk;
use crate::ledger::{FileLedger, Policy, Record, StorageError, StorageErrorKind};
use crate::protocol::exchange::{Answer, Command, Lost, Refusal};
use crate::protocol::{Condition, ErrorReply, Notification, Reply, Request, exchange::topic as topics};
use crate::server::authorization::{Authorizer, ClientPermissions};
use crate::server::exchange::participant::Seeds;
use crate::server::exchange::settings::tests::leaf;
use crate::server::exchange::settings::{ExchangeSettings, Role};
use crate::{clock, exchange};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A node whose commits are made by the test.
struct Node {
    test: TestService,
    storage: FileLedger,
    disk: SimulatedDisk,
    settings: StoreSettings,
}

impl Node {
    fn root() -> Self {
        let admit = exchange::rules::Patterns::default();
        let mut node = Self::start(SimulatedDisk::default(), "root", Role::Root { rules: plant(), admit });
        node.exchange(|exchange, _| {
            let exchange::Exchange::Root(root) = exchange else { panic!() };
            root.add_leaf(&name("press-7"), false)
        });
        node.commit();
        node
    }

    fn leaf() -> Self {
        Self::start(SimulatedDisk::default(), "press-7", leaf())
    }

    fn start(disk: SimulatedDisk, node: &str, role: Role) -> Self {
        let settings = ExchangeSettings { exchange: name("plant"), node: name(node), role };
        let settings = StoreSettings { exchange: Some(settings), ..StoreSettings::default() };
        Self::open(disk, settings).map_err(|error| error.to_string()).unwrap()
    }

    fn open(disk: SimulatedDisk, settings: StoreSettings) -> Result<Self, StorageError> {
        let storage = FileLedger::open_on(Arc::new(disk.clone()), Policy::default())?;
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let random = crate::random::u64;
        let service = Service::with_storage(
            &settings,
            false,
            Some(storage),
            Arc::new(move |event| sink.lock().unwrap().push(event)),
            Arc::default(),
            clock::now(),
            Seeds { store: random(), run: random(), stream: random() },
        )?;
        let storage = service.storage.lock().unwrap().take().unwrap();
        let test = TestService::of(service, events, None);
        Ok(Self { test, storage, disk, settings })
    }

    /// Kills the process and starts it again.
    fn restart(self) -> Self {
        let Self { storage, disk, settings, .. } = self;
        drop(storage);
        Self::open(disk.after_kill(), settings).map_err(|error| error.to_string()).unwrap()
    }

    fn exchange(&mut self, call: impl FnOnce(&mut exchange::Exchange, u64) -> exchange::effects::Effects) {
        let now = self.test.service.shared.now();
        let mut state = self.test.service.shared.lock();
        let call = |exchange: &mut exchange::Exchange, now_ms, _: &dyn exchange::effects::Values| {
            ((), call(exchange, now_ms))
        };
        state.with_exchange(&self.test.sent_messages, now, call).unwrap();
    }

    /// Commits what waits; returns false if that failed.
    fn commit(&mut self) -> bool {
        let now = self.test.service.shared.now();
        let Some(group) = self.test.service.shared.lock().take_group(now) else { return true };
        let shared = &self.test.service.shared;
        commit_thread::commit(shared, &mut self.storage, group, now, &self.test.sent_messages)
    }

    fn recover(&mut self) {
        let shared = &self.test.service.shared;
        let publisher = &self.test.sent_messages;
        commit_thread::try_recover(shared, &mut self.storage, publisher, shared.now()).unwrap();
    }

    /// Handles a request; returns its reply, after the commit.
    fn reply(&mut self, request: &Request) -> Reply {
        self.test.request(request);
        self.commit();
        self.test.sent_messages.replies().pop().unwrap()
    }

    fn walk(&mut self) {
        let now = self.test.service.shared.now();
        while self.test.service.shared.lock().walk(&self.test.sent_messages, now) {}
        assert!(self.commit());
    }

    fn poll(&mut self) -> Option<bytes::Bytes> {
        let now = self.test.service.shared.now();
        self.test.service.shared.lock().poll_frame(now).map(|(payload, _)| payload)
    }
}

/// Takes what must be committed after a failure.
fn recovery_records(node: &Node) -> Vec<Record> {
    let shared = &node.test.service.shared;
    let group = shared.lock().recovery_group(shared.now());
    group.records.into_iter().map(|(_, record)| record).collect()
}

/// Connects the leaf and carries frames until there are none.
fn link(root: &mut Node, leaf: &mut Node) {
    leaf.exchange(|exchange, now_ms| {
        let exchange::Exchange::Leaf(leaf) = exchange else { panic!() };
        leaf.handle_connected(crate::random::u64(), now_ms);
        exchange::effects::Effects::default()
    });
    carry(root, leaf);
}

fn carry(root: &mut Node, leaf: &mut Node) {
    loop {
        root.walk();
        leaf.walk();
        let (up, down) = (leaf.poll(), root.poll());
        if up.is_none() && down.is_none() {
            return;
        }
        if let Some(payload) = up {
            let topic = topics::up("plant", "press-7");
            let verdict = root.test.send(crate::protocol::Message {
                topic: topic.into(),
                payload,
                ..Default::default()
            });
            assert!(matches!(verdict, Verdict::Consumed));
            assert!(root.commit());
        }
        if let Some(payload) = down {
            let now = leaf.test.service.shared.now();
            leaf.test.service.shared.lock().handle_root_frame(&leaf.test.sent_messages, &payload, now);
            assert!(leaf.commit());
        }
    }
}

fn linked() -> (Node, Node) {
    let (mut root, mut leaf) = (Node::root(), Node::leaf());
    link(&mut root, &mut leaf);
    (root, leaf)
}

#[test]
fn a_change_on_either_side_reaches_the_other_one() {
    let (mut root, mut leaf) = linked();
    assert_eq!(root.reply(&set("recipe/1", "bread")), Reply::Done);
    assert_eq!(leaf.reply(&set("line/1", "80")), Reply::Done);
    assert_eq!(root.reply(&set("other", "local")), Reply::Done);
    carry(&mut root, &mut leaf);
    assert_eq!((leaf.reply(&get("recipe/1")), root.reply(&get("line/1"))), (value("bread"), value("80")));
    assert_eq!(leaf.reply(&get("other")), Reply::Absent);
    assert_eq!(root.reply(&del("line/1")), Reply::Count(1));
    assert_eq!(root.reply(&set_with("line/2", "short", None, 3_600_000)), Reply::Done);
    carry(&mut root, &mut leaf);
    assert_eq!(leaf.reply(&get("line/1")), Reply::Absent);
    let content = leaf.test.service.shared.lock().store.read(&key("line/2")).unwrap().1;
    assert!(content.deadline_ms.is_some() && content.persist);
}

#[test]
fn the_digest_of_a_long_value_is_computed_before_the_lock_is_taken() {
    let (mut root, mut leaf) = linked();
    let unprepared = || exchange::fingerprint::UNPREPARED.get();
    let before = unprepared();
    let long = "x".repeat(1 << 20);
    assert_eq!(root.reply(&set("recipe/1", &long)), Reply::Done);
    assert_eq!(leaf.reply(&set("line/1", &long)), Reply::Done);
    carry(&mut root, &mut leaf);
    assert_eq!(root.reply(&get("line/1")), Reply::Value(long.into()));
    assert_eq!(unprepared(), before);
}

#[test]
fn a_key_that_was_there_before_is_taken_over() {
    let (mut root, mut leaf) = (Node::root(), Node::leaf());
    assert_eq!(leaf.reply(&set("line/1", "of the leaf")), Reply::Done);
    assert_eq!(leaf.reply(&set("line/2", "of the leaf")), Reply::Done);
    assert_eq!(root.reply(&set("line/2", "of the root")), Reply::Done);
    link(&mut root, &mut leaf);
    assert_eq!(root.reply(&get("line/1")), value("of the leaf"));
    assert_eq!(leaf.reply(&get("line/2")), value("of the root"));
}

#[test]
fn a_deletion_of_a_key_that_was_in_memory_only_is_answered_after_the_commit() {
    let (mut root, mut leaf) = (Node::root(), Node::leaf());
    assert_eq!(leaf.reply(&set("line/1", "in memory")), Reply::Done);
    // The rules arrive, and the key is not taken over yet.
    leaf.exchange(|exchange, now_ms| {
        let exchange::Exchange::Leaf(leaf) = exchange else { panic!() };
        leaf.handle_connected(1, now_ms);
        exchange::effects::Effects::default()
    });
    let hello = leaf.poll().unwrap();
    root.test.send(crate::protocol::Message {
        topic: topics::up("plant", "press-7").into(),
        payload: hello,
        ..Default::default()
    });
    assert!(root.commit());
    let (welcome, now) = (root.poll().unwrap(), leaf.test.service.shared.now());
    leaf.test.service.shared.lock().handle_root_frame(&leaf.test.sent_messages, &welcome, now);
    assert!(leaf.commit());
    leaf.test.request(&del("line/1"));
    assert_eq!(leaf.test.sent_messages.replies(), []);
    assert!(leaf.commit());
    assert_eq!(leaf.test.sent_messages.replies(), [Reply::Count(1)]);
}

#[test]
fn an_expiry_whose_commit_has_failed_is_on_disk_with_its_row() {
    let mut root = Node::root();
    assert_eq!(root.reply(&set_with("line/1", "short", None, 1_000)), Reply::Done);
    let shared = &root.test.service.shared;
    let mut now = shared.now();
    now.monotonic_ms += 2_000;
    shared.lock().expire(&root.test.sent_messages, now);
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert!(!root.commit());
    let records = recovery_records(&root);
    assert!(
        records.iter().any(|record| matches!(record, Record::Key(record) if record.content.is_none())),
        "{records:?}"
    );
    let is_tombstone = |record: &Record| {
        let Record::Exchange(RowId::Key(of), Some(row)) = record else { return false };
        matches!(&**row, Row::Record(row) if row.kind == exchange::row::RecordKind::Tombstone)
            && *of == key("line/1")
    };
    assert!(records.iter().any(is_tombstone), "{records:?}");
}

#[test]
fn a_key_that_changes_while_it_has_no_rule_leaves_no_record_behind() {
    let mut root = Node::root();
    assert_eq!(root.reply(&set("line/1", "1")), Reply::Done);
    let set_rules = |root: &mut Node, rules: exchange::rules::Rules| {
        root.exchange(|exchange, _| {
            let exchange::Exchange::Root(root) = exchange else { panic!() };
            root.set_rules(rules)
        });
        root.commit();
    };
    set_rules(&mut root, exchange::rules::tests::keys(&["recipe/*"]));
    assert_eq!(root.reply(&del("line/1")), Reply::Count(1));
    set_rules(&mut root, plant());
    let state = root.test.service.shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    assert!(root.record(&key("line/1")).is_none());
}

#[test]
fn a_write_that_the_rules_forbid_is_refused_and_so_are_leases_and_fencing_tokens() {
    let (_, mut leaf) = linked();
    let refused = |error| Reply::Error(error);
    assert_eq!(leaf.reply(&set("recipe/1", "v")), refused(ErrorReply::RootOnly));
    assert_eq!(leaf.reply(&del("recipe/1")), refused(ErrorReply::RootOnly));
    let lease = |key: &str| set_with(key, "holder", Some(Condition::Absent), 10_000);
    assert_eq!(leaf.reply(&lease("line/1")), refused(ErrorReply::NotReplicated));
    assert_eq!(leaf.reply(&lease("lock")), Reply::Done);
    assert_eq!(leaf.reply(&set_with("line/1", "v", Some(Condition::Absent), 0)), Reply::Done);
    assert_eq!(leaf.reply(&set_with("line/1", "w", Some(Condition::Absent), 0)), Reply::NotApplied);
}

#[test]
fn a_change_that_loses_is_replaced_and_its_watchers_are_notified() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&watch("line/1")), Reply::Done);
    assert_eq!(root.reply(&set("line/1", "75")), Reply::Done);
    assert_eq!(leaf.reply(&set("line/1", "80")), Reply::Done);
    leaf.test.sent_messages.take();
    carry(&mut root, &mut leaf);
    let sent = leaf.test.sent_messages.take();
    let notified: Vec<_> = sent.iter().filter_map(|(to, message)| to.map(|_| &message.payload)).collect();
    assert_eq!(notified, [&Notification::Set(Some("75".into())).encode()]);
    assert_eq!(leaf.reply(&get("line/1")), value("75"));
    for node in [&mut root, &mut leaf] {
        let state = node.test.service.shared.lock();
        let participant = state.exchange.as_ref().unwrap();
        let conflicts: Vec<_> =
            participant.exchange.conflicts().since(0).map(|(_, one)| one.clone()).collect();
        assert_eq!((conflicts.len(), conflicts[0].lost.value().map(AsRef::as_ref)), (1, Some(&b"80"[..])));
    }
}

#[test]
fn a_failed_commit_puts_values_and_rows_back_on_both_sides() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&set("line/1", "1")), Reply::Done);
    carry(&mut root, &mut leaf);
    leaf.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert_eq!(leaf.reply(&set("line/1", "2")), Reply::Error(ErrorReply::NotPersisted));
    leaf.recover();
    assert_eq!(leaf.reply(&get("line/1")), value("1"));
    link(&mut root, &mut leaf);
    assert_eq!(leaf.reply(&set("line/1", "3")), Reply::Done);
    let up = leaf.poll().unwrap();
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    let topic = topics::up("plant", "press-7");
    root.test.send(crate::protocol::Message { topic: topic.into(), payload: up, ..Default::default() });
    assert!(!root.commit());
    assert_eq!(root.test.service.shared.lock().store.read(&key("line/1")).unwrap().1.value, "1");
    root.recover();
    link(&mut root, &mut leaf);
    let (mut root, mut leaf) = (root.restart(), leaf.restart());
    assert_eq!((root.reply(&get("line/1")), leaf.reply(&get("line/1"))), (value("3"), value("3")));
}

#[test]
fn a_link_goes_on_after_a_restart_of_both_sides() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&set("line/1", "1")), Reply::Done);
    assert_eq!(root.reply(&set("recipe/1", "1")), Reply::Done);
    let (mut root, mut leaf) = (root.restart(), leaf.restart());
    assert_eq!(leaf.reply(&set("line/1", "2")), Reply::Done);
    link(&mut root, &mut leaf);
    assert_eq!((root.reply(&get("line/1")), leaf.reply(&get("recipe/1"))), (value("2"), value("1")));
}

#[test]
fn a_folder_of_a_node_is_served_as_that_node_only() {
    let Node { storage, disk, settings, .. } = Node::leaf();
    drop(storage);
    let kind = |settings: StoreSettings| Node::open(disk.clone(), settings).err().map(|error| error.kind);
    let Some(StorageErrorKind::OtherNode(text)) = kind(StoreSettings::default()) else { panic!() };
    assert_eq!(text, "the leaf press-7 of the exchange plant");
    let other = |change: &dyn Fn(&mut ExchangeSettings)| {
        let mut settings = settings.clone();
        settings.exchange.iter_mut().for_each(change);
        settings
    };
    let is_other = |settings| matches!(kind(settings), Some(StorageErrorKind::OtherNode(_)));
    assert!(is_other(other(&|settings| settings.node = name("press-8"))));
    assert!(is_other(other(&|settings| settings.exchange = name("mill"))));
    let role = Role::Root { rules: plant(), admit: exchange::rules::Patterns::default() };
    assert!(is_other(other(&|settings| settings.role = role.clone())));
    assert!(kind(settings.clone()).is_none());
}

#[test]
fn only_nodes_publish_on_the_topics_of_the_exchange() {
    let (root, leaf) = linked();
    let refused = |node: &Node, topic: String| {
        let message = crate::protocol::Message { topic: topic.into(), ..Default::default() };
        matches!(node.test.send(message), Verdict::Refused(_))
    };
    assert!(refused(&root, topics::down("plant", "press-7")) && refused(&root, topics::conflicts("plant")));
    assert!(refused(&root, topics::up("mill", "press-7")) && refused(&leaf, topics::up("plant", "press-7")));
    let own = TestService::new(Persistence::None);
    let message =
        crate::protocol::Message { topic: topics::up("plant", "press-7").into(), ..message(&get("k")) };
    assert!(matches!(
        own.service.handle_message(&own.sent_messages, &peer(1), message, clock::monotonic()),
        Verdict::Route(_)
    ));
}

#[test]
fn a_walk_waits_for_commits_while_many_rows_wait_for_one() {
    const KEYS: usize = 40_000;
    let mut node = Node::root();
    let shared = Arc::clone(&node.test.service.shared);
    let now = shared.now();
    for number in 0..KEYS {
        let content = Some(("v".into(), None));
        shared.lock().store.apply(key(&format!("line/{number}")), content, now);
    }
    let mut rows_max = 0;
    loop {
        while shared.lock().walk(&node.test.sent_messages, now) {}
        let mut state = shared.lock();
        let group = state.take_group(now);
        drop(state);
        let Some(group) = group else { break };
        let row = |(_, record): &(u64, Record)| {
            if let Record::Exchange(id, _) = record { Some(id.clone()) } else { None }
        };
        let rows: BTreeSet<_> = group.records.iter().filter_map(row).collect();
        rows_max = rows_max.max(rows.len());
        assert!(commit_thread::commit(&shared, &mut node.storage, group, now, &node.test.sent_messages));
    }
    assert!((1_000..20_000).contains(&rows_max), "{rows_max}");
    let state = shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    assert_eq!(root.report().records, KEYS as u64);
}

#[tokio::test]
async fn a_root_with_many_leaves_is_shown_in_steps() {
    let mut root = Node::root();
    let names: Vec<_> = (100..228).map(|number| format!("press-{number}")).collect();
    for leaf in &names {
        root.exchange(|exchange, _| {
            let exchange::Exchange::Root(root) = exchange else { panic!() };
            root.add_leaf(&name(leaf), false)
        });
    }
    let service = &root.test.service;
    let (step, next) = exchange_inspection::report_step(&service.shared, None).unwrap();
    let NodeReport::Root(step) = step else { panic!() };
    assert_eq!((step.leaves.len(), next), (64, Some(name("press-163"))));
    let Some(NodeReport::Root(all)) = service.exchange_report().await else { panic!() };
    let expected = names.iter().map(String::as_str).chain(["press-7"]);
    assert!(all.leaves.iter().map(|leaf| leaf.name.as_str()).eq(expected), "{:?}", all.leaves);
}

#[test]
fn a_frame_counts_only_from_the_connection_of_its_link() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&set("line/1", "80")), Reply::Done);
    let payload = leaf.poll().unwrap();
    let topic = topics::up("plant", "press-7");
    let send = |root: &Node, connection, payload: &bytes::Bytes| {
        let message = crate::protocol::Message {
            topic: topic.clone().into(),
            payload: payload.clone(),
            ..Default::default()
        };
        root.test.service.handle_message(
            &root.test.sent_messages,
            &peer(connection),
            message,
            clock::monotonic(),
        );
    };
    for payload in [payload.clone(), "garbage".into()] {
        send(&root, 2, &payload);
    }
    root.commit();
    assert_eq!(root.reply(&get("line/1")), Reply::Absent);
    send(&root, 1, &payload);
    root.commit();
    assert_eq!(root.reply(&get("line/1")), value("80"));
}

#[test]
fn a_failed_commit_begins_the_walk_anew() {
    let mut node = Node::root();
    let shared = Arc::clone(&node.test.service.shared);
    let now = shared.now();
    for number in 0..1_000 {
        shared.lock().store.apply(key(&format!("line/{number}")), Some(("v".into(), None)), now);
    }
    // One step of the walk, whose commit fails.
    node.test.service.shared.lock().walk(&node.test.sent_messages, now);
    node.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert!(!node.commit());
    node.recover();
    node.walk();
    let state = shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    let keys = state.store.keys_from(0, usize::MAX).0;
    assert!(!keys.is_empty() && keys.iter().all(|key| root.record(key).is_some()));
}

#[test]
fn wills_and_responses_are_not_published_on_topics_of_an_exchange() {
    let (root, _) = linked();
    let will =
        crate::protocol::Message { topic: topics::down("plant", "press-7").into(), ..Default::default() };
    assert!(root.test.service.check_will(&will).is_err());
    let response_topic = Some(topics::conflicts("plant"));
    let request = crate::protocol::Message { response_topic, ..message(&get("k")) };
    assert!(matches!(root.test.send(request), Verdict::Disconnect { .. }));
}

#[test]
fn the_values_of_keys_that_an_operator_may_not_read_are_hidden() {
    let (mut root, mut leaf) = linked();
    assert_eq!(root.reply(&set("line/1", "75")), Reply::Done);
    assert_eq!(leaf.reply(&set("line/1", "80")), Reply::Done);
    carry(&mut root, &mut leaf);
    let home = tempfile::TempDir::new().unwrap();
    let path = home.path().join("rules.yaml");
    std::fs::write(&path, "rules:\n- principals: {clientIds: [client]}\n  brokerResources:\n  - {method: Publish, topics: [\"#\"]}\n").unwrap();
    let permissions = ClientPermissions::new(
        Authorizer::load(&path).unwrap(),
        "client".into(),
        crate::broker::Principal::default(),
    );
    let operator = crate::broker::Peer { permissions: Some(Arc::new(permissions)), ..peer(3) };
    let ask = |peer: &crate::broker::Peer, command: &Command| {
        root.test.sent_messages.take();
        let message = crate::protocol::Message {
            topic: topics::COMMAND.into(),
            payload: command.encode(),
            ..message(&get("k"))
        };
        root.test.service.handle_message(&root.test.sent_messages, peer, message, clock::monotonic());
        root.test.sent_messages.take().pop().unwrap().1.payload
    };
    let value_of = Command::Value { id: 1 };
    assert_eq!(Answer::decode(&ask(&peer(1), &value_of)), Ok(Answer::Value(Ok("80".into()))));
    let refused = ask(&operator, &value_of);
    assert_eq!(Answer::decode(&refused), Ok(Answer::Refused(Refusal::NotReadable)));
    let asked = ask(&operator, &Command::Key { key: key("line/1") });
    assert_eq!(Answer::decode(&asked), Ok(Answer::Refused(Refusal::NotReadable)));
    let page = Command::Conflicts { leaf: None, since: 0, max: 10 };
    let Ok(Answer::Conflicts(page)) = Answer::decode(&ask(&operator, &page)) else { panic!() };
    assert!(matches!(&page.conflicts[0].lost, Lost::Value { start, size: 2 } if start.is_empty()));
}

#[test]
fn a_root_whose_commits_fail_refuses_a_leaf_at_once() {
    let (mut root, mut leaf) = linked();
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert_eq!(root.reply(&set("recipe/1", "v")), Reply::Error(ErrorReply::NotPersisted));
    leaf.exchange(|exchange, now_ms| {
        let exchange::Exchange::Leaf(leaf) = exchange else { panic!() };
        leaf.handle_connected(9, now_ms);
        exchange::effects::Effects::default()
    });
    carry(&mut root, &mut leaf);
    {
        let state = leaf.test.service.shared.lock();
        let exchange::Exchange::Leaf(leaf) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
        assert!(!leaf.has_link(), "it connects again");
        let ended = leaf.ended().unwrap();
        assert_eq!(
            (ended.code.as_str(), ended.text.as_str()),
            ("not-committed", "a commit of the root failed")
        );
    }
    root.recover();
    link(&mut root, &mut leaf);
    assert_eq!(root.reply(&set("recipe/1", "v")), Reply::Done);
    carry(&mut root, &mut leaf);
    assert_eq!(leaf.reply(&get("recipe/1")), value("v"));
}

#[test]
fn after_a_failed_commit_keys_that_expire_meanwhile_are_committed_in_portions_with_their_rows() {
    const KEYS: usize = 2_500;
    let mut root = Node::root();
    for number in 0..KEYS {
        root.test.request(&set_with(&format!("line/{number}"), "short", None, 1_000));
    }
    assert!(root.commit());
    assert_eq!(root.reply(&set("line/lasting", "1")), Reply::Done);
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert_eq!(root.reply(&set("line/lasting", "2")), Reply::Error(ErrorReply::NotPersisted));
    let shared = Arc::clone(&root.test.service.shared);
    let mut now = shared.now();
    now.monotonic_ms += 2_000;
    while shared.lock().next_expiry().is_some() {
        shared.lock().expire(&root.test.sent_messages, now);
    }
    let mut snapshot = root.storage.begin_rewrite(now).unwrap();
    ledger_work::write_all(&shared, &mut snapshot, |_| true).unwrap();
    root.storage.finish_rewrite(snapshot).unwrap();
    let mut portions = Vec::new();
    while shared.lock().commit_queue.has_failed() {
        let group = shared.lock().recovery_group(now);
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for (_, record) in &group.records {
            match record {
                Record::Key(record) => keys.push(RowId::Key(record.key.clone())),
                Record::Exchange(id, _) => rows.push(id.clone()),
                Record::Registration(_) | Record::Response(_) => {}
            }
        }
        assert!(keys.iter().all(|id| rows.contains(id)), "a value without its row");
        portions.push(keys.len());
        assert!(commit_thread::commit(&shared, &mut root.storage, group, now, &root.test.sent_messages));
    }
    assert_eq!(portions, [500; 5]);
    let mut root = root.restart();
    assert_eq!((root.reply(&get("line/lasting")), root.reply(&get("line/7"))), (value("1"), Reply::Absent));
    let state = root.test.service.shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    assert_eq!(root.report().records, 1);
}

#[test]
fn after_a_failed_commit_a_row_is_committed_with_its_value_although_only_the_row_was_changed() {
    let mut root = Node::root();
    root.test.request(&set_with("line/1", "short", None, 1_000));
    assert!(root.commit());
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    let shared = Arc::clone(&root.test.service.shared);
    let mut now = shared.now();
    // The row leaves with the rule, the value stays.
    shared.lock().with_exchange(&root.test.sent_messages, now, |exchange, _, _| match exchange {
        exchange::Exchange::Root(root) => ((), root.set_rules(exchange::rules::tests::keys(&["other/*"]))),
        exchange::Exchange::Leaf(_) => panic!(),
    });
    shared.lock().handle_exchange_timeout(&root.test.sent_messages, now);
    root.test.request(&set("other/1", "1"));
    assert!(!root.commit());
    now.monotonic_ms += 2_000;
    while shared.lock().next_expiry().is_some() {
        shared.lock().expire(&root.test.sent_messages, now);
    }
    let (records, line) = (recovery_records(&root), key("line/1"));
    let is_row = |record: &_| matches!(record, Record::Exchange(RowId::Key(key), _) if *key == line);
    assert!(records.iter().any(is_row));
    let is_expired =
        |record: &_| matches!(record, Record::Key(record) if record.key == line && record.content.is_none());
    assert!(records.iter().any(is_expired));
}
