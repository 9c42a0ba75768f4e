//! Persistence: which keys are on disk, a full disk, and a wall clock that has gone back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::commit_thread;
use super::shared::Committer;
use super::tests::{
    RecordingPublisher, TestService, del, get, key, message, peer, set, set_with, value, version, watch,
};
use super::*;
use crate::a_watchdog::bounded;
use crate::broker::workers::Workers;
use crate::clock;
use crate::ledger::file::simulated::SimulatedDisk;
use crate::ledger::{FileLedger, KeyRecord, Policy, Record};
use crate::protocol::message::{PERSIST, TIMESTAMP};
use crate::protocol::{ConnectionId, ErrorReply, Message, Reply, Request, Timestamp, UserProperties};
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
        FileLedger::open(copy.path()).unwrap(),
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
fn while_the_disk_fails_no_version_above_the_ceiling_is_given_out() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    test.send(persistent("k", "v"));
    let now = test.service.shared.now();
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, now);
    test.sent_messages.take();
    assert_eq!(test.reply(&set("lock", "v")), Reply::Done);
    test.send(ahead("lock", 50_000));
    assert_eq!(test.sent_messages.replies(), [Reply::Error(ErrorReply::NotPersisted)]);
    assert_eq!(test.reply(&get("lock")), value("v"));
    let first = version(&{
        test.request(&get("lock"));
        test.sent_messages.take().remove(0).1
    });
    assert!(first.ms <= clock::wall_ms(), "the refused write is undone: {first}");
}

#[tokio::test]
async fn an_orderly_end_leaves_the_greatest_version_and_no_ceiling() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let running = test.run();
    test.request(&set("passing", "v"));
    let given_out = version(&test.sent_messages.take()[0].1);
    drop((running, test));
    let Version { ms, counter } = FileLedger::open(home.path()).unwrap().metadata().ceiling;
    assert_eq!((ms, counter), (given_out.ms, given_out.counter));
}

#[tokio::test]
async fn a_write_in_memory_survives_a_failed_commit() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    test.send(persistent("stays", "v"));
    let passing = message(&set("passing", "v"));
    test.send(passing.clone());
    let now = test.service.shared.now();
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, now);
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
    let mut storage = FileLedger::open(home.path()).unwrap();
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
    let open = || TestService::on(FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap());
    let test = open();
    let running = test.run();
    test.send(persistent("k", "before"));
    test.sent_messages.wait_for(1);
    test.sent_messages.take();
    let rejected = Reply::Error(ErrorReply::NotPersisted);
    // After a failed sync, the segment is abandoned.
    disk.set_faults(|faults| faults.fails_next_sync = true);
    test.send(persistent("other", "v"));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), std::slice::from_ref(&rejected));
    test.wait_for_event(&Event::PersistedAgain);
    test.send(persistent("other", "w"));
    test.sent_messages.wait_for(1);
    let large = "x".repeat(3_000_000);
    // Room for the reserve, whenever that is made.
    disk.set_faults(|faults| faults.bytes_max = Some(1_000_000));
    test.sent_messages.take();
    test.send(persistent("k", &large));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), std::slice::from_ref(&rejected));
    assert_eq!(test.reply(&get("k")), value("before"));
    assert_eq!(test.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(test.reply(&del("passing")), Reply::Count(1));
    disk.set_faults(|faults| faults.bytes_max = None);
    test.wait_for_event(&Event::PersistedAgain);
    test.send(persistent("k", &large));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    drop((running, test));
    let test = open();
    assert_eq!(test.reply_of_get("other"), value("w"));
    assert_eq!(test.reply_of_get("k"), Reply::Value(large.into()));
}

/// Small values are accepted meanwhile, so that commits succeed.
#[tokio::test]
async fn statistics_show_a_full_disk_for_as_long_as_it_is_full() {
    let disk = SimulatedDisk::default();
    let test = TestService::on(FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap());
    let running = test.run();
    let lacks_room = || test.service.statistics().disk.unwrap().lacks_room;
    assert!(!lacks_room());
    // Room for the reserve, whenever that is made.
    disk.set_faults(|faults| faults.bytes_max = Some(1_000_000));
    test.send(persistent("k", &"x".repeat(3_000_000)));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [Reply::Error(ErrorReply::NotPersisted)]);
    test.wait_for_event(&Event::PersistedAgain);
    test.send(persistent("small", "v"));
    test.sent_messages.wait_for(1);
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    for _ in 0..25 {
        assert!(lacks_room());
        std::thread::sleep(Duration::from_millis(100));
    }
    disk.set_faults(|faults| faults.bytes_max = None);
    let begun = clock::monotonic();
    while lacks_room() {
        assert!(begun.elapsed() < Duration::from_secs(30), "there is room again");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(running);
}

#[tokio::test]
async fn a_key_that_expires_while_the_disk_fails_is_removed_from_it() {
    let disk = SimulatedDisk::default();
    let storage = FileLedger::open_on(Arc::new(disk.clone()), Policy::default()).unwrap();
    let test = TestService::on(storage);
    let running = test.run();
    let mut short = message(&set_with("short", "v", None, 60_000));
    short.user_properties.push(PERSIST, "true");
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
    let mut storage = FileLedger::open_on(Arc::new(disk), Policy::default()).unwrap();
    let mut keys = Vec::new();
    storage.load(Now::default(), |key, _, _| keys.push(key)).unwrap();
    assert_eq!(keys, [], "{:?} is gone", key("short"));
}

/// Otherwise the next start would take the step for time in which keys expired.
#[test]
fn a_step_of_the_wall_clock_is_committed_without_any_change() {
    let disk = SimulatedDisk::default();
    let test = TestService::on(FileLedger::open_on(Arc::new(disk), Policy::default()).unwrap());
    let shared = &test.service.shared;
    let mut storage = test.service.storage.lock().unwrap().take().unwrap();
    shared.lock().is_closing = true;
    let now = shared.now();
    let hour_ago = Now { wall_ms: now.wall_ms - 3_600_000, ..now };
    for (committed_at, has_step) in [(now, false), (hour_ago, true)] {
        storage.commit(&[], Version::default(), committed_at).unwrap();
        assert_eq!(commit_thread::next_group(shared, &storage, false).is_some(), has_step);
    }
}

/// A read that waits for a change which then fails is answered with what is there without it.
#[tokio::test]
async fn a_read_that_waits_when_the_disk_fails_is_answered_with_what_is_on_disk() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let running = test.run();
    test.send(persistent("k", "before"));
    test.sent_messages.wait_for(1);
    test.sent_messages.take();
    drop(running);
    let test = custom(&home);
    // The commit thread does not run.
    test.send(persistent("k", "after"));
    test.send(persistent("new", "v"));
    [get("k"), get("new")].iter().for_each(|request| test.request(request));
    test.request(&Request::KeyNotify { key: key("k"), stop: false });
    test.send(persistent("k", "more"));
    assert!(test.sent_messages.replies().is_empty());
    let now = test.service.shared.now();
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, now);
    let refused = || Reply::Error(ErrorReply::NotPersisted);
    let expected = [refused(), refused(), value("before"), Reply::Absent, Reply::Done, refused()];
    assert_eq!(test.sent_messages.replies(), expected);
}

/// An expiry is true although its commit fails, and so is what a client has written to the absent key since.
#[test]
fn a_write_in_memory_that_waits_for_an_expiry_is_applied_although_the_commit_fails() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let mut short = message(&set_with("k", "v", None, 1));
    short.user_properties.push(PERSIST, "true");
    test.send(short);
    assert!(!test.service.shared.lock().handle_commit(1, Version::default(), &test.sent_messages));
    test.service.shared.lock().commit_queue.set_ceiling(Version { ms: u64::MAX, counter: 0 });
    let later = Now { monotonic_ms: u64::MAX, ..test.service.shared.now() };
    test.service.shared.lock().expire(&test.sent_messages, later);
    test.sent_messages.take();
    test.request(&set("k", "in memory"));
    assert_eq!(test.sent_messages.replies(), [], "it waits for the expiry");
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, test.service.shared.now());
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    assert_eq!(test.reply(&get("k")), value("in memory"));
    // However often it is written, the queue has the expiry alone: nothing bounds what does not wait.
    for _ in 0..3 {
        assert_eq!(test.reply(&set("k", "again")), Reply::Done);
        assert_eq!(test.reply(&del("k")), Reply::Count(1));
    }
    let group = test.service.shared.lock().commit_queue.take_group().unwrap();
    assert!(matches!(&group.records[..], [(_, Record::Key(KeyRecord { content: None, .. }))]), "{group:?}");
}

#[test]
fn a_redelivery_that_waits_when_the_disk_fails_gets_the_first_answer() {
    let home = TempDir::new().unwrap();
    let test = custom(&home);
    let first = message(&set("k", "in memory"));
    test.send(first.clone());
    test.send(persistent("k", "persistent"));
    assert_eq!(test.sent_messages.replies(), [Reply::Done]);
    test.send(first);
    assert_eq!(test.sent_messages.replies(), [], "the key is not committed");
    test.service.shared.lock().handle_commit_failure(&test.sent_messages, test.service.shared.now());
    assert_eq!(test.sent_messages.replies(), [Reply::Error(ErrorReply::NotPersisted), Reply::Done]);
    assert_eq!(test.reply(&get("k")), value("in memory"));
}

/// Sends a request and waits for its answer.
fn ask(test: &TestService, message: Message) -> Reply {
    test.sent_messages.take();
    test.send(message);
    test.sent_messages.wait_for(1);
    test.sent_messages.replies().remove(0)
}

/// The store fills the disk by itself. Each key can be deleted, also after a restart, and then there is room again.
#[tokio::test]
async fn a_store_that_has_filled_the_disk_can_be_emptied() {
    let policy = Policy {
        first_bytes: 16 * 1024,
        segment_bytes: 64 * 1024,
        snapshot_bytes: 256 * 1024,
        close_bytes: 128 * 1024,
        reserve_bytes: 256 * 1024,
        commits_before: 3,
    };
    for restarts in [false, true] {
        let disk = SimulatedDisk::default();
        disk.set_faults(|faults| faults.blocks_max = Some(700));
        let open = || TestService::on(FileLedger::open_on(Arc::new(disk.clone()), policy).unwrap());
        let (mut test, value) = (open(), "x".repeat(9_000));
        let mut running = test.run();
        let mut count = 0;
        while ask(&test, persistent(&format!("k{count}"), &value)) == Reply::Done {
            count += 1;
        }
        assert!(count > 60, "{count}");
        if restarts {
            drop((running, test));
            test = open();
            running = test.run();
        }
        for number in 0..count {
            // While the disk is being recovered, all writes are refused for a moment.
            let deleted = (0..100).any(|_| {
                let reply = ask(&test, message(&del(&format!("k{number}"))));
                let is_deleted = reply == Reply::Count(1);
                if !is_deleted {
                    assert_eq!(reply, Reply::Error(ErrorReply::NotPersisted));
                    std::thread::sleep(Duration::from_millis(10));
                }
                is_deleted
            });
            assert!(deleted, "k{number} of {count} cannot be deleted, {restarts}");
        }
        for number in 0..count / 2 {
            let set = persistent(&format!("k{number}"), &value);
            let accepted = (0..100).any(|_| {
                let is_done = ask(&test, set.clone()) == Reply::Done;
                if !is_done {
                    std::thread::sleep(Duration::from_millis(20));
                }
                is_done
            });
            assert!(accepted, "there is room again");
        }
        drop((running, test));
        let test = open();
        assert_eq!(test.reply_of_get("k0"), Reply::Value(value.into()));
    }
}

/// Counts commits. The first one panics, if so wanted.
#[derive(Clone, Default)]
struct CountingPublisher {
    sent: RecordingPublisher,
    commits: Arc<AtomicUsize>,
    panics: bool,
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
        let commits = self.commits.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics || commits > 0, "as the test wants it");
    }
}

/// Serves connections; the last of them sends three writes in one turn. The commit thread does not run.
async fn write_in_one_turn(
    threads: usize,
    connections: usize,
    panics: bool,
) -> (TestService, CountingPublisher) {
    let test =
        TestService::on(FileLedger::open_on(Arc::new(SimulatedDisk::default()), Policy::default()).unwrap());
    let publisher = CountingPublisher { panics, ..CountingPublisher::default() };
    let storage = test.service.storage.lock().unwrap().take().unwrap();
    *test.service.shared.committer() = Some(Committer { storage, publisher: Box::new(publisher.clone()) });
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

#[tokio::test]
async fn a_commit_that_panics_in_a_thread_of_connections_counts_as_failed() {
    let (test, publisher) = write_in_one_turn(2, 1, true).await;
    let shared = Arc::clone(&test.service.shared);
    shared.make_commit_due(&mut shared.lock());
    let commit_thread = std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || commit_thread::run(&shared)
    });
    publisher.sent.wait_for(3);
    assert_eq!(publisher.sent.replies(), [(); 3].map(|()| Reply::Error(ErrorReply::NotPersisted)));
    test.wait_for_event(&Event::PersistedAgain);
    let write =
        || test.service.handle_message(&publisher, &peer(1), persistent("d", "v"), clock::monotonic());
    write();
    publisher.sent.wait_for(1);
    assert_eq!(publisher.sent.replies(), [Reply::Done]);
    assert!(!shared.committer.is_poisoned(), "threads of connections commit again");
    shared.lock().is_closing = true;
    shared.has_uncommitted.notify_all();
    bounded(|| commit_thread.join()).unwrap();
}

#[test]
fn the_first_write_after_a_failed_commit_is_committed_at_once() {
    let test =
        TestService::on(FileLedger::open_on(Arc::new(SimulatedDisk::default()), Policy::default()).unwrap());
    let (shared, now) = (&test.service.shared, test.service.shared.now());
    let mut storage = test.service.storage.lock().unwrap().take().unwrap();
    test.send(persistent("a", "v"));
    {
        let mut state = shared.lock();
        state.is_commit_due = false;
        state.handle_commit_failure(&test.sent_messages, now);
    }
    commit_thread::try_recover(shared, &mut storage, &test.sent_messages, now).unwrap();
    test.send(persistent("b", "v"));
    assert!(shared.lock().is_commit_due);
}
