//! The completions and manual pages that are checked in say what the binary says.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy.toml exempts tests only, not what they share

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mqkv::cli::generate::{Generated, all_completions, man_pages};

const REGENERATE: &str = "run: cargo run -- completions --all completions && cargo run -- man man";

/// Holds a folder against what it should hold; files that should not be there count too.
fn assert_fresh(folder: &str, generated: Vec<Generated>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let expected: BTreeMap<OsString, Vec<u8>> = generated.into_iter().collect();
    let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{folder}: {error}; {REGENERATE}"));
    let found: BTreeMap<OsString, Vec<u8>> = entries
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    let names = |files: &BTreeMap<OsString, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected), "{folder}/ holds other files; {REGENERATE}");
    for (name, bytes) in &expected {
        assert!(found.get(name) == Some(bytes), "{folder}/{} is out of date; {REGENERATE}", name.display());
    }
}

#[test]
fn completions_are_fresh() {
    assert_fresh("completions", all_completions());
}

#[test]
fn manual_pages_are_fresh() {
    assert_fresh("man", man_pages().unwrap());
}

#[test]
fn what_serve_refuses_is_not_offered_after_it() {
    let completions = all_completions();
    let of = |file: &str| {
        let (_, bytes) = completions.iter().find(|(name, _)| name == file).unwrap();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let (bash, fish) = (of("mqkv.bash"), of("mqkv.fish"));
    let options = |words: &str| {
        let begin = format!(" mqkv__subcmd__{})\n            opts=\"", words.replace(' ', "__subcmd__"));
        let (_, options) = bash.split_once(&begin).unwrap_or_else(|| panic!("{begin} is not there"));
        options.split('"').next().unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    for (words, has_broker, has_password) in [
        ("get", true, true),
        ("serve", false, false),
        ("serve user", false, false),
        ("serve user add", false, true),
        ("serve user rm", false, false),
    ] {
        let offered = options(words);
        let has = |option: &str| offered.iter().any(|offered| offered == option);
        assert!(has("--json") && has("--color"), "{words}: {offered:?}");
        assert_eq!([has("--broker"), has("-b"), has("--force-write")], [has_broker; 3], "{words}");
        assert_eq!(has("--password-file"), has_password, "{words}");
    }
    let offers = |verb: &str| {
        let condition = format!("__fish_mqkv_using_subcommand {verb}");
        fish.lines().any(|line| line.contains(&condition) && line.contains(" -l broker "))
    };
    assert!(offers("get") && !offers("serve"));
}
