//! What goes to the disk and what does not, a disk that is full, and a clock that has gone back.

use super::tests::{Bench, del, get, key, message, set, set_with, value, version};
use super::*;
use crate::protocol::{ErrorReply, Reply};
use crate::server::storage::WalPolicy;
use crate::server::storage::simulated::SimulatedDisk;
use crate::store::Version;
use tempfile::TempDir;

fn custom(home: &TempDir) -> Bench {
    Bench::new(Persistence::Custom(home.path().to_owned()))
}

fn persistent(name: &str, text: &str) -> Message {
    let mut message = message(&set(name, text));
    message.user_properties.push((PERSIST.into(), "true".into()));
    message
}

#[tokio::test]
async fn what_does_not_ask_for_the_disk_does_not_wait_for_it_and_is_gone_after_a_restart() {
    let home = TempDir::new().unwrap();
    let bench = custom(&home);
    // Nobody writes yet: whoever waits for the disk waits for good.
    assert_eq!(bench.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(bench.reply(&del("passing")), Reply::Count(1));
    assert_eq!(bench.reply(&set("passing", "w")), Reply::Done);
    bench.send(persistent("kept", "v"));
    assert!(bench.notes.replies().is_empty());
    assert_eq!(bench.reply(&get("passing")), value("w"));
    let running = bench.run();
    bench.notes.wait_for(1);
    assert_eq!(bench.notes.replies(), [Reply::Done]);
    drop((running, bench));
    let bench = custom(&home);
    assert_eq!(bench.reply_of_get("kept"), value("v"));
    assert_eq!(bench.reply_of_get("passing"), Reply::Absent);
}

#[tokio::test]
async fn a_key_that_is_kept_stays_so_until_it_is_deleted() {
    let home = TempDir::new().unwrap();
    let bench = custom(&home);
    bench.send(persistent("k", "asked"));
    bench.send(persistent("gone", "asked"));
    // It does not ask, but an older value must not be back after a restart.
    bench.ask(&set("k", "not asked"));
    bench.ask(&del("gone"));
    // This one starts anew, behind what waits for the disk.
    bench.ask(&set("gone", "not asked"));
    assert!(bench.notes.replies().is_empty());
    let running = bench.run();
    bench.notes.wait_for(5);
    let sent = bench.notes.replies();
    assert_eq!(sent, [Reply::Done, Reply::Done, Reply::Done, Reply::Count(1), Reply::Done]);
    assert_eq!(bench.reply(&set("gone", "once more")), Reply::Done);
    drop((running, bench));
    let bench = custom(&home);
    assert_eq!(bench.reply_of_get("k"), value("not asked"));
    assert_eq!(bench.reply_of_get("gone"), Reply::Absent);
}

#[tokio::test]
async fn a_key_that_is_not_kept_gets_no_lower_version_after_a_restart() {
    let home = TempDir::new().unwrap();
    let bench = custom(&home);
    let running = bench.run();
    let ahead = format!("{}:0:client", clock::wall_ms() + 50_000);
    let user_properties = vec![(TIMESTAMP.into(), ahead.into())];
    bench.send(Message { user_properties, ..message(&set("passing", "v")) });
    let before = version(&bench.notes.take()[0].1);
    drop((running, bench));
    let bench = custom(&home);
    bench.ask(&set("passing", "v"));
    assert!(version(&bench.notes.take()[0].1) > before);
}

#[tokio::test]
async fn a_write_that_is_not_kept_is_not_forgotten_when_the_disk_fails() {
    let home = TempDir::new().unwrap();
    let bench = custom(&home);
    bench.send(persistent("kept", "v"));
    let passing = message(&set("passing", "v"));
    bench.send(passing.clone());
    bench.service.lock().handle_failure(&bench.notes);
    assert_eq!(bench.notes.replies(), [Reply::Done, Reply::Error(ErrorReply::NotPersisted)]);
    assert_eq!(bench.reply(&del("passing")), Reply::Count(1));
    // Delivered again, it is still known.
    bench.send(passing);
    assert_eq!(bench.notes.replies(), [Reply::Done]);
    assert_eq!(bench.reply_of_get("passing"), Reply::Absent);
}

#[test]
fn a_clock_that_has_gone_back_is_told_and_versions_go_on() {
    let home = TempDir::new().unwrap();
    let mut journal = Storage::open(home.path()).unwrap();
    let ahead_ms = clock::wall_ms() + 3_600_000;
    let greatest = Version { ms: ahead_ms, counter: 4 };
    journal.commit(&[], greatest, Now { wall_ms: ahead_ms, monotonic_ms: 0 }).unwrap();
    drop(journal);
    let bench = custom(&home);
    let events = std::mem::take(&mut *bench.events.lock().unwrap());
    let [Event::ClockBehind { by_ms }] = events[..] else { panic!("{events:?}") };
    assert!((3_500_000..=3_600_000).contains(&by_ms), "{by_ms}");
    bench.ask(&set("new", "v"));
    assert_eq!(version(&bench.notes.take()[0].1), Timestamp::of_store(ahead_ms, 5));
    drop(bench);
    assert!(custom(&TempDir::new().unwrap()).events.lock().unwrap().is_empty());
}

#[tokio::test]
async fn on_a_full_disk_only_what_must_be_kept_is_refused_and_taken_again_when_there_is_room() {
    let disk = SimulatedDisk::default();
    let open = || Bench::on(Storage::open_files(Box::new(disk.clone()), WalPolicy::default()).unwrap());
    let bench = open();
    let running = bench.run();
    bench.send(persistent("k", "before"));
    bench.notes.wait_for(1);
    let large = "x".repeat(3_000_000);
    disk.set_faults(|faults| faults.bytes_max = Some(200_000));
    bench.notes.take();
    bench.send(persistent("k", &large));
    bench.notes.wait_for(1);
    let refused = Reply::Error(ErrorReply::NotPersisted);
    assert_eq!(bench.notes.replies(), std::slice::from_ref(&refused));
    assert_eq!(bench.reply(&get("k")), value("before"));
    assert_eq!(bench.reply(&set("passing", "v")), Reply::Done);
    assert_eq!(bench.reply(&del("passing")), Reply::Count(1));
    disk.set_faults(|faults| faults.bytes_max = None);
    bench.wait_for_event(&Event::PersistedAgain);
    bench.send(persistent("k", &large));
    bench.notes.wait_for(1);
    assert_eq!(bench.notes.replies(), [Reply::Done]);
    // Another failure, of the kind after which the file is not believed any more.
    disk.set_faults(|faults| faults.fails_next_sync = true);
    bench.send(persistent("other", "v"));
    bench.notes.wait_for(1);
    assert_eq!(bench.notes.replies(), [refused]);
    bench.wait_for_event(&Event::PersistedAgain);
    bench.send(persistent("other", "w"));
    bench.notes.wait_for(1);
    drop((running, bench));
    let bench = open();
    assert_eq!(bench.reply_of_get("other"), value("w"));
    assert_eq!(bench.reply_of_get("k"), Reply::Value(large.into()));
}

#[tokio::test]
async fn what_expires_while_the_disk_does_not_work_is_gone_from_it_too() {
    let disk = SimulatedDisk::default();
    let journal = Storage::open_files(Box::new(disk.clone()), WalPolicy::default()).unwrap();
    let bench = Bench::on(journal);
    let running = bench.run();
    let mut short = message(&set_with("short", "v", None, 60_000));
    short.user_properties.push((PERSIST.into(), "true".into()));
    bench.send(short);
    bench.notes.wait_for(1);
    disk.set_faults(|faults| faults.bytes_max = Some(0));
    bench.send(persistent("k", &"x".repeat(2_000_000)));
    bench.notes.wait_for(2);
    let later = Now { monotonic_ms: u64::MAX, ..bench.service.now() };
    bench.service.lock().expire_due(&bench.notes, later);
    disk.set_faults(|faults| faults.bytes_max = None);
    bench.wait_for_event(&Event::PersistedAgain);
    drop((running, bench));
    let journal = Storage::open_files(Box::new(disk), WalPolicy::default()).unwrap();
    let mut keys = Vec::new();
    journal.load(Now::default(), |key, _, _| keys.push(key)).unwrap();
    assert_eq!(keys, [], "{:?} is gone", key("short"));
}
