//! Verbs with their aliases, options and values, variables, and exit codes.

use std::collections::BTreeSet;

use mqkv::cli::generate::{EXIT_CODES, reference};
use mqkv::commands::Exit;

use super::super::common::Place;
use super::recorded;

/// Returns a line for each verb and its aliases, for each name of each option, with `=` if it takes a value, for each value that it
/// names, for each variable, which has the name of its setting, and for each exit code with the kind of its errors.
fn interface() -> String {
    let mut lines = BTreeSet::new();
    let reference = reference();
    let (mut verb, mut option) = ("", String::new());
    for line in reference.lines() {
        if let Some(heading) = line.strip_prefix("##") {
            verb = heading.trim_start_matches(['#', ' ']);
            lines.insert(format!("{verb}:"));
        } else if let Some(names) = line.strip_prefix("- `-").and_then(|line| line.split('`').next()) {
            let names = format!("-{names}");
            let value = if names.contains("[=") {
                "[=]"
            } else if names.rsplit(", ").next().unwrap().contains(' ') {
                "="
            } else {
                ""
            };
            let name = |name: &str| name.split([' ', '[']).next().unwrap().to_owned();
            lines.extend(names.split(", ").map(|names| format!("{verb} {}{value}", name(names))));
            option = name(names.rsplit(", ").next().unwrap());
        } else if line.starts_with("- `") {
            // The values of an argument are not those of an option.
            option.clear();
        } else if let Some(value) = line.strip_prefix("  - `").and_then(|line| line.split('`').next()) {
            lines.insert(format!("{verb} {option}={value}"));
        } else if let Some(names) = line.strip_prefix("  Also `") {
            let names = names.split('`').filter(|name| name.starts_with('-'));
            lines.extend(names.map(|name| format!("{verb} {name}")));
        }
    }
    for line in Place::new().run(&["--help"]).lines() {
        let (verb, rest) = line.trim_start().split_once(' ').unwrap_or_default();
        let aliases = rest.split_once("[aliases: ").map_or("", |(_, aliases)| aliases.trim_end_matches(']'));
        lines.extend(
            aliases.split(", ").filter(|alias| !alias.is_empty()).map(|alias| format!("{alias}: {verb}")),
        );
    }
    let variables = Place::new().run(&["help", "environment"]);
    let variables = variables.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let of_settings = variables.filter(|name| name.starts_with("MQKV_") || name.starts_with("AIO_"));
    lines.extend(of_settings.map(|name| format!("variable {name}")));
    lines.extend(EXIT_CODES.iter().map(|(exit, _)| {
        let meaning = match exit {
            Exit::Yes => "yes",
            Exit::No => "no",
            Exit::Failed(kind) => kind.name(),
            Exit::Child(_) => panic!("no code of its own"),
        };
        format!("exit code {}: {meaning}", exit.code())
    }));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns the lines that a later version does not have.
fn missing<'a>(recorded: &'a str, present: &str) -> Vec<&'a str> {
    let present: BTreeSet<_> = present.lines().collect();
    recorded.lines().filter(|line| !present.contains(line)).collect()
}

#[test]
fn verbs_options_variables_and_exit_codes_of_every_version_exist() {
    let present = interface();
    for recorded in recorded("options.txt", interface) {
        assert!(
            recorded.lines().count() > 300 && recorded.contains("exit code 69: unavailable\n"),
            "{recorded}"
        );
        assert!(recorded.contains("raw:\n") && recorded.contains("variable MQKV_KEYFILE\n"), "{recorded}");
        assert!(recorded.contains("rm: del\n") && recorded.contains("--output=hex\n"), "{recorded}");
        assert_eq!(missing(&recorded, &present), Vec::<&str>::new());
    }
}

#[test]
fn an_option_that_is_gone_or_takes_no_value_any_more_is_found() {
    let recorded = "get --key=\nget -k=\nset --nx\nexit code 1: no\n";
    let present = "get --key\nget -k=\nexit code 1: usage\n";
    assert_eq!(missing(recorded, present), ["get --key=", "set --nx", "exit code 1: no"]);
}
