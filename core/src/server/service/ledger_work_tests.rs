//! Tests of the thread that does the work of the ledger: failed snapshots, a panic, a disk that is busy.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::tests::{TestService, message, set, value};
use crate::clock;
use crate::ledger::FileLedger;
use crate::ledger::file::simulated::{POLICY, SimulatedDisk};
use crate::protocol::message::PERSIST;
use crate::protocol::{ErrorReply, Message, Reply};
use crate::server::event::Event;

fn persistent(name: &str, text: &str) -> Message {
    let mut message = message(&set(name, text));
    message.user_properties.push(PERSIST, "true");
    message
}

fn open(disk: &SimulatedDisk) -> TestService {
    TestService::on(FileLedger::open_on(Arc::new(disk.clone()), POLICY).unwrap())
}

/// Writes until `is_done`, each write in a group of its own.
fn write_until(test: &TestService, mut is_done: impl FnMut() -> bool) {
    let begun = clock::monotonic();
    for number in 0.. {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", test.events.lock().unwrap());
        test.sent_messages.take();
        test.send(persistent("k", &format!("{number}")));
        test.sent_messages.wait_for(1);
        assert_eq!(test.sent_messages.replies(), [Reply::Done]);
        if is_done() {
            return;
        }
    }
}

fn snapshots(disk: &SimulatedDisk) -> usize {
    disk.all_names().iter().filter(|name| name.starts_with("snapshot-") && !name.ends_with(".new")).count()
}

#[tokio::test]
async fn a_snapshot_that_fails_is_reported_with_file_and_cause_and_tried_again() {
    let disk = SimulatedDisk::default();
    let test = open(&disk);
    let running = test.run();
    disk.set_faults(|faults| faults.fails_renames = true);
    let is_failure = |event: &Event| match event {
        Event::SnapshotFailed { reason } => {
            reason.starts_with("cannot use simulated: snapshot-")
                && reason.ends_with(": the rename has failed")
        }
        _ => false,
    };
    let failures = || test.events.lock().unwrap().iter().filter(|event| is_failure(event)).count();
    write_until(&test, || failures() >= 2);
    disk.set_faults(|faults| faults.fails_renames = false);
    write_until(&test, || snapshots(&disk) == 1);
    drop(running);
}

#[tokio::test]
async fn a_panic_in_the_thread_of_the_ledger_is_reported_and_the_store_ends_in_order() {
    let disk = SimulatedDisk::default();
    let test = open(&disk);
    let running = test.run();
    disk.set_faults(|faults| faults.panics_in_renames = true);
    let panicked = Event::SnapshotFailed { reason: "the thread of the ledger has panicked".to_owned() };
    write_until(&test, || test.events.lock().unwrap().contains(&panicked));
    disk.set_faults(|faults| faults.panics_in_renames = false);
    write_until(&test, || snapshots(&disk) == 1);
    test.sent_messages.take();
    test.send(persistent("last", "v"));
    test.sent_messages.wait_for(1);
    // The last moments of the process.
    disk.set_faults(|faults| faults.panics_in_renames = true);
    drop((running, test));
    disk.set_faults(|faults| faults.panics_in_renames = false);
    assert_eq!(open(&disk).reply_of_get("last"), value("v"));
}

#[tokio::test]
async fn a_full_disk_is_reported_and_so_is_the_room_that_comes_back() {
    let disk = SimulatedDisk::default();
    let test = open(&disk);
    let running = test.run();
    // A commit that does not wait for the second segment makes the third one, and the second is removed.
    write_until(&test, || disk.all_names().iter().any(|name| name.starts_with("log-") && name != "log-1"));
    let blocks = disk.blocks() + 2;
    disk.set_faults(|faults| faults.blocks_max = Some(blocks));
    let full = Event::NotPersisted { reason: "the disk is full, and keys can only be deleted".to_owned() };
    let is_full = || test.events.lock().unwrap().contains(&full);
    let (begun, mut keys) = (clock::monotonic(), 0);
    while !is_full() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        test.sent_messages.take();
        // Each has a key of its own: snapshots would give the room of an earlier value back.
        keys += 1;
        // Short ones, too: while there is room for these, the disk is not full.
        let bytes = if keys % 2 == 0 { 100 } else { 100_000 };
        test.send(persistent(&format!("key{keys}"), &"x".repeat(bytes)));
        test.sent_messages.wait_for(1);
        let replies = test.sent_messages.replies();
        // The first commit without room fails, and later ones are refused; the reserve may give room back for some.
        let refused = [ErrorReply::NotPersisted, ErrorReply::DiskFull].map(Reply::Error);
        assert!(
            replies.len() == 1 && (replies[0] == Reply::Done || refused.contains(&replies[0])),
            "{replies:?}"
        );
    }
    disk.set_faults(|faults| faults.blocks_max = None);
    // The room may have come back before, by a snapshot, for a while or for good.
    let is_about_room = |event: &&Event| matches!(event, Event::NotPersisted { .. } | Event::PersistedAgain);
    let last = || test.events.lock().unwrap().iter().rfind(is_about_room).cloned();
    let begun = clock::monotonic();
    while last() != Some(Event::PersistedAgain) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", test.events.lock().unwrap());
        thread::sleep(Duration::from_millis(1));
    }
    drop(running);
}
