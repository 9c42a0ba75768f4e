//! `docs/reference.md`, which is generated from the definitions of the verbs.

use std::fs;

use mqkv::cli::generate::reference;

use super::prose::{manual, unknown_word};
use super::{is_writing, root};

#[test]
fn the_reference_is_the_help_of_all_verbs() {
    let path = root().join("docs/reference.md");
    if is_writing() {
        fs::write(&path, reference()).unwrap();
    }
    let is_current = fs::read_to_string(&path).unwrap() == reference();
    assert!(
        is_current,
        "docs/reference.md is out of date: MQKV_DOCS=write cargo test --test it docs::reference"
    );
}

#[test]
fn the_examples_of_the_help_name_verbs_and_options_that_exist() {
    let manual = manual();
    let reference = reference();
    let commands: Vec<&str> = reference.lines().filter(|line| line.starts_with("mqkv ")).collect();
    assert!(commands.len() > 100, "{}", commands.len());
    // An explanation stands behind two blanks.
    let command = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
    let unknown: Vec<_> =
        commands.iter().filter_map(|line| Some((line, unknown_word(&command(line), &manual)?))).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
