//! Tests of the watch with a simulated store: changes are reported in order, none is missing, none twice.

use proptest::prelude::*;

use super::*;
use crate::protocol::{UserProperties, topic};

pub(super) fn key(name: &str) -> Key {
    Key::new(name.as_bytes().to_vec()).unwrap()
}

pub(super) fn of_key(name: &str) -> Registration {
    Registration::Key(key(name))
}

fn version(ms: u64) -> Timestamp {
    Timestamp::of_store(ms, 0)
}

pub(super) fn found(value: &str, ms: u64) -> Option<VersionedValue> {
    Some(VersionedValue {
        value: Value::copy_from_slice(value.as_bytes()),
        version: Some(version(ms)),
        details: None,
    })
}

pub(super) fn now() -> Reading {
    Reading { wall_ms: 5_000, ..crate::clock::now() }
}

fn notification(name: &str, notification: &Notification, ms: Option<u64>) -> Message {
    Message {
        topic: topic::notify("me", &key(name)).unwrap().into(),
        payload: notification.encode(),
        user_properties: ms.map(|ms| (TIMESTAMP, version(ms).to_text())).into_iter().collect(),
        ..Message::default()
    }
}

pub(super) fn set(name: &str, value: &str, ms: u64) -> Message {
    let value = Value::copy_from_slice(value.as_bytes());
    notification(name, &Notification::Set(Some(value)), Some(ms))
}

pub(super) fn delete(name: &str, ms: u64) -> Message {
    notification(name, &Notification::Delete, Some(ms))
}

/// Passes a message to the watch.
fn hand(watch: &mut Watch, message: &Message) {
    match notified_key(message, "me") {
        Ok(key) => watch.handle_notification(&key, message),
        Err(cause) => watch.skip(message, cause.to_owned()),
    }
}

/// Returns a watch that is registered and has not read the value.
fn registered(name: &str) -> Watch {
    let mut watch = Watch::new([key(name)]);
    register(&mut watch, name);
    watch
}

fn register(watch: &mut Watch, name: &str) {
    watch.handle_connected();
    assert_eq!(watch.poll_action(), Some(WatchAction::Subscribe));
    assert_eq!(watch.poll_action(), None, "nothing before the subscription is in force");
    watch.handle_subscribed();
    assert_eq!(watch.poll_action(), Some(WatchAction::Register(of_key(name))));
    assert_eq!(watch.poll_action(), None, "nothing before the registration is in force");
    watch.handle_registered(&key(name));
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key(name))));
}

/// Returns the events in short form, such as `CURRENT 1@3`.
pub(super) fn events(watch: &mut Watch) -> Vec<String> {
    let ms = |version: &Option<Timestamp>| {
        version.as_ref().map_or("?".to_owned(), |version| version.ms.to_string())
    };
    let text = |value: &Value| String::from_utf8_lossy(value).into_owned();
    let state = |found: &Option<VersionedValue>| match found {
        Some(found) => format!("{}@{}", text(&found.value), ms(&found.version)),
        None => "absent".to_owned(),
    };
    let line = |event| match event {
        WatchEvent::Current { found, .. } => format!("CURRENT {}", state(&found)),
        WatchEvent::Resync { found, .. } => format!("RESYNC {}", state(&found)),
        WatchEvent::Set { value, version, .. } => {
            format!("SET {}@{}", value.as_ref().map_or("?".to_owned(), text), ms(&version))
        }
        WatchEvent::Delete { version, .. } => format!("DELETE @{}", ms(&version)),
        WatchEvent::Lost { since_ms, cause } => format!("LOST {since_ms} {cause}"),
        WatchEvent::Gap { since_ms, until_ms } => format!("GAP {since_ms}-{until_ms}"),
        WatchEvent::Skipped { cause, .. } => format!("SKIPPED {cause}"),
    };
    std::iter::from_fn(|| watch.poll_event()).map(line).collect()
}

#[test]
fn the_initial_value_is_reported_before_changes() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    hand(&mut watch, &set("k", "2", 2));
    hand(&mut watch, &delete("k", 2));
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "SET 2@2", "DELETE @2"]);
}

#[test]
fn a_change_has_the_time_to_live_that_the_store_reports() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), None, now());
    let mut message = set("k", "1", 1);
    message.user_properties.push(TIME_TO_LIVE, "60");
    hand(&mut watch, &message);
    watch.poll_event();
    let Some(WatchEvent::Set { details: Some(details), .. }) = watch.poll_event() else { panic!() };
    assert_eq!((details.ttl_ms.map(u64::from), details.fence), (Some(60), None));
    message.user_properties = [(TIME_TO_LIVE, "soon")].into_iter().collect();
    hand(&mut watch, &message);
    assert_eq!(events(&mut watch), ["SKIPPED malformed mqkv-ttl"]);
}

#[test]
fn a_change_before_the_initial_value_is_reported_once() {
    let mut watch = registered("k");
    hand(&mut watch, &set("k", "2", 2));
    hand(&mut watch, &set("k", "3", 3));
    assert!(events(&mut watch).is_empty());
    watch.handle_read(&key("k"), found("2", 2), now());
    assert_eq!(events(&mut watch), ["CURRENT 2@2", "SET 3@3"]);
}

#[test]
fn a_deletion_with_the_version_of_the_initial_value_is_reported() {
    let mut watch = registered("k");
    hand(&mut watch, &delete("k", 2));
    watch.handle_read(&key("k"), found("2", 2), now());
    assert_eq!(events(&mut watch), ["CURRENT 2@2", "DELETE @2"]);
}

#[test]
fn changes_before_a_reported_absence_are_dropped() {
    let mut watch = registered("k");
    for message in [set("k", "1", 1), delete("k", 1), set("k", "2", 2)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), None, now());
    assert_eq!(events(&mut watch), ["CURRENT absent", "SET 2@2"]);
}

#[test]
fn a_deletion_before_a_reported_absence_is_dropped() {
    let mut watch = registered("k");
    hand(&mut watch, &delete("k", 1));
    watch.handle_read(&key("k"), None, now());
    hand(&mut watch, &delete("k", 1));
    assert_eq!(events(&mut watch), ["CURRENT absent"]);
}

#[test]
fn a_duplicate_notification_is_reported_once() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), None, now());
    for message in [set("k", "1", 1), set("k", "1", 1), delete("k", 1), delete("k", 1)] {
        hand(&mut watch, &message);
    }
    assert_eq!(events(&mut watch), ["CURRENT absent", "SET 1@1", "DELETE @1"]);
}

#[test]
fn a_change_without_a_version_is_always_reported() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    hand(&mut watch, &notification("k", &Notification::Delete, None));
    hand(&mut watch, &notification("k", &Notification::Set(None), None));
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "DELETE @?", "SET ?@?"]);
}

#[test]
fn a_loss_reports_one_gap_and_the_changes_in_it() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    watch.handle_lost(1_000, "gone");
    watch.handle_connected();
    watch.handle_lost(2_000, "still gone");
    register(&mut watch, "k");
    hand(&mut watch, &set("k", "3", 3));
    watch.handle_read(&key("k"), found("2", 2), now());
    assert_eq!(
        events(&mut watch),
        ["CURRENT 1@1", "LOST 1000 gone", "LOST 2000 still gone", "GAP 1000-5000", "RESYNC 2@2", "SET 3@3"]
    );
}

#[test]
fn a_loss_without_changes_reports_the_gap_only() {
    for state in [found("1", 1), None] {
        let mut watch = registered("k");
        watch.handle_read(&key("k"), state.clone(), now());
        events(&mut watch);
        watch.handle_lost(1_000, "gone");
        register(&mut watch, "k");
        watch.handle_read(&key("k"), state, now());
        assert_eq!(events(&mut watch), ["LOST 1000 gone", "GAP 1000-5000"]);
    }
}

#[test]
fn a_key_deleted_in_a_gap_is_reported() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    watch.handle_read(&key("k"), None, now());
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "LOST 1000 gone", "GAP 1000-5000", "RESYNC absent"]);
}

#[test]
fn a_change_before_the_registration_is_held_back_until_the_value_is_read() {
    let mut watch = Watch::new([key("k")]);
    watch.handle_connected();
    watch.poll_action();
    watch.handle_subscribed();
    // Another watch of this session has registered the key.
    hand(&mut watch, &set("k", "2", 2));
    hand(&mut watch, &set("k", "3", 3));
    assert!(events(&mut watch).is_empty());
    watch.handle_registered(&key("k"));
    watch.handle_read(&key("k"), found("2", 2), now());
    assert_eq!(events(&mut watch), ["CURRENT 2@2", "SET 3@3"]);
}

#[test]
fn a_repeated_registration_does_not_read_the_value_again() {
    let mut watch = registered("k");
    watch.handle_registered(&key("k"));
    assert_eq!(watch.poll_action(), None);
    watch.handle_read(&key("k"), found("1", 1), now());
    watch.handle_registered(&key("k"));
    assert_eq!(watch.poll_action(), None);
}

#[test]
fn a_change_of_a_lost_connection_is_not_reported_on_the_next_one() {
    let mut watch = registered("k");
    hand(&mut watch, &set("k", "9", 9));
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    // The store has started anew.
    watch.handle_read(&key("k"), found("3", 3), now());
    assert_eq!(events(&mut watch), ["LOST 1000 gone", "CURRENT 3@3"]);
}

#[test]
fn without_a_connection_there_is_nothing_to_do() {
    let mut watch = registered("k");
    watch.handle_unanswered(WatchAction::Read(key("k")));
    watch.handle_lost(1_000, "gone");
    assert_eq!(watch.poll_action(), None);
}

#[test]
fn an_unanswered_action_is_repeated() {
    let mut watch = registered("k");
    watch.handle_unanswered(WatchAction::Read(key("k")));
    assert_eq!(watch.poll_action(), Some(WatchAction::Read(key("k"))));
    assert_eq!(watch.poll_action(), None);
}

#[test]
fn a_gap_begins_with_the_first_loss_after_a_reported_value() {
    let mut watch = registered("k");
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    watch.handle_read(&key("k"), found("1", 1), now());
    watch.handle_lost(2_000, "gone");
    register(&mut watch, "k");
    watch.handle_lost(3_000, "gone");
    register(&mut watch, "k");
    watch.handle_read(&key("k"), found("1", 1), now());
    let reported = events(&mut watch);
    assert_eq!(reported.last().map(String::as_str), Some("GAP 2000-5000"), "{reported:?}");
    assert_eq!(reported.iter().filter(|line| line.starts_with("GAP")).count(), 1, "{reported:?}");
}

#[test]
fn a_gap_does_not_end_before_it_begins() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    events(&mut watch);
    watch.handle_lost(9_000, "gone");
    register(&mut watch, "k");
    // The machine's clock was set back meanwhile.
    watch.handle_read(&key("k"), found("1", 1), now());
    assert_eq!(events(&mut watch), ["LOST 9000 gone", "GAP 9000-9000"]);
}

/// Returns a watch that has reported these messages, lost its connection, and reads `then` on the next one.
fn reconnected(before: &[Message], then: Option<VersionedValue>) -> Watch {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), None, now());
    for message in before {
        hand(&mut watch, message);
    }
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    events(&mut watch);
    watch.handle_read(&key("k"), then, now());
    watch
}

#[test]
fn an_older_value_after_a_reconnect_is_that_of_a_store_that_has_started_anew() {
    let mut watch = reconnected(&[set("k", "9", 9)], found("3", 3));
    hand(&mut watch, &set("k", "4", 4));
    hand(&mut watch, &set("k", "3", 3));
    assert_eq!(events(&mut watch), ["GAP 1000-5000", "RESYNC 3@3", "SET 4@4"]);
}

#[test]
fn a_key_that_is_absent_after_a_reconnect_can_be_set_with_an_older_version() {
    let mut watch = reconnected(&[set("k", "9", 9)], None);
    for message in [set("k", "3", 3), set("k", "3", 3), delete("k", 3), set("k", "4", 4)] {
        hand(&mut watch, &message);
    }
    assert_eq!(events(&mut watch), ["GAP 1000-5000", "RESYNC absent", "SET 3@3", "DELETE @3", "SET 4@4"]);
}

#[test]
fn an_older_version_after_a_reported_deletion_is_preceded_by_a_resync() {
    let mut watch = reconnected(&[set("k", "9", 9), delete("k", 9)], None);
    assert_eq!(events(&mut watch), ["GAP 1000-5000"]);
    hand(&mut watch, &set("k", "3", 3));
    hand(&mut watch, &set("k", "4", 4));
    assert_eq!(events(&mut watch), ["RESYNC absent", "SET 3@3", "SET 4@4"]);
}

#[test]
fn older_changes_before_the_absence_was_read_are_preceded_by_a_resync() {
    let mut watch = registered("k");
    for message in [set("k", "9", 9), delete("k", 9)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), None, now());
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    for message in [set("k", "2", 2), delete("k", 2)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), None, now());
    hand(&mut watch, &set("k", "3", 3));
    assert_eq!(
        events(&mut watch),
        ["CURRENT absent", "LOST 1000 gone", "GAP 1000-5000", "RESYNC absent", "SET 3@3"]
    );
}

#[test]
fn an_older_change_before_the_absence_was_read_is_reported() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("9", 9), now());
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    for message in [set("k", "2", 2), delete("k", 2), set("k", "3", 3)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), None, now());
    assert_eq!(
        events(&mut watch),
        ["CURRENT 9@9", "LOST 1000 gone", "GAP 1000-5000", "RESYNC absent", "SET 3@3"]
    );
}

#[test]
fn a_repeated_change_is_dropped_after_an_absence_too() {
    let mut watch = reconnected(&[set("k", "9", 9)], None);
    hand(&mut watch, &set("k", "9", 9));
    hand(&mut watch, &delete("k", 9));
    hand(&mut watch, &delete("k", 3));
    assert_eq!(events(&mut watch), ["GAP 1000-5000", "RESYNC absent"]);
    hand(&mut watch, &set("k", "10", 10));
    hand(&mut watch, &set("k", "9", 9));
    assert_eq!(events(&mut watch), ["SET 10@10"]);
}

#[test]
fn a_change_older_than_the_value_read_is_dropped_after_a_reconnect() {
    let mut watch = reconnected(&[set("k", "5", 5)], found("9", 9));
    for message in [set("k", "5", 5), delete("k", 5), set("k", "3", 3)] {
        hand(&mut watch, &message);
    }
    assert_eq!(events(&mut watch), ["GAP 1000-5000", "RESYNC 9@9"]);
}

#[test]
fn a_set_that_repeats_after_its_deletion_and_the_absence_is_dropped() {
    let mut watch = registered("k");
    for message in [set("k", "1", 1), delete("k", 1)] {
        hand(&mut watch, &message);
    }
    watch.handle_read(&key("k"), None, now());
    hand(&mut watch, &set("k", "1", 1));
    assert_eq!(events(&mut watch), ["CURRENT absent"]);
}

#[test]
fn a_loss_before_the_first_value_is_not_a_gap() {
    let mut watch = registered("k");
    hand(&mut watch, &set("k", "1", 1));
    watch.handle_lost(1_000, "gone");
    register(&mut watch, "k");
    watch.handle_read(&key("k"), found("2", 2), now());
    assert_eq!(events(&mut watch), ["LOST 1000 gone", "CURRENT 2@2"]);
}

#[test]
fn a_loss_is_reported_once_however_many_attempts_fail() {
    let mut watch = registered("k");
    for since_ms in [1_000, 2_000, 3_000] {
        watch.handle_lost(since_ms, "gone");
    }
    assert_eq!(events(&mut watch), ["LOST 1000 gone"]);
}

#[test]
fn a_response_from_before_a_loss_is_ignored_after_it() {
    let mut watch = registered("k");
    watch.handle_lost(1_000, "gone");
    watch.handle_connected();
    watch.handle_read(&key("k"), found("1", 1), now());
    assert_eq!(events(&mut watch), ["LOST 1000 gone"]);
}

#[test]
fn other_messages_are_reported_as_skipped() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), None, now());
    let mut garbage = set("k", "1", 1);
    garbage.payload = Value::from_static(b"*1\r\n$3\r\nfoo\r\n");
    let mut stray = set("k", "1", 1);
    stray.topic = "sensors/1".into();
    let mut yesterday = set("k", "1", 1);
    yesterday.user_properties = UserProperties::from_iter([(TIMESTAMP, "yesterday")]);
    let mut foreign = set("k", "1", 1);
    foreign.topic = topic::notify("you", &key("k")).unwrap().into();
    for message in [garbage, stray, yesterday, foreign] {
        hand(&mut watch, &message);
    }
    let reported = events(&mut watch);
    assert_eq!(reported[0], "CURRENT absent");
    assert_eq!(reported.len(), 5, "{reported:?}");
    assert!(reported[1..].iter().all(|line| line.starts_with("SKIPPED")), "{reported:?}");
}

#[test]
fn lower_case_hex_and_del_are_accepted() {
    let mut watch = registered("k");
    watch.handle_read(&key("k"), found("1", 1), now());
    let mut message = delete("k", 1);
    message.topic = message.topic.replace("6B", "6b").into();
    message.payload = Value::from_static(b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n");
    hand(&mut watch, &message);
    assert_eq!(events(&mut watch), ["CURRENT 1@1", "DELETE @1"]);
}

#[test]
fn a_duplicate_key_is_watched_once() {
    let watch = Watch::new([key("a"), key("b"), key("a")]);
    assert_eq!(watch.registrations(), [of_key("a"), of_key("b")]);
}

/// The next action of the simulated store or network.
#[derive(Clone, Debug)]
enum Act {
    Set,
    Delete,
    /// The next message to the client arrives.
    Deliver,
    /// The last notification of this connection arrives once more.
    Repeat,
    /// The response to the read overtakes a notification, or the other way round.
    Swap,
    Lose,
    /// The store starts anew, empty, with versions from this one on, and the connection is lost.
    Restart(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => Just(Act::Set),
        4 => Just(Act::Delete),
        12 => Just(Act::Deliver),
        2 => Just(Act::Repeat),
        2 => Just(Act::Swap),
        1 => Just(Act::Lose),
        1 => (0..40u64).prop_map(Act::Restart),
    ];
    proptest::collection::vec(act, 0..120)
}

/// A message to the client.
enum Parcel {
    Registered,
    Read(Option<VersionedValue>),
    Message(Message),
}

proptest! {
    /// The store notifies in the order of its changes (protocol §11); the connection is lost at any time.
    #[test]
    fn the_last_reported_state_is_the_state_of_the_store(acts in acts()) {
        let mut watch = Watch::new([key("k")]);
        let mut state: Option<u64> = None;
        let (mut clock, mut life) = (0, 0);
        let mut registered = false;
        let mut wire: VecDeque<Parcel> = VecDeque::new();
        let mut delivered: Option<Message> = None;
        let mut events = Vec::new();
        watch.handle_connected();
        // At the end all pending messages arrive.
        let end = std::iter::repeat_n(Act::Deliver, 200);
        for act in acts.into_iter().chain(end) {
            // Two lives have no version in common.
            let version = |clock: u64| clock * 100 + life;
            match act {
                Act::Set => {
                    clock += 1;
                    state = Some(version(clock));
                    if registered {
                        wire.push_back(Parcel::Message(set("k", "v", version(clock))));
                    }
                }
                Act::Delete => if let Some(gone) = state.take().filter(|_| registered) {
                    wire.push_back(Parcel::Message(delete("k", gone)));
                },
                Act::Lose | Act::Restart(_) => {
                    if let Act::Restart(first) = act {
                        (clock, state) = (first, None);
                        life += 1;
                    }
                    wire.clear();
                    delivered = None;
                    registered = false;
                    watch.handle_lost(1, "gone");
                    watch.handle_connected();
                }
                // Messages of one topic keep their order.
                Act::Swap => if let (Some(Parcel::Read(_)), Some(Parcel::Message(_)))
                    | (Some(Parcel::Message(_)), Some(Parcel::Read(_))) = (wire.front(), wire.get(1))
                {
                    wire.swap(0, 1);
                },
                Act::Repeat => if let Some(message) = &delivered {
                    hand(&mut watch, message);
                },
                Act::Deliver => match wire.pop_front() {
                    Some(Parcel::Registered) => watch.handle_registered(&key("k")),
                    Some(Parcel::Read(found)) => watch.handle_read(&key("k"), found, now()),
                    Some(Parcel::Message(message)) => {
                        hand(&mut watch, &message);
                        delivered = Some(message);
                    }
                    None => {}
                },
            }
            while let Some(step) = watch.poll_action() {
                match step {
                    WatchAction::Subscribe => watch.handle_subscribed(),
                    WatchAction::Register(_) => {
                        registered = true;
                        wire.push_back(Parcel::Registered);
                    }
                    WatchAction::Read(_) => {
                        wire.push_back(Parcel::Read(state.and_then(|ms| found("v", ms))));
                    }
                }
            }
            events.extend(std::iter::from_fn(|| watch.poll_event()));
        }
        let mut last: Option<(u64, bool)> = None;
        let mut reported = None;
        for event in events {
            let (next, resync) = match event {
                WatchEvent::Lost { .. } | WatchEvent::Gap { .. } => continue,
                WatchEvent::Current { found, .. } | WatchEvent::Resync { found, .. } => {
                    (found.and_then(|found| found.version).map(|version| (version.ms, false)), true)
                }
                WatchEvent::Set { version, .. } => (version.map(|version| (version.ms, false)), false),
                WatchEvent::Delete { version, .. } => (version.map(|version| (version.ms, true)), false),
                WatchEvent::Skipped { cause, .. } => return Err(TestCaseError::fail(cause)),
            };
            if !resync {
                prop_assert!(next > last, "{next:?} after {last:?}");
            }
            last = next;
            reported = next.filter(|(_, deleted)| !deleted).map(|(ms, _)| ms);
        }
        prop_assert_eq!(reported, state);
    }
}
