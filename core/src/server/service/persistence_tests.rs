//! Persistence: which keys are on disk, a full disk, a disk that fails, and a wall clock that has gone back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::commit_thread;
use super::shared::{Committer, LedgerEnd};
use super::tests::{
    RecordingPublisher, TestService, del, get, key, message, peer, set, set_with, value, version, watch,
};
use super::*;
use crate::a_watchdog::bounded;
use crate::broker::Verdict;
use crate::broker::workers::Workers;
use crate::clock;
use crate::ledger::file::simulated::SimulatedDisk;
use crate::ledger::{FileLedger, Policy, Record};
use crate::protocol::message::{PERSIST, TIMESTAMP};
use crate::protocol::{
    ConnectionId, ErrorReply, Message, Notification, Reply, Request, Timestamp, UserProperties,
};
use crate::server::delivery::Publisher;
use crate::server::event::Event;
use crate::store::{Now, Version};
use tempfile::TempDir;

fn custom(home: &TempDir) -> TestService {
    TestService::new(Persistence::Custom(home.path().to_owned()))
}

fn persistent(name: &str, text: &str) -> Message {
    let mut message = message(&set(name, text));
    message.user_properties.push(PERSIST, "true");
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
    test.send(ahead("passing", 50_000));
    test.sent_messages.wait_for(1);
    let before = version(&test.sent_messages.take()[0].1);
    drop((running, test));
    let test = custom(&home);
    let _running = test.run();
    test.request(&set("passing", "v"));
    test.sent_messages.wait_for(1);
    assert!(version(&test.sent_messages.take()[0].1) > before);
}

/// A write to a key in memory by a client whose clock is ahead.
fn ahead(name: &str, by_ms: u64) -> Message {
    let timestamp = format!("{}:0:client", clock::wall_ms() + by_ms);
    Message {
        user_properties: UserProperties::from_iter([(TIMESTAMP, timestamp)]),
        ..message(&set(name, "v"))
    }
}

/// Returns the service that starts on what a kill at this moment would leave, with the wall clock set back.
fn after_kill(home: &TempDir, copy: &TempDir, back_ms: u64) -> TestService {
    for file in std::fs::read_dir(home.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    let now = clock::now();
    TestService::on_at(
        FileLedger::open(copy.path(), Policy::default()).unwrap(),
        clock::Reading { wall_ms: now.wall_ms - back_ms, ..now },
    )
}

#[tokio::test]
async fn after_a_kill_no_version_of_a_key_in_memory_is_given_out_again() {
    for (ahead_ms, back_ms) in [(0, 0), (50_000, 0), (0, 3_600_000), (50_000, 3_600_000)] {
        let (home, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let test = custom(&home);
        let _running = test.run();
        let mut before = Vec::new();
        for _ in 0..3 {
            test.send(ahead("lock", ahead_ms));
            test.sent_messages.wait_for(1);
            before.push(version(&test.sent_messages.take()[0].1));
        }
        assert!(before.is_sorted_by(|first, second| first < second));
        let test = after_kill(&home, &copy, back_ms);
        let _running = test.run();
        test.request(&set("lock", "v"));
        test.sent_messages.wait_for(1);
        let after = version(&test.sent_messages.take()[0].1);
        assert!(after > before[2], "{after} after {}", before[2]);
        // What a client ahead has caused stays acceptable to clients with the right clock.
        assert!(back_ms > 0 || after.ms <= clock::wall_ms() + 60_000, "{after}");
    }
}

#[test]
fn a_version_above_the_ceiling_waits_for_a_commit_and_so_do_its_reads() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    assert_eq!(test.reply(&watch("lock")), Reply::Done);
    test.send(ahead("lock", 50_000));
    test.request(&get("lock"));
    assert_eq!(test.sent_messages.take(), []);
    assert_eq!(test.reply(&set("other", "v")), Reply::Done, "another key does not wait");
    let now = test.service.shared.now();
    let mut state = test.service.shared.lock();
    let group = state.take_group(now).unwrap();
    let [(_, Record::Key(record))] = &group.records[..] else { panic!("{group:?}") };
    assert!(record.is_in_memory() && record.needs_tombstone(group.ceiling));
    assert!(!state.handle_commit(group.sequence, group.ceiling, &test.sent_messages));
    drop(state);
    let sent = test.sent_messages.take();
    assert_eq!(sent.iter().map(|(to, _)| to.is_some()).collect::<Vec<_>>(), [false, true, false]);
    // The ceiling has not followed the client.
    test.send(ahead("lock", 50_000));
    assert_eq!(test.sent_messages.take(), []);
    assert!(group.ceiling.ms <= now.wall_ms + 10_000, "{group:?}");
}

#[tokio::test]
async fn after_kills_a_client_that_was_ahead_has_raised_the_versions_of_its_own_keys_only() {
    let homes = [(); 3].map(|()| TempDir::new().unwrap());
    let version_of = |test: &TestService, message| {
        test.send(message);
        test.sent_messages.wait_for(1);
        version(&test.sent_messages.take()[0].1)
    };
    let test = custom(&homes[0]);
    let _running = test.run();
    let mut gone = ahead("gone", 58_000);
    gone.user_properties.push(PERSIST, "true");
    let last = [("lock", ahead("lock", 58_000)), ("gone", gone)];
    let last = last.map(|(name, message)| (name, version_of(&test, message)));
    test.request(&del("gone"));
    test.sent_messages.wait_for(1);
    // The second kill comes before anything else is written.
    let test = after_kill(&homes[0], &homes[1], 0);
    let _running_again = test.run();
    let test = after_kill(&homes[1], &homes[2], 0);
    let _running_for_good = test.run();
    let other = version_of(&test, message(&set("other", "v")));
    assert!(other.ms <= clock::wall_ms() + 15_000, "{other}");
    for (name, before) in last {
        let after = version_of(&test, message(&set(name, "v")));
        assert!(after > before, "{name}: {after} after {before}");
    }
}

#[test]
fn without_room_on_the_disk_no_version_above_the_ceiling_is_given_out() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    test.take_room();
    assert_eq!(test.reply(&set("lock", "v")), Reply::Done);
    test.send(ahead("lock", 50_000));
    assert_eq!(test.sent_messages.replies(), [Reply::Error(ErrorReply::DiskFull)]);
    assert_eq!(test.reply(&get("lock")), value("v"));
    let first = version(&{
        test.request(&get("lock"));
        test.sent_messages.take().remove(0).1
    });
    assert!(first.ms <= clock::wall_ms(), "the refused write has changed nothing: {first}");
}

#[tokio::test]
async fn an_orderly_end_leaves_the_greatest_version_and_no_ceiling() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let running = test.run();
    test.request(&set("passing", "v"));
    let given_out = version(&test.sent_messages.take()[0].1);
    drop((running, test));
    let storage = FileLedger::open(home.path(), Policy::default()).unwrap();
    let Version { ms, counter } = storage.metadata().ceiling;
    assert_eq!((ms, counter), (given_out.ms, given_out.counter));
}

#[test]
fn a_clock_that_has_gone_back_is_reported_and_versions_continue() {
    let home = TempDir::new().unwrap();
    let mut storage = FileLedger::open(home.path(), Policy::default()).unwrap();
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

/// Sends a request and waits for its answer.
fn ask(test: &TestService, message: Message) -> Reply {
    test.sent_messages.take();
    test.send(message);
    test.sent_messages.wait_for(1);
    test.sent_messages.replies().remove(0)
}

const DISK_FULL: Reply = Reply::Error(ErrorReply::DiskFull);

fn on(disk: &SimulatedDisk) -> TestService {
    TestService::on(FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap())
}

/// Lets no file take any more room.
fn fill(disk: &SimulatedDisk) {
    let blocks = disk.blocks();
    disk.set_faults(|faults| faults.blocks_max = Some(blocks));
}

fn empty(disk: &SimulatedDisk) {
    disk.set_faults(|faults| faults.blocks_max = None);
}

/// Waits until something is the case.
fn wait_until(mut is_so: impl FnMut() -> bool, what: &str) {
    let begun = clock::monotonic();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test]
async fn on_a_full_disk_only_growing_persistent_writes_are_refused_and_change_nothing_until_there_is_room() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    let running = test.run();
    for name in ["k", "gone"] {
        assert_eq!(ask(&test, persistent(name, "before")), Reply::Done);
    }
    fill(&disk);
    let large = "x".repeat(3_000_000);
    assert_eq!(ask(&test, persistent("k", &large)), DISK_FULL);
    assert_eq!(test.reply(&get("k")), value("before"));
    assert_eq!(test.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(test.reply(&del("passing")), Reply::Count(1));
    assert_eq!(ask(&test, message(&del("gone"))), Reply::Count(1));
    assert!(!test.service.shared.lock().has_ended);
    empty(&disk);
    wait_until(|| ask(&test, persistent("k", &large)) == Reply::Done, "there is room again");
    drop((running, test));
    let test = on(&disk);
    assert_eq!(test.reply_of_get("gone"), Reply::Absent);
    assert_eq!(test.reply_of_get("k"), Reply::Value(large.into()));
}

#[test]
fn a_write_that_was_refused_for_lack_of_room_is_applied_when_it_is_delivered_again() {
    let test = on(&SimulatedDisk::default());
    let write = persistent("k", "v");
    test.take_room();
    test.send(write.clone());
    assert_eq!(test.sent_messages.replies(), [DISK_FULL]);
    test.restore_room();
    test.send(write);
    test.commit_to_disk().unwrap();
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    assert_eq!(test.reply(&get("k")), value("v"));
}

#[tokio::test]
async fn statistics_show_a_full_disk_for_as_long_as_it_is_full() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    let running = test.run();
    let is_full = || test.service.statistics().disk.unwrap().lack == Some(ErrorReply::DiskFull);
    assert!(!is_full());
    fill(&disk);
    // Each has a key of its own. Snapshots give the room of the log back, until there is none left.
    let (begun, mut refused) = (clock::monotonic(), clock::monotonic());
    for number in 0.. {
        assert!(begun.elapsed() < Duration::from_secs(60), "{number} keys, and the disk is not full");
        match ask(&test, persistent(&format!("k{number}"), &"x".repeat(3_000))) {
            Reply::Done => refused = clock::monotonic(),
            reply => assert_eq!(reply, DISK_FULL),
        }
        if refused.elapsed() > Duration::from_secs(3) {
            break;
        }
    }
    for _ in 0..25 {
        assert!(is_full());
        std::thread::sleep(Duration::from_millis(100));
    }
    empty(&disk);
    wait_until(|| !is_full(), "there is room again");
    assert_eq!(ask(&test, persistent("small", "v")), Reply::Done);
    drop(running);
}

#[test]
fn a_key_that_expires_without_room_on_the_disk_is_gone_at_once_and_expires_again_after_a_restart() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    let mut short = message(&set_with("short", "v", None, 60_000));
    short.user_properties.push(PERSIST, "true");
    test.send(short);
    test.request(&watch("short"));
    test.commit_to_disk().unwrap();
    test.sent_messages.take();
    test.take_room();
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    test.service.shared.lock().expire(&test.sent_messages, later);
    let sent = test.sent_messages.take();
    let [(Some(_), notification)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(Notification::decode(&notification.payload), Ok(Notification::Delete));
    assert_eq!(test.reply(&get("short")), Reply::Absent);
    assert!(!test.service.shared.lock().commit_queue.has_uncommitted(), "no record has room");
    drop(test);
    let keys = || {
        let mut keys = Vec::new();
        let mut storage = FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap();
        storage.load(Now::default(), |key, _, _| keys.push(key)).unwrap();
        keys
    };
    assert_eq!(keys(), [key("short")]);
    disk.pass(61_000);
    let test = on(&disk);
    let now = test.service.shared.now();
    test.service.shared.lock().expire(&test.sent_messages, now);
    assert!(test.service.shared.lock().commit_queue.has_uncommitted());
    test.commit_to_disk().unwrap();
    drop(test);
    assert_eq!(keys(), []);
}

#[test]
fn a_read_of_an_expired_key_adds_no_record_when_there_is_no_room() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    for name in ["without room", "with room"] {
        let mut short = message(&set_with(name, "v", None, 1));
        short.user_properties.push(PERSIST, "true");
        test.send(short);
    }
    test.commit_to_disk().unwrap();
    let since = test.service.shared.now().monotonic_ms;
    while test.service.shared.now().monotonic_ms <= since + 2 {
        std::thread::yield_now();
    }
    test.sent_messages.take();
    test.take_room();
    assert_eq!(test.reply(&get("without room")), Reply::Absent);
    assert!(!test.service.shared.lock().commit_queue.has_uncommitted());
    test.restore_room();
    test.request(&get("with room"));
    assert_eq!(test.sent_messages.replies(), [], "it waits for the commit of the expiry");
    test.commit_to_disk().unwrap();
    assert_eq!(test.sent_messages.replies(), [Reply::Absent]);
}

#[tokio::test]
async fn on_a_disk_that_cannot_be_written_since_the_start_reads_are_served_and_writes_are_refused() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    test.send(persistent("k", "v"));
    test.commit_to_disk().unwrap();
    // The process is killed: the next one needs another segment.
    drop(test);
    let storage = FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap();
    disk.set_faults(|faults| faults.fails_name_syncs = true);
    let test = TestService::on(storage);
    let events = test.events.lock().unwrap().clone();
    let [Event::NotPersisted { reason }] = &events[..] else { panic!("{events:?}") };
    assert!(reason.contains("the sync of the names has failed"), "{reason}");
    assert_eq!(test.service.statistics().disk.unwrap().lack, Some(ErrorReply::NotPersisted));
    let running = test.run();
    assert_eq!(test.reply(&get("k")), value("v"));
    assert_eq!(test.reply(&watch("k")), Reply::Done);
    let refused = Reply::Error(ErrorReply::NotPersisted);
    for write in [persistent("k", "w"), message(&del("k"))] {
        assert_eq!(ask(&test, write), refused);
    }
    assert_eq!(test.reply(&get("k")), value("v"));
    assert!(!test.service.shared.lock().has_ended);
    // Once it works, without a restart.
    disk.set_faults(|faults| faults.fails_name_syncs = false);
    test.wait_for_event(&Event::PersistedAgain);
    assert_eq!(ask(&test, persistent("k", "w")), Reply::Done);
    drop((running, test));
    assert_eq!(on(&disk).reply_of_get("k"), value("w"));
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_answered_and_the_next_start_has_every_acknowledged_write() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    test.send(persistent("k", "v"));
    test.commit_to_disk().unwrap();
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    let (lost, other) = (persistent("k", "lost"), persistent("other", "v"));
    test.send(lost.clone());
    test.request(&get("k"));
    disk.set_faults(|faults| faults.fails_next_sync = true);
    let running = test.run();
    let ended = tokio::time::timeout(Duration::from_secs(10), test.service.ended()).await.unwrap();
    let LedgerEnd::Failed(error) = &*ended else { panic!("{ended:?}") };
    let text = error.to_string();
    assert!(text.starts_with("cannot use simulated: log-"), "{text}");
    assert!(text.ends_with(": the sync has failed"), "{text}");
    let scan = Request::Scan { pattern: "*".into(), token: None };
    for request in [message(&get("k")), message(&get("none")), message(&scan), lost, other] {
        assert!(matches!(test.send(request), Verdict::Consumed));
    }
    test.request(&set("passing", "v"));
    test.request(&del("k"));
    assert_eq!(test.sent_messages.take(), []);
    drop((running, test));
    let test = on(&disk.after_kill());
    assert_eq!([test.reply_of_get("k"), test.reply_of_get("other")], [value("v"), Reply::Absent]);
}

/// Otherwise the next start would take the step for time in which keys expired.
#[test]
fn a_step_of_the_wall_clock_is_committed_without_any_change() {
    let disk = SimulatedDisk::default();
    let test = TestService::on(FileLedger::open_on(Arc::new(disk), Policy::default()).unwrap());
    let shared = &test.service.shared;
    let mut committer = shared.committer();
    let Some(Committer { storage, .. }) = &mut *committer else { panic!() };
    shared.lock().is_closing = true;
    let now = shared.now();
    let hour_ago = Now { wall_ms: now.wall_ms - 3_600_000, ..now };
    for (committed_at, has_step) in [(now, false), (hour_ago, true)] {
        storage.commit(&[], Version::default(), committed_at).unwrap();
        assert_eq!(commit_thread::next_group(shared, storage, false).is_some(), has_step);
    }
}

#[test]
fn a_write_in_memory_waits_for_the_expiry_of_its_key() {
    let disk = SimulatedDisk::default();
    let test = on(&disk);
    let mut short = message(&set_with("k", "v", None, 1));
    short.user_properties.push(PERSIST, "true");
    test.send(short);
    test.commit_to_disk().unwrap();
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    test.service.shared.lock().expire(&test.sent_messages, later);
    test.sent_messages.take();
    test.request(&set("k", "in memory"));
    assert_eq!(test.sent_messages.replies(), [], "it waits for the expiry");
    test.commit_to_disk().unwrap();
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    assert_eq!(test.reply(&get("k")), value("in memory"));
    // Nothing bounds what does not wait: it adds nothing to the queue.
    for _ in 0..3 {
        assert_eq!(test.reply(&set("k", "again")), Reply::Done);
        assert_eq!(test.reply(&del("k")), Reply::Count(1));
    }
    assert!(!test.service.shared.lock().commit_queue.has_uncommitted());
}

#[test]
fn a_second_delivery_waits_for_a_later_change_of_the_key_and_gets_the_first_answer() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let first = message(&set("k", "in memory"));
    test.send(first.clone());
    test.send(persistent("k", "persistent"));
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    test.send(first);
    assert_eq!(test.sent_messages.replies(), [], "the key is not committed");
    test.commit_to_disk().unwrap();
    assert_eq!(test.sent_messages.replies(), [Reply::Done, Reply::Done]);
    assert_eq!(test.reply(&get("k")), value("persistent"));
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Orderly,
    Kill,
}

/// The store fills the disk by itself, and other files take what it leaves. Each key can be deleted, also after a restart, and then
/// there is room again.
#[tokio::test]
async fn a_store_that_has_filled_the_disk_can_be_emptied() {
    let policy = Policy {
        first_bytes: 16 * 1024,
        segment_bytes: 64 * 1024,
        snapshot_bytes: 256 * 1024,
        close_bytes: 128 * 1024,
        commits_before: 0,
    };
    for restart in [None, Some(End::Orderly), Some(End::Kill)] {
        let mut disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.blocks_max = Some(700));
        let open = |disk: &SimulatedDisk| {
            TestService::on(FileLedger::open_on(Arc::new(disk.clone()), policy).unwrap())
        };
        let (mut test, value) = (open(&disk), "x".repeat(9_000));
        let mut running = test.run();
        let mut count = 0;
        let refused = loop {
            match ask(&test, persistent(&format!("k{count}"), &value)) {
                Reply::Done => count += 1,
                refused => break refused,
            }
        };
        assert_eq!(refused, DISK_FULL);
        assert!(count > 40, "{count}");
        if let Some(end) = restart {
            let killed = disk.copy();
            drop((running, test));
            if end == End::Kill {
                disk = killed;
            }
            fill(&disk);
            test = open(&disk);
            running = test.run();
        }
        // While a snapshot is written that gives room back, deletions may wait for it.
        let is_done = |test: &TestService, message: &Message, expected: &Reply| {
            let begun = clock::monotonic();
            loop {
                match ask(test, message.clone()) {
                    reply if reply == *expected => return true,
                    reply => assert_eq!(reply, DISK_FULL),
                }
                if begun.elapsed() > Duration::from_secs(20) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        for number in 0..count {
            let del = message(&del(&format!("k{number}")));
            let is_deleted = is_done(&test, &del, &Reply::Count(1));
            assert!(is_deleted, "k{number} of {count} cannot be deleted, {restart:?}");
        }
        for number in 0..count / 2 {
            let set = persistent(&format!("k{number}"), &value);
            assert!(is_done(&test, &set, &Reply::Done), "there is room again, {restart:?}");
        }
        assert!(!test.service.shared.lock().has_ended);
        drop((running, test));
        let test = open(&disk);
        assert_eq!(test.reply_of_get("k0"), Reply::Value(value.into()));
    }
}

/// Counts commits. Each panics, if so wanted.
#[derive(Clone, Default)]
struct CountingPublisher {
    sent: RecordingPublisher,
    commits: Arc<AtomicUsize>,
    panics: Arc<AtomicBool>,
}

impl Publisher for CountingPublisher {
    fn publish(&self, message: Message, now: Instant) {
        self.sent.publish(message, now);
    }

    fn push(&self, to: ConnectionId, client_id: &str, message: Message) {
        self.sent.push(to, client_id, message);
    }

    fn deliver(&self, to: ConnectionId, message: Message) {
        self.sent.deliver(to, message);
    }

    fn has_monitors(&self) -> bool {
        false
    }

    fn publish_monitor_copy(&self, _: ConnectionId, _: Message) {}

    fn count_commit(&self, _: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "as the test wants it");
    }
}

/// Serves connections; the last of them sends three writes in one turn. The commit thread does not run.
async fn write_in_one_turn(
    threads: usize,
    connections: usize,
    panics: bool,
) -> (TestService, CountingPublisher) {
    // No work of the ledger wakes the commit thread.
    let storage = FileLedger::open_on(Arc::new(SimulatedDisk::default()), Policy::of_one_command());
    let test = TestService::on(storage.unwrap());
    let publisher = CountingPublisher::default();
    publisher.panics.store(panics, Ordering::Relaxed);
    if let Some(committer) = &mut *test.service.shared.committer() {
        committer.publisher = Some(Box::new(publisher.clone()));
    }
    let workers = Workers::start(threads).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (sender, ended) = std::sync::mpsc::channel();
    let mut clients = Vec::new();
    for last in (0..connections).rev() {
        clients.push(tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        let stream = listener.accept().await.unwrap().0;
        let (service, publisher, sender) = (Arc::clone(&test.service), publisher.clone(), sender.clone());
        workers.serve(stream, move |stream| async move {
            if last == 0 {
                for name in ["a", "b", "c"] {
                    service.handle_message(&publisher, &peer(1), persistent(name, "v"), clock::monotonic());
                }
                assert_eq!(publisher.commits.load(Ordering::Relaxed), 0, "not before the end of the turn");
                // After the turn.
                tokio::spawn(async move { sender.send(()).unwrap() });
            }
            let _ = stream.unwrap().readable().await;
        });
    }
    bounded(|| ended.recv()).unwrap();
    (test, publisher)
}

#[tokio::test]
async fn a_thread_that_serves_one_connection_commits_the_writes_of_a_turn_at_once() {
    let (test, publisher) = write_in_one_turn(2, 1, false).await;
    assert_eq!(publisher.sent.replies(), [Reply::Done, Reply::Done, Reply::Done]);
    assert_eq!(publisher.commits.load(Ordering::Relaxed), 1);
    assert!(!test.service.shared.lock().is_commit_due);
}

/// The other connection of the thread, or the next one, would wait for the disk.
#[tokio::test]
async fn the_only_thread_or_one_with_two_connections_leaves_commits_to_the_commit_thread() {
    for (threads, connections) in [(2, 3), (1, 1)] {
        let (test, publisher) = write_in_one_turn(threads, connections, false).await;
        assert_eq!(publisher.commits.load(Ordering::Relaxed), 0);
        assert_eq!(publisher.sent.replies(), []);
        assert!(test.service.shared.lock().is_commit_due);
    }
}

/// Checks that the ledger has ended by a panic, and that nothing is answered any more.
fn assert_ended_by_a_panic(test: &TestService, publisher: &CountingPublisher, ended: &LedgerEnd) {
    assert!(matches!(ended, LedgerEnd::Panicked), "{ended:?}");
    assert_eq!(publisher.sent.replies(), []);
    for message in [persistent("d", "v"), message(&get("d")), message(&set("passing", "v"))] {
        test.service.handle_message(publisher, &peer(1), message, clock::monotonic());
    }
    assert_eq!(publisher.sent.replies(), []);
}

#[tokio::test]
async fn a_panic_in_a_commit_of_a_thread_of_connections_ends_the_ledger() {
    let (test, publisher) = write_in_one_turn(2, 1, true).await;
    let shared = Arc::clone(&test.service.shared);
    assert!(shared.committer.is_poisoned());
    let commit_thread = std::thread::spawn(move || commit_thread::run(&shared));
    bounded(|| commit_thread.join()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), test.service.ended()).await.unwrap();
    assert_ended_by_a_panic(&test, &publisher, &ended);
}

#[tokio::test]
async fn a_panic_in_the_commit_thread_ends_the_ledger_although_the_thread_of_the_ledger_goes_on() {
    let disk = SimulatedDisk::default();
    let (test, publisher) = (on(&disk), CountingPublisher::default());
    let running = test.service.start_background_tasks(publisher.clone()).unwrap();
    let write = |name: &str| {
        test.service.handle_message(&publisher, &peer(1), persistent(name, "v"), clock::monotonic());
    };
    write("a");
    publisher.sent.wait_for(1);
    // The other thread runs: it has made the next segment.
    wait_until(|| disk.has("log-2"), "work is done");
    assert_eq!(publisher.sent.replies(), [Reply::Done]);
    publisher.panics.store(true, Ordering::Relaxed);
    write("b");
    let ended = tokio::time::timeout(Duration::from_secs(10), test.service.ended()).await;
    let Ok(ended) = ended else {
        // Its threads would be waited for.
        std::mem::forget(running);
        panic!("the ledger goes on");
    };
    assert_ended_by_a_panic(&test, &publisher, &ended);
    drop(running);
}
