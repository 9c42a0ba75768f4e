//! Fuzz target: the store against a naive model that states its promises; versions are only required to grow.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mqkv::protocol::{Condition, ConnectionId, ErrorReply, Key, Reply, Request, Timestamp};
use mqkv::store::{Change, Limits, Now, Store, StoreRequest, StoreResponse, Version, WatchOptions};

const START_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
struct Entry {
    value: u8,
    version: Version,
    fence: Option<u64>,
    deadline_ms: Option<u64>,
    is_persistent: bool,
}

#[derive(Default)]
struct Model {
    keys: BTreeMap<u8, Entry>,
    /// The last version of each key, also of keys that are gone.
    last: BTreeMap<u8, Version>,
    watches: BTreeSet<(u8, u64)>,
}

/// A request to one key.
struct Step {
    connection: u64,
    verb: u8,
    key: u8,
    value: u8,
    ttl_ms: u64,
    timestamp: u64,
    fence: Option<u64>,
    persist: bool,
}

fuzz_target!(|data: &[u8]| {
    let (mut store, mut model) = (Store::new(Limits::default()), Model::default());
    let mut now = Now { wall_ms: START_MS, monotonic_ms: 0 };
    // The store's wall clock begins with the first request and never goes back.
    let mut wall_ms = 0;
    for bytes in data.chunks_exact(4) {
        let [kind, key, value, time] = bytes.try_into().unwrap();
        match kind & 0x0F {
            0 => {
                now.monotonic_ms += u64::from(value);
                now.wall_ms = now.wall_ms.saturating_add_signed(i64::from(time as i8) * 1_000);
            }
            1 => {
                let connection = u64::from(key % 3);
                while store.handle_disconnect(ConnectionId(connection)) {}
                model.watches.retain(|(_, watcher)| *watcher != connection);
            }
            2 => {
                wall_ms = wall_ms.max(now.wall_ms);
                let expired = store.poll_expired(now);
                let expected = model.expire(now, None);
                let mut found: Vec<_> = expired.iter().map(|change| check_change(&model, change)).collect();
                found.sort();
                assert_eq!(found, expected);
            }
            3 => {
                wall_ms = wall_ms.max(now.wall_ms);
                check_scan(&mut store, &model, now, key);
            }
            verb => {
                wall_ms = wall_ms.max(now.wall_ms);
                let step = Step {
                    connection: u64::from(kind >> 6),
                    verb,
                    key: key % 6,
                    value: value % 3,
                    ttl_ms: u64::from(value >> 4),
                    timestamp: now.wall_ms.saturating_add_signed(i64::from(time as i8) * 700),
                    fence: (key & 0x80 != 0).then(|| START_MS + u64::from(time % 8)),
                    persist: kind & 0x10 != 0,
                };
                let response = store.handle_request(step.request(), now);
                model.check(&step, &response, now, wall_ms);
            }
        }
        assert_eq!(store.len(), model.keys.len());
        assert_eq!(store.next_expiry(), model.keys.values().filter_map(|entry| entry.deadline_ms).min());
    }
    check_persistent(&store, &model);
});

fn key(number: u8) -> Key {
    Key::new(vec![b'a' + number]).unwrap()
}

fn check_change(model: &Model, change: &Change) -> u8 {
    let number = change.key.as_bytes()[0] - b'a';
    let mut watchers: Vec<_> = change.watchers.iter().map(|watcher| watcher.connection.0).collect();
    watchers.sort_unstable();
    let expected: Vec<_> =
        model.watches.iter().filter(|(key, _)| *key == number).map(|(_, watcher)| *watcher).collect();
    assert_eq!(watchers, expected);
    number
}

fn check_scan(store: &mut Store, model: &Model, now: Now, which: u8) {
    let (pattern, matches): (&str, fn(u8) -> bool) = match which % 3 {
        0 => ("*", |_| true),
        1 => ("[a-c]", |key| key < 3),
        _ => ("[!a-c]", |key| key >= 3),
    };
    let (mut found, mut token) = (Vec::new(), None);
    loop {
        let request = Request::Scan { pattern: Bytes::from(pattern), token };
        let response = store.handle_request(plain(9, request), now);
        let Reply::Keys { keys, token: next } = response.reply else { panic!("{:?}", response.reply) };
        found.extend(keys.iter().map(|key| key[0] - b'a'));
        token = next;
        if token.is_none() {
            break;
        }
    }
    found.sort_unstable();
    let is_alive = |entry: &Entry| entry.deadline_ms.is_none_or(|at| at > now.monotonic_ms);
    let expected =
        model.keys.iter().filter(|(key, entry)| matches(**key) && is_alive(entry)).map(|(key, _)| *key);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

fn check_persistent(store: &Store, model: &Model) {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(position) = from {
        let (entries, next) = store.persistent_from(position, 2, usize::MAX);
        found.extend(
            entries
                .iter()
                .map(|(key, version, stored)| (key.as_bytes()[0] - b'a', *version, stored.value[0])),
        );
        from = next;
    }
    found.sort_unstable();
    let persistent = model.keys.iter().filter(|(_, entry)| entry.is_persistent);
    assert_eq!(found, persistent.map(|(key, entry)| (*key, entry.version, entry.value)).collect::<Vec<_>>());
}

fn plain(connection: u64, request: Request) -> StoreRequest {
    StoreRequest {
        connection: ConnectionId(connection),
        client_id: "client".into(),
        owner: "client".into(),
        permissions: None,
        request,
        timestamp: None,
        fence: None,
        encoded: None,
        refusal: None,
        watch: WatchOptions::default(),
        persist: false,
    }
}

impl Step {
    fn request(&self) -> StoreRequest {
        let (key, value) = (key(self.key), Bytes::from(vec![self.value]));
        let set =
            |condition, ttl_ms| Request::Set { key: key.clone(), value: value.clone(), condition, ttl_ms };
        let request = match self.verb {
            4 | 5 => set(None, None),
            6 => set(None, NonZeroU64::new(self.ttl_ms)),
            7 => set(Some(Condition::Absent), NonZeroU64::new(self.ttl_ms)),
            8 => set(Some(Condition::AbsentOrEqual), NonZeroU64::new(self.ttl_ms)),
            9 | 10 => Request::Get { key },
            11 | 12 => Request::Del { key },
            13 => Request::VDel { key, value },
            14 => Request::KeyNotify { key, stop: false },
            _ => Request::KeyNotify { key, stop: true },
        };
        StoreRequest {
            timestamp: Some(Ok(Timestamp::of_store(self.timestamp, 0))),
            fence: self.fence.map(|ms| Ok(Timestamp::of_store(ms, 0))),
            encoded: None,
            refusal: None,
            watch: WatchOptions::default(),
            persist: self.persist,
            ..plain(self.connection, request)
        }
    }
}

impl Model {
    /// Removes keys whose deadline has passed: this key, or all.
    fn expire(&mut self, now: Now, only: Option<u8>) -> Vec<u8> {
        let is_due = |(key, entry): &(&u8, &Entry)| {
            only.is_none_or(|only| only == **key)
                && entry.deadline_ms.is_some_and(|at| at <= now.monotonic_ms)
        };
        let due: Vec<u8> = self.keys.iter().filter(is_due).map(|(key, _)| *key).collect();
        for key in &due {
            self.keys.remove(key);
        }
        due
    }

    /// Checks a response and applies the request.
    fn check(&mut self, step: &Step, response: &StoreResponse, now: Now, wall_ms: u64) {
        let StoreResponse { reply, version, .. } = response;
        for change in response.expired.iter().chain(&response.change) {
            assert_eq!(check_change(self, change), step.key);
        }
        let (is_set, is_delete) = ((4..=8).contains(&step.verb), (11..=13).contains(&step.verb));
        let too_new = |ms: u64| ms > wall_ms + 60_000;
        let has_new_fence = step.fence.is_some_and(too_new);
        if is_set && too_new(step.timestamp) || (is_set || is_delete) && has_new_fence {
            let is_refused = matches!(
                reply,
                Reply::Error(ErrorReply::TimestampTooFarAhead | ErrorReply::FenceTooFarAhead)
            );
            assert!(is_refused && response.change.is_none(), "{reply:?}");
            return;
        }
        // A watch, or its end, does not look at the key.
        if step.verb < 14 {
            let due = self.expire(now, Some(step.key));
            assert_eq!(response.expired.is_some(), !due.is_empty());
        }
        let entry = self.keys.get(&step.key).cloned();
        let stored = entry.as_ref().map(|entry| entry.version);
        let is_same = entry.as_ref().is_some_and(|entry| entry.value == step.value);
        if is_set || is_delete {
            let expected = match (step.fence, entry.as_ref().and_then(|entry| entry.fence)) {
                (None, Some(_)) => Some(ErrorReply::FenceRequired),
                (Some(fence), Some(stored)) if fence < stored => Some(ErrorReply::FenceTooOld),
                _ => None,
            };
            if let Some(error) = expected {
                assert_eq!((reply, response.change.is_some()), (&Reply::Error(error), false));
                return;
            }
        }
        let is_applied = match step.verb {
            4..=6 => true,
            7 => entry.is_none(),
            8 => entry.is_none() || is_same,
            11 | 12 => entry.is_some(),
            13 => is_same,
            _ => false,
        };
        assert_eq!(response.change.is_some(), is_applied);
        match (step.verb, reply) {
            (9 | 10, Reply::Value(value)) => {
                let entry = entry.expect("a value that the model has");
                assert_eq!((value.as_ref(), *version), (&[entry.value][..], stored));
            }
            (9 | 10, Reply::Absent) => assert!(entry.is_none()),
            (4..=8, Reply::Done) => {
                let version = version.expect("a SET that was applied has a version");
                let last = self.last.insert(step.key, version).unwrap_or_default();
                assert!(is_applied && version > last, "{version:?} after {last:?}");
                assert!(version > Version { ms: step.timestamp, counter: 0 });
                let has_ttl = step.verb > 5 && step.ttl_ms > 0;
                let new = Entry {
                    value: step.value,
                    version,
                    fence: step.fence,
                    // The clock has whole milliseconds, and a key does not end early.
                    deadline_ms: has_ttl.then(|| now.monotonic_ms + step.ttl_ms + 1),
                    is_persistent: step.persist || entry.is_some_and(|entry| entry.is_persistent),
                };
                self.keys.insert(step.key, new);
            }
            (7 | 8 | 13, Reply::NotApplied) => assert!(!is_applied && entry.is_some() && *version == stored),
            (11..=13, Reply::Count(1)) => {
                assert!(is_applied && *version == stored);
                self.keys.remove(&step.key);
            }
            (11..=13, Reply::Count(0)) => assert!(entry.is_none()),
            (14, Reply::Done) => drop(self.watches.insert((step.key, step.connection))),
            (15, Reply::Done) => assert!(self.watches.remove(&(step.key, step.connection))),
            (15, Reply::Count(0)) => assert!(!self.watches.contains(&(step.key, step.connection))),
            (_, reply) => panic!("{reply:?} to verb {}", step.verb),
        }
    }
}
