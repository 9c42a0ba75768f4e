//! Checks `docs/mqtt-conformance.md`: it lists every statement of MQTT 5.0 and every test of the Paho suite once, and
//! each test that it names exists.
#![expect(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "a panic here is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The number of the last statement in each section of MQTT 5.0. Numbering starts at 1, in section 2.2.1 at 2.
const SECTIONS: &[(&str, u32)] = &[
    ("1.5.4", 3),
    ("1.5.5", 1),
    ("1.5.7", 1),
    ("2.1.3", 1),
    ("2.2.1", 6),
    ("2.2.2", 1),
    ("3.1.0", 2),
    ("3.1.2", 30),
    ("3.1.3", 12),
    ("3.1.4", 6),
    ("3.2.0", 2),
    ("3.2.2", 22),
    ("3.3.1", 13),
    ("3.3.2", 20),
    ("3.3.4", 10),
    ("3.4.2", 3),
    ("3.5.2", 3),
    ("3.6.1", 1),
    ("3.6.2", 3),
    ("3.7.2", 3),
    ("3.8.1", 1),
    ("3.8.3", 5),
    ("3.8.4", 8),
    ("3.9.2", 2),
    ("3.9.3", 2),
    ("3.10.1", 1),
    ("3.10.3", 2),
    ("3.10.4", 6),
    ("3.11.2", 2),
    ("3.11.3", 2),
    ("3.12.4", 1),
    ("3.14.0", 1),
    ("3.14.1", 1),
    ("3.14.2", 4),
    ("3.14.4", 3),
    ("3.15.1", 1),
    ("3.15.2", 3),
    ("4.1.0", 2),
    ("4.2.0", 1),
    ("4.3.1", 1),
    ("4.3.2", 5),
    ("4.3.3", 13),
    ("4.4.0", 2),
    ("4.5.0", 2),
    ("4.6.0", 6),
    ("4.7.0", 1),
    ("4.7.1", 2),
    ("4.7.2", 1),
    ("4.7.3", 4),
    ("4.8.2", 6),
    ("4.9.0", 3),
    ("4.12.0", 7),
    ("4.12.1", 2),
    ("4.13.1", 1),
    ("4.13.2", 1),
    ("6.0.0", 4),
];

/// The tests of the Paho project's suite for MQTT 5.
const SUITE: &[&str] = &[
    "test_basic",
    "test_retained_message",
    "test_will_message",
    "test_zero_length_clientid",
    "test_assigned_clientid",
    "test_offline_message_queueing",
    "test_overlapping_subscriptions",
    "test_keepalive",
    "test_redelivery_on_reconnect",
    "test_subscribe_failure",
    "test_dollar_topics",
    "test_unsubscribe",
    "test_session_expiry",
    "test_shared_subscriptions",
    "test_user_properties",
    "test_payload_format",
    "test_publication_expiry",
    "test_subscribe_options",
    "test_subscribe_identifiers",
    "test_request_response",
    "test_client_topic_alias",
    "test_server_topic_alias",
    "test_maximum_packet_size",
    "test_server_keep_alive",
    "test_flow_control1",
    "test_flow_control2",
    "test_will_delay",
];

/// The beginnings of the reasons why a statement needs no test.
const REASONS: &[&str] =
    &["Binds clients", "No ", "All ", "It has none", "Every QoS", "Messages are retained"];

/// Returns the errors of a page; `sources` returns the texts of the source files with a name.
fn errors(page: &str, sources: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .filter(|row| row.starts_with(|first: char| first.is_ascii_digit()) || row.starts_with("test_"))
        .map(|row| (row.split(" | ").next().unwrap(), row.rsplit(" | ").next().unwrap()))
        .collect();
    let mut counts: BTreeMap<String, usize> = SUITE.iter().map(|name| ((*name).to_owned(), 0)).collect();
    for (section, last) in SECTIONS {
        let first = if *section == "2.2.1" { 2 } else { 1 };
        counts.extend((first..=*last).map(|number| (format!("{section}-{number}"), 0)));
    }
    let mut found = Vec::new();
    for (number, shown) in rows {
        match counts.get_mut(number) {
            Some(count) => *count += 1,
            None => found.push(format!("{number}: no such statement")),
        }
        let tests: Vec<_> = shown.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect();
        if tests.is_empty() && !REASONS.iter().any(|reason| shown.starts_with(reason)) {
            found.push(format!("{number}: neither a test nor a reason"));
        }
        found.extend(
            tests
                .into_iter()
                .filter(|test| !exists(test, &sources))
                .map(|test| format!("{number}: no test {test}")),
        );
    }
    for (number, count) in counts {
        if count != 1 {
            found.push(format!("{number}: {count} rows"));
        }
    }
    found
}

/// Returns whether a test exists, given as `file::name`.
fn exists(test: &str, sources: &impl Fn(&str) -> Vec<String>) -> bool {
    let (file, name) = test.split_once("::").unwrap();
    sources(&format!("{file}.rs")).iter().any(|text| {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        lines.iter().enumerate().any(|(at, line)| {
            let declares = |start: &str| {
                line.strip_prefix(start).is_some_and(|rest| rest.starts_with(&format!("{name}(")))
            };
            let above = lines.iter().take(at).rev().take_while(|line| line.starts_with('#'));
            let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            (declares("fn ") || declares("async fn ")) && above.clone().any(is_test)
        })
    })
}

fn page() -> String {
    fs::read_to_string(root().join("docs/mqtt-conformance.md")).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the texts of the files below `core/src/broker`, `core/src/mqtt` and `tests` whose paths end with this one.
fn sources(path: &str) -> Vec<String> {
    static FILES: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
        let mut found = Vec::new();
        let mut folders: Vec<_> =
            ["core/src/broker", "core/src/mqtt", "tests"].map(|folder| root().join(folder)).into();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap().path();
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&entry).unwrap();
                    found.push((entry, text));
                }
            }
        }
        found
    });
    FILES.iter().filter(|(file, _)| file.ends_with(path)).map(|(_, text)| text.clone()).collect()
}

#[test]
fn every_statement_has_its_row_and_every_test_exists() {
    let found = errors(&page(), sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_kind_of_error_in_the_page_is_reported() {
    let row = |number: &str, shown: &str| format!("| {number} | something | {shown} |\n");
    let source =
        |_: &str| vec!["#[tokio::test]\nasync fn a_test() {}\n\n/// None.\nfn no_test() {}\n".to_owned()];
    let errors_after = |from: &str, to: &str| {
        assert_eq!(page().matches(from).count(), 1, "{from}");
        errors(&page().replace(from, to), sources)
    };
    let line = page().lines().find(|line| line.starts_with("| 4.8.2-6 |")).unwrap().to_owned() + "\n";
    assert_eq!(errors_after(&line, ""), ["4.8.2-6: 0 rows"]);
    assert_eq!(errors_after(&line, &line.repeat(2)), ["4.8.2-6: 2 rows"]);
    assert_eq!(
        errors_after(&line, &(line.clone() + &line.replace("2-6", "2-7"))),
        ["4.8.2-7: no such statement"]
    );
    assert_eq!(errors_after(&line, &row("4.8.2-6", "Surely")), ["4.8.2-6: neither a test nor a reason"]);
    assert_eq!(errors_after(&line, &row("4.8.2-6", "`shared::x`")), ["4.8.2-6: no test shared::x"]);
    let line = page().lines().find(|line| line.starts_with("| test_basic |")).unwrap().to_owned() + "\n";
    assert_eq!(errors_after(&line, ""), ["test_basic: 0 rows"]);
    assert_eq!(
        errors_after(&line, &row("test_basic", "`broker_suite::x`")),
        ["test_basic: no test broker_suite::x"]
    );
    for (test, is_one) in
        [("x::a_test", true), ("x::no_test", false), ("x::a_tes", false), ("x::test", false)]
    {
        assert_eq!(exists(test, &source), is_one, "{test}");
    }
}
