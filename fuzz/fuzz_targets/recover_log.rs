//! Fuzz target: a log with any changed bytes. Opening it fails and changes nothing, or gives the state after some commit: a
//! changed last group is a write that a crash interrupted.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mqkv::ledger::{FileLedger, KeyRecord, Record, offline};
use mqkv::protocol::Key;
use mqkv::store::{Now, StoredValue, Version};

const WALL_MS: u64 = 1_700_000_000_000;
const NOW: Now = Now { wall_ms: WALL_MS, monotonic_ms: 0 };
/// The groups fit into the first segment.
const COMMITS: u64 = 14;
const LOG: &str = "log-1";
const LOCK: &str = "lock";

type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// Files of a store that was killed after its last commit.
struct Original {
    log: Vec<u8>,
    lock: Vec<u8>,
    /// The state after each commit.
    states: Vec<Keys>,
    /// Length of the log without the zeros at its end.
    used: usize,
}

static ORIGINAL: LazyLock<Original> = LazyLock::new(create);

fn folder(name: &str) -> PathBuf {
    let parent =
        if PathBuf::from("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    parent.join(format!("mqkv-fuzz-{name}-{}", std::process::id()))
}

fn create() -> Original {
    let folder = folder("original");
    let _ = fs::remove_dir_all(&folder);
    let mut ledger = FileLedger::open(&folder).unwrap();
    let (mut keys, mut states) = (Keys::new(), vec![Keys::new()]);
    for number in 0..COMMITS {
        let key = format!("k{}", number % 7);
        let value = format!("{number}").repeat(1 + usize::try_from(number % 5).unwrap() * 400);
        let content = (number % 6 != 5).then(|| StoredValue {
            value: value.clone().into_bytes().into(),
            fence: None,
            deadline_ms: None,
            persist: true,
        });
        let version = Version { ms: WALL_MS + number, counter: 0 };
        match &content {
            Some(_) => keys.insert(key.clone().into_bytes(), value.into_bytes()),
            None => keys.remove(key.as_bytes()),
        };
        let record = Record::Key(KeyRecord { key: Key::new(key).unwrap(), version, content });
        ledger.commit(&[(0, record)], version, NOW).unwrap();
        states.push(keys.clone());
    }
    // Every commit is synced, so the files are now as a kill would leave them.
    let (log, lock) = (fs::read(folder.join(LOG)).unwrap(), fs::read(folder.join(LOCK)).unwrap());
    drop(ledger);
    let _ = fs::remove_dir_all(&folder);
    let used = log.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    Original { log, lock, states, used }
}

// The input is a list of changes of four bytes: where, and with what a byte there is combined by XOR.
fuzz_target!(|data: &[u8]| {
    let Original { log, lock, states, used } = &*ORIGINAL;
    let mut changed = log.clone();
    for change in data.chunks_exact(4) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) * 8 + usize::from(change[2]) % 8;
        changed[at % used] ^= change[3];
    }
    let folder = folder("changed");
    let _ = fs::create_dir(&folder);
    fs::write(folder.join(LOCK), lock).unwrap();
    fs::write(folder.join(LOG), &changed).unwrap();
    let verified = offline::verify(&folder, WALL_MS);
    match FileLedger::open(&folder) {
        Ok(mut ledger) => {
            let mut found = Keys::new();
            let each = |key: Key, _, stored: StoredValue| {
                drop(found.insert(key.as_bytes().to_vec(), stored.value.to_vec()))
            };
            ledger.load(NOW, each).unwrap();
            assert!(states.contains(&found), "{} keys as after no commit", found.len());
            assert!(verified.is_ok());
            let is_unchanged = changed == *log;
            assert!(!is_unchanged || states.last() == Some(&found));
        }
        Err(_) => {
            let now = (fs::read(folder.join(LOCK)).unwrap(), fs::read(folder.join(LOG)).unwrap());
            assert!(now == (lock.clone(), changed), "refused files were changed");
        }
    }
});
