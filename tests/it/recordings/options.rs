//! Verbs with their options, variables, and exit codes.

use std::collections::BTreeSet;

use mqkv::cli::generate::reference;

use super::super::common::Place;
use super::recorded;

/// Returns a line for each verb, for each name of each option, with `=` if it takes a value, for each variable, which has the name of its
/// setting, and for each exit code.
fn interface() -> String {
    let mut lines = BTreeSet::new();
    let reference = reference();
    let mut verb = "";
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
        } else if let Some(names) = line.strip_prefix("  Also `") {
            let names = names.split('`').filter(|name| name.starts_with('-'));
            lines.extend(names.map(|name| format!("{verb} {name}")));
        }
    }
    let variables = Place::new().run(&["help", "environment"]);
    let variables = variables.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    let of_settings = variables.filter(|name| name.starts_with("MQKV_") || name.starts_with("AIO_"));
    lines.extend(of_settings.map(|name| format!("variable {name}")));
    let codes = Place::new().run(&["help", "exit-codes"]);
    let codes = codes.lines().filter_map(|line| line.trim_start().split(' ').next()?.parse::<u8>().ok());
    lines.extend(codes.map(|code| format!("exit code {code}")));
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
        assert!(recorded.lines().count() > 300 && recorded.contains("exit code 69\n"), "{recorded}");
        assert!(recorded.contains("raw:\n") && recorded.contains("variable MQKV_KEYFILE\n"), "{recorded}");
        assert_eq!(missing(&recorded, &present), Vec::<&str>::new());
    }
}

#[test]
fn an_option_that_is_gone_or_takes_no_value_any_more_is_found() {
    let recorded = "get --key=\nget -k=\nset --nx\n";
    assert_eq!(missing(recorded, "get --key\nget -k=\n"), ["get --key=", "set --nx"]);
}
