//! The service as the broker sees it: messages in, messages out; and what a restart leaves of it.

use super::*;
use crate::protocol::message::{PROTOCOL_VERSION, STATUS};
use crate::protocol::{Condition, ErrorReply, Key, Notification, Reply, Value};
use std::num::NonZeroU64;
use tempfile::TempDir;

/// To whom, if to one only, and what.
type Sent = (Option<ConnectionId>, Message);

/// A broker that only takes notes.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<Sent>>>);

impl Outlet for Notes {
    fn publish(&self, message: Message) {
        self.0.lock().unwrap().push((None, message));
    }

    fn push(&self, to: ConnectionId, _: &str, message: Message) {
        self.0.lock().unwrap().push((Some(to), message));
    }

    fn is_overheard(&self) -> bool {
        false
    }

    fn overhear(&self, _: ConnectionId, _: Message) {}
}

impl Notes {
    pub(super) fn take(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// The replies since the last time, notifications left out.
    pub(super) fn replies(&self) -> Vec<Reply> {
        let responses = self.take().into_iter().filter(|(to, _)| to.is_none());
        responses.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect()
    }

    /// Waits for the disk.
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

/// A service with its outlet and what it has told the operator.
pub(super) struct Bench {
    pub(super) service: Arc<Service>,
    pub(super) notes: Notes,
    pub(super) events: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    pub(super) fn new(persistence: Persistence) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let settings = StoreSettings { persistence, ..StoreSettings::default() };
        let service =
            Service::open(settings, Arc::new(move |event| sink.lock().unwrap().push(event)), Arc::default())
                .unwrap();
        Self { service, notes: Notes::default(), events }
    }

    /// On a disk where only that is kept which asks for it.
    pub(super) fn on(journal: Storage) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink: EventSink = {
            let events = Arc::clone(&events);
            Arc::new(move |event| events.lock().unwrap().push(event))
        };
        let settings = StoreSettings::default();
        let service =
            Service::with_journal(&settings, false, Some(journal), sink, Arc::default(), clock::now())
                .unwrap();
        Self { service, notes: Notes::default(), events }
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

    fn in_memory() -> Self {
        Self::new(Persistence::None)
    }

    fn on_disk(home: &TempDir) -> Self {
        Self::new(Persistence::All(home.path().to_owned()))
    }

    pub(super) fn run(&self) -> Running {
        self.service.run(self.notes.clone()).unwrap()
    }

    pub(super) fn send(&self, message: Message) -> Verdict {
        self.service.take(&self.notes, &peer(1), message)
    }

    pub(super) fn ask(&self, request: &Request) {
        assert!(matches!(self.send(message(request)), Verdict::Consumed));
    }

    /// The reply to a request that does not wait.
    pub(super) fn reply(&self, request: &Request) -> Reply {
        self.ask(request);
        self.notes.replies().pop().unwrap()
    }
}

fn peer(connection: u64) -> Peer {
    Peer {
        connection: ConnectionId(connection),
        client_id: "client".into(),
        principal: broker::Principal::default(),
        permissions: None,
    }
}

/// A request as an SDK sends it, with correlation data of its own.
pub(super) fn message(request: &Request) -> Message {
    static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Message {
        topic: topic::REQUEST.to_owned(),
        payload: request.encode(),
        qos: Qos::AtLeastOnce,
        response_topic: Some("answers".to_owned()),
        correlation: Some(number.to_be_bytes().to_vec().into()),
        expiry_s: Some(10),
        user_properties: vec![(TIMESTAMP.into(), "1:0:client".into())],
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

fn watch(name: &str) -> Request {
    Request::KeyNotify { key: key(name), stop: false }
}

pub(super) fn value(text: &'static str) -> Reply {
    Reply::Value(text.into())
}

pub(super) fn version(message: &Message) -> Timestamp {
    message.user_property(TIMESTAMP).unwrap().parse().unwrap()
}

#[test]
fn a_request_is_answered_where_it_says_with_all_that_an_sdk_needs() {
    let bench = Bench::in_memory();
    let request = message(&set("k", "v"));
    bench.send(request.clone());
    let [(to, response)] = bench.notes.take().try_into().unwrap();
    assert_eq!(to, None);
    assert_eq!((response.topic.as_str(), &response.payload[..]), ("answers", &b"+OK\r\n"[..]));
    assert_eq!((response.qos, response.retain, response.expiry_s), (Qos::AtLeastOnce, false, None));
    assert_eq!(response.correlation, request.correlation);
    assert_eq!(response.content_type.as_deref(), Some("application/octet-stream"));
    assert_eq!(response.user_property(STATUS), Some("200"));
    assert_eq!(response.user_property(PROTOCOL_VERSION), Some("1.0"));
    assert!(version(&response).ms > 1_600_000_000_000);
}

#[test]
fn a_request_that_cannot_be_answered_is_reported_and_not_applied() {
    let bench = Bench::in_memory();
    let whole = message(&set("k", "v"));
    let lacking = [
        Message { qos: Qos::AtMostOnce, ..whole.clone() },
        Message { qos: Qos::ExactlyOnce, ..whole.clone() },
        Message { response_topic: None, ..whole.clone() },
        Message { response_topic: Some("a/#".to_owned()), ..whole.clone() },
        // A value could pass for what the broker tells of itself.
        Message { response_topic: Some("$SYS/broker/version".to_owned()), ..whole.clone() },
        Message { correlation: None, ..whole },
    ];
    for message in lacking {
        assert!(matches!(bench.send(message), Verdict::Consumed));
        let event = bench.events.lock().unwrap().pop();
        assert!(matches!(event, Some(Event::Unanswerable { .. })), "{event:?}");
    }
    assert!(bench.notes.take().is_empty());
    assert_eq!(bench.reply(&get("k")), Reply::Absent);
}

#[test]
fn who_wants_the_answer_on_the_stores_own_topics_is_disconnected() {
    let bench = Bench::in_memory();
    for response_topic in [topic::REQUEST.to_owned(), format!("{}/x", topic::RESERVED)] {
        let message = Message { response_topic: Some(response_topic), ..message(&set("k", "v")) };
        assert!(matches!(bench.send(message), Verdict::Disconnect { .. }));
    }
    assert_eq!(bench.reply(&get("k")), Reply::Absent);
}

#[test]
fn nobody_can_forge_a_notification() {
    let bench = Bench::in_memory();
    let topic = topic::notify("client", &key("k")).unwrap();
    assert!(matches!(bench.send(Message { topic, ..Message::default() }), Verdict::Consumed));
    assert!(matches!(bench.events.lock().unwrap().pop(), Some(Event::Broker(broker::Event::Dropped { .. }))));
    let other = Message { topic: "other".to_owned(), ..Message::default() };
    assert!(matches!(bench.send(other), Verdict::Route(_)));
}

#[test]
fn what_is_no_request_is_refused() {
    let bench = Bench::in_memory();
    let rows = [
        (&b"nonsense"[..], ErrorReply::SyntaxError),
        (b"*1\r\n$4\r\nFLIP\r\n", ErrorReply::UnknownCommand),
        (b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n", ErrorReply::EmptyKey),
    ];
    for (payload, error) in rows {
        bench.send(Message { payload: payload.into(), ..message(&get("k")) });
        assert_eq!(bench.notes.replies(), [Reply::Error(error)]);
    }
}

#[test]
fn watchers_are_told_after_the_answer() {
    let bench = Bench::in_memory();
    bench.ask(&watch("k"));
    bench.service.take(&bench.notes, &peer(2), message(&watch("k")));
    bench.notes.take();
    for (request, expected) in
        [(set("k", "v"), Notification::Set(Some("v".into()))), (del("k"), Notification::Delete)]
    {
        bench.ask(&request);
        let sent = bench.notes.take();
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
    bench.service.lock().engine.handle_disconnect(ConnectionId(1));
    bench.ask(&set("k", "w"));
    assert_eq!(bench.notes.take().len(), 2);
}

#[test]
fn many_threads_do_not_change_the_order_of_a_keys_notifications() {
    let bench = Bench::in_memory();
    bench.ask(&watch("k"));
    bench.notes.take();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..200).for_each(|_| bench.ask(&set("k", "v"))));
        }
    });
    let told = bench.notes.take().into_iter().filter(|(to, _)| to.is_some());
    let versions: Vec<_> = told.map(|(_, message)| version(&message)).collect();
    assert_eq!(versions.len(), 1_600);
    assert!(versions.is_sorted_by(|first, second| first < second));
}

#[test]
fn a_write_that_is_delivered_again_gets_its_first_answer_and_is_not_applied_again() {
    let bench = Bench::in_memory();
    let first = message(&set_with("k", "v", Some(Condition::Absent), 0));
    bench.send(first.clone());
    let [answer] = bench.notes.take().try_into().unwrap();
    bench.send(first.clone());
    assert_eq!(bench.notes.take(), [answer]);
    bench.reply(&del("k"));
    bench.send(first);
    assert_eq!(bench.notes.replies(), [Reply::Done]);
    assert_eq!(bench.reply(&get("k")), Reply::Absent);
}

#[tokio::test]
async fn the_timer_tells_of_what_expires_also_when_an_earlier_deadline_appears() {
    let bench = Bench::in_memory();
    let running = bench.run();
    bench.ask(&watch("late"));
    bench.ask(&watch("early"));
    bench.ask(&set_with("late", "v", None, 3_600_000));
    // The timer sleeps until then, and is to be woken.
    tokio::task::yield_now().await;
    bench.ask(&set_with("early", "v", None, 20));
    let told = loop {
        let told = bench
            .notes
            .take()
            .into_iter()
            .map(|(_, message)| message)
            .find(|message| Notification::decode(&message.payload) == Ok(Notification::Delete));
        match told {
            Some(told) => break told,
            None => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    assert_eq!(told.topic, topic::notify("client", &key("early")).unwrap());
    drop(running);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_restart() {
    let home = TempDir::new().unwrap();
    let bench = Bench::on_disk(&home);
    let running = bench.run();
    let last = ["a", "b", "gone"].map(|name| bench.ask(&set(name, "v"))).len();
    bench.ask(&set_with("short", "v", None, 1));
    bench.ask(&set_with("long", "v", None, 60_000));
    bench.ask(&del("gone"));
    bench.notes.wait_for(last + 3);
    let versions: Vec<_> = bench.notes.take().iter().map(|(_, message)| version(message)).collect();
    drop((running, bench));
    thread::sleep(Duration::from_millis(5));
    let bench = Bench::on_disk(&home);
    let replies = ["a", "b", "gone", "short", "long"].map(|name| bench.reply_of_get(name));
    assert_eq!(replies, [value("v"), value("v"), Reply::Absent, Reply::Absent, value("v")]);
    let left_ms = bench.service.lock().engine.read(&key("long")).unwrap().1.deadline_ms.unwrap();
    assert!((1..=60_001).contains(&left_ms), "{left_ms}");
    let _running = bench.run();
    bench.notes.take();
    bench.ask(&set("gone", "again"));
    bench.notes.wait_for(1);
    assert!(bench.notes.take().iter().all(|(_, message)| version(message) > *versions.iter().max().unwrap()));
}

impl Bench {
    /// The reply to a GET of a key that nothing waits for.
    pub(super) fn reply_of_get(&self, name: &str) -> Reply {
        let _ = self.notes.take();
        let mut state = self.service.lock();
        let call = StoreRequest {
            permissions: None,
            connection: ConnectionId(1),
            client_id: "client".into(),
            request: get(name),
            timestamp: None,
            fence: None,
            persist: false,
        };
        state.engine.handle_request(call, self.service.now()).reply
    }
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_acknowledged() {
    let (home, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bench = Bench::on_disk(&home);
    let _running = bench.run();
    for round in 1..40 {
        bench.ask(&set("k", &round.to_string()));
        bench.notes.wait_for(round);
        // What a process leaves that is killed now.
        for file in std::fs::read_dir(home.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        let after = Bench::on_disk(&copy);
        assert_eq!(after.reply_of_get("k"), Reply::Value(round.to_string().into()));
    }
}

#[tokio::test]
async fn nobody_learns_of_a_change_before_it_is_on_the_disk() {
    let home = TempDir::new().unwrap();
    let bench = Bench::on_disk(&home);
    assert_eq!(bench.reply(&watch("k")), Reply::Done);
    let scan = Request::Scan { pattern: "*".into(), token: None };
    let repeated = message(&set("k", "v"));
    bench.send(repeated.clone());
    bench.send(repeated);
    [get("k"), del("k"), get("k"), scan].iter().for_each(|request| bench.ask(request));
    assert!(bench.notes.take().is_empty());
    assert_eq!(bench.reply(&get("other")), Reply::Absent);
    let running = bench.run();
    bench.notes.wait_for(8);
    let sent = bench.notes.take();
    let told: Vec<_> = sent.iter().map(|(to, _)| to.is_some()).collect();
    assert_eq!(told, [false, true, false, false, false, true, false, false]);
    let replies = sent.iter().filter(|(to, _)| to.is_none());
    let replies: Vec<_> = replies.map(|(_, message)| Reply::decode(&message.payload).unwrap()).collect();
    let page = Reply::Keys { keys: vec![], token: None };
    assert_eq!(replies, [Reply::Done, Reply::Done, value("v"), Reply::Count(1), Reply::Absent, page]);
    drop(running);
}

#[test]
fn a_change_that_does_not_reach_the_disk_has_not_happened() {
    let home = TempDir::new().unwrap();
    let bench = Bench::on_disk(&home);
    let saved = message(&set("k", "saved"));
    bench.send(saved.clone());
    bench.service.lock().handle_saved(1, &bench.notes);
    bench.ask(&watch("k"));
    bench.notes.take();
    let lost = message(&set("k", "lost"));
    bench.send(lost.clone());
    [del("k"), get("k"), set("new", "v")].iter().for_each(|request| bench.ask(request));
    bench.service.lock().handle_failure(&bench.notes);
    let sent = bench.notes.take();
    assert!(sent.iter().all(|(to, _)| to.is_none()), "nobody is told");
    let refused = Reply::Error(ErrorReply::NotPersisted);
    let replies = sent.iter().map(|(_, message)| Reply::decode(&message.payload).unwrap());
    assert!(replies.eq([refused.clone(), refused.clone(), refused.clone(), refused.clone()]));
    assert_eq!(bench.reply(&get("k")), value("saved"));
    assert_eq!(bench.reply(&get("new")), Reply::Absent);
    for (again, expected) in [(lost, refused), (saved, Reply::Done)] {
        bench.send(again);
        assert_eq!(bench.notes.replies(), [expected]);
    }
}

/// A value of which the backlog takes fewer than ten.
fn large_value() -> String {
    "x".repeat(8 * 1024 * 1024)
}

#[test]
fn what_expires_waits_until_the_disk_has_caught_up() {
    let home = TempDir::new().unwrap();
    let bench = Bench::on_disk(&home);
    bench.ask(&set_with("short", "v", None, 1));
    (0..4).for_each(|_| bench.ask(&set("k", &large_value())));
    let later = Now { monotonic_ms: u64::MAX, ..bench.service.now() };
    let mut state = bench.service.lock();
    let ticket = state.backlog.as_ref().unwrap().ticket();
    assert_eq!(state.expire_due(&bench.notes, later), u64::MAX);
    assert!(state.engine.read(&key("short")).is_some(), "nothing is added to a backlog that is half full");
    state.handle_saved(ticket, &bench.notes);
    bench.service.wake_timer(&mut state);
    assert!(state.timer_ms < u64::MAX, "the timer comes again");
    state.expire_due(&bench.notes, later);
    assert!(state.engine.read(&key("short")).is_none());
}

#[test]
fn a_full_backlog_lets_through_what_need_not_wait() {
    let home = TempDir::new().unwrap();
    let bench = Bench::on_disk(&home);
    bench.ask(&set("settled", "v"));
    bench.ask(&set_with("due", "v", None, 1));
    bench.service.lock().handle_saved(2, &bench.notes);
    let since = bench.service.now().monotonic_ms;
    while bench.service.now().monotonic_ms <= since + 1 {
        thread::yield_now();
    }
    (0..10).for_each(|_| bench.ask(&set("k", &large_value())));
    bench.notes.take();
    let refused = Reply::Error(ErrorReply::QuotaExceeded);
    assert_eq!(bench.reply(&get("settled")), value("v"));
    assert_eq!(bench.reply(&get("nothing")), Reply::Absent);
    assert_eq!(bench.reply(&watch("settled")), Reply::Done);
    let scan = Request::Scan { pattern: "*".into(), token: None };
    for request in [get("k"), get("due"), set("settled", "w"), scan] {
        assert_eq!(bench.reply(&request), refused);
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let home = TempDir::new().unwrap();
    let _first = Bench::on_disk(&home);
    let settings =
        StoreSettings { persistence: Persistence::All(home.path().to_owned()), ..StoreSettings::default() };
    let error = Service::open(settings, Arc::new(|_| {}), Arc::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}

#[test]
fn no_will_may_speak_for_the_store_or_to_it() {
    let bench = Bench::new(Persistence::None);
    let will = |topic: String| Message { topic, ..Message::default() };
    let notify = topic::notify("me", &Key::new("k").unwrap()).unwrap();
    assert!(bench.service.check_will(&will(notify)).is_err());
    assert!(bench.service.check_will(&will(topic::REQUEST.to_owned())).is_err());
    assert!(bench.service.check_will(&will("plant/line1/offline".to_owned())).is_ok());
}
