//! Checks that the committed completion scripts and manual pages are up to date.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy.toml exempts test functions only, not the helpers that they share

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mqkv::cli::generate::{Generated, all_completions, man_pages};

const REGENERATE: &str = "run: cargo run -- completions --all completions && cargo run -- man ./man";

/// Checks that a directory contains the generated files and no others.
fn assert_up_to_date(directory: &str, generated: Vec<Generated>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
    let expected: BTreeMap<OsString, Vec<u8>> = generated.into_iter().collect();
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{directory}: {error}; {REGENERATE}"));
    let found: BTreeMap<OsString, Vec<u8>> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    let names = |files: &BTreeMap<OsString, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "{directory}/ contains other files; {REGENERATE}");
    for (name, bytes) in &expected {
        assert!(
            found.get(name) == Some(bytes),
            "{directory}/{} is out of date; {REGENERATE}",
            name.display()
        );
    }
}

#[test]
fn completion_scripts_are_up_to_date() {
    assert_up_to_date("completions", all_completions());
}

#[test]
fn manual_pages_are_up_to_date() {
    assert_up_to_date("man", man_pages());
}
