//! Tests of the store through its interface, and against a model.

use std::sync::Arc;

use super::*;
use crate::protocol::Notification;
use crate::protocol::timestamp::{SKEW_MAX_MS, TimestampError};
use crate::store::authorization::KeyPermissions;
use crate::store::limits::KEY_COST_BYTES;

mod model;

const NOW: Now = Now { wall_ms: 1_000_000, monotonic_ms: 5_000 };

fn key(bytes: impl AsRef<[u8]>) -> Key {
    Key::new(bytes.as_ref().to_vec()).unwrap()
}

fn later(ms: u64) -> Now {
    Now { wall_ms: NOW.wall_ms + ms, monotonic_ms: NOW.monotonic_ms + ms }
}

fn call(request: Request) -> StoreRequest {
    StoreRequest {
        permissions: None,
        connection: ConnectionId(1),
        client_id: "client".into(),
        owner: "client".into(),
        request,
        timestamp: Some(Ok(Timestamp::of_store(1, 0))),
        fence: None,
        encoded: None,
        refusal: None,
        watch: WatchOptions::default(),
        persist: false,
    }
}

fn set_with(name: &str, value: &str, condition: Option<Condition>, ttl_ms: u64) -> StoreRequest {
    call(Request::Set {
        key: key(name),
        value: value.to_owned().into(),
        condition,
        ttl_ms: NonZeroU64::new(ttl_ms),
    })
}

fn set(name: &str, value: &str) -> StoreRequest {
    set_with(name, value, None, 0)
}

fn get(name: &str) -> StoreRequest {
    call(Request::Get { key: key(name) })
}

fn del(name: &str) -> StoreRequest {
    call(Request::Del { key: key(name) })
}

fn vdel(name: &str, value: &str) -> StoreRequest {
    call(Request::VDel { key: key(name), value: value.to_owned().into() })
}

fn watch(name: &str, stop: bool) -> StoreRequest {
    call(Request::KeyNotify { key: key(name), stop })
}

fn fenced(ms: u64, call: StoreRequest) -> StoreRequest {
    StoreRequest { fence: Some(Ok(Timestamp::of_store(ms, 0))), ..call }
}

fn value(text: &'static str) -> Reply {
    Reply::Value(Bytes::from_static(text.as_bytes()))
}

fn store() -> Store {
    Store::new(Limits::default())
}

/// Handles each request at its time and returns the replies.
fn replies(store: &mut Store, calls: impl IntoIterator<Item = (u64, StoreRequest)>) -> Vec<Reply> {
    calls.into_iter().map(|(ms, call)| store.handle_request(call, later(ms)).reply).collect()
}

#[test]
fn a_value_is_read_with_its_version_until_it_is_deleted() {
    let mut store = store();
    let set = store.handle_request(set("k", "v"), NOW);
    let version = Some(Version { ms: NOW.wall_ms, counter: 0 });
    assert_eq!((set.reply, set.version), (Reply::Done, version));
    let got = store.handle_request(get("k"), NOW);
    assert_eq!((got.reply, got.version, got.change), (value("v"), version, None));
    let removed = store.handle_request(del("k"), NOW);
    assert_eq!((removed.reply, removed.version), (Reply::Count(1), version));
    let gone = [get("k"), del("k"), vdel("k", "v")].map(|call| store.handle_request(call, NOW));
    assert_eq!(gone, [Reply::Absent, Reply::Count(0), Reply::Count(0)].map(StoreResponse::from));
}

#[test]
fn a_failed_condition_returns_the_stored_version() {
    let mut store = store();
    let version = store.handle_request(set("k", "v"), NOW).version;
    let (nx, nex) = (Some(Condition::Absent), Some(Condition::AbsentOrEqual));
    for call in [set_with("k", "v", nx, 0), set_with("k", "w", nex, 0), vdel("k", "w")] {
        let expected = StoreResponse { version, ..Reply::NotApplied.into() };
        assert_eq!(store.handle_request(call, later(9)), expected);
    }
}

#[test]
fn a_set_without_a_valid_timestamp_is_rejected() {
    let ahead = |ms| Timestamp::of_store(NOW.wall_ms + SKEW_MAX_MS + ms, 0);
    let rows = [
        (None, Some(ErrorReply::MissingTimestamp)),
        (Some(Err(TimestampError::Parts)), Some(ErrorReply::MalformedTimestamp)),
        (Some(Ok(ahead(1))), Some(ErrorReply::TimestampTooFarAhead)),
        (Some(Ok(ahead(0))), None),
    ];
    for (timestamp, error) in rows {
        let outcome = store().handle_request(StoreRequest { timestamp, ..set("k", "v") }, NOW);
        assert_eq!(outcome.reply, error.map_or(Reply::Done, Reply::Error));
    }
}

#[test]
fn a_fence_that_is_malformed_or_too_far_ahead_is_rejected_by_every_write() {
    let ahead = Timestamp::of_store(NOW.wall_ms + SKEW_MAX_MS + 1, 0);
    let rows = [
        (Err(TimestampError::Parts), ErrorReply::MalformedTimestamp),
        (Ok(ahead), ErrorReply::FenceTooFarAhead),
    ];
    for (fence, error) in rows {
        for call in [set("k", "v"), del("k"), vdel("k", "v")] {
            let outcome = store().handle_request(StoreRequest { fence: Some(fence.clone()), ..call }, NOW);
            assert_eq!(outcome, StoreResponse::error(error.clone()));
        }
        let outcome = store().handle_request(StoreRequest { fence: Some(fence), ..get("k") }, NOW);
        assert_eq!(outcome.reply, Reply::Absent);
    }
}

#[test]
fn a_fence_protects_a_key_until_it_is_deleted() {
    let rejected = Reply::Error;
    let calls = [
        (fenced(10, set("k", "a")), Reply::Done),
        (set("k", "b"), rejected(ErrorReply::FenceRequired)),
        (set_with("k", "b", Some(Condition::Absent), 0), rejected(ErrorReply::FenceRequired)),
        (fenced(9, vdel("k", "a")), rejected(ErrorReply::FenceTooOld)),
        (fenced(11, set("k", "c")), Reply::Done),
        (fenced(10, del("k")), rejected(ErrorReply::FenceTooOld)),
        (fenced(12, vdel("k", "x")), Reply::NotApplied),
        (get("k"), value("c")),
        (fenced(11, del("k")), Reply::Count(1)),
        (set("k", "d"), Reply::Done),
    ];
    let (calls, expected): (Vec<_>, Vec<_>) =
        calls.into_iter().map(|(call, reply)| ((0, call), reply)).unzip();
    assert_eq!(replies(&mut store(), calls), expected);
}

#[test]
fn a_key_lives_for_its_whole_time_to_live_and_ends_with_its_fence() {
    let mut store = store();
    store.handle_request(fenced(10, set_with("k", "v", None, 100)), NOW);
    // The clock shows whole milliseconds. Up to one has passed at `NOW` that it does not show, so that after 100 it may
    // show 100 before the time is over, and never 101.
    assert_eq!(store.next_expiry(), Some(NOW.monotonic_ms + 101));
    assert_eq!(replies(&mut store, [(100, get("k")), (101, get("k"))]), [value("v"), Reply::Absent]);
    assert_eq!(store.next_expiry(), None);
    assert_eq!(replies(&mut store, [(101, set("k", "w"))]), [Reply::Done]);
}

#[test]
fn a_set_without_a_ttl_removes_the_deadline() {
    let mut store = store();
    let calls = [(0, set_with("k", "v", None, 100)), (50, set("k", "w")), (9_999, get("k"))];
    assert_eq!(replies(&mut store, calls), [Reply::Done, Reply::Done, value("w")]);
}

#[test]
fn setting_the_wall_clock_expires_no_key() {
    let mut store = store();
    store.handle_request(set_with("k", "v", None, 100), NOW);
    let year_later = Now { wall_ms: NOW.wall_ms + 31_536_000_000, ..later(99) };
    assert_eq!(store.handle_request(get("k"), year_later).reply, value("v"));
}

#[test]
fn an_expiry_is_reported_once_by_a_request_or_by_a_poll() {
    let mut store = store();
    store.handle_request(watch("polled", false), NOW);
    store.handle_request(watch("found", false), NOW);
    let version = store.handle_request(set_with("polled", "v", None, 100), NOW).version;
    store.handle_request(set_with("found", "v", None, 100), NOW);
    let found = store.handle_request(get("found"), later(101)).expired.unwrap();
    assert_eq!((found.key, found.content, found.watchers.len()), (key("found"), None, 1));
    let [polled] = store.poll_expired(later(101)).try_into().unwrap();
    assert_eq!((polled.key, polled.content, polled.watchers.len()), (key("polled"), None, 1));
    assert_eq!(Some(polled.version), version);
    assert_eq!(store.poll_expired(later(200)), []);
}

#[test]
fn a_poll_removes_a_bounded_number_of_keys_and_the_next_continues() {
    let mut store = store();
    for index in 0..EXPIRED_PER_POLL_MAX + 1 {
        store.handle_request(set_with(&index.to_string(), "v", None, 1), NOW);
    }
    assert_eq!(store.poll_expired(later(5)).len(), EXPIRED_PER_POLL_MAX);
    assert!(store.next_expiry().unwrap() <= later(5).monotonic_ms);
    assert_eq!(store.poll_expired(later(5)).len(), 1);
}

#[test]
fn versions_are_per_key_and_follow_the_request() {
    let mut store = store();
    let ahead =
        StoreRequest { timestamp: Some(Ok(Timestamp::of_store(NOW.wall_ms + 50, 7))), ..set("a", "v") };
    let versions = [ahead, set("a", "v"), set("b", "v")].map(|call| store.handle_request(call, NOW).version);
    let expected = [(NOW.wall_ms + 50, 8), (NOW.wall_ms + 50, 9), (NOW.wall_ms, 0)];
    assert_eq!(versions, expected.map(|(ms, counter)| Some(Version { ms, counter })));
}

#[test]
fn a_client_that_changes_a_key_that_it_watches_is_notified() {
    let mut store = store();
    let calls = [watch("k", false), watch("k", false)].map(|call| (0, call));
    assert_eq!(replies(&mut store, calls), [Reply::Done, Reply::Done]);
    let watcher = Watcher { connection: ConnectionId(1), client_id: "client".into(), details: false };
    let changes = [set("k", "v"), del("k")].map(|call| store.handle_request(call, NOW).change.unwrap());
    assert_eq!(changes.each_ref().map(|change| change.watchers.clone()), [[watcher.clone()], [watcher]]);
    let calls = [watch("k", true), watch("k", true)].map(|call| (0, call));
    assert_eq!(replies(&mut store, calls), [Reply::Done, Reply::Count(0)]);
    assert_eq!(store.handle_request(set("k", "v"), NOW).change.unwrap().watchers, []);
}

fn watch_prefix(pattern: &str, stop: bool) -> StoreRequest {
    StoreRequest { watch: WatchOptions { is_prefix: true, details: true }, ..watch(pattern, stop) }
}

#[test]
fn a_client_that_watches_a_prefix_is_notified_of_all_keys_with_it() {
    let mut store = store();
    let calls = [watch_prefix("a/*", false), watch_prefix("a*b*", false), watch_prefix("a/*", true)];
    let expected = [Reply::Done, Reply::Error(ErrorReply::SyntaxError), Reply::Done];
    assert_eq!(replies(&mut store, calls.map(|call| (0, call))), expected);
    assert_eq!(store.handle_request(watch_prefix("a/*", false), NOW).reply, Reply::Done);
    let watchers = |store: &mut Store, call| store.handle_request(call, NOW).change.unwrap().watchers;
    let watcher = Watcher { connection: ConnectionId(1), client_id: "client".into(), details: true };
    for call in [set("a/1", "v"), set("a/1", "w"), del("a/1"), set_with("a/2", "v", None, 50)] {
        assert_eq!(watchers(&mut store, call), std::slice::from_ref(&watcher));
    }
    assert_eq!(watchers(&mut store, set("b", "v")), []);
    let own = watchers(&mut store, set("a/*", "v"));
    assert_eq!(own, std::slice::from_ref(&watcher), "the pattern is a key, too");
    let expired = store.poll_expired(later(51)).pop().unwrap();
    assert_eq!((expired.key, expired.watchers), (key(b"a/2"), vec![watcher]));
    assert_eq!((store.statistics().watches, store.watches_of(ConnectionId(1))), (1, 1));
    assert!(store.is_watching(ConnectionId(1)) && !store.handle_disconnect(ConnectionId(1)));
    assert!(!store.is_watching(ConnectionId(1)));
    assert_eq!(watchers(&mut store, set("a/1", "v")), []);
    assert_eq!(store.handle_request(watch_prefix("a/*", true), NOW).reply, Reply::Count(0));
}

#[test]
fn a_disconnect_ends_the_watches_of_that_connection_only() {
    let mut store = store();
    store.handle_request(watch("k", false), NOW);
    store.handle_request(StoreRequest { connection: ConnectionId(2), ..watch("k", false) }, NOW);
    store.handle_disconnect(ConnectionId(1));
    let watchers = store.handle_request(set("k", "v"), NOW).change.unwrap().watchers;
    assert_eq!(watchers.iter().map(|watcher| watcher.connection.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_key_too_long_for_a_topic_cannot_be_watched() {
    let long = "k".repeat(40_000);
    let expected = Reply::Error(ErrorReply::KeyTooLongToWatch);
    assert_eq!(replies(&mut store(), [(0, watch(&long, false))]), [expected]);
}

#[test]
fn the_lengths_of_keys_and_values_are_limited() {
    let limits = Limits { key_bytes_max: 3, value_bytes_max: 2, ..Limits::default() };
    let calls = [set("keys", "v"), get("keys"), del("keys"), set("key", "val"), set("key", "va")];
    let [key, value] = [ErrorReply::KeyTooLong, ErrorReply::ValueTooLong].map(Reply::Error);
    let expected = [key.clone(), key.clone(), key, value, Reply::Done];
    assert_eq!(replies(&mut Store::new(limits), calls.map(|call| (0, call))), expected);
}

#[test]
fn a_full_store_accepts_a_new_key_after_one_is_deleted_or_expires() {
    let full = Reply::Error(ErrorReply::QuotaExceeded);
    let mut store = Store::new(Limits { keys_max: 2, ..Limits::default() });
    let calls = [
        (0, set("a", "v"), Reply::Done),
        (0, set_with("b", "v", None, 100), Reply::Done),
        (0, set("c", "v"), full.clone()),
        (0, set_with("a", "w", None, 200), Reply::Done),
        (0, del("b"), Reply::Count(1)),
        (0, set_with("c", "v", None, 100), Reply::Done),
        (100, set("d", "v"), full),
        (101, set("d", "v"), Reply::Done),
        (201, set("a", "v"), Reply::Done),
    ];
    for (ms, call, expected) in calls {
        assert_eq!(store.handle_request(call, later(ms)).reply, expected);
    }
}

#[test]
fn a_key_that_expires_to_make_room_is_reported() {
    let mut store = Store::new(Limits { keys_max: 1, ..Limits::default() });
    store.handle_request(set_with("a", "v", None, 100), NOW);
    let outcome = store.handle_request(set("b", "v"), later(101));
    assert_eq!(outcome.expired.unwrap().key, key("a"));
    assert_eq!(outcome.change.unwrap().key, key("b"));
}

#[test]
fn a_restored_key_equals_the_one_that_was_read() {
    let (mut old, mut new) = (store(), store());
    old.handle_request(fenced(10, set_with("k", "v", None, 100)), NOW);
    let was = old.read(&key("k"));
    new.restore(&key("k"), was.clone());
    assert_eq!((new.read(&key("k")), new.greatest_version()), (was, old.greatest_version()));
    assert_eq!(replies(&mut new, [(100, get("k")), (101, get("k"))]), [value("v"), Reply::Absent]);
    old.restore(&key("k"), None);
    assert!(old.is_empty() && old.next_expiry().is_none());
}

#[test]
fn an_absent_key_gets_a_version_above_the_floor() {
    let mut store = store();
    store.raise_floor(Version { ms: NOW.wall_ms + 500, counter: 3 });
    let version = store.handle_request(set("k", "v"), NOW).version;
    assert_eq!(version, Some(Version { ms: NOW.wall_ms + 500, counter: 4 }));
}

fn scan_all(store: &mut Store, pattern: &str, now: Now) -> (Vec<Bytes>, usize) {
    let (mut all, mut token, mut pages) = (Vec::new(), None, 0);
    loop {
        let scan = call(Request::Scan { pattern: pattern.to_owned().into(), token });
        let Reply::Keys { keys, token: next } = store.handle_request(scan, now).reply else { panic!() };
        all.extend(keys);
        pages += 1;
        token = next;
        if token.is_none() {
            all.sort();
            return (all, pages);
        }
    }
}

#[test]
fn a_long_value_is_copied_once_for_all_its_replies_and_notifications() {
    let mut store = store();
    store.handle_request(watch("k", false), NOW);
    let value = "v".repeat(100_000);
    for is_prepared in [true, false] {
        let mut request = set("k", &value);
        if is_prepared {
            request.encode_long_value();
            assert!(request.encoded.is_some());
        }
        let change = store.handle_request(request, NOW).change.unwrap();
        let notification = change.notification.unwrap();
        let range = notification.as_ptr_range();
        assert_eq!(notification, Notification::Set(Some(value.clone().into())).encode());
        assert!(range.contains(&change.content.unwrap().value.as_ptr()));
        for _ in 0..2 {
            let response = store.handle_request(get("k"), NOW);
            let payload = response.payload.unwrap();
            assert!(range.contains(&payload.as_ptr()));
            assert_eq!(payload, response.reply.encode());
        }
    }
    let mut short = set("k", &value[..1_024]);
    short.encode_long_value();
    assert_eq!(short.encoded, None);
    assert_eq!(store.handle_request(short, NOW).change.unwrap().notification, None);
    assert_eq!(store.handle_request(get("k"), NOW).payload, None);
}

#[test]
fn a_scan_lists_each_matching_key_once() {
    let mut store = store();
    let names: Vec<_> = (0..2_500).map(|index| format!("k{index:04}")).collect();
    for name in &names {
        store.handle_request(set(name, "v"), NOW);
    }
    store.handle_request(set("other", "v"), NOW);
    store.handle_request(set_with("k-expired", "v", None, 1), NOW);
    store.handle_request(set("k-deleted", "v"), NOW);
    store.handle_request(del("k-deleted"), NOW);
    assert_eq!(scan_all(&mut store, "k*", later(2)), (names.into_iter().map(Bytes::from).collect(), 3));
}

#[test]
fn a_scan_lists_keys_that_are_not_utf8() {
    let mut store = store();
    store.handle_request(set("k", "v"), NOW);
    for bytes in [&b"k\xff"[..], b"\xffk", b"k\xc3/\x80"] {
        store.restore(&key(bytes), store.read(&key("k")));
    }
    let mut listed = |pattern| scan_all(&mut store, pattern, NOW).0;
    assert_eq!(listed("*"), [&b"k"[..], b"k\xc3/\x80", b"k\xff", b"\xffk"]);
    assert_eq!(listed("k?"), [&b"k\xff"[..]]);
    assert_eq!(listed("?k"), [&b"\xffk"[..]]);
    assert_eq!(listed("k*/*"), [&b"k\xc3/\x80"[..]]);
}

#[test]
fn a_hundred_of_the_longest_keys_take_no_more_than_64_pages() {
    let mut store = store();
    for index in 0..100 {
        store.handle_request(set(&format!("{index:065535}"), ""), NOW);
    }
    let (keys, pages) = scan_all(&mut store, "*", NOW);
    assert!(keys.len() == 100 && pages <= 64, "{pages}");
}

#[test]
fn a_page_takes_a_bounded_number_of_matching_steps() {
    let mut store = store();
    let scan = |pattern: String, token| call(Request::Scan { pattern: pattern.into(), token });
    let slow = |count: usize| format!("*[ab]{}b*", "a".repeat(count));
    for index in 0..100 {
        store.handle_request(set(&format!("{index}{}", "a".repeat(10_000)), "v"), NOW);
    }
    // Each of the hundred keys takes 200,000 steps.
    let (keys, pages) = scan_all(&mut store, &slow(20), NOW);
    assert!(keys.is_empty() && (2..=3).contains(&pages), "{pages}");
    let too_expensive = store.handle_request(scan(slow(5_000), None), NOW);
    assert_eq!(too_expensive, StoreResponse::error(ErrorReply::QuotaExceeded));
    let ranges = format!("*[{}]b", "b-c".repeat(1_700));
    assert_eq!(
        store.handle_request(scan(ranges, None), NOW).reply,
        Reply::Keys { keys: vec![], token: None }
    );
    let ranges = format!("*[{}]b*", "b-c".repeat(1_700));
    assert_eq!(
        store.handle_request(scan(ranges, None), NOW),
        StoreResponse::error(ErrorReply::QuotaExceeded)
    );
    let longer_than_any_key = store.handle_request(scan("?".repeat(65_536), None), NOW);
    assert_eq!(longer_than_any_key, StoreResponse::error(ErrorReply::KeyTooLong));
}

/// Scans a page in calls of [`Store::scan`]; returns the number of calls and of the keys that were found.
fn scan_in_calls(store: &mut Store, pattern: &str) -> (usize, usize) {
    let mut scan = Scan::new(pattern.as_bytes(), None).unwrap();
    let mut calls = 0;
    while !scan.is_complete() {
        store.scan(&mut scan, NOW);
        scan.retain_readable(None);
        calls += 1;
    }
    let Reply::Keys { keys, .. } = scan.into_reply() else { panic!("{pattern} is rejected") };
    (calls, keys.len())
}

#[test]
fn a_call_of_a_scan_looks_at_few_keys_and_takes_few_steps() {
    let mut store = store();
    for index in 0..10_000 {
        store.handle_request(set(&format!("k{index}"), "v"), NOW);
    }
    let (calls, keys) = scan_in_calls(&mut store, "k1234*");
    assert_eq!((calls, keys), (10, 1), "a thousand keys in each call");
    for index in 0..100 {
        store.handle_request(set(&format!("long{index}{}", "é".repeat(30_000)), "v"), NOW);
    }
    // 60,000 bytes take 60,000 steps in a search, and some 4,000 where only UTF-8 is checked.
    assert!(scan_in_calls(&mut store, "*x*").0 >= 90);
    assert!((20..30).contains(&scan_in_calls(&mut store, "x*").0));
}

#[test]
fn keys_that_may_not_be_read_count_as_work_and_not_for_the_page() {
    let mut permissions = KeyPermissions::default();
    permissions.read.add(b"k9999");
    let mut store = store();
    for index in 0..10_000 {
        store.handle_request(set(&format!("k{index}"), "v"), NOW);
    }
    let mut scan = Scan::new(b"*", None).unwrap();
    let mut calls = 0;
    while !scan.is_complete() {
        store.scan(&mut scan, NOW);
        scan.retain_readable(Some(&permissions.read));
        calls += 1;
    }
    assert_eq!(scan.into_reply(), Reply::Keys { keys: vec!["k9999".into()], token: None });
    assert!(calls >= 10, "{calls}");
}

#[test]
fn a_malformed_scan_is_a_syntax_error() {
    let mut store = store();
    let scan = |pattern: &'static [u8], token: Option<&'static [u8]>| {
        call(Request::Scan { pattern: pattern.into(), token: token.map(Bytes::from) })
    };
    for call in [scan(b"", None), scan(b"\xff", None), scan(b"[", None), scan(b"*", Some(b"x"))] {
        assert_eq!(store.handle_request(call, NOW), StoreResponse::error(ErrorReply::SyntaxError));
    }
    let beyond = store.handle_request(scan(b"*", Some(b"\xff\xff\xff\xff")), NOW);
    assert_eq!(beyond.reply, Reply::Keys { keys: vec![], token: None });
}

#[test]
fn authorization_is_checked_after_timestamps_and_before_the_fence() {
    let mut permissions = KeyPermissions::default();
    permissions.read.add(b"readable");
    permissions.write.add_pattern("writ*").unwrap();
    let permissions = Some(Arc::new(permissions));
    let mut store = store();
    for name in ["readable", "writable", "closed"] {
        store.handle_request(set(name, "v"), NOW);
    }
    let mut ask = |call: StoreRequest| {
        store.handle_request(StoreRequest { permissions: permissions.clone(), ..call }, NOW).reply
    };
    let rejected = Reply::Error(ErrorReply::NotAuthorized);
    assert_eq!(ask(get("readable")), Reply::Value("v".into()));
    assert_eq!(ask(watch("readable", false)), Reply::Done);
    assert_eq!(ask(set("writable", "w")), Reply::Done);
    for call in [set("readable", "w"), del("readable"), vdel("readable", "v"), get("writable")] {
        assert_eq!(ask(call), rejected);
    }
    assert_eq!(ask(watch("closed", false)), rejected);
    // A client without permission learns nothing about the fence, but a wrong timestamp is reported first.
    assert_eq!(ask(fenced(1, set("closed", "w"))), rejected);
    assert_eq!(
        ask(StoreRequest { timestamp: None, ..set("closed", "w") }),
        Reply::Error(ErrorReply::MissingTimestamp)
    );
    let scan = StoreRequest { request: Request::Scan { pattern: "*".into(), token: None }, ..get("k") };
    assert_eq!(ask(scan), Reply::Keys { keys: vec!["readable".into()], token: None });
    assert_eq!(ask(del("writable")), Reply::Count(1));
}

#[test]
fn a_watch_that_is_no_longer_allowed_is_revoked() {
    let mut store = store();
    for name in ["a", "b"] {
        store.handle_request(watch(name, false), NOW);
    }
    assert_eq!(store.watched_keys(ConnectionId(1), None), [key(b"a"), key(b"b")]);
    store.revoke_watch(ConnectionId(1), &key(b"b"));
    let notified = |outcome: StoreResponse| outcome.change.map_or(0, |change| change.watchers.len());
    assert_eq!(notified(store.handle_request(set("a", "v"), NOW)), 1);
    assert_eq!(notified(store.handle_request(set("b", "v"), NOW)), 0);
}

#[test]
fn memory_is_limited_and_released_by_a_delete_or_an_expiry() {
    let memory_bytes_max = 2 * (KEY_COST_BYTES + 1 + 10);
    let mut store = Store::new(Limits { memory_bytes_max, ..Limits::default() });
    let ten = "0123456789";
    let full = Reply::Error(ErrorReply::QuotaExceeded);
    assert_eq!(store.handle_request(set("a", ten), NOW).reply, Reply::Done);
    assert_eq!(store.handle_request(set_with("b", ten, None, 50), NOW).reply, Reply::Done);
    assert_eq!(store.handle_request(set("c", ten), NOW).reply, full);
    assert_eq!(store.handle_request(set("a", "01234567890"), NOW).reply, full, "longer than what it holds");
    assert_eq!(store.handle_request(set("a", "9876543210"), NOW).reply, Reply::Done, "as long");
    assert_eq!(store.handle_request(get("a"), NOW).reply, Reply::Value("9876543210".into()));
    assert_eq!(store.handle_request(set("c", ten), later(51)).reply, Reply::Done, "b has expired");
    assert_eq!(store.handle_request(set("d", ten), later(51)).reply, full);
    assert_eq!(store.handle_request(del("a"), later(51)).reply, Reply::Count(1));
    assert_eq!(store.handle_request(set("d", ten), later(51)).reply, Reply::Done);
}

/// A SET whose timestamp is ahead of the clock.
fn set_ahead(name: &str, ms: u64) -> StoreRequest {
    StoreRequest { timestamp: Some(Ok(Timestamp::of_store(NOW.wall_ms + ms, 0))), ..set(name, "v") }
}

#[test]
fn a_client_that_is_ahead_raises_the_versions_of_no_key_but_those_that_it_writes() {
    let mut store = store();
    for index in 0..70_000 {
        let name = format!("own{index}");
        store.handle_request(set_ahead(&name, SKEW_MAX_MS), NOW);
        store.handle_request(del(&name), NOW);
    }
    let version = |store: &mut Store, name| store.handle_request(set(name, "v"), NOW).version.unwrap();
    assert_eq!(version(&mut store, "other"), Version { ms: NOW.wall_ms, counter: 0 });
    assert_eq!(version(&mut store, "own7"), Version { ms: NOW.wall_ms + SKEW_MAX_MS, counter: 2 });
}

#[test]
fn deleted_keys_whose_versions_are_ahead_take_memory_until_the_clock_has_passed_them() {
    let memory_bytes_max = 3 * (KEY_COST_BYTES + 2);
    let mut store = Store::new(Limits { memory_bytes_max, ..Limits::default() });
    let full = Reply::Error(ErrorReply::QuotaExceeded);
    for name in ["a", "b", "c"] {
        assert_eq!(store.handle_request(set_ahead(name, 50), NOW).reply, Reply::Done);
        assert_eq!(
            store.handle_request(del(name), NOW).reply,
            Reply::Count(1),
            "a full store can be emptied"
        );
    }
    assert_eq!((store.len(), store.statistics().bytes), (0, 0));
    assert_eq!(store.handle_request(set("d", "v"), later(50)).reply, full);
    assert_eq!(store.handle_request(set("d", "v"), later(51)).reply, Reply::Done);
}

#[test]
fn a_poll_is_due_while_there_are_deleted_keys_to_forget() {
    let mut store = store();
    for index in 0..100 {
        store.handle_request(set_ahead(&index.to_string(), 50), NOW);
        store.handle_request(del(&index.to_string()), NOW);
    }
    assert_eq!(store.next_expiry(), None);
    store.handle_request(get("k"), later(51));
    assert_eq!(store.next_expiry(), Some(0));
    assert_eq!((store.poll_expired(later(51)), store.next_expiry()), (vec![], None));
}

#[test]
fn the_memory_of_a_fencing_token_and_of_its_node_counts() {
    let node = "n".repeat(512);
    let token = format!("1:0:{node}").parse::<Timestamp>().unwrap();
    let fenced = |name: &str| StoreRequest { fence: Some(Ok(token.clone())), ..set(name, "v") };
    // What the allocator holds for such a key: an entry with its places, key and value, the token, its node.
    let held_bytes = 40 + 21 + 32 + 48 + 528;
    let mut store = Store::new(Limits { memory_bytes_max: 10 * held_bytes, ..Limits::default() });
    let accepted = |store: &mut Store, prefix: &str| {
        let mut set = |index: &u8| store.handle_request(fenced(&format!("{prefix}{index}")), NOW).reply;
        (0..100).take_while(|index| set(index) == Reply::Done).count()
    };
    assert!((9..=10).contains(&accepted(&mut store, "")));
    // A token is given back with its key, and by a SET without a token or with a shorter one.
    let short = StoreRequest { fence: Some(Ok(Timestamp::of_store(2, 0))), ..set("0", "v") };
    assert_eq!(store.handle_request(short, NOW).reply, Reply::Done);
    assert_eq!(store.handle_request(set("plain", "v"), NOW).reply, Reply::Done);
    for index in 1..9 {
        let delete = StoreRequest { fence: Some(Ok(token.clone())), ..del(&index.to_string()) };
        assert_eq!(store.handle_request(delete, NOW).reply, Reply::Count(1));
    }
    assert!((7..=9).contains(&accepted(&mut store, "x")));
}

#[test]
fn a_rewrite_that_takes_no_more_memory_is_accepted_in_an_overfull_store() {
    let mut store = Store::new(Limits { memory_bytes_max: 50, keys_max: 1, ..Limits::default() });
    let stored = |value: &'static str| StoredValue {
        value: value.into(),
        fence: None,
        deadline_ms: None,
        persist: false,
    };
    // A store may be started with lower limits than before.
    for name in ["a", "b"] {
        store.restore(&key(name), Some((Version { ms: 1, counter: 0 }, stored("12345"))));
    }
    let full = Reply::Error(ErrorReply::QuotaExceeded);
    assert_eq!(store.handle_request(set("a", "54321"), NOW).reply, Reply::Done, "the same size");
    assert_eq!(store.handle_request(set("a", "4321"), NOW).reply, Reply::Done, "a smaller one");
    assert_eq!(store.handle_request(set("a", "54321"), NOW).reply, full);
    assert_eq!(store.handle_request(fenced(10, set("b", "54321")), NOW).reply, full, "a token takes memory");
}

#[test]
fn portions_have_each_persistent_key_once_whatever_their_size() {
    let mut store = store();
    let persistent = |name: &str| StoreRequest { persist: true, ..set(name, "v") };
    for index in 0..300 {
        store.handle_request(persistent(&format!("{index:03}")), NOW);
        // Two neighbors at least are persistent, so that one follows at the end of a portion.
        if index % 3 == 0 {
            store.handle_request(set(&format!("passing{index}"), "v"), NOW);
        }
    }
    for keys_max in [1, 2, 7, 100, 299, 300, 301] {
        let (mut found, mut next) = (Vec::new(), Some(0));
        while let Some(from) = next {
            let (portion, then) = store.persistent_from(from, keys_max, usize::MAX);
            assert!(portion.len() == keys_max || then.is_none(), "only the last portion is smaller");
            found.extend(
                portion.into_iter().map(|(key, ..)| String::from_utf8_lossy(key.as_bytes()).into_owned()),
            );
            next = then;
        }
        found.sort();
        let all: Vec<_> = (0..300).map(|index| format!("{index:03}")).collect();
        assert_eq!(found, all, "{keys_max}");
    }
}

/// A snapshot walks through a store of which few keys are persistent, or whose keys were deleted.
#[test]
fn a_portion_looks_at_a_bounded_number_of_keys_and_may_be_empty() {
    let mut store = store();
    for index in 0..5_000 {
        store.handle_request(set(&index.to_string(), "v"), NOW);
    }
    store.handle_request(StoreRequest { persist: true, ..set("last", "v") }, NOW);
    let (mut sizes, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        let (portion, then) = store.persistent_from(from, 10, usize::MAX);
        sizes.push(portion.len());
        next = then;
    }
    assert_eq!(sizes, [0, 0, 0, 0, 1]);
}

/// Returns the number of keys of each page.
fn page_sizes(store: &mut Store, pattern: &str) -> Vec<usize> {
    let (mut sizes, mut token) = (Vec::new(), None);
    loop {
        let scan = call(Request::Scan { pattern: pattern.to_owned().into(), token });
        let Reply::Keys { keys, token: next } = store.handle_request(scan, NOW).reply else { panic!() };
        sizes.push(keys.len());
        match next {
            Some(next) => token = Some(next),
            None => return sizes,
        }
    }
}

#[test]
fn a_page_has_at_most_a_thousand_keys() {
    let mut store = store();
    for index in 0..2_001 {
        store.handle_request(set(&index.to_string(), "v"), NOW);
    }
    assert_eq!(page_sizes(&mut store, "*"), [1_000, 1_000, 1]);
}

#[test]
fn a_page_ends_with_the_key_that_fills_128_kib() {
    let mut store = store();
    for index in 0..9 {
        store.handle_request(set(&format!("{index:032768}"), "v"), NOW);
    }
    assert_eq!(page_sizes(&mut store, "*"), [4, 4, 1]);
}

#[test]
fn a_page_looks_at_a_bounded_number_of_keys_and_may_be_empty() {
    let mut store = store();
    for index in 0..33_000 {
        store.handle_request(set(&format!("other{index}"), "v"), NOW);
    }
    store.handle_request(set("k", "v"), NOW);
    assert_eq!(page_sizes(&mut store, "k*"), [0, 1]);
}

/// Handles requests; `.ci/instructions` counts the instructions of this function. Returns the number of keys that were set.
#[inline(never)]
fn handle_counted(store: &mut Store, calls: Vec<StoreRequest>) -> usize {
    let replies = calls.into_iter().map(|call| store.handle_request(call, NOW).reply);
    replies.filter(|reply| *reply == Reply::Done).count()
}

#[test]
#[ignore = "its instructions are counted by .ci/instructions"]
fn ten_thousand_operations() {
    let names: Vec<_> = (0..2_500).map(|number| format!("key/{number:05}")).collect();
    let of_all = |call: fn(&str) -> StoreRequest| names.iter().map(move |name| call(name));
    let calls = of_all(|name| set(name, "value")).chain(of_all(get));
    let calls = calls.chain(of_all(|name| set(name, "other"))).chain(of_all(del)).collect();
    let mut store = store();
    assert_eq!(handle_counted(&mut store, calls), 5_000);
    assert!(store.is_empty());
}
