//! One flipped bit in a copy of the files: opening them fails and changes nothing, or every acknowledged write is there.
//!
//! One exception: after a kill, a flip in the last group of the log cannot be distinguished from a write that a crash
//! interrupted, which was not acknowledged. So only the last write may be missing then.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::kills::copy;
use crate::client::{Client, Reply, Verb};
use crate::effort::Effort;
use crate::random::Random;
use crate::server::{Server, mqkv};

const LOCK: &str = "lock";
const BLOCK_BYTES: u64 = 4096;
const TIMEOUT: Duration = Duration::from_secs(60);

type Keys = BTreeMap<String, String>;

/// Files that a server has left, and what they contain.
struct Files {
    name: &'static str,
    folder: TempDir,
    /// All acknowledged writes.
    keys: Keys,
    /// The same without the last write.
    keys_before_last: Keys,
    is_killed: bool,
}

/// The result of opening files.
#[derive(Debug, PartialEq, Eq)]
enum Opened {
    Whole,
    Refused,
}

pub fn run(effort: Effort) -> Result<String, String> {
    let shapes = [
        Files::create("after a kill", 60, 40, true),
        Files::create("after a kill and snapshots", 1_000, 40_000, true),
        Files::create("after an orderly end", 60, 40, false),
    ];
    detects_a_loss(&shapes[0])?;
    let results: Vec<_> = shapes.iter().map(|files| flip_all(files, effort)).collect();
    let text = |result: &Result<String, String>| match result {
        Ok(text) | Err(text) => text.clone(),
    };
    let lines = results.iter().map(text).collect::<Vec<_>>().join("; ");
    match results.iter().all(Result::is_ok) {
        true => Ok(format!("{lines}; files of an earlier moment were detected")),
        false => Err(lines),
    }
}

fn flip_all(files: &Files, effort: Effort) -> Result<String, String> {
    let mut random = Random::new(1);
    let per_block = effort.pick(1, 12);
    let flips_max = effort.pick(500, 3_000) / files.names().len() as u64;
    let (mut flips, mut refused, mut failures) = (0, 0, Vec::new());
    for name in files.names() {
        let bits: Vec<u64> = match name.as_str() {
            LOCK => {
                (0..files.len(&name) * 8).filter(|_| effort == Effort::Long || random.one_in(40)).collect()
            }
            // Nothing is read from it.
            "reserve" => Vec::new(),
            // Only the beginning of a log may be in use; the rest is zeros.
            _ => flips_per_block(&mut random, files.len(&name).min(400 * BLOCK_BYTES), per_block, flips_max),
        };
        let last = if files.is_killed { &files.keys_before_last } else { &files.keys };
        for bit in bits {
            flips += 1;
            match files.flip(&name, bit, &[&files.keys, last]) {
                Ok(Opened::Whole) => {}
                Ok(Opened::Refused) => refused += 1,
                Err(error) => failures.push(error),
            }
        }
    }
    let text = format!("{}: {flips} flips, {refused} refused", files.name);
    match failures.first() {
        None => Ok(text),
        Some(first) => Err(format!("{text}, {} with a loss (the first: {first})", failures.len())),
    }
}

/// Draws bits of each block, half of them in its first 64 bytes; at most `flips_max` in all.
fn flips_per_block(random: &mut Random, bytes: u64, per_block: u64, flips_max: u64) -> Vec<u64> {
    let blocks = bytes / BLOCK_BYTES;
    let step = (blocks * per_block).div_ceil(flips_max).max(1);
    (0..blocks * per_block)
        .filter(|number| number % step == 0)
        .map(|number| {
            let bits = if random.one_in(2) { 64 * 8 } else { BLOCK_BYTES * 8 };
            number / per_block * BLOCK_BYTES * 8 + random.below(bits)
        })
        .collect()
}

impl Files {
    fn create(name: &'static str, writes: u64, value_bytes: usize, kills: bool) -> Self {
        let mut server = Server::start(&["--data", "data"]);
        let mut client = Client::new("writer", server.port());
        let (mut keys, mut keys_before_last) = (Keys::new(), Keys::new());
        for number in 0..writes {
            keys_before_last.clone_from(&keys);
            let key = format!("k{}", number % 40);
            // Every seventh request deletes, but the last one.
            let is_set = number % 7 != 5 || number + 1 == writes;
            let value = format!("{number}-{}", "v".repeat(value_bytes));
            let verb = if is_set { Verb::Set(value.clone()) } else { Verb::Del };
            let reply = client.request(&key, &verb, TIMEOUT).unwrap().reply;
            assert!(matches!(reply, Reply::Done | Reply::Number(0 | 1)), "{reply:?}");
            if is_set {
                keys.insert(key, value)
            } else {
                keys.remove(&key)
            };
        }
        if kills {
            server.kill()
        } else {
            server.end()
        }
        // In memory, if there is such a folder: each trial copies and opens the files.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        copy(&server.folder().join("data"), &folder.path().join("original"));
        Self { name, folder, keys, keys_before_last, is_killed: kills }
    }

    fn names(&self) -> Vec<String> {
        content(&self.folder.path().join("original")).into_keys().collect()
    }

    fn len(&self, name: &str) -> u64 {
        fs::metadata(self.folder.path().join("original").join(name)).map_or(0, |file| file.len())
    }

    /// Flips a bit in a copy and opens it.
    fn flip(&self, name: &str, bit: u64, allowed: &[&Keys]) -> Result<Opened, String> {
        let place = format!("bit {} of byte {} of {name}", bit % 8, bit / 8);
        let at = usize::try_from(bit / 8).unwrap();
        let data = self.copied();
        let mut bytes = fs::read(data.join(name)).unwrap();
        bytes[at] ^= 1 << (bit % 8);
        fs::write(data.join(name), &bytes).unwrap();
        check(&data, allowed).map_err(|error| format!("{place}: {error}"))
    }

    fn copied(&self) -> PathBuf {
        let data = self.folder.path().join("data");
        let _ = fs::remove_dir_all(&data);
        copy(&self.folder.path().join("original"), &data);
        data
    }
}

/// Returns the files of a directory.
fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(directory).unwrap().map(file).collect()
}

/// Verifies and opens files; `Err` if acknowledged writes are missing, or if refused files were changed.
fn check(data: &Path, allowed: &[&Keys]) -> Result<Opened, String> {
    let home = data.parent().unwrap();
    let before = content(data);
    let verified = mqkv(home, &["data", "verify", "data"]).output().unwrap();
    if content(data) != before {
        return Err("`data verify` changed the files".to_owned());
    }
    let exported = mqkv(home, &["--embedded=data", "export"]).output().unwrap();
    let error = String::from_utf8_lossy(&exported.stderr).into_owned();
    match exported.status.code() {
        Some(0) => {
            let found = parse(&String::from_utf8(exported.stdout).unwrap());
            if allowed.contains(&&found) {
                return Ok(Opened::Whole);
            }
            let lost = allowed[0].iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
            let verdict = if verified.status.success() { "intact" } else { "corrupt" };
            Err(format!(
                "{lost} of {} keys are lost, and `data verify` reports {verdict} files",
                allowed[0].len()
            ))
        }
        Some(1..=100) if !error.contains("panicked") => {
            if verified.status.success() {
                return Err(format!("`data verify` accepts what the store refuses: {error}"));
            }
            match content(data) == before {
                true => Ok(Opened::Refused),
                false => Err(format!("refused files were changed: {error}")),
            }
        }
        _ => Err(format!("{}: {error}", exported.status)),
    }
}

/// Reads keys and values from the lines of an export; both are plain ASCII.
fn parse(lines: &str) -> Keys {
    let field = |line: &str, name: &str| {
        let begin = line.find(&format!("\"{name}\":\"")).unwrap() + name.len() + 4;
        line[begin..].split('"').next().unwrap().to_owned()
    };
    lines.lines().map(|line| (field(line, "key"), field(line, "value"))).collect()
}

/// Checks that a loss is detected: files that miss the last writes and are otherwise intact.
fn detects_a_loss(files: &Files) -> Result<(), String> {
    let fewer = Files::create("of an earlier moment", 40, 40, true);
    match (check(&files.copied(), &[&files.keys]), check(&fewer.copied(), &[&files.keys])) {
        (Ok(Opened::Whole), Err(_)) => Ok(()),
        found => Err(format!("whole files and files of an earlier moment: {found:?}")),
    }
}
