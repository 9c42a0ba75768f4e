//! Help, the version, completions, manual pages, and readers that leave early.

use std::process::Stdio;

use super::common::Place;

#[test]
fn help_is_data_and_success() {
    let place = Place::new();
    for words in [
        &["-h"][..],
        &["--help"],
        &["get", "-h"],
        &["help"],
        &["help", "set"],
        &["help", "decode", "frame"],
        &["help", "exit-codes"],
        &["help", "formats"],
        &["help", "environment"],
        &["help", "config"],
    ] {
        let shown = place.run(words);
        assert!(shown.starts_with("--- stdout\n"), "{words:?}: {shown}");
        assert!(shown.ends_with("--- exit 0\n"), "{words:?}: {shown}");
        assert!(!shown.contains("\\x1b"), "{words:?}: colour in a pipe");
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let expected = format!("--- stdout\nmqkv {}\n--- exit 0\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(Place::new().run(&["-V"]), expected);
}

#[test]
fn colour_comes_when_told_and_only_then() {
    let place = Place::new();
    assert!(place.run(&["get", "--color", "always"]).contains("\\x1b"));
    assert!(!place.run(&["get", "--color", "never"]).contains("\\x1b"));
}

#[test]
fn completions_are_printed_or_written() {
    let place = Place::new();
    assert!(place.run(&["completions", "bash"]).contains("_mqkv()"));
    assert_eq!(place.run(&["completions", "--all", "out"]), "--- exit 0\n");
    assert!(place.path("out/_mqkv").is_file());
    assert_eq!(place.run(&["man", "man"]), "--- exit 0\n");
    assert!(place.path("man/mqkv-get.1").is_file());
}

#[test]
fn a_reader_that_has_left_is_no_failure() {
    let place = Place::new();
    for words in [&["help"][..], &["decode", "hlc", "1:2:n"], &["completions", "zsh"]] {
        let mut child = place.command(words).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        // The process may have written before the pipe was closed: both ways end quietly.
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}
