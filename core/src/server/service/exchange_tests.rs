//! Two services with simulated disks as root and leaf: what is set on one side is there on the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::exchange::{READY_BYTES, frame_bytes_max};
use super::tests::{TestService, del, get, key, message, peer, set, set_with, value, watch};
use super::*;
use crate::broker::{Application, Verdict};
use crate::exchange::names::Name;
use crate::exchange::row::{Row, RowId};
use crate::exchange::rules::tests::plant;
use crate::ledger::file::simulated::SimulatedDisk;
use crate::ledger::{FileLedger, Policy, Record, StorageError, StorageErrorKind};
use crate::protocol::exchange::{Answer, Command, Lost, Refusal};
use crate::protocol::message::PERSIST;
use crate::protocol::{Condition, ErrorReply, Notification, Reply, Request, exchange::topic as topics};
use crate::server::authorization::{Authorizer, ClientPermissions};
use crate::server::exchange::participant::Seeds;
use crate::server::exchange::settings::tests::leaf;
use crate::server::exchange::settings::{ExchangeSettings, Role};
use crate::server::exchange::uplink::FrameOutcome;
use crate::store::Now;
use crate::{clock, exchange};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A node whose commits are made by the test.
struct Node {
    test: TestService,
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
        let test = TestService::of(service, events, None);
        Ok(Self { test, disk, settings })
    }

    /// Kills the process and starts it again.
    fn restart(self) -> Self {
        let Self { test, disk, settings } = self;
        drop(test);
        Self::open(disk.after_kill(), settings).map_err(|error| error.to_string()).unwrap()
    }

    fn exchange(&mut self, call: impl FnOnce(&mut exchange::Exchange, u64) -> exchange::effects::Effects) {
        let now = self.test.service.shared.now();
        let mut state = self.test.service.shared.lock_with_room(READY_BYTES);
        let call = |exchange: &mut exchange::Exchange, now_ms, _: &dyn exchange::effects::Values| {
            ((), call(exchange, now_ms))
        };
        state.with_exchange(&self.test.sent_messages, now, call).unwrap();
    }

    /// Commits what waits; returns false if that failed: the ledger has ended.
    fn commit(&mut self) -> bool {
        self.test.commit_to_disk().is_ok()
    }

    /// Handles a request; returns its reply, after the commit.
    fn reply(&mut self, request: &Request) -> Reply {
        self.test.request(request);
        assert!(self.commit());
        self.test.sent_messages.replies().pop().unwrap()
    }

    /// Makes one step of a walk. Returns whether there are more.
    fn step_walk(&self) -> bool {
        let shared = &self.test.service.shared;
        let needed = shared.lock().exchange.as_ref().map_or(0, |participant| participant.room_needed);
        let mut state = shared.lock_with_room(needed.max(READY_BYTES));
        state.walk(&self.test.sent_messages, shared.now())
    }

    fn walk(&mut self) {
        while self.step_walk() {}
        assert!(self.commit());
    }

    /// Handles a frame of the root.
    fn take_down(&mut self, payload: &bytes::Bytes) -> FrameOutcome {
        let shared = &self.test.service.shared;
        let mut state = shared.lock_with_room(frame_bytes_max(payload));
        state.handle_root_frame(&self.test.sent_messages, payload, shared.now())
    }

    /// Handles a frame of the leaf.
    fn take_up(&mut self, payload: &bytes::Bytes) -> Verdict {
        self.test.send(crate::protocol::Message {
            topic: topics::up("plant", "press-7").into(),
            payload: payload.clone(),
            ..Default::default()
        })
    }

    /// Lets ten seconds pass for expiry. Returns when it goes on.
    fn expire(&mut self) -> u64 {
        let now = self.test.service.shared.now();
        let later = Now { monotonic_ms: now.monotonic_ms + 10_000, ..now };
        self.test.service.shared.lock().expire(&self.test.sent_messages, later)
    }

    fn poll(&mut self) -> Option<bytes::Bytes> {
        let now = self.test.service.shared.now();
        self.test.service.shared.lock().poll_frame(now).map(|(payload, _)| payload)
    }
}

fn connect(leaf: &mut Node) {
    leaf.exchange(|exchange, now_ms| {
        let exchange::Exchange::Leaf(leaf) = exchange else { panic!() };
        leaf.handle_connected(crate::random::u64(), now_ms);
        exchange::effects::Effects::default()
    });
}

/// Connects the leaf and carries frames until there are none.
fn link(root: &mut Node, leaf: &mut Node) {
    connect(leaf);
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
            assert!(matches!(root.take_up(&payload), Verdict::Consumed));
            assert!(root.commit());
        }
        if let Some(payload) = down {
            assert_eq!(leaf.take_down(&payload), FrameOutcome::Handled);
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
    connect(&mut leaf);
    let hello = leaf.poll().unwrap();
    root.take_up(&hello);
    assert!(root.commit());
    let welcome = root.poll().unwrap();
    assert_eq!(leaf.take_down(&welcome), FrameOutcome::Handled);
    assert!(leaf.commit());
    leaf.test.request(&del("line/1"));
    assert_eq!(leaf.test.sent_messages.replies(), []);
    assert!(leaf.commit());
    assert_eq!(leaf.test.sent_messages.replies(), [Reply::Count(1)]);
}

#[test]
fn an_expiry_and_its_row_are_in_one_step() {
    let mut root = Node::root();
    assert_eq!(root.reply(&set_with("line/1", "short", None, 1_000)), Reply::Done);
    root.expire();
    let shared = &root.test.service.shared;
    let group = shared.lock().take_group(shared.now()).unwrap();
    let is_value = |record: &Record| {
        let Record::Key(record) = record else { return false };
        record.key == key("line/1") && record.content.is_none()
    };
    let is_tombstone = |record: &Record| {
        let Record::Exchange(RowId::Key(of), Some(row)) = record else { return false };
        matches!(&**row, Row::Record(row) if row.kind == exchange::row::RecordKind::Tombstone)
            && *of == key("line/1")
    };
    let step_of = |is_it: &dyn Fn(&Record) -> bool| {
        group.records.iter().find(|(_, record)| is_it(record)).map(|(step, _)| *step)
    };
    assert!(step_of(&is_value).is_some(), "{group:?}");
    assert_eq!(step_of(&is_value), step_of(&is_tombstone), "{group:?}");
}

#[test]
fn a_key_that_takes_part_expires_when_there_is_room_for_its_row() {
    let mut root = Node::root();
    assert_eq!(root.reply(&set_with("line/1", "short", None, 1_000)), Reply::Done);
    root.test.take_room();
    assert_eq!(root.expire(), u64::MAX, "it waits for room");
    assert!(root.test.service.shared.lock().store.read(&key("line/1")).is_some());
    assert!(!root.test.service.shared.lock().commit_queue.has_uncommitted());
    root.test.restore_room();
    root.expire();
    assert!(root.commit());
    let mut root = root.restart();
    assert_eq!(root.reply(&get("line/1")), Reply::Absent);
    let state = root.test.service.shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    assert!(root.record(&key("line/1")).is_none_or(|row| row.kind == exchange::row::RecordKind::Tombstone));
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
fn after_a_failed_commit_each_side_starts_again_with_the_values_and_rows_that_are_committed() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&set("line/1", "1")), Reply::Done);
    carry(&mut root, &mut leaf);
    leaf.test.request(&set("line/1", "2"));
    leaf.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert!(!leaf.commit());
    assert_eq!(leaf.test.sent_messages.replies(), []);
    let mut leaf = leaf.restart();
    assert_eq!(leaf.reply(&get("line/1")), value("1"));
    // The root hears that the connection is lost.
    root.test.service.disconnect(&peer(1));
    link(&mut root, &mut leaf);
    assert_eq!(leaf.reply(&set("line/1", "3")), Reply::Done);
    let up = leaf.poll().unwrap();
    assert!(matches!(root.take_up(&up), Verdict::Consumed));
    root.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert!(!root.commit());
    assert!(root.poll().is_none(), "its decision is in no frame");
    let mut root = root.restart();
    assert_eq!(root.reply(&get("line/1")), value("1"));
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
    let Node { test, disk, settings } = Node::leaf();
    drop(test);
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
    let node = Node::root();
    let shared = Arc::clone(&node.test.service.shared);
    let now = shared.now();
    for number in 0..KEYS {
        let content = Some(("v".into(), None));
        shared.lock().store.apply(key(&format!("line/{number}")), content, now);
    }
    let mut rows_max = 0;
    loop {
        while node.step_walk() {}
        // Several groups, each in a segment of its own.
        let (mut committer, mut rows) = (shared.committer(), BTreeSet::new());
        let storage = &mut committer.as_mut().unwrap().storage;
        loop {
            let taken = shared.lock().take_group(now);
            let Some(group) = taken else { break };
            let row = |(_, record): &(u64, Record)| {
                if let Record::Exchange(id, _) = record { Some(id.clone()) } else { None }
            };
            rows.extend(group.records.iter().filter_map(row));
            commit_thread::commit(&shared, storage, group, now, &node.test.sent_messages).unwrap();
        }
        if rows.is_empty() {
            break;
        }
        rows_max = rows_max.max(rows.len());
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
fn a_walk_whose_commit_has_failed_begins_anew_with_the_next_start() {
    let disk = SimulatedDisk::default();
    // The keys were there before the exchange.
    let test = TestService::on(FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap());
    for number in 0..1_000 {
        let mut request = message(&set(&format!("line/{number}"), "v"));
        request.user_properties.push(PERSIST, "true");
        test.send(request);
    }
    test.commit_to_disk().unwrap();
    drop(test);
    let admit = exchange::rules::Patterns::default();
    let mut node = Node::start(disk.after_kill(), "root", Role::Root { rules: plant(), admit });
    node.step_walk();
    node.disk.set_faults(|faults| faults.fails_next_sync = true);
    assert!(!node.commit());
    let mut node = node.restart();
    node.walk();
    let node = node.restart();
    let state = node.test.service.shared.lock();
    let exchange::Exchange::Root(root) = &state.exchange.as_ref().unwrap().exchange else { panic!() };
    let keys = state.store.keys_from(0, usize::MAX).0;
    assert_eq!(keys.len(), 1_000);
    assert!(keys.iter().all(|key| root.record(key).is_some()));
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
fn frames_are_put_off_while_there_is_no_room_for_their_rows() {
    let (mut root, mut leaf) = (Node::root(), Node::leaf());
    connect(&mut leaf);
    let hello = leaf.poll().unwrap();
    root.test.take_room();
    assert!(matches!(root.take_up(&hello), Verdict::Continue(_)));
    assert!(!root.test.service.shared.lock().commit_queue.has_uncommitted());
    root.test.restore_room();
    assert!(matches!(root.take_up(&hello), Verdict::Consumed));
    assert!(root.commit());
    let welcome = root.poll().unwrap();
    leaf.test.take_room();
    assert_eq!(leaf.take_down(&welcome), FrameOutcome::Busy);
    assert!(!leaf.test.service.shared.lock().commit_queue.has_uncommitted());
    leaf.test.restore_room();
    assert_eq!(leaf.take_down(&welcome), FrameOutcome::Handled);
    assert!(leaf.commit());
    carry(&mut root, &mut leaf);
    assert_eq!(root.reply(&set("recipe/1", "v")), Reply::Done);
    carry(&mut root, &mut leaf);
    assert_eq!(leaf.reply(&get("recipe/1")), value("v"));
}

#[test]
fn on_a_full_disk_a_key_that_takes_part_is_neither_set_nor_proposed() {
    let (mut root, mut leaf) = linked();
    assert_eq!(leaf.reply(&set("line/1", "1")), Reply::Done);
    carry(&mut root, &mut leaf);
    leaf.test.take_room();
    leaf.test.request(&set("line/1", "2"));
    assert_eq!(leaf.test.sent_messages.replies(), [Reply::Error(ErrorReply::DiskFull)]);
    assert_eq!(leaf.reply(&get("line/1")), value("1"));
    leaf.test.restore_room();
    carry(&mut root, &mut leaf);
    assert_eq!(root.reply(&get("line/1")), value("1"));
}
