//! Tests of what a failure leaves: of the disk, of its room, of one sector, of a process that is killed.

use std::fs;

use tempfile::TempDir;

use super::disk::{Disk, LOCK_NAME, RESERVE_NAME, log_name};
use super::frame::{BLOCK_BYTES, HEADER_BYTES, Kind, intact};
use super::ledger::FileLedger;
use super::offline::{RECOVERED_DIRECTORY, inspect_on, recover};
use super::policy::Policy;
use super::simulated::{POLICY, SeededRandom, SimulatedDisk};
use super::tests::{Model, NOW, commit, delete, is_corrupt, load, on, set, values};
use super::work::{Done, Work};
use crate::clock;
use crate::ledger::StorageErrorKind;
use crate::store::{Now, Version};

/// Started in order, and killed while it made a segment for its first group: its lock file still names the last group.
#[test]
fn a_segment_that_a_killed_process_has_made_is_used_only_when_its_name_is_durable() {
    let mut model = Model::new();
    model.fill(3);
    model.ledger.close();
    let model = Model::start(model.disk);
    let half = model.disk.create("log-2").unwrap();
    half.write(0, &[0; 32 * 1024]).unwrap();
    let mut model = Model::start(model.disk.after_kill());
    for number in 0..6 {
        model.set(&format!("acknowledged {number}"), b"v");
    }
    for seed in 0..20 {
        let after = model.disk.after_power_cut(&mut SeededRandom::new(seed));
        assert!(values(&after).unwrap() == model.values, "seed {seed}");
    }
}

/// Takes work until a snapshot is due.
fn begin_snapshot(model: &mut Model) -> super::snapshot::SnapshotWriter {
    loop {
        let now = model.later();
        match model.ledger.take_work(now, u64::MAX).map(Work::run) {
            Some(Ok(done)) => drop(model.ledger.handle_done(done, now)),
            Some(Err(snapshot)) => return *snapshot,
            None => model.fill(3),
        }
    }
}

#[test]
fn a_commit_without_room_cancels_a_snapshot_that_has_seen_its_changes() {
    let mut model = Model::new();
    let snapshot = begin_snapshot(&mut model);
    model.disk.set_faults(|faults| faults.blocks_max = Some(0));
    commit(&mut model.ledger, &[set("rolled back", &[b'v'; 100_000])]).unwrap_err();
    assert!(snapshot.epoch().is_over());
    drop(snapshot);
    model.disk.set_faults(|faults| faults.blocks_max = None);
    while model.snapshots == 0 {
        model.fill(3);
        model.work();
    }
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}

#[test]
fn attempts_to_recover_that_fail_leave_no_files() {
    let mut model = Model::new();
    model.fill(3);
    model.fail_commit("k");
    let before = model.disk.all_names().len();
    for number in 0..20 {
        let mut snapshot = model.ledger.begin_rewrite(NOW).unwrap();
        snapshot.write_records(&model.records(), NOW).unwrap();
        // It is in place, but that is not known.
        model.disk.set_faults(|faults| faults.fails_name_syncs = true);
        model.ledger.finish_rewrite(snapshot).unwrap_err();
        model.disk.set_faults(|faults| faults.fails_name_syncs = false);
        assert!(values(&model.disk.copy()).unwrap() == model.values, "attempt {number}");
    }
    let names = model.disk.all_names();
    assert!(names.len() <= before + 2, "{names:?}");
    model.recover();
    model.fill(POLICY.commits_before);
    model.work();
    let names = model.disk.all_names();
    assert_eq!(names.iter().filter(|name| name.starts_with("snapshot-")).count(), 1, "{names:?}");
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}

#[test]
fn only_unfinished_files_of_a_store_are_removed() {
    let home = TempDir::new().unwrap();
    for name in ["users.yaml.new", "snapshot-3.new", "snapshot-x.new", "reserve.new"] {
        fs::write(home.path().join(name), "mine").unwrap();
    }
    let mut ledger = FileLedger::open(home.path()).unwrap();
    commit(&mut ledger, &[set("k", b"v")]).unwrap();
    ledger.close();
    let has = |name| home.path().join(name).exists();
    assert!(has("users.yaml.new") && has("snapshot-x.new"));
    assert!(!has("snapshot-3.new") && !has("reserve.new"));
}

#[test]
fn snapshots_that_fail_again_and_again_are_seldom_tried_and_take_no_segments() {
    let mut model = Model::new();
    let (mut groups, mut failed) = (0, 0);
    while failed < 40 {
        model.set(&format!("k{}", groups % 9), &[b'v'; 3_000]);
        groups += 1;
        let (now, before) = (model.later(), failed);
        while let Some(work) = model.ledger.take_work(now, u64::MAX) {
            let done = work.run().unwrap_or_else(|snapshot| {
                failed += 1;
                Done::Snapshot(snapshot.epoch(), Err(StorageErrorKind::Other("EIO".to_owned())))
            });
            let is_snapshot = matches!(done, Done::Snapshot(..));
            assert_eq!(model.ledger.handle_done(done, now).is_some(), is_snapshot, "its failure is reported");
        }
        assert!(failed <= before + 1, "a pause follows");
    }
    let names = model.disk.all_names();
    let bytes: usize =
        names.iter().filter(|name| name.starts_with("log-")).map(|name| model.disk.file(name).len()).sum();
    assert!(
        bytes <= 2 * groups * BLOCK_BYTES,
        "{bytes} bytes of segments for {} of groups",
        groups * BLOCK_BYTES
    );
    model.work();
    assert!(model.snapshots > 0 && values(&model.disk.copy()).unwrap() == model.values);
}

/// A store in a directory, whose last snapshot is followed by a segment with groups of an earlier use behind its own.
fn with_used_segment(damage: impl Fn(&mut Vec<u8>)) -> (TempDir, Model) {
    let mut model = Model::new();
    let has_old = |model: &Model| {
        let names = model.disk.all_names();
        let first: Option<u64> = names.iter().find_map(|name| name.strip_prefix("snapshot-")?.parse().ok());
        let Some(first) = first else { return false };
        let file = model.disk.file(&log_name(first));
        let numbers: Vec<_> = intact(Kind::Group, &file, None).map(|(_, frame)| frame.chain.number).collect();
        numbers.windows(2).any(|two| two[1] < two[0])
    };
    let mut round = 0;
    while !has_old(&model) {
        round += 1;
        assert!(round < 5_000);
        model.set(&format!("k{}", round % 9), format!("{round}").as_bytes());
        model.work();
    }
    let home = TempDir::new().unwrap();
    for name in model.disk.all_names() {
        let mut bytes = model.disk.file(&name);
        if name.starts_with("snapshot-") {
            damage(&mut bytes);
        }
        fs::write(home.path().join(&name), bytes).unwrap();
    }
    fs::write(home.path().join(LOCK_NAME), "").unwrap();
    (home, model)
}

#[test]
fn recovery_brings_back_no_value_that_is_older_than_that_of_a_damaged_snapshot() {
    for is_end_damaged in [false, true] {
        let (home, model) = with_used_segment(|bytes| {
            bytes[HEADER_BYTES] ^= 1;
            let last = bytes.len() - BLOCK_BYTES;
            bytes[last + HEADER_BYTES] ^= u8::from(is_end_damaged);
        });
        let (_, to) = recover(home.path(), NOW.wall_ms).unwrap();
        let mut recovered = FileLedger::open(&to.unwrap()).unwrap();
        assert_eq!(load(&mut recovered).unwrap(), model.values, "all of it can be read");
    }
}

#[test]
fn an_interrupted_recovery_leaves_nothing_that_can_be_taken_for_the_store() {
    let (home, model) = with_used_segment(|bytes| bytes[HEADER_BYTES] ^= 1);
    let new = home.path().join("recovered.new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("log-1"), [0; 4096]).unwrap();
    let (_, to) = recover(home.path(), NOW.wall_ms).unwrap();
    let to = to.unwrap();
    assert!(to.ends_with(RECOVERED_DIRECTORY) && !new.exists());
    assert_eq!(load(&mut FileLedger::open(&to).unwrap()).unwrap(), model.values);
}

#[test]
fn a_new_store_is_not_refused_after_its_first_commit_has_failed() {
    let mut model = Model::new();
    model.fail_commit("k");
    drop(model.ledger.begin_rewrite(NOW).unwrap());
    let mut model = Model::start(model.disk.after_kill());
    assert!(model.values.is_empty());
    for _ in 0..3 {
        model.fill(3);
        assert!(values(&model.disk.copy()).unwrap() == model.values);
        model = Model::start(model.disk.after_kill());
    }
}

#[test]
fn a_store_with_few_long_values_that_has_filled_its_disk_accepts_writes_again_after_everything_was_deleted() {
    let mut model = Model::start_with(SimulatedDisk::default(), Policy::default());
    model.disk.set_faults(|faults| faults.blocks_max = Some(750));
    let value = vec![b'v'; 250_000];
    let mut count = 0;
    for _ in 0..20 {
        let name = format!("k{count}");
        if model.ledger.is_short_of_room() {
            model.ledger.retry_work();
        } else if commit(&mut model.ledger, &[set(&name, &value)]).is_ok() {
            model.values.insert(name, value.clone());
            count += 1;
        } else {
            // As the commit thread does.
            model.ledger.release_reserve();
        }
        model.work();
    }
    for number in 0..count {
        let name = format!("k{number}");
        if commit(&mut model.ledger, &[delete(&name)]).is_err() {
            model.ledger.release_reserve();
            commit(&mut model.ledger, &[delete(&name)]).unwrap();
        }
        model.values.remove(&name);
        model.ledger.retry_work();
        model.work();
    }
    model.ledger.retry_work();
    model.work();
    assert!(model.values.is_empty() && count > 3, "{count}");
    assert!(!model.ledger.is_short_of_room(), "{:?}, {} blocks", model.disk.all_names(), model.disk.blocks());
    model.set("k", &value);
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}

/// A full disk is not worn out by attempts that cannot succeed.
#[test]
fn on_a_full_disk_no_snapshot_is_begun_that_has_no_room() {
    let mut model = Model::new();
    while model.disk.blocks() < 60 {
        model.set(&format!("k{}", model.values.len()), &[b'v'; 3_000]);
    }
    let blocks = model.disk.blocks() + 3;
    model.disk.set_faults(|faults| faults.blocks_max = Some(blocks));
    commit(&mut model.ledger, &[set("large", &[b'v'; 100_000])]).unwrap_err();
    model.ledger.release_reserve();
    for _ in 0..20 {
        model.ledger.retry_work();
        let now = model.later();
        while let Some(work) = model.ledger.take_work(now, model.bytes()) {
            let done = work.run().unwrap_or_else(|_| panic!("a snapshot"));
            drop(model.ledger.handle_done(done, now));
        }
    }
    assert!(model.ledger.is_short_of_room());
    model.disk.set_faults(|faults| faults.blocks_max = None);
    model.ledger.retry_work();
    model.work();
    assert!(model.snapshots > 0 && !model.ledger.is_short_of_room());
}

#[test]
fn a_reserve_that_is_much_too_long_is_shortened() {
    let mut model = Model::new();
    for number in 0..100 {
        model.set(&format!("k{number}"), &[b'v'; 9_000]);
        model.work();
    }
    let long = model.disk.file(RESERVE_NAME).len();
    for number in 1..100 {
        model.delete(&format!("k{number}"));
        model.work();
    }
    let before = model.snapshots;
    while model.snapshots == before {
        model.fill(10);
        model.work();
    }
    model.work();
    let short = model.disk.file(RESERVE_NAME).len();
    assert!(long > 900_000 && short < long / 2, "{long} {short}");
}

/// The beginning of a group, again and again, behind a torn one.
#[test]
fn a_value_that_looks_like_the_beginnings_of_groups_is_not_summed_up_again_and_again() {
    let mut bytes = [0xA7, b'm', b'g', 6, 0, 0x10, 0, 0].repeat(2 * 1024 * 1024 / 8);
    let time = |bytes: &[u8]| {
        let begun = clock::monotonic();
        assert_eq!(intact(Kind::Group, bytes, Some(7)).count(), 0);
        begun.elapsed()
    };
    let hostile = time(&bytes);
    bytes.fill(1);
    let usual = time(&bytes);
    assert!(hostile < usual * 1_000, "{hostile:?}, usually {usual:?}");
}

#[test]
fn a_sector_that_cannot_be_read_is_corruption_and_all_else_is_recovered() {
    let mut model = Model::new();
    model.fill(1);
    let last = model.disk.file("log-1").len() - 1;
    for (at, lost) in [(last, 0), (HEADER_BYTES, 1)] {
        let disk = model.disk.copy();
        disk.set_faults(|faults| faults.unreadable_at = Some(at));
        let error = on(&disk).unwrap_err();
        let place = format!("log-1: the disk cannot read it at byte {}", at / BLOCK_BYTES * BLOCK_BYTES);
        assert!(is_corrupt(&error) && error.to_string().contains(&place), "{error}");
        let report = inspect_on(&disk, NOW.wall_ms).unwrap().report;
        assert_eq!(report.keys, 1 - lost, "{report:?}");
    }
    while model.snapshots == 0 {
        model.fill(3);
        model.work();
    }
    let disk = model.disk.copy();
    // In the entries of the snapshot.
    disk.set_faults(|faults| faults.unreadable_at = Some(BLOCK_BYTES + HEADER_BYTES));
    let error = values(&disk).unwrap_err();
    assert!(is_corrupt(&error), "{error}");
    inspect_on(&disk, NOW.wall_ms).unwrap();
}

#[test]
fn a_system_that_cannot_forget_what_it_has_read_opens_a_store_after_an_unclean_end() {
    let mut model = Model::new();
    model.fill(3);
    let disk = model.disk.after_kill();
    disk.set_faults(|faults| faults.keeps_cache = true);
    assert!(values(&disk).unwrap() == model.values);
}

#[cfg(unix)]
#[test]
fn a_lock_file_that_leads_nowhere_is_not_reported_as_a_directory_without_a_store() {
    let home = TempDir::new().unwrap();
    std::os::unix::fs::symlink(LOCK_NAME, home.path().join(LOCK_NAME)).unwrap();
    let error = super::offline::verify(home.path(), NOW.wall_ms).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::NotAFile(_)), "{error}");
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_no_file_of_a_store() {
    for name in [LOCK_NAME, "log-1"] {
        let (home, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let target = other.path().join("file");
        fs::write(&target, "of another program").unwrap();
        std::os::unix::fs::symlink(&target, home.path().join(name)).unwrap();
        let opened = FileLedger::open(home.path());
        let error = opened.and_then(|mut ledger| commit(&mut ledger, &[set("k", b"v")])).unwrap_err();
        assert!(matches!(error.kind, StorageErrorKind::NotAFile(_)), "{error}");
        assert_eq!(fs::read(&target).unwrap(), b"of another program");
    }
}

#[test]
fn a_ledger_whose_directory_was_replaced_changes_nothing_until_it_is_back() {
    let mut model = Model::new();
    model.fill(3);
    let before = model.disk.all_names();
    model.disk.set_faults(|faults| faults.is_replaced = true);
    assert!(model.ledger.is_replaced());
    let now = Now { monotonic_ms: 3_600_000, ..NOW };
    let error = model.ledger.commit(&[set("lost", b"v")], Version::default(), now).unwrap_err();
    assert!(matches!(error.kind, StorageErrorKind::Replaced(_)) && !model.ledger.is_open(), "{error}");
    for _ in 0..3 {
        let error = model.ledger.begin_rewrite(now).unwrap_err();
        assert!(matches!(error.kind, StorageErrorKind::Replaced(_)), "{error}");
        assert!(model.ledger.take_work(now, u64::MAX).is_none());
    }
    assert_eq!(model.disk.all_names(), before);
    model.disk.set_faults(|faults| faults.is_replaced = false);
    let mut snapshot = model.ledger.begin_rewrite(now).unwrap();
    snapshot.write_records(&model.records(), now).unwrap();
    model.ledger.finish_rewrite(snapshot).unwrap();
    model.set("again", b"v");
    assert!(values(&model.disk.copy()).unwrap() == model.values);
}
