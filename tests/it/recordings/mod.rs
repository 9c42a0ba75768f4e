//! What released versions have written, in `tests/recordings/VERSION/`: later versions read it (`docs/stability.md`).
//!
//! `MQKV_RECORD=write cargo test --test it recordings::` writes the recordings of the present version, except for `records.jsonl`, which
//! `MQKV_RECORD=write tests/schemas/validate BINARY` writes. Those of released versions never change.

#[cfg(feature = "cluster")]
mod cluster;
mod etcd;
mod folders;
mod frames;
mod metrics;
mod options;
mod records;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// Returns whether a changelog gives a version a release date.
fn is_released(changelog: &str, version: &str) -> bool {
    let mut dates = changelog.lines().filter_map(|line| line.strip_prefix(&format!("## [{version}] - ")));
    dates.any(|date| date.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns the folder of the present version if its recordings are to be written.
///
/// # Panics
/// If that version is released.
#[expect(clippy::disallowed_methods, reason = "the variable is the test's own")]
fn folder_to_write() -> Option<PathBuf> {
    let is_writing = std::env::var_os("MQKV_RECORD").is_some_and(|word| word == "write");
    let folder = root().join(env!("CARGO_PKG_VERSION"));
    is_writing.then(|| {
        let changelog = include_str!("../../../CHANGELOG.md");
        assert!(
            !is_released(changelog, env!("CARGO_PKG_VERSION")),
            "the recordings of a released version do not change: set the next version in Cargo.toml"
        );
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Writes a file of the present version if recordings are to be written, then returns the file of each version.
fn recorded(name: &str, present: impl FnOnce() -> String) -> Vec<String> {
    if let Some(folder) = folder_to_write() {
        fs::write(folder.join(name), present()).unwrap();
    }
    read(name)
}

/// Returns the file of each version.
fn read(name: &str) -> Vec<String> {
    let files = folders().into_iter().map(|folder| fs::read_to_string(folder.join(name)).unwrap());
    files.collect()
}

/// Returns the folders of all versions, the latest last.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<_> = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let numbers = |folder: &PathBuf| -> Vec<u32> {
        let name = folder.file_name().unwrap().to_str().unwrap();
        name.split('.').map(|number| number.parse().unwrap()).collect()
    };
    folders.sort_by_key(numbers);
    assert!(!folders.is_empty());
    folders
}

/// Names with bytes, one pair in each line; the bytes are hexadecimal.
fn named_bytes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    pairs.into_iter().map(|(name, bytes)| format!("{name} {}\n", hex::encode(bytes))).collect()
}

/// Returns the pairs of [`named_bytes`].
fn parse_named_bytes(text: &str) -> Vec<(&str, Vec<u8>)> {
    let pair = |line| {
        let (name, digits) = str::rsplit_once(line, ' ').unwrap();
        (name, hex::decode(digits).unwrap())
    };
    text.lines().map(pair).collect()
}

#[test]
fn a_version_with_a_date_in_the_changelog_is_released() {
    let changelog = "## [0.2.0] - Unreleased\n\n## [0.1.0] - 2026-11-24\n";
    assert!(is_released(changelog, "0.1.0"));
    assert!(!is_released(changelog, "0.2.0") && !is_released(changelog, "0.1"));
}

#[test]
fn recordings_stay_small() {
    fn bytes(path: &Path) -> u64 {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { bytes(&path) } else { path.metadata().unwrap().len() }).sum()
    }
    for folder in folders() {
        assert!(bytes(&folder) < 300 * 1024, "{}: {} bytes", folder.display(), bytes(&folder));
    }
}
