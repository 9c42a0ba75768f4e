//! The service as an instance of a cluster: what waits, what a successor has, what is never answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;

use super::CLUSTER_VALUE_BYTES_MAX;
use super::simulated_ledger::{SimulatedLedger, moved};
use super::tests::{TestService, del, get, key, message, peer, set, set_with, value, version, watch};
use crate::broker::{self, Peer};
use crate::clock;
use crate::ledger::{Group, KeyRecord, Record, RegistrationRecord};
use crate::protocol::{
    Condition, ConnectionId, ErrorReply, Key, Message, Notification, Reply, Request, topic,
};
use crate::server::authorization::Authorizer;
use crate::server::cluster::Effect;
use crate::server::event::Event;
use crate::store::{Now, StoredValue, Version};

const QUOTA_EXCEEDED: Reply = Reply::Error(ErrorReply::QuotaExceeded);

pub(super) fn client(id: &str) -> Peer {
    Peer { client_id: id.into(), owner: id.into(), ..peer(1) }
}

fn stop(name: &str) -> Request {
    Request::KeyNotify { key: key(name), stop: true }
}

/// An instance that serves, of clients that are known by their ids.
fn owner(ledger: &SimulatedLedger) -> TestService {
    TestService::in_cluster(ledger, true)
}

impl TestService {
    fn take_group(&self) -> Group {
        self.service.take_cluster_group().unwrap()
    }

    fn commit(&self, group: &Group) {
        let ledger = self.ledger.as_ref().unwrap();
        assert!(ledger.decide(&self.service, group, &self.sent_messages));
    }

    fn effect(&self, effect: Effect) {
        assert_eq!(self.service.handle_cluster_effect(effect, &self.sent_messages), None);
    }

    /// Returns the replies to requests, after they are confirmed.
    fn confirmed_replies(&self, requests: &[Request]) -> Vec<Reply> {
        requests.iter().for_each(|request| self.request(request));
        assert!(self.sent_messages.take().is_empty(), "everything waits");
        self.confirm();
        self.sent_messages.replies()
    }

    /// Returns the clients that are notified, in order.
    fn notified(&self) -> Vec<(String, Notification)> {
        let pushed = self.sent_messages.take().into_iter().filter(|(to, _)| to.is_some());
        let parsed = pushed.map(|(_, message)| {
            let Some(topic::Topic::Notify { client_id, .. }) = topic::Topic::parse(&message.topic) else {
                panic!()
            };
            (String::from_utf8(client_id).unwrap(), Notification::decode(&message.payload).unwrap())
        });
        parsed.collect()
    }
}

#[test]
fn each_answer_waits_for_a_commit_or_confirmation_that_begins_after_its_request() {
    let test = owner(&SimulatedLedger::default());
    test.request(&set("k", "v"));
    let first = test.take_group();
    assert!(test.service.take_cluster_group().is_none());
    [get("k"), get("other"), del("absent")].iter().for_each(|request| test.request(request));
    test.commit(&first);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    let second = test.take_group();
    assert!(second.sequence > first.sequence);
    test.request(&get("k"));
    test.commit(&second);
    assert_eq!(test.sent_messages.replies(), [value("v"), Reply::Absent, Reply::Count(0)]);
    let third = test.take_group();
    assert_eq!(third.records, [], "reads need a confirmation only");
    test.commit(&third);
    assert_eq!(test.sent_messages.replies(), [value("v")]);
}

#[test]
fn errors_scans_and_redeliveries_wait_too_and_all_keep_their_order() {
    let test = owner(&SimulatedLedger::default());
    test.request(&watch("k"));
    let first = message(&set("k", "v"));
    test.send(first.clone());
    test.send(first);
    test.request(&Request::Scan { pattern: "*".into(), token: None });
    test.send(Message { user_properties: Default::default(), ..message(&set("k", "w")) });
    test.request(&del("k"));
    assert!(test.sent_messages.take().is_empty());
    test.confirm();
    let sent = test.sent_messages.take();
    assert_eq!(
        sent.iter().map(|(to, _)| to.is_some()).collect::<Vec<_>>(),
        [false, false, true, false, false, false, false, true]
    );
    let replies = sent.iter().filter(|(to, _)| to.is_none());
    let replies: Vec<_> = replies.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect();
    let page = Reply::Keys { keys: vec!["k".into()], token: None };
    let error = Reply::Error(ErrorReply::MissingTimestamp);
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Done, page, error, Reply::Count(1)]);
}

/// Sends a page of a scan of all keys until it is answered, and returns the reply.
fn page(test: &TestService, token: Option<Bytes>) -> Reply {
    let scan = message(&Request::Scan { pattern: "*".into(), token });
    if let Some(mut scan) =
        test.service.handle_external_request(&test.sent_messages, &peer(1), scan, clock::monotonic())
    {
        while !scan.advance(&test.sent_messages) {}
    }
    test.confirm();
    test.sent_messages.replies().pop().unwrap()
}

#[test]
fn a_scan_does_not_go_on_at_a_successor_whose_keys_have_other_positions() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    (0..1_500).for_each(|number| first.request(&set(&format!("k{number}"), "v")));
    first.confirm();
    first.sent_messages.take();
    let Reply::Keys { keys, token: Some(token) } = page(&first, None) else { panic!() };
    assert_eq!(keys.len(), 1_000);
    let Reply::Keys { keys, token: None } = page(&first, Some(token.clone())) else { panic!() };
    assert_eq!(keys.len(), 500);
    let successor = owner(&ledger);
    assert_eq!(page(&successor, Some(token)), Reply::Error(ErrorReply::ScanInterrupted));
    assert_eq!(page(&successor, Some("token".into())), Reply::Error(ErrorReply::SyntaxError));
}

#[test]
fn a_follower_answers_nothing_and_expires_nothing() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    first.confirmed_replies(&[set_with("short", "v", None, 1), set("k", "v")]);
    let test = TestService::following(&ledger, true);
    ledger.load(&test.service);
    let malformed = Message { payload: "malformed".into(), ..message(&get("k")) };
    let scan = Request::Scan { pattern: "*".into(), token: None };
    let requests = [get("k"), set("k", "w"), watch("k"), scan].map(|request| message(&request));
    for message in requests.into_iter().chain([malformed.clone()]) {
        let scan =
            test.service.handle_external_request(&test.sent_messages, &peer(1), message, clock::monotonic());
        assert!(scan.is_none());
    }
    test.request(&get("k"));
    test.request(&Request::Scan { pattern: "*".into(), token: None });
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    assert_eq!(test.service.shared.lock().expire(&test.sent_messages, later), u64::MAX);
    assert!(test.service.take_cluster_group().is_none() && test.sent_messages.take().is_empty());
    assert_eq!(test.service.statistics().store.keys, 2);
    assert!(test.events.lock().unwrap().is_empty());
    ledger.serve(&test.service);
    test.service.handle_external_request(&test.sent_messages, &peer(1), malformed, clock::monotonic());
    assert_eq!(test.sent_messages.replies(), [Reply::Error(ErrorReply::SyntaxError)]);
    test.service.shared.lock().expire(&test.sent_messages, later);
    test.confirm();
    assert!(!ledger.lock().rows.contains_key(&key("short")), "its deletion is committed");
}

/// An error would be an answer, and another instance may be about to give one.
#[test]
fn while_the_queue_is_full_requests_are_neither_applied_nor_answered() {
    let test = owner(&SimulatedLedger::default());
    let long = "x".repeat(1024 * 1024);
    let count = (0..100).take_while(|number| {
        test.request(&set(&format!("{number}"), &long));
        test.events.lock().unwrap().is_empty()
    });
    let count = count.count();
    assert!((60..=64).contains(&count), "{count}");
    assert!(matches!(&test.events.lock().unwrap()[..], [Event::Broker(broker::Event::Dropped { .. })]));
    for request in [get("0"), del("0"), watch("0"), Request::Scan { pattern: "*".into(), token: None }] {
        test.request(&request);
    }
    test.confirm();
    assert_eq!(test.sent_messages.replies(), vec![Reply::Done; count]);
    assert_eq!(test.confirmed_replies(&[get("0")]), [Reply::Value(long.into())]);
}

#[test]
fn values_that_no_commit_can_have_are_too_long() {
    let test = owner(&SimulatedLedger::default());
    let replies = test.confirmed_replies(&[set("k", &"x".repeat(CLUSTER_VALUE_BYTES_MAX + 1))]);
    assert_eq!(replies, [Reply::Error(ErrorReply::ValueTooLong)]);
}

#[test]
fn without_room_in_etcd_the_state_is_served_as_it_was_and_only_deletions_go_on() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    test.confirmed_replies(&[set("k", "v"), set("gone", "v"), set("vgone", "v"), watch("gone")]);
    test.confirmed_replies(&[set_with("short", "v", None, 1)]);
    let first = message(&set("k", "w"));
    test.send(first.clone());
    test.confirm();
    test.sent_messages.take();
    ledger.lock().is_full = true;
    let since = test.service.shared.now().monotonic_ms;
    while test.service.shared.now().monotonic_ms <= since + 2 {
        std::thread::yield_now();
    }
    let vdel = Request::VDel { key: key("vgone"), value: "v".into() };
    let requests = [set("new", "v"), get("new"), set("k", "x"), get("k"), watch("k"), watch("gone")];
    let requests = requests.into_iter().chain([del("gone"), del("new"), vdel, get("short")]);
    let requests: Vec<_> = requests.map(|request| message(&request)).chain([first]).collect();
    for request in &requests {
        test.send(request.clone());
    }
    let group = test.take_group();
    assert!(!ledger.decide(&test.service, &group, &test.sent_messages));
    test.confirm();
    assert!(test.sent_messages.take().is_empty(), "clients deliver them again");
    for request in requests {
        test.send(request);
    }
    test.confirm();
    let refused = || QUOTA_EXCEEDED;
    let sent = test.sent_messages.take();
    let replies = sent.iter().filter(|(to, _)| to.is_none());
    let replies: Vec<_> = replies.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect();
    let first_half = [refused(), Reply::Absent, refused(), value("w"), refused(), Reply::Done];
    let second_half = [Reply::Count(1), Reply::Count(0), Reply::Count(1), Reply::Absent, Reply::Done];
    assert_eq!(replies, first_half.into_iter().chain(second_half).collect::<Vec<_>>());
    assert_eq!(sent.iter().filter(|(to, _)| to.is_some()).count(), 1, "the watcher of the deleted key");
    let keys: Vec<_> = ledger.lock().rows.keys().cloned().collect();
    assert_eq!(keys, [key("k")]);
    assert!(test.service.statistics().cluster.unwrap().is_short_of_room);
    assert_eq!(
        test.confirmed_replies(&[set("k", "y"), watch("k"), stop("gone")]),
        [refused(), refused(), Reply::Done]
    );
    assert!(ledger.lock().registrations.is_empty());
    ledger.lock().is_full = false;
    test.effect(Effect::ShortOfSpace(false));
    assert_eq!(
        test.confirmed_replies(&[set("k", "y"), watch("k"), get("k")]),
        [Reply::Done, Reply::Done, value("y")]
    );
}

#[test]
fn the_watch_of_a_connection_stays_when_the_state_is_read_again() {
    let ledger = SimulatedLedger::default();
    let test = TestService::in_cluster(&ledger, false);
    test.confirmed_replies(&[set("k", "v"), watch("k")]);
    ledger.lock().is_full = true;
    test.request(&set("k", "w"));
    let group = test.take_group();
    test.effect(Effect::Pause);
    assert_eq!(test.reply(&get("k")), QUOTA_EXCEEDED, "the clients have no other instance");
    test.request(&del("k"));
    test.effect(Effect::Stop);
    test.request(&get("k"));
    assert!(test.sent_messages.take().is_empty(), "it may be applied, or another instance may be the owner");
    assert!(!ledger.decide(&test.service, &group, &test.sent_messages));
    test.request(&del("k"));
    test.confirm();
    assert_eq!(test.notified(), [("client".to_owned(), Notification::Delete)]);
    assert_eq!(test.confirmed_replies(&[get("k"), stop("k")]), [Reply::Absent, Reply::Done]);
}

#[test]
fn an_instance_that_owns_the_store_again_does_not_know_a_lack_of_room_of_before() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    test.effect(Effect::ShortOfSpace(true));
    assert_eq!(test.confirmed_replies(&[watch("k")]), [QUOTA_EXCEEDED]);
    test.effect(Effect::Stop);
    ledger.load(&test.service);
    ledger.serve(&test.service);
    assert_eq!(test.confirmed_replies(&[watch("k"), set("k", "v")]), [Reply::Done, Reply::Done]);
}

#[test]
fn a_successor_does_not_apply_a_write_that_was_refused_for_lack_of_room() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    first.effect(Effect::ShortOfSpace(true));
    let refused = message(&set("k", "v"));
    first.send(refused.clone());
    first.confirm();
    assert_eq!(first.sent_messages.replies(), [QUOTA_EXCEEDED]);
    // It has received the same request, and has held it.
    let second = owner(&ledger);
    second.send(refused);
    second.request(&get("k"));
    second.confirm();
    assert_eq!(second.sent_messages.replies(), [QUOTA_EXCEEDED, Reply::Absent]);
}

#[test]
fn a_client_behind_a_broker_is_not_refused_for_the_answers_to_its_earlier_writes() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    // Of none of its writes it is known whether it has received the acknowledgement.
    let send = |test: &TestService, number: u64, message: &Message| {
        let from = Peer { message_number: number, ..client("client") };
        let now = clock::monotonic();
        test.service.handle_external_request(&test.sent_messages, &from, message.clone(), now);
        test.confirm();
        test.sent_messages.replies()
    };
    let writes: Vec<_> = (1..10_000).map(|number| message(&set("k", &number.to_string()))).collect();
    for (number, write) in (1..).zip(&writes) {
        assert_eq!(send(&first, number, write), [Reply::Done], "{number}");
    }
    let second = owner(&ledger);
    assert_eq!(send(&second, 1, writes.last().unwrap()), [Reply::Done]);
    assert_eq!(second.confirmed_replies(&[get("k")]), [value("9999")]);
}

#[test]
fn a_client_that_is_gone_is_also_gone_from_an_etcd_without_room() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    let (gone, other) = (client("gone"), client("other"));
    for from in [&gone, &other] {
        test.send_from(from, message(&watch("k")));
    }
    test.confirm();
    assert_eq!(ledger.lock().registrations.len(), 2);
    ledger.lock().is_full = true;
    test.effect(Effect::ShortOfSpace(true));
    test.send_from(&other, message(&stop("k")));
    test.send_from(&other, message(&watch("k")));
    test.service.disconnect(&gone);
    test.confirm();
    assert_eq!(test.sent_messages.replies(), [Reply::Done, Reply::Done, Reply::Done, QUOTA_EXCEEDED]);
    assert!(ledger.lock().registrations.is_empty());
    assert_eq!(test.service.statistics().store.watches, 0);
}

#[test]
fn an_instance_that_has_lost_its_ownership_answers_nothing_that_waits() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    test.request(&set("k", "v"));
    let group = test.take_group();
    [get("k"), watch("k"), set("k", "w")].iter().for_each(|request| test.request(request));
    test.effect(Effect::Stop);
    test.effect(Effect::Committed { sequence: group.sequence });
    assert!(test.service.take_cluster_group().is_none());
    assert_eq!(test.service.statistics().store.keys, 0);
    ledger.load(&test.service);
    ledger.serve(&test.service);
    assert_eq!(test.confirmed_replies(&[get("k")]), [Reply::Absent]);
}

#[test]
fn a_successor_answers_a_redelivery_with_the_first_answer() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    let lock = message(&set_with("lock", "first", Some(Condition::Absent), 0));
    let second = message(&set_with("lock", "second", Some(Condition::Absent), 0));
    let unlock = message(&del("lock"));
    for message in [&lock, &second, &unlock] {
        first.send(message.clone());
    }
    first.confirm();
    let answers = first.sent_messages.take();
    let uncommitted = message(&set("lock", "lost"));
    first.send(uncommitted.clone());
    let successor = owner(&ledger);
    for message in [&lock, &second, &unlock] {
        successor.send(message.clone());
    }
    successor.confirm();
    assert_eq!(successor.sent_messages.take(), answers);
    assert_eq!(successor.confirmed_replies(&[get("lock")]), [Reply::Absent]);
    successor.send(uncommitted);
    successor.confirm();
    assert_eq!(successor.sent_messages.replies(), [Reply::Done]);
    assert_eq!(successor.confirmed_replies(&[get("lock")]), [value("lost")]);
}

#[test]
fn a_successor_applies_no_write_again_however_many_one_client_has_sent() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    let writes: Vec<_> = (0..5_000).map(|number| message(&set("k", &number.to_string()))).collect();
    let send = |test: &TestService| {
        for (number, message) in (1..).zip(&writes) {
            let from = Peer { message_number: number, confirmed: number.saturating_sub(10), ..client("a") };
            test.send_from(&from, message.clone());
        }
        test.confirm();
        test.sent_messages.take()
    };
    let answers = send(&first);
    assert_eq!(answers.len(), writes.len());
    let successor = owner(&ledger);
    let again = send(&successor);
    assert!(again.len() > 1_000 && answers.ends_with(&again), "the last ones have their first answers");
    assert_eq!(successor.confirmed_replies(&[get("k")]), [value("4999")]);
}

#[test]
fn a_successor_notifies_the_watchers_of_its_predecessor_and_ends_their_watches() {
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    let (stays, stops, gone) = (client("stays"), client("stops"), client("gone"));
    for from in [&stays, &stops, &gone] {
        first.send_from(from, message(&watch("k")));
    }
    first.confirm();
    // Every connection of the successor has another number.
    let successor = owner(&ledger);
    assert!(successor.service.is_watching(&stays));
    successor.send_from(&Peer { connection: ConnectionId(90), ..stops }, message(&stop("k")));
    assert!(successor.service.end_watch(&gone.client_id, None, &key("k")), "it has sent no request here");
    successor.request(&set("k", "v"));
    successor.confirm();
    assert_eq!(successor.notified(), [("stays".to_owned(), Notification::Set(Some("v".into())))]);
    let left: Vec<_> =
        ledger.lock().registrations.iter().map(|change| change.client_id.to_string()).collect();
    assert_eq!(left, ["stays"]);
    // A follower leaves the end of a watch to the owner.
    let follower = TestService::following(&ledger, true);
    ledger.load(&follower.service);
    follower.service.disconnect(&stays);
    follower.service.end_watch("stays", None, &key("k"));
    assert_eq!(follower.service.statistics().store.watches, 1);
}

#[test]
fn rules_end_the_watches_of_clients_that_have_sent_no_request_to_the_instance() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("rules");
    std::fs::write(
        &path,
        "rules:\n- principals: {clientIds: [stays]}\n  brokerResources: []\n  stateStoreResources:\n  \
         - {method: ReadWrite, keyType: Pattern, keys: [\"*\"]}\n",
    )
    .unwrap();
    let ledger = SimulatedLedger::default();
    let first = owner(&ledger);
    for id in ["stays", "revoked"] {
        first.send_from(&client(id), message(&watch("k")));
    }
    first.confirm();
    let successor = TestService::joining(true);
    successor.service.set_registration_rules(Authorizer::load(&path).unwrap());
    successor.service.join_cluster(&[7; 32]);
    ledger.load(&successor.service);
    assert_eq!(successor.service.watched_connections(), 2);
    successor.service.revoke_watches();
    assert_eq!(successor.service.statistics().store.watches, 2, "a follower leaves that to the owner");
    ledger.serve(&successor.service);
    successor.service.revoke_watches();
    let dropped = successor.take_group();
    assert_eq!(dropped.records.len(), 1);
    ledger.serve_again(&successor.service);
    let group = successor.take_group();
    assert!(ledger.decide(&successor.service, &group, &successor.sent_messages));
    let left: Vec<_> =
        ledger.lock().registrations.iter().map(|change| change.client_id.to_string()).collect();
    assert_eq!(left, ["stays"]);
    successor.effect(Effect::Stop);
    assert_eq!(successor.service.watched_connections(), 0);
}

#[test]
fn a_registration_is_committed_when_it_changes_and_not_again() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    for (request, changes) in [(watch("k"), 1), (watch("k"), 0), (stop("k"), 1), (stop("k"), 0)] {
        test.request(&request);
        let group = test.take_group();
        assert_eq!(group.records.len(), changes, "{request:?}");
        test.commit(&group);
    }
}

#[test]
fn versions_go_on_above_those_of_earlier_owners() {
    let ledger = SimulatedLedger::default();
    let test = TestService::following(&ledger, true);
    let ahead_ms = clock::wall_ms() + 3_600_000;
    let greatest = Version { ms: ahead_ms, counter: 7 };
    test.service.serve_cluster(1, greatest, greatest, ahead_ms + 1_000);
    test.request(&set("k", "v"));
    test.confirm();
    assert_eq!(version(&test.sent_messages.take()[0].1).ms, ahead_ms + 1_000);
    let test = TestService::following(&ledger, true);
    test.service.serve_cluster(2, greatest, greatest, 0);
    test.request(&set("k", "v"));
    test.confirm();
    let first = version(&test.sent_messages.take()[0].1);
    assert_eq!((first.ms, first.counter), (ahead_ms, 8));
}

#[test]
fn a_key_that_was_removed_before_a_takeover_continues_above_its_version_and_others_do_not_follow_it() {
    let ledger = SimulatedLedger::default();
    let test = TestService::following(&ledger, true);
    let wall_ms = clock::wall_ms();
    // A client's clock is 50 s ahead.
    let greatest = Version { ms: wall_ms + 50_000, counter: 3 };
    let row = |content| Effect::Apply(Record::Key(KeyRecord::new(key("lock"), content)));
    let stored = StoredValue { value: "v".into(), fence: None, deadline_ms: None, persist: true };
    test.effect(row(Some((greatest, stored))));
    test.effect(row(None));
    test.service.serve_cluster(1, Version::default(), greatest, wall_ms);
    let set_again = |name| {
        test.request(&set(name, "v"));
        test.confirm();
        version(&test.sent_messages.take()[0].1)
    };
    let (other, same) = (set_again("other"), set_again("lock"));
    assert!(other.ms < wall_ms + 40_000, "{other:?}");
    assert_eq!((same.ms, same.counter), (greatest.ms, 4));
}

#[test]
fn a_scan_that_ends_after_the_ownership_was_lost_is_not_answered() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    (0..3_000).for_each(|number| test.request(&set(&format!("k{number:04}"), "v")));
    test.confirm();
    test.sent_messages.take();
    for is_lost in [false, true] {
        let scan = message(&Request::Scan { pattern: "k29*".into(), token: None });
        let scan =
            test.service.handle_external_request(&test.sent_messages, &peer(1), scan, clock::monotonic());
        let mut scan = scan.unwrap();
        if is_lost {
            test.effect(Effect::Stop);
            ledger.load(&test.service);
            ledger.serve(&test.service);
        }
        while !scan.advance(&test.sent_messages) {}
        assert!(test.sent_messages.take().is_empty());
        test.confirm();
        assert_eq!(test.sent_messages.take().len(), usize::from(!is_lost));
    }
}

#[tokio::test]
async fn the_owner_task_is_woken_for_requests_scans_expiries_and_watches_that_end() {
    let ledger = SimulatedLedger::default();
    let test = owner(&ledger);
    let woken = async || {
        tokio::select! {
            biased;
            () = test.service.group_ready() => test.service.take_cluster_group().is_some_and(|group| {
                test.commit(&group);
                true
            }),
            () = std::future::ready(()) => false,
        }
    };
    assert!(!woken().await);
    for request in [
        get("k"),
        watch("k"),
        set_with("k", "v", None, 1),
        Request::Scan { pattern: "*".into(), token: None },
    ] {
        test.request(&request);
        test.request(&request);
        assert!(woken().await, "{request:?}");
        assert!(!woken().await, "{request:?}");
    }
    test.service.end_watch("client", None, &key("k"));
    assert!(woken().await);
    let _running = test.service.start_background_tasks(test.sent_messages.clone()).unwrap();
    test.service.group_ready().await;
    assert_eq!(test.take_group().records.len(), 1, "the expired key");
}

/// What a client may do.
#[derive(Clone, Debug)]
enum Step {
    Request {
        client: usize,
        request: Request,
    },
    /// A request is delivered again, this many requests after it.
    Redelivery {
        ago: usize,
    },
    /// A group is taken, if none is under way.
    Take,
    /// The group that is under way is decided, or the next one.
    Decide,
    /// etcd has room for what is written, or has none.
    Room {
        is_full: bool,
    },
    /// The other instance takes over. The group that is under way was applied before, or not.
    Takeover {
        was_applied: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let text = || prop::sample::select(vec!["1", "2"]);
    let request = prop_oneof![
        3 => (name(), text()).prop_map(|(name, text)| set(name, text)),
        2 => (name(), text()).prop_map(|(name, text)| set_with(name, text, Some(Condition::Absent), 0)),
        1 => name().prop_map(del),
        1 => (name(), text()).prop_map(|(name, text)| Request::VDel { key: key(name), value: text.into() }),
        2 => name().prop_map(get),
        1 => name().prop_map(watch),
        1 => name().prop_map(stop),
    ];
    let step = prop_oneof![
        8 => (0..2_usize, request).prop_map(|(client, request)| Step::Request { client, request }),
        2 => (0..6_usize).prop_map(|ago| Step::Redelivery { ago }),
        2 => Just(Step::Take),
        4 => Just(Step::Decide),
        1 => any::<bool>().prop_map(|is_full| Step::Room { is_full }),
        1 => any::<bool>().prop_map(|was_applied| Step::Takeover { was_applied }),
    ];
    prop::collection::vec(step, 0..60)
}

/// What the clients of a cluster must see, whichever instance answers.
#[derive(Default)]
struct Model {
    rows: BTreeMap<Key, String>,
    watches: BTreeSet<(usize, Key)>,
    /// The first answers to writes, by the number of the message.
    answers: BTreeMap<usize, Reply>,
    /// The requests that wait, and whether they are refused for lack of room.
    pending: VecDeque<(usize, bool)>,
    /// How many of them the group has that is under way.
    taken: usize,
}

/// A request with its client.
struct Sent {
    client: usize,
    request: Request,
    message: Message,
}

impl Model {
    /// Returns whether a request that is handled while there is no room is refused.
    fn is_refused(&self, sent: &[Sent], number: usize, earlier: &[(usize, bool)]) -> bool {
        let Sent { client, request, .. } = &sent[number];
        match request {
            Request::Set { .. } => !self.answers.contains_key(&number),
            Request::KeyNotify { key, stop: false } => {
                let mut watches = self.watches.clone();
                for (number, is_refused) in earlier {
                    let Sent { client, request, .. } = &sent[*number];
                    match request {
                        Request::KeyNotify { key, stop: false } if !is_refused => {
                            watches.insert((*client, key.clone()));
                        }
                        Request::KeyNotify { key, stop: true } => _ = watches.remove(&(*client, key.clone())),
                        _ => {}
                    }
                }
                !watches.contains(&(*client, key.clone()))
            }
            _ => false,
        }
    }

    fn send(&mut self, sent: &[Sent], number: usize, is_short_of_room: bool) {
        let earlier: Vec<_> = self.pending.iter().copied().collect();
        let is_refused = is_short_of_room && self.is_refused(sent, number, &earlier);
        self.pending.push_back((number, is_refused));
    }

    /// Drops what waits.
    fn stop(&mut self) {
        self.taken = 0;
        self.pending.clear();
    }

    /// Applies what the group under way has. Returns the replies.
    fn commit(&mut self, sent: &[Sent]) -> Vec<Reply> {
        let taken = std::mem::take(&mut self.taken);
        let pending: Vec<_> = self.pending.drain(..taken).collect();
        pending
            .into_iter()
            .map(|(number, is_refused)| self.answer(&sent[number], number, is_refused))
            .collect()
    }

    fn answer(&mut self, Sent { client, request, .. }: &Sent, number: usize, is_refused: bool) -> Reply {
        if is_refused {
            if matches!(request, Request::Set { .. }) {
                self.answers.insert(number, QUOTA_EXCEEDED);
            }
            return QUOTA_EXCEEDED;
        }
        if let Some(first) = self.answers.get(&number) {
            return first.clone();
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let reply = match request {
            Request::Set { key, condition: Some(_), .. } if self.rows.contains_key(key) => Reply::NotApplied,
            Request::Set { key, value, .. } => {
                self.rows.insert(key.clone(), text(value));
                Reply::Done
            }
            Request::Del { key } => Reply::Count(u64::from(self.rows.remove(key).is_some())),
            Request::VDel { key, value } => match self.rows.get(key) {
                None => Reply::Count(0),
                Some(held) if *held == text(value) => {
                    self.rows.remove(key);
                    Reply::Count(1)
                }
                Some(_) => Reply::NotApplied,
            },
            Request::Get { key } => {
                return self.rows.get(key).map_or(Reply::Absent, |text| Reply::Value(text.clone().into()));
            }
            Request::KeyNotify { key, stop: false } => {
                self.watches.insert((*client, key.clone()));
                return Reply::Done;
            }
            Request::KeyNotify { key, stop: true } => {
                let was_watching = self.watches.remove(&(*client, key.clone()));
                return if was_watching { Reply::Done } else { Reply::Count(0) };
            }
            Request::Scan { .. } => unreachable!(),
        };
        self.answers.insert(number, reply.clone());
        reply
    }
}

/// Two instances of a cluster, of which one serves.
struct Pair {
    ledger: SimulatedLedger,
    owner: TestService,
    follower: TestService,
    in_flight: Option<Group>,
    peers: [Peer; 2],
}

impl Pair {
    /// Commits a group in etcd, of which the follower receives it.
    fn apply(&self, group: &Group) -> bool {
        let is_applied = self.ledger.commit(&self.owner.service, group);
        if is_applied {
            let to_wall = |record: Record| moved(record, &self.owner.service, true);
            let records = group.records.iter().map(|(_, record)| record.clone()).map(to_wall);
            let records = records.map(|record| moved(record, &self.follower.service, false));
            records.for_each(|record| self.follower.effect(Effect::Apply(record)));
        }
        is_applied
    }

    fn take_over(&mut self) {
        self.owner.effect(Effect::Stop);
        self.ledger.load(&self.owner.service);
        std::mem::swap(&mut self.owner, &mut self.follower);
        self.ledger.serve(&self.owner.service);
    }

    fn rows(&self, test: &TestService) -> BTreeMap<Key, (Version, String)> {
        let (entries, _) = test.service.shared.lock().store.persistent_from(0, usize::MAX, usize::MAX);
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        entries.into_iter().map(|(key, version, stored)| (key, (version, text(&stored.value)))).collect()
    }
}

proptest! {
    #[test]
    fn a_successor_has_what_was_acknowledged_and_gives_redeliveries_the_first_answer(steps in steps()) {
        let ledger = SimulatedLedger::default();
        let (owner, follower) = (owner(&ledger), TestService::following(&ledger, true));
        let peers = ["one", "two"].map(client);
        let mut pair = Pair { ledger, owner, follower, in_flight: None, peers };
        let (mut model, mut sent, mut is_short) = (Model::default(), Vec::<Sent>::new(), false);
        for step in steps {
            match step {
                Step::Request { client, request } => {
                    let message = message(&request);
                    pair.peers[client].message_number += 1;
                    pair.owner.send_from(&pair.peers[client], message.clone());
                    sent.push(Sent { client, request, message });
                    model.send(&sent, sent.len() - 1, is_short);
                }
                Step::Redelivery { ago } => {
                    let Some(number) = sent.len().checked_sub(ago + 1) else { continue };
                    let from = &pair.peers[sent[number].client];
                    pair.owner.send_from(from, sent[number].message.clone());
                    model.send(&sent, number, is_short);
                }
                Step::Take if pair.in_flight.is_none() => {
                    pair.in_flight = pair.owner.service.take_cluster_group();
                    model.taken = model.pending.len();
                }
                Step::Take => {}
                Step::Decide => {
                    if pair.in_flight.is_none() {
                        pair.in_flight = pair.owner.service.take_cluster_group();
                        model.taken = model.pending.len();
                    }
                    let Some(group) = pair.in_flight.take() else { continue };
                    let sequence = group.sequence;
                    if pair.apply(&group) {
                        pair.owner.effect(Effect::Committed { sequence });
                        prop_assert_eq!(pair.owner.sent_messages.replies(), model.commit(&sent));
                    } else {
                        pair.ledger.serve_again(&pair.owner.service);
                        is_short = true;
                        model.stop();
                        let rows = pair.rows(&pair.owner).into_iter().map(|(key, (_, text))| (key, text));
                        prop_assert_eq!(&rows.collect::<BTreeMap<_, _>>(), &model.rows);
                        prop_assert_eq!(pair.owner.service.statistics().store.watches, model.watches.len());
                    }
                }
                Step::Room { is_full } => {
                    pair.ledger.lock().is_full = is_full;
                    if !is_full {
                        is_short = false;
                        pair.owner.effect(Effect::ShortOfSpace(false));
                    }
                }
                Step::Takeover { was_applied } => {
                    if let Some(group) = pair.in_flight.take()
                        && was_applied
                        && pair.apply(&group)
                    {
                        model.commit(&sent);
                    }
                    is_short = false;
                    model.stop();
                    pair.take_over();
                    let rows = pair.rows(&pair.owner);
                    let texts: BTreeMap<_, _> = rows.iter().map(|(key, (_, text))| (key.clone(), text.clone())).collect();
                    prop_assert_eq!(&texts, &model.rows);
                    prop_assert_eq!(rows, pair.rows(&pair.follower), "loaded or followed");
                    prop_assert_eq!(pair.owner.service.statistics().store.watches, model.watches.len());
                }
            }
            prop_assert!(pair.owner.sent_messages.take().iter().all(|(to, _)| to.is_some()), "no answer without a commit");
            prop_assert!(pair.follower.sent_messages.take().is_empty());
        }
        let registered = pair.ledger.lock().registrations.clone();
        let watches = model.watches.iter().map(|(client, key)| RegistrationRecord {
            key: key.clone(),
            client_id: Arc::clone(&pair.peers[*client].client_id),
            is_registered: true,
        });
        prop_assert_eq!(registered, watches.collect::<BTreeSet<_>>());
    }
}
