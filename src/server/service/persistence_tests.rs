//! Persistence: which keys are on disk, a full disk, and a wall clock that has gone back.

use super::tests::{TestService, del, get, key, message, set, set_with, value, version};
use super::*;
use crate::clock;
use crate::protocol::message::{PERSIST, TIMESTAMP};
use crate::protocol::{ErrorReply, Message, Reply, Timestamp};
use crate::server::event::Event;
use crate::server::storage::simulated::SimulatedDisk;
use crate::server::storage::{Storage, WalPolicy};
use crate::store::{Now, Version};
use tempfile::TempDir;

fn custom(home: &TempDir) -> TestService {
    TestService::new(Persistence::Custom(home.path().to_owned()))
}

fn persistent(name: &str, text: &str) -> Message {
    let mut message = message(&set(name, text));
    message.user_properties.push((PERSIST.into(), "true".into()));
    message
}

#[tokio::test]
async fn a_key_in_memory_does_not_wait_for_a_commit_and_is_lost_at_a_restart() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    // The commit thread does not run yet, so that whatever waits for a commit keeps waiting.
    assert_eq!(test.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(test.reply(&del("passing")), Reply::Count(1));
    assert_eq!(test.reply(&set("passing", "w")), Reply::Done);
    test.send(persistent("stays", "v"));
    assert!(test.sent_messages.replies().is_empty());
    assert_eq!(test.reply(&get("passing")), value("w"));
    let running = test.run();
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    drop((running, test));
    let test = custom(&home);
    assert_eq!(test.reply_of_get("stays"), value("v"));
    assert_eq!(test.reply_of_get("passing"), Reply::Absent);
}

#[tokio::test]
async fn a_persistent_key_stays_persistent_until_it_is_deleted() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    test.send(persistent("k", "asked"));
    test.send(persistent("gone", "asked"));
    // The SET does not ask for persistence, but an older value must not return after a restart.
    test.request(&set("k", "not asked"));
    test.request(&del("gone"));
    // The key is new again, and its response waits behind the uncommitted delete.
    test.request(&set("gone", "not asked"));
    assert!(test.sent_messages.replies().is_empty());
    let running = test.run();
    test.sent_messages.wait_for(5);
    let sent = test.sent_messages.replies();
    assert_eq!(sent, [Reply::Done, Reply::Done, Reply::Done, Reply::Count(1), Reply::Done]);
    assert_eq!(test.reply(&set("gone", "once more")), Reply::Done);
    drop((running, test));
    let test = custom(&home);
    assert_eq!(test.reply_of_get("k"), value("not asked"));
    assert_eq!(test.reply_of_get("gone"), Reply::Absent);
}

#[tokio::test]
async fn a_key_in_memory_gets_no_lower_version_after_a_restart() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let running = test.run();
    let ahead = format!("{}:0:client", clock::wall_ms() + 50_000);
    let user_properties = vec![(TIMESTAMP.into(), ahead.into())];
    test.send(Message { user_properties, ..message(&set("passing", "v")) });
    let before = version(&test.sent_messages.take()[0].1);
    drop((running, test));
    let test = custom(&home);
    test.request(&set("passing", "v"));
    assert!(version(&test.sent_messages.take()[0].1) > before);
}

#[tokio::test]
async fn a_write_in_memory_survives_a_failed_commit() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    test.send(persistent("stays", "v"));
    let passing = message(&set("passing", "v"));
    test.send(passing.clone());
    test.service.shared.lock().handle_commit_failure(&test.sent_messages);
    assert_eq!(test.sent_messages.replies(), [Reply::Done, Reply::Error(ErrorReply::NotPersisted)]);
    assert_eq!(test.reply(&del("passing")), Reply::Count(1));
    // A second delivery is still recognized.
    test.send(passing);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    assert_eq!(test.reply_of_get("passing"), Reply::Absent);
}

#[test]
fn a_clock_that_has_gone_back_is_reported_and_versions_continue() {
    let home = TempDir::new().unwrap();
    let mut storage = Storage::open(home.path()).unwrap();
    let ahead_ms = clock::wall_ms() + 3_600_000;
    let greatest = Version { ms: ahead_ms, counter: 4 };
    storage.commit(&[], greatest, Now { wall_ms: ahead_ms, monotonic_ms: 0 }).unwrap();
    drop(storage);
    let test = custom(&home);
    let events = std::mem::take(&mut *test.events.lock().unwrap());
    let [Event::ClockBehind { by_ms }] = events[..] else { panic!("{events:?}") };
    assert!((3_500_000..=3_600_000).contains(&by_ms), "{by_ms}");
    test.request(&set("new", "v"));
    assert_eq!(version(&test.sent_messages.take()[0].1), Timestamp::of_store(ahead_ms, 5));
    drop(test);
    assert!(custom(&TempDir::new().unwrap()).events.lock().unwrap().is_empty());
}

#[tokio::test]
async fn on_a_full_disk_only_persistent_writes_are_rejected_until_there_is_room() {
    let disk = SimulatedDisk::default();
    let open = || TestService::on(Storage::open_in(Box::new(disk.clone()), WalPolicy::default()).unwrap());
    let test = open();
    let running = test.run();
    test.send(persistent("k", "before"));
    test.sent_messages.wait_for(1);
    let large = "x".repeat(3_000_000);
    disk.set_faults(|faults| faults.bytes_max = Some(200_000));
    test.sent_messages.take();
    test.send(persistent("k", &large));
    test.sent_messages.wait_for(1);
    let rejected = Reply::Error(ErrorReply::NotPersisted);
    assert_eq!(test.sent_messages.replies(), std::slice::from_ref(&rejected));
    assert_eq!(test.reply(&get("k")), value("before"));
    assert_eq!(test.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(test.reply(&del("passing")), Reply::Count(1));
    disk.set_faults(|faults| faults.bytes_max = None);
    test.wait_for_event(&Event::PersistedAgain);
    test.send(persistent("k", &large));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    // After a failed sync, the files are no longer trusted.
    disk.set_faults(|faults| faults.fails_next_sync = true);
    test.send(persistent("other", "v"));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [rejected]);
    test.wait_for_event(&Event::PersistedAgain);
    test.send(persistent("other", "w"));
    test.sent_messages.wait_for(1);
    drop((running, test));
    let test = open();
    assert_eq!(test.reply_of_get("other"), value("w"));
    assert_eq!(test.reply_of_get("k"), Reply::Value(large.into()));
}

#[tokio::test]
async fn a_key_that_expires_while_the_disk_fails_is_removed_from_it() {
    let disk = SimulatedDisk::default();
    let storage = Storage::open_in(Box::new(disk.clone()), WalPolicy::default()).unwrap();
    let test = TestService::on(storage);
    let running = test.run();
    let mut short = message(&set_with("short", "v", None, 60_000));
    short.user_properties.push((PERSIST.into(), "true".into()));
    test.send(short);
    test.sent_messages.wait_for(1);
    disk.set_faults(|faults| faults.bytes_max = Some(0));
    test.send(persistent("k", &"x".repeat(2_000_000)));
    test.sent_messages.wait_for(2);
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    test.service.shared.lock().expire(&test.sent_messages, later);
    disk.set_faults(|faults| faults.bytes_max = None);
    test.wait_for_event(&Event::PersistedAgain);
    drop((running, test));
    let storage = Storage::open_in(Box::new(disk), WalPolicy::default()).unwrap();
    let mut keys = Vec::new();
    storage.load(Now::default(), |key, _, _| keys.push(key)).unwrap();
    assert_eq!(keys, [], "{:?} is gone", key("short"));
}

/// Otherwise the next start would take the step for time in which keys expired.
#[test]
fn a_step_of_the_wall_clock_is_committed_without_any_change() {
    let disk = SimulatedDisk::default();
    let test = TestService::on(Storage::open_in(Box::new(disk), WalPolicy::default()).unwrap());
    let shared = &test.service.shared;
    let mut storage = test.service.storage.lock().unwrap().take().unwrap();
    shared.lock().is_closing = true;
    let now = shared.now();
    let hour_ago = Now { wall_ms: now.wall_ms - 3_600_000, ..now };
    for (committed_at, has_step) in [(now, false), (hour_ago, true)] {
        storage.commit(&[], Version::default(), committed_at).unwrap();
        assert_eq!(commit_thread::next_group(shared, &storage).is_some(), has_step);
    }
}
