//! The service as the broker calls it: messages in, messages out, and the state after a restart.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::simulated_ledger::SimulatedLedger;
use super::*;
use crate::a_watchdog::bounded;
use crate::broker::{self, Application, Peer, SessionPhase, Verdict};
use crate::clock;
use crate::ledger::FileLedger;
use crate::mqtt::ReasonCode;
use crate::protocol::message::{
    DETAILS, FENCE, KEY_FENCE, PROTOCOL_VERSION, Qos, STATUS, TIME_TO_LIVE, TIMESTAMP,
};
use crate::protocol::{
    Condition, ConnectionId, ErrorReply, Key, Message, Notification, Reply, Request, Timestamp,
    UserProperties, Value, topic,
};
use crate::server::authorization::{Authorizer, ClientPermissions};
use crate::server::delivery::Publisher;
use crate::server::event::{Event, EventSink};
use crate::server::exchange::participant::Seeds;
use crate::store::{Limits, Now, StoreRequest, Version, WatchOptions};

/// For services that take part in no exchange.
pub(super) const SEEDS: Seeds = Seeds { store: 1, run: 2, stream: 3 };

/// The connection, if the message was pushed to one, and the message.
type Sent = (Option<ConnectionId>, Message);

/// A publisher that records all messages.
#[derive(Clone, Default)]
pub(super) struct RecordingPublisher(Arc<Mutex<Vec<Sent>>>);

impl Publisher for RecordingPublisher {
    fn publish(&self, message: Message, _: Instant) {
        self.0.lock().unwrap().push((None, message));
    }

    fn push(&self, to: ConnectionId, _: &str, message: Message) {
        self.0.lock().unwrap().push((Some(to), message));
    }

    fn deliver(&self, to: ConnectionId, message: Message) {
        self.0.lock().unwrap().push((Some(to), message));
    }

    fn has_monitors(&self) -> bool {
        false
    }

    fn publish_monitor_copy(&self, _: ConnectionId, _: Message) {}
}

impl RecordingPublisher {
    pub(super) fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Returns the replies since the last call, without notifications.
    pub(super) fn replies(&self) -> Vec<Reply> {
        let responses = self.take().into_iter().filter(|(to, _)| to.is_none());
        responses.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect()
    }

    /// Waits until this many messages have been sent.
    pub(super) fn wait_for(&self, count: usize) {
        for _ in 0..10_000 {
            if self.0.lock().unwrap().len() >= count {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no {count} messages in time");
    }
}

/// A service with its publisher and its events.
pub(super) struct TestService {
    pub(super) service: Arc<Service>,
    pub(super) sent_messages: RecordingPublisher,
    pub(super) events: Arc<Mutex<Vec<Event>>>,
    /// The state that the service commits to in a cluster.
    pub(super) ledger: Option<SimulatedLedger>,
    /// Whether each request is confirmed at once.
    confirms_at_once: bool,
}

/// Where a service keeps its keys.
pub(super) enum TestHome {
    Directory(TempDir),
    Cluster(SimulatedLedger),
}

impl TestHome {
    pub(super) fn kinds() -> [Self; 2] {
        [Self::Directory(TempDir::new().unwrap()), Self::Cluster(SimulatedLedger::default())]
    }

    pub(super) fn open(&self) -> TestService {
        match self {
            Self::Directory(home) => TestService::on_disk(home),
            Self::Cluster(ledger) => TestService::in_cluster(ledger, false),
        }
    }

    /// Returns the state that a kill at this moment would leave.
    fn copy(&self) -> Self {
        match self {
            Self::Directory(home) => {
                let copy = TempDir::new().unwrap();
                for file in std::fs::read_dir(home.path()).unwrap() {
                    let file = file.unwrap();
                    std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
                }
                Self::Directory(copy)
            }
            Self::Cluster(ledger) => Self::Cluster(ledger.copy()),
        }
    }
}

/// The background work of a service, and its commits in a cluster, until it is dropped.
pub(super) struct Running {
    _tasks: BackgroundTasks,
    owner_task: Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((is_closing, thread)) = self.owner_task.take() {
            is_closing.store(true, Ordering::Relaxed);
            bounded(|| thread.join()).unwrap();
        }
    }
}

impl TestService {
    pub(super) fn new(persistence: Persistence) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let settings = StoreSettings { persistence, ..StoreSettings::default() };
        let service =
            Service::open(settings, Arc::new(move |event| sink.lock().unwrap().push(event)), Arc::default())
                .unwrap();
        Self::of(service, events, None)
    }

    /// A service on a simulated disk, where only keys that ask for it are persistent.
    pub(super) fn on(storage: FileLedger) -> Self {
        Self::on_at(storage, clock::now())
    }

    /// The same, started at another time.
    pub(super) fn on_at(storage: FileLedger, reading: clock::Reading) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink: EventSink = {
            let events = Arc::clone(&events);
            Arc::new(move |event| events.lock().unwrap().push(event))
        };
        let settings = StoreSettings::default();
        let service =
            Service::with_storage(&settings, false, Some(storage), sink, Arc::default(), reading, SEEDS)
                .unwrap();
        Self::of(service, events, None)
    }

    pub(super) fn wait_for_event(&self, event: &Event) {
        for _ in 0..10_000 {
            let mut events = self.events.lock().unwrap();
            if let Some(at) = events.iter().position(|known| known == event) {
                events.remove(at);
                return;
            }
            drop(events);
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no {event:?} in time");
    }

    pub(super) fn of(
        service: Arc<Service>,
        events: Arc<Mutex<Vec<Event>>>,
        ledger: Option<SimulatedLedger>,
    ) -> Self {
        let sent_messages = RecordingPublisher::default();
        Self { service, sent_messages, events, ledger, confirms_at_once: false }
    }

    /// A service in memory, and one in a cluster that confirms each request at once.
    pub(super) fn answering_at_once() -> [Self; 2] {
        let in_cluster = Self::in_cluster(&SimulatedLedger::default(), false);
        [Self::new(Persistence::None), Self { confirms_at_once: true, ..in_cluster }]
    }

    fn on_disk(home: &TempDir) -> Self {
        Self::new(Persistence::All(home.path().to_owned()))
    }

    /// An instance of a cluster that follows.
    pub(super) fn following(ledger: &SimulatedLedger, has_registrations: bool) -> Self {
        let test = Self { ledger: Some(ledger.clone()), ..Self::joining(has_registrations) };
        test.service.join_cluster(&[7; 32]);
        test
    }

    /// An instance of a cluster that knows nothing of it.
    pub(super) fn joining(has_registrations: bool) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let sink: EventSink = Arc::new(move |event| sink.lock().unwrap().push(event));
        let settings = StoreSettings::default();
        let service = Service::in_cluster(&settings, has_registrations, sink, Arc::default());
        Self::of(service, events, None)
    }

    /// An instance of a cluster that has received the state and serves.
    pub(super) fn in_cluster(ledger: &SimulatedLedger, has_registrations: bool) -> Self {
        let test = Self::following(ledger, has_registrations);
        ledger.load(&test.service);
        ledger.serve(&test.service);
        test
    }

    pub(super) fn run(&self) -> Running {
        let is_closing = Arc::new(AtomicBool::new(false));
        let owner_task = self.ledger.clone().map(|ledger| {
            let (service, sent) = (Arc::clone(&self.service), self.sent_messages.clone());
            let is_closing = Arc::clone(&is_closing);
            thread::spawn(move || {
                while !is_closing.load(Ordering::Relaxed) {
                    ledger.decide_all(&service, &sent);
                    thread::sleep(Duration::from_millis(1));
                }
            })
        });
        let _tasks = self.service.start_background_tasks(self.sent_messages.clone()).unwrap();
        Running { _tasks, owner_task: owner_task.map(|thread| (is_closing, thread)) }
    }

    /// Decides all groups of a service in a cluster.
    pub(super) fn confirm(&self) {
        if let Some(ledger) = &self.ledger {
            ledger.decide_all(&self.service, &self.sent_messages);
        }
    }

    pub(super) fn send(&self, message: Message) -> Verdict {
        self.send_from(&peer(1), message)
    }

    pub(super) fn send_from(&self, peer: &Peer, message: Message) -> Verdict {
        let verdict = self.service.handle_message(&self.sent_messages, peer, message, clock::monotonic());
        if self.confirms_at_once {
            self.confirm();
        }
        verdict
    }

    pub(super) fn request(&self, request: &Request) {
        assert!(matches!(self.send(message(request)), Verdict::Consumed));
    }

    /// Returns the reply to a request that does not wait for a commit.
    pub(super) fn reply(&self, request: &Request) -> Reply {
        self.request(request);
        self.sent_messages.replies().pop().unwrap()
    }
}

pub(super) fn peer(connection: u64) -> Peer {
    Peer {
        connection: ConnectionId(connection),
        client_id: "client".into(),
        principal: broker::Principal::default(),
        identity: [].into(),
        owner: "test".into(),
        permissions: None,
        session: SessionPhase::Resumed,
        message_number: 1,
        confirmed: 0,
        handle: None,
    }
}

/// Returns a request as an SDK sends it, with unique correlation data.
pub(super) fn message(request: &Request) -> Message {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    Message {
        topic: topic::REQUEST.into(),
        payload: request.encode(),
        qos: Qos::AtLeastOnce,
        response_topic: Some("answers".to_owned()),
        correlation: Some(number.to_be_bytes().to_vec().into()),
        expiry_s: Some(10),
        user_properties: UserProperties::from_iter([(TIMESTAMP, "1:0:client")]),
        ..Message::default()
    }
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name.to_owned()).unwrap()
}

pub(super) fn set_with(name: &str, value: &str, condition: Option<Condition>, ttl_ms: u64) -> Request {
    let (value, ttl_ms) = (Value::from(value.to_owned()), NonZeroU64::new(ttl_ms));
    Request::Set { key: key(name), value, condition, ttl_ms }
}

pub(super) fn set(name: &str, value: &str) -> Request {
    set_with(name, value, None, 0)
}

pub(super) fn get(name: &str) -> Request {
    Request::Get { key: key(name) }
}

pub(super) fn del(name: &str) -> Request {
    Request::Del { key: key(name) }
}

pub(super) fn watch(name: &str) -> Request {
    Request::KeyNotify { key: key(name), stop: false }
}

pub(super) fn value(text: &'static str) -> Reply {
    Reply::Value(text.into())
}

pub(super) fn version(message: &Message) -> Timestamp {
    message.user_property(TIMESTAMP).unwrap().parse().unwrap()
}

#[test]
fn a_response_has_all_properties_that_an_sdk_needs() {
    for test in TestService::answering_at_once() {
        let request = message(&set("k", "v"));
        test.send(request.clone());
        let [(to, response)] = test.sent_messages.take().try_into().unwrap();
        assert_eq!(to, None);
        assert_eq!((&*response.topic, &response.payload[..]), ("answers", &b"+OK\r\n"[..]));
        assert_eq!((response.qos, response.retain, response.expiry_s), (Qos::AtLeastOnce, false, None));
        assert_eq!(response.correlation, request.correlation);
        assert_eq!(response.content_type.as_deref(), Some("application/octet-stream"));
        assert_eq!(response.user_property(STATUS), Some("200"));
        assert_eq!(response.user_property(PROTOCOL_VERSION), Some("1.0"));
        assert!(version(&response).ms > 1_600_000_000_000);
    }
}

#[test]
fn a_get_is_answered_with_time_to_live_and_fencing_token_if_it_asks_for_them() {
    for test in TestService::answering_at_once() {
        let mut fenced = message(&set("fenced", "v"));
        fenced.user_properties.push(FENCE, "5:3:n");
        test.send(fenced);
        test.request(&set_with("leased", "v", None, 60_000));
        test.sent_messages.take();
        let own = |name, asks| {
            let mut request = message(&get(name));
            if asks {
                request.user_properties.push(DETAILS, "true");
            }
            test.send(request);
            let [(_, response)] = test.sent_messages.take().try_into().unwrap();
            let properties = response.user_properties;
            let is_own = |(name, _): &(&str, &str)| name.starts_with("mqkv-");
            let own = properties.iter().filter(is_own);
            own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fence = pair(KEY_FENCE, "000000000000005:00003:n");
        assert_eq!(own("fenced", true), [pair(TIME_TO_LIVE, "none"), fence]);
        let [(name, left_ms)] = own("leased", true).try_into().unwrap();
        assert_eq!(name, TIME_TO_LIVE);
        assert!((1..=60_000).contains(&left_ms.parse::<u64>().unwrap()), "{left_ms}");
        for (name, asks) in [("absent", true), ("fenced", false), ("leased", false)] {
            assert_eq!(own(name, asks), [], "{name}");
        }
    }
}

#[test]
fn notifications_have_time_to_live_and_fencing_token_if_the_watch_has_asked_for_them() {
    for test in TestService::answering_at_once() {
        let mut asking = message(&watch("k"));
        asking.user_properties.push(DETAILS, "true");
        test.send(asking);
        test.send_from(&peer(2), message(&watch("k")));
        let mut fenced = message(&set_with("k", "v", None, 60_000));
        fenced.user_properties.push(FENCE, "5:3:n");
        test.sent_messages.take();
        test.send(fenced);
        let [_, (_, asked), (_, plain)] = test.sent_messages.take().try_into().unwrap();
        assert_eq!(asked.user_property(TIME_TO_LIVE), Some("60000"));
        assert_eq!(asked.user_property(KEY_FENCE), Some("000000000000005:00003:n"));
        assert_eq!(plain.user_properties.len(), 2);
    }
}

#[test]
fn an_unanswerable_request_is_reported_and_not_applied() {
    for test in TestService::answering_at_once() {
        let whole = message(&set("k", "v"));
        let lacking = [
            Message { qos: Qos::AtMostOnce, ..whole.clone() },
            Message { qos: Qos::ExactlyOnce, ..whole.clone() },
            Message { response_topic: None, ..whole.clone() },
            // A stored value would appear as information of the broker about itself.
            Message { response_topic: Some("$SYS/broker/version".to_owned()), ..whole.clone() },
            Message { correlation: None, ..whole },
        ];
        for message in lacking {
            assert!(matches!(test.send(message), Verdict::Refused(ReasonCode::ImplementationSpecific)));
            let event = test.events.lock().unwrap().pop();
            assert!(matches!(event, Some(Event::Unanswerable { .. })), "{event:?}");
        }
        assert!(test.sent_messages.take().is_empty());
        assert_eq!(test.reply(&get("k")), Reply::Absent);
    }
}

#[test]
fn a_response_topic_of_the_store_disconnects_the_client() {
    for test in TestService::answering_at_once() {
        for response_topic in [topic::REQUEST.to_owned(), format!("{}/x", topic::RESERVED)] {
            let message = Message { response_topic: Some(response_topic), ..message(&set("k", "v")) };
            assert!(matches!(test.send(message), Verdict::Disconnect { .. }));
        }
        assert_eq!(test.reply(&get("k")), Reply::Absent);
    }
}

#[test]
fn a_client_cannot_forge_a_notification() {
    for test in TestService::answering_at_once() {
        let topic = topic::notify("client", &key("k")).unwrap();
        let verdict = test.send(Message { topic: topic.into(), ..Message::default() });
        assert!(matches!(verdict, Verdict::Refused(ReasonCode::NotAuthorized)), "{verdict:?}");
        assert!(matches!(
            test.events.lock().unwrap().pop(),
            Some(Event::Broker(broker::Event::Dropped { .. }))
        ));
        let other = Message { topic: "other".into(), ..Message::default() };
        assert!(matches!(test.send(other), Verdict::Route(_)));
    }
}

#[test]
fn a_malformed_request_gets_an_error_reply() {
    for test in TestService::answering_at_once() {
        let rows = [
            (&b"malformed"[..], ErrorReply::SyntaxError),
            (b"*1\r\n$4\r\nFLIP\r\n", ErrorReply::UnknownCommand),
            (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", ErrorReply::EmptyKey),
        ];
        for (payload, error) in rows {
            test.send(Message { payload: payload.into(), ..message(&get("k")) });
            assert_eq!(test.sent_messages.replies(), [Reply::Error(error)]);
        }
    }
}

#[test]
fn watchers_are_notified_after_the_response() {
    for test in TestService::answering_at_once() {
        test.request(&watch("k"));
        test.send_from(&peer(2), message(&watch("k")));
        test.sent_messages.take();
        for (request, expected) in
            [(set("k", "v"), Notification::Set(Some("v".into()))), (del("k"), Notification::Delete)]
        {
            test.request(&request);
            let sent = test.sent_messages.take();
            assert_eq!(
                sent.iter().map(|(to, _)| to.map(|to| to.0)).collect::<Vec<_>>(),
                [None, Some(1), Some(2)]
            );
            for (_, notification) in &sent[1..] {
                assert_eq!(Notification::decode(&notification.payload), Ok(expected.clone()));
                assert_eq!(notification.topic, topic::notify("client", &key("k")).unwrap());
                assert_eq!(notification.user_property(PROTOCOL_VERSION), Some("1.0"));
                assert_eq!(version(notification), version(&sent[0].1));
            }
        }
        test.service.shared.lock().store.handle_disconnect(ConnectionId(1));
        test.request(&set("k", "w"));
        assert_eq!(test.sent_messages.take().len(), 2);
    }
}

#[test]
fn notifications_of_a_key_are_ordered_by_version_across_threads() {
    for test in TestService::answering_at_once() {
        test.request(&watch("k"));
        test.sent_messages.take();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| test.request(&set("k", "v"))));
            }
        });
        let notified = test.sent_messages.take().into_iter().filter(|(to, _)| to.is_some());
        let versions: Vec<_> = notified.map(|(_, message)| version(&message)).collect();
        assert_eq!(versions.len(), 1_600);
        assert!(versions.is_sorted_by(|first, second| first < second));
    }
}

#[test]
fn a_second_delivery_of_a_write_gets_the_first_response_and_is_not_applied() {
    for test in TestService::answering_at_once() {
        let first = message(&set_with("k", "v", Some(Condition::Absent), 0));
        test.send(first.clone());
        let [answer] = test.sent_messages.take().try_into().unwrap();
        test.send(first.clone());
        assert_eq!(test.sent_messages.take(), [answer]);
        test.reply(&del("k"));
        test.send(first);
        assert_eq!(test.sent_messages.replies(), [Reply::Done]);
        assert_eq!(test.reply(&get("k")), Reply::Absent);
    }
}

#[tokio::test]
async fn an_expiry_is_notified_also_if_its_deadline_is_set_after_a_later_one() {
    for test in TestService::answering_at_once() {
        let running = test.run();
        test.request(&watch("late"));
        test.request(&watch("early"));
        test.request(&set_with("late", "v", None, 3_600_000));
        // The task sleeps until that deadline and must be woken.
        tokio::task::yield_now().await;
        test.request(&set_with("early", "v", None, 20));
        let mut notified = None;
        for _ in 0..10_000 {
            notified = test
                .sent_messages
                .take()
                .into_iter()
                .map(|(_, message)| message)
                .find(|message| Notification::decode(&message.payload) == Ok(Notification::Delete));
            if notified.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let notified = notified.expect("a notification within ten seconds");
        assert_eq!(notified.topic, topic::notify("client", &key("early")).unwrap());
        drop(running);
    }
}

#[tokio::test]
async fn acknowledged_changes_survive_a_restart() {
    for home in TestHome::kinds() {
        let test = home.open();
        let running = test.run();
        let last = ["a", "b", "gone"].map(|name| test.request(&set(name, "v"))).len();
        test.request(&set_with("short", "v", None, 1));
        test.request(&set_with("long", "v", None, 60_000));
        test.request(&del("gone"));
        test.sent_messages.wait_for(last + 3);
        let versions: Vec<_> =
            test.sent_messages.take().iter().map(|(_, message)| version(message)).collect();
        drop((running, test));
        thread::sleep(Duration::from_millis(5));
        let test = home.open();
        let replies = ["a", "b", "gone", "short", "long"].map(|name| test.reply_of_get(name));
        assert_eq!(replies, [value("v"), value("v"), Reply::Absent, Reply::Absent, value("v")]);
        let left_ms = test.service.shared.lock().store.read(&key("long")).unwrap().1.deadline_ms.unwrap();
        assert!((1..=60_001).contains(&left_ms), "{left_ms}");
        let _running = test.run();
        test.sent_messages.take();
        test.request(&set("gone", "again"));
        test.sent_messages.wait_for(1);
        assert!(
            test.sent_messages
                .take()
                .iter()
                .all(|(_, message)| version(message) > *versions.iter().max().unwrap())
        );
    }
}

impl TestService {
    /// Returns the reply to a GET, committed or not.
    pub(super) fn reply_of_get(&self, name: &str) -> Reply {
        let _ = self.sent_messages.take();
        let mut state = self.service.shared.lock();
        let call = StoreRequest {
            permissions: None,
            connection: ConnectionId(1),
            client_id: "client".into(),
            owner: "client".into(),
            request: get(name),
            timestamp: None,
            fence: None,
            encoded: None,
            refusal: None,
            watch: WatchOptions::default(),
            persist: false,
        };
        state.store.handle_request(call, self.service.shared.now()).reply
    }
}

#[tokio::test]
async fn a_kill_loses_no_acknowledged_change() {
    for home in TestHome::kinds() {
        let test = home.open();
        let _running = test.run();
        for round in 1..40 {
            test.request(&set("k", &round.to_string()));
            test.sent_messages.wait_for(round);
            let copy = home.copy();
            let after = copy.open();
            assert_eq!(after.reply_of_get("k"), Reply::Value(round.to_string().into()));
        }
    }
}

#[tokio::test]
async fn no_client_sees_a_change_before_it_is_committed() {
    for home in TestHome::kinds() {
        let test = home.open();
        test.request(&watch("k"));
        test.confirm();
        assert_eq!(test.sent_messages.replies(), [Reply::Done]);
        let scan = Request::Scan { pattern: "*".into(), token: None };
        let repeated = message(&set("k", "v"));
        test.send(repeated.clone());
        test.send(repeated);
        [get("k"), del("k"), get("k"), scan].iter().for_each(|request| test.request(request));
        assert!(test.sent_messages.take().is_empty());
        if test.ledger.is_none() {
            assert_eq!(test.reply(&get("other")), Reply::Absent);
        }
        let running = test.run();
        test.sent_messages.wait_for(8);
        let sent = test.sent_messages.take();
        let notified: Vec<_> = sent.iter().map(|(to, _)| to.is_some()).collect();
        assert_eq!(notified, [false, true, false, false, false, true, false, false]);
        let replies = sent.iter().filter(|(to, _)| to.is_none());
        let replies: Vec<_> = replies.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect();
        let page = Reply::Keys { keys: vec![], token: None };
        assert_eq!(replies, [Reply::Done, Reply::Done, value("v"), Reply::Count(1), Reply::Absent, page]);
        drop(running);
    }
}

#[test]
fn what_waits_for_a_large_commit_is_sent_in_steps_and_in_order() {
    const WRITES: u64 = 600;
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    (0..WRITES).for_each(|number| test.request(&set(&format!("k{number}"), "v")));
    let commit = || {
        let mut state = test.service.shared.lock();
        state.handle_commit(WRITES, Version::default(), &test.sent_messages)
    };
    assert!(commit());
    let first = test.sent_messages.replies();
    assert!((1..WRITES as usize / 2).contains(&first.len()), "{}", first.len());
    // The key of a response that has been sent can be read at once; the other read waits behind its response.
    assert_eq!(test.reply(&get("k0")), value("v"));
    test.request(&get("k599"));
    while commit() {}
    let rest = test.sent_messages.replies();
    assert_eq!(first.len() + rest.len(), WRITES as usize + 1);
    assert_eq!(rest.last(), Some(&value("v")));
    assert!(first.iter().chain(&rest[..rest.len() - 1]).all(|reply| *reply == Reply::Done));
}

#[test]
fn a_change_that_is_not_committed_is_rolled_back() {
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    let saved = message(&set("k", "saved"));
    test.send(saved.clone());
    assert!(!test.service.shared.lock().handle_commit(1, Version::default(), &test.sent_messages));
    test.request(&watch("k"));
    test.request(&watch("new"));
    test.sent_messages.take();
    let lost = message(&set("k", "lost"));
    test.send(lost.clone());
    [del("k"), get("k"), set("new", "v")].iter().for_each(|request| test.request(request));
    let now = test.service.shared.now();
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, now);
    let sent = test.sent_messages.take();
    assert!(sent.iter().all(|(to, _)| to.is_none()), "no watcher is notified");
    let rejected = Reply::Error(ErrorReply::NotPersisted);
    let replies = sent.iter().map(|(_, message)| Reply::decode(&message.payload).unwrap());
    assert!(replies.eq([rejected.clone(), rejected.clone(), value("saved"), rejected.clone()]));
    assert_eq!(test.reply(&get("k")), value("saved"));
    assert_eq!(test.reply(&get("new")), Reply::Absent);
    for (again, expected) in [(lost, rejected), (saved, Reply::Done)] {
        test.send(again);
        assert_eq!(test.sent_messages.replies(), [expected]);
    }
}

/// A value of which the commit queue holds fewer than ten.
fn large_value() -> String {
    "x".repeat(8 * 1024 * 1024)
}

#[test]
fn expiry_pauses_while_the_commit_queue_is_half_full() {
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    test.request(&set_with("short", "v", None, 1));
    (0..4).for_each(|_| test.request(&set("k", &large_value())));
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    let mut state = test.service.shared.lock();
    let sequence = state.commit_queue.sequence();
    assert_eq!(state.expire(&test.sent_messages, later), u64::MAX);
    assert!(state.store.read(&key("short")).is_some(), "no expiry is added to a queue that is half full");
    assert!(!state.handle_commit(sequence, Version::default(), &test.sent_messages));
    test.service.shared.wake_expiry_task(&mut state);
    assert!(state.expiry_wakes_ms < u64::MAX, "the task wakes again");
    state.expire(&test.sent_messages, later);
    assert!(state.store.read(&key("short")).is_none());
}

#[test]
fn a_full_commit_queue_accepts_requests_that_need_not_wait() {
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    test.request(&set("settled", "v"));
    test.request(&set_with("due", "v", None, 1));
    assert!(!test.service.shared.lock().handle_commit(2, Version::default(), &test.sent_messages));
    let since = test.service.shared.now().monotonic_ms;
    while test.service.shared.now().monotonic_ms <= since + 1 {
        thread::yield_now();
    }
    (0..10).for_each(|_| test.request(&set("k", &large_value())));
    test.sent_messages.take();
    let rejected = Reply::Error(ErrorReply::QuotaExceeded);
    assert_eq!(test.reply(&get("settled")), value("v"));
    assert_eq!(test.reply(&get("nothing")), Reply::Absent);
    assert_eq!(test.reply(&watch("settled")), Reply::Done);
    let scan = Request::Scan { pattern: "*".into(), token: None };
    for request in [get("k"), get("due"), set("settled", "w"), scan] {
        assert_eq!(test.reply(&request), rejected);
    }
}

#[test]
fn a_directory_cannot_be_used_by_two_servers() {
    let home = TempDir::new().unwrap();
    let _first = TestService::on_disk(&home);
    let settings =
        StoreSettings { persistence: Persistence::All(home.path().to_owned()), ..StoreSettings::default() };
    let error = Service::open(settings, Arc::new(|_| {}), Arc::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[test]
fn a_will_on_the_stores_topics_is_rejected() {
    let test = TestService::new(Persistence::None);
    let will = |topic: String| Message { topic: topic.into(), ..Message::default() };
    let notify = topic::notify("me", &Key::new("k").unwrap()).unwrap();
    assert!(test.service.check_will(&will(notify)).is_err());
    assert!(test.service.check_will(&will(topic::REQUEST.to_owned())).is_err());
    assert!(test.service.check_will(&will("plant/line1/offline".to_owned())).is_ok());
}

impl TestService {
    /// Waits until a key with a time to live of one millisecond has expired.
    fn wait_for_expiry(&self) {
        let since = self.service.shared.now().monotonic_ms;
        while self.service.shared.now().monotonic_ms <= since + 2 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_request_that_comes_upon_an_expired_key_notifies_its_watchers_first() {
    for request in [get("k"), set("k", "w"), del("k"), Request::VDel { key: key("k"), value: "v".into() }] {
        for test in TestService::answering_at_once() {
            test.request(&watch("k"));
            test.request(&set_with("k", "v", None, 1));
            test.wait_for_expiry();
            test.sent_messages.take();
            test.request(&request);
            let sent = test.sent_messages.take();
            assert_eq!(sent[0].0, Some(ConnectionId(1)), "{request:?}");
            assert_eq!(Notification::decode(&sent[0].1.payload), Ok(Notification::Delete), "{request:?}");
            assert_eq!(sent[1].0, None, "{request:?}");
        }
    }
}

#[test]
fn a_key_with_two_uncommitted_changes_is_not_read_after_the_first_commit() {
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    for text in ["first", "second"] {
        test.request(&set("k", text));
    }
    let commit = |sequence| {
        assert!(!test.service.shared.lock().handle_commit(sequence, Version::default(), &test.sent_messages));
        test.sent_messages.replies()
    };
    assert_eq!(commit(1), [Reply::Done]);
    test.request(&get("k"));
    assert_eq!(test.sent_messages.replies(), []);
    assert_eq!(commit(2), [Reply::Done, value("second")]);
    assert_eq!(test.reply(&get("k")), value("second"));
}

#[test]
fn a_rollback_does_not_revive_a_key_that_had_expired_before_the_change() {
    let home = TempDir::new().unwrap();
    let test = TestService::on_disk(&home);
    test.request(&watch("short"));
    test.request(&set_with("short", "v", None, 1));
    assert!(!test.service.shared.lock().handle_commit(1, Version::default(), &test.sent_messages));
    test.wait_for_expiry();
    test.sent_messages.take();
    test.request(&set("short", "lost"));
    let now = test.service.shared.now();
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, now);
    assert!(test.service.shared.lock().store.read(&key("short")).is_none());
    assert_eq!(test.reply(&get("short")), Reply::Absent);
    // The expiry is true although the commit failed, and is notified once.
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    test.service.shared.lock().expire(&test.sent_messages, later);
    assert!(test.sent_messages.take().is_empty());
}

#[tokio::test]
async fn a_disconnect_ends_the_watches_and_releases_the_permissions() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("rules");
    std::fs::write(
        &path,
        "rules:\n- principals: {clientIds: [client]}\n  brokerResources:\n  - {method: Publish, topics: [\"#\"]}\n  \
         stateStoreResources:\n  - {method: ReadWrite, keyType: Pattern, keys: [\"*\"]}\n",
    )
    .unwrap();
    let authorizer = Authorizer::load(&path).unwrap();
    let permissions = ClientPermissions::new(authorizer, "client".into(), broker::Principal::default());
    let peer = Peer { permissions: Some(Arc::new(permissions)), ..peer(1) };
    for test in TestService::answering_at_once() {
        let hooks = broker::Hooks::new(Arc::<Service>::clone(&test.service));
        let server = broker::Server::start(broker::Settings::default(), hooks).await.unwrap();
        test.send_from(&peer, message(&watch("k")));
        assert_eq!(test.sent_messages.replies(), [Reply::Done]);
        let held = || (test.service.statistics().store.watches, test.service.watched_connections());
        assert_eq!(held(), (1, 1));
        test.service.handle_disconnect(server.broker(), &peer);
        assert_eq!(held(), (0, 0));
    }
}

/// Returns the same client on another connection, with its only write there.
fn on_connection(connection: u64, client_id: &str, session: SessionPhase) -> Peer {
    Peer { client_id: client_id.into(), session, ..peer(connection) }
}

#[test]
fn no_client_is_refused_for_the_replies_to_its_earlier_writes() {
    for test in TestService::answering_at_once() {
        // The client connects again and again, and is not known to have received an acknowledgement.
        for connection in 1..10_000 {
            let verdict = test.send_from(&peer(connection), message(&set("k", "v")));
            assert!(matches!(verdict, Verdict::Consumed), "{connection}");
        }
        assert_eq!(test.sent_messages.replies().len(), 9_999);
        assert!(test.events.lock().unwrap().is_empty());
    }
}

#[test]
fn sessions_that_end_after_one_write_leave_no_replies_and_are_not_refused() {
    for has_new_ids in [false, true] {
        for test in TestService::answering_at_once() {
            for connection in 1..5_000 {
                let client_id = if has_new_ids { connection.to_string() } else { "script".to_owned() };
                let from = on_connection(connection, &client_id, SessionPhase::New);
                assert!(matches!(test.send_from(&from, message(&set("k", "v"))), Verdict::Consumed));
                assert!(test.service.statistics().recorded_bytes > 0);
                test.service.disconnect(&Peer { session: SessionPhase::Ended, ..from });
                assert_eq!(test.service.statistics().recorded_bytes, 0, "{connection}");
            }
            assert_eq!(test.sent_messages.replies().len(), 4_999);
        }
    }
}

#[test]
fn another_user_with_the_same_client_id_neither_gets_replies_nor_makes_them_be_forgotten() {
    for test in TestService::answering_at_once() {
        let as_user = |user: &str, connection| {
            let principal = broker::Principal { user: Some(user.into()), ..broker::Principal::default() };
            let (identity, owner) = (principal.identity().into(), principal.owner(""));
            Peer { principal, identity, owner, ..on_connection(connection, "press", SessionPhase::Resumed) }
        };
        let lock = message(&set_with("lock", "ann", Some(Condition::Absent), 0));
        test.send_from(&as_user("ann", 1), lock.clone());
        for number in 1..5_000 {
            let from = Peer { message_number: number, ..as_user("bob", 2) };
            assert!(matches!(test.send_from(&from, message(&set("k", "v"))), Verdict::Consumed));
        }
        test.sent_messages.take();
        test.send_from(&as_user("bob", 2), lock.clone());
        test.service.disconnect(&Peer { session: SessionPhase::Ended, ..as_user("bob", 2) });
        test.send_from(&as_user("ann", 3), lock);
        assert_eq!(test.sent_messages.replies(), [Reply::NotApplied, Reply::Done]);
    }
}

#[test]
fn forgotten_replies_are_reported_once_in_a_minute_with_the_owner_that_holds_the_most() {
    let limits = Limits { memory_bytes_max: 1, ..Limits::default() };
    let settings = StoreSettings { limits, ..StoreSettings::default() };
    let service = Service::open(settings, Arc::new(|_| {}), Arc::default()).unwrap();
    let test = TestService::of(service, Arc::default(), None);
    let now = |monotonic_ms| Now { wall_ms: 0, monotonic_ms };
    let report = |monotonic_ms| test.service.shared.lock().discard_expired_responses(now(monotonic_ms));
    let write = |from, to| {
        for connection in from..to {
            test.send_from(
                &on_connection(connection, &connection.to_string(), SessionPhase::New),
                message(&del("k")),
            );
        }
    };
    write(1, 100);
    assert_eq!(report(0), None);
    write(100, 2_000);
    let statistics = test.service.statistics();
    assert!(
        statistics.recorded_forgotten > 500 && statistics.recorded_bytes <= statistics.recorded_bytes_max
    );
    let event = |count| Some(Event::RepliesForgotten { count, owner: "test".into() });
    assert_eq!(report(1), event(statistics.recorded_forgotten));
    write(2_000, 2_010);
    assert_eq!([report(60_000), report(60_001), report(120_001)], [None, event(10), None]);
}
