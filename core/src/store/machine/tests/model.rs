//! Property test of the store against a plain map with the same rules, and clocks that jump.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::protocol::prefix_pattern;

/// One event.
#[derive(Clone, Debug)]
enum Step {
    Request { connection: u64, verb: Verb, key: u8, value: u8, timestamp: u64, fence: Option<u64> },
    Disconnect(u64),
    Poll,
    Advance { monotonic_ms: u64, wall_ms: i64 },
}

#[derive(Clone, Debug)]
enum Verb {
    Set(Option<Condition>, u64),
    Get,
    Del,
    VDel,
    /// Of a key or, with a value above 0, of a prefix: that of the key, or the empty one. Whether to stop it.
    Watch(bool),
}

fn verb() -> impl Strategy<Value = Verb> {
    let condition = prop::option::of(prop_oneof![Just(Condition::Absent), Just(Condition::AbsentOrEqual)]);
    prop_oneof![
        5 => (condition, 0..30_u64).prop_map(|(condition, ttl_ms)| Verb::Set(condition, ttl_ms)),
        2 => Just(Verb::Get),
        2 => Just(Verb::Del),
        1 => Just(Verb::VDel),
        2 => any::<bool>().prop_map(Verb::Watch),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Few requests have a fence: with one on every key, hardly any other request would be accepted.
    let fence = prop_oneof![6 => Just(None), 1 => (0..20_u64).prop_map(Some)];
    let request = (0..3_u64, verb(), 0..4_u8, 0..3_u8, 0..2_100_u64, fence);
    prop_oneof![
        12 => request.prop_map(|(connection, verb, key, value, timestamp, fence)| {
            Step::Request { connection, verb, key, value, timestamp, fence }
        }),
        1 => (0..3_u64).prop_map(Step::Disconnect),
        1 => Just(Step::Poll),
        4 => (0..20_u64, -300..300_i64).prop_map(|(monotonic_ms, wall_ms)| Step::Advance { monotonic_ms, wall_ms }),
    ]
}

#[derive(Clone, Debug)]
struct Entry {
    value: u8,
    version: Version,
    fence: Option<u64>,
    deadline_ms: Option<u64>,
}

/// A notification: connection, key, version, value.
type Notified = (u64, u8, Version, Option<u8>);

#[derive(Default)]
struct Model {
    keys: BTreeMap<u8, Entry>,
    /// The last version of every key, including deleted ones.
    last: BTreeMap<u8, Version>,
    watches: BTreeSet<(u8, u64)>,
    /// The watches of prefixes; `None` is the empty one.
    prefix_watches: BTreeSet<(Option<u8>, u64)>,
    notified: Vec<Notified>,
    monotonic_ms: u64,
    wall_ms: u64,
}

impl Model {
    fn notify(&mut self, key: u8, version: Version, value: Option<u8>) {
        let of_key = self.watches.iter().filter(|(watched, _)| *watched == key).map(|watch| watch.1);
        let matches = |prefix: &Option<u8>| prefix.is_none_or(|prefix| prefix == key);
        let of_prefix = self.prefix_watches.iter().filter(|(prefix, _)| matches(prefix)).map(|watch| watch.1);
        let connections: BTreeSet<u64> = of_key.chain(of_prefix).collect();
        self.notified.extend(connections.into_iter().map(|connection| (connection, key, version, value)));
    }

    fn expire(&mut self, key: u8) {
        let is_due = |held: &mut Entry| held.deadline_ms.is_some_and(|at| at <= self.monotonic_ms);
        if let Some(held) = self.keys.get_mut(&key)
            && is_due(held)
        {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: u8) {
        let held = self.keys.remove(&key).unwrap();
        self.notify(key, held.version, None);
    }

    fn request(
        &mut self,
        connection: u64,
        verb: &Verb,
        key: u8,
        value: u8,
        timestamp: u64,
        fence: Option<u64>,
    ) -> (Reply, Option<Version>) {
        if let Verb::Watch(stop) = verb {
            let watch = (watched_prefix(key, value), connection);
            let was = match (stop, value) {
                (true, 0) => self.watches.remove(&(key, connection)),
                (true, _) => self.prefix_watches.remove(&watch),
                (false, 0) => {
                    self.watches.insert((key, connection));
                    true
                }
                (false, _) => {
                    self.prefix_watches.insert(watch);
                    true
                }
            };
            return (if was { Reply::Done } else { Reply::Count(0) }, None);
        }
        self.expire(key);
        let held = self.keys.get(&key).cloned();
        let stored = held.as_ref().map(|held| held.version);
        if matches!(verb, Verb::Get) {
            return held
                .map_or((Reply::Absent, None), |held| (Reply::Value(vec![held.value].into()), stored));
        }
        if let Some(protecting) = held.as_ref().and_then(|held| held.fence) {
            match fence {
                None => return (Reply::Error(ErrorReply::FenceRequired), None),
                Some(fence) if fence < protecting => return (Reply::Error(ErrorReply::FenceTooOld), None),
                Some(_) => {}
            }
        }
        let same = held.as_ref().is_some_and(|held| held.value == value);
        match (verb, held.is_some()) {
            (Verb::Del | Verb::VDel, false) => (Reply::Count(0), None),
            (Verb::Set(Some(Condition::Absent), _), true) => (Reply::NotApplied, stored),
            (Verb::Set(Some(Condition::AbsentOrEqual), _) | Verb::VDel, true) if !same => {
                (Reply::NotApplied, stored)
            }
            (Verb::Set(_, ttl_ms), _) => {
                let last = self.last.get(&key).copied().unwrap_or_default();
                let latest = last.max(Version { ms: timestamp, counter: 0 });
                let version = if self.wall_ms > latest.ms {
                    Version { ms: self.wall_ms, counter: 0 }
                } else if self.wall_ms == timestamp && self.wall_ms > last.ms {
                    Version { ms: self.wall_ms + 1, counter: 0 }
                } else {
                    Version { counter: latest.counter + 1, ..latest }
                };
                let deadline_ms = (*ttl_ms > 0).then(|| self.monotonic_ms + ttl_ms + 1);
                self.keys.insert(key, Entry { value, version, fence, deadline_ms });
                self.last.insert(key, version);
                self.notify(key, version, Some(value));
                (Reply::Done, Some(version))
            }
            _ => {
                self.remove(key);
                (Reply::Count(1), stored)
            }
        }
    }
}

fn watched_prefix(key: u8, value: u8) -> Option<u8> {
    (value == 1).then_some(key)
}

fn notified(changes: impl IntoIterator<Item = Change>) -> Vec<Notified> {
    let mut all = Vec::new();
    for Change { key, version, content, watchers, .. } in changes {
        let value = content.map(|content| content.value[0]);
        all.extend(watchers.iter().map(|watcher| (watcher.connection.0, key.as_bytes()[0], version, value)));
    }
    all
}

fn store_request(
    connection: u64,
    verb: &Verb,
    name: u8,
    value: u8,
    timestamp: u64,
    fence: Option<u64>,
) -> StoreRequest {
    let is_prefix = matches!(verb, Verb::Watch(_)) && value > 0;
    let watched = if is_prefix {
        let prefix: Vec<u8> = watched_prefix(name, value).into_iter().collect();
        prefix_pattern(&prefix)
    } else {
        Bytes::from(vec![name])
    };
    let (key, value) = (key(&watched), Bytes::from(vec![value]));
    let request = match *verb {
        Verb::Set(condition, ttl_ms) => {
            Request::Set { key, value, condition, ttl_ms: NonZeroU64::new(ttl_ms) }
        }
        Verb::Get => Request::Get { key },
        Verb::Del => Request::Del { key },
        Verb::VDel => Request::VDel { key, value },
        Verb::Watch(stop) => Request::KeyNotify { key, stop },
    };
    StoreRequest {
        permissions: None,
        connection: ConnectionId(connection),
        timestamp: Some(Ok(Timestamp::of_store(timestamp, 0))),
        fence: fence.map(|ms| Ok(Timestamp::of_store(ms, 0))),
        watch: WatchOptions { is_prefix, details: false },
        ..call(request)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn the_store_behaves_like_a_plain_map_with_the_same_rules(steps in prop::collection::vec(step(), 0..120)) {
        let (mut store, mut model) = (store(), Model::default());
        let mut now = Now { wall_ms: 1_000, monotonic_ms: 0 };
        for step in steps {
            if matches!(step, Step::Request { .. } | Step::Poll) {
                model.wall_ms = model.wall_ms.max(now.wall_ms);
            }
            match step {
                Step::Request { connection, verb, key, value, timestamp, fence } => {
                    let (before, last) = (model.notified.len(), model.last.get(&key).copied());
                    let expected = model.request(connection, &verb, key, value, timestamp, fence);
                    let outcome = store.handle_request(store_request(connection, &verb, key, value, timestamp, fence), now);
                    if let (Verb::Set(..), Reply::Done) = (&verb, &outcome.reply) {
                        let request = Version { ms: timestamp, counter: 0 };
                        prop_assert!(outcome.version > last.max(Some(request)));
                    }
                    prop_assert_eq!((outcome.reply, outcome.version), expected);
                    let changes = outcome.expired.into_iter().chain(outcome.change);
                    prop_assert_eq!(&notified(changes), &model.notified[before..]);
                }
                Step::Disconnect(connection) => {
                    store.handle_disconnect(ConnectionId(connection));
                    model.watches.retain(|(_, watcher)| *watcher != connection);
                    model.prefix_watches.retain(|(_, watcher)| *watcher != connection);
                }
                Step::Poll => {
                    let before = model.notified.len();
                    (0..4).for_each(|key| model.expire(key));
                    let mut polled = notified(store.poll_expired(now));
                    // The model expires by key, the store by deadline: only that each key is notified once
                    // counts.
                    polled.sort();
                    model.notified[before..].sort();
                    prop_assert_eq!(&polled, &model.notified[before..]);
                }
                Step::Advance { monotonic_ms, wall_ms } => {
                    now.monotonic_ms += monotonic_ms;
                    now.wall_ms = now.wall_ms.saturating_add_signed(wall_ms);
                    model.monotonic_ms = now.monotonic_ms;
                }
            }
            let next = model.keys.values().filter_map(|held| held.deadline_ms).min();
            prop_assert_eq!(store.next_expiry(), next);
            prop_assert_eq!(store.len(), model.keys.len());
        }
    }
}
