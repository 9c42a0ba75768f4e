//! Help, the version, completions, manual pages, and broken pipes.

use std::fs;
use std::process::{Command, Stdio};

use super::common::{Place, Terminal};
use crate::a_watchdog::bounded;

#[test]
fn help_is_printed_on_standard_output_with_success() {
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
        &["help", "options"],
    ] {
        let shown = place.run(words);
        assert!(shown.starts_with("--- stdout\n"), "{words:?}: {shown}");
        assert!(shown.ends_with("--- exit 0\n"), "{words:?}: {shown}");
        assert!(!shown.contains("\\x1b"), "{words:?}: color in a pipe");
    }
}

#[test]
fn the_help_on_a_narrow_terminal_fits() {
    let place = Place::new();
    for verb in ["get", "set", "watch", "lock", "serve", "doctor", "context"] {
        for (option, lines_max) in [("-h", 24), ("--help", usize::MAX)] {
            let mut command = place.command(&[verb, option]);
            let output = bounded(|| command.env("COLUMNS", "80").output()).unwrap();
            let help = String::from_utf8(output.stdout).unwrap();
            assert!(help.lines().count() <= lines_max, "{verb}:\n{help}");
            assert!(help.lines().all(|line| line.len() <= 80), "{verb}:\n{help}");
        }
    }
}

/// Returns the options that a text lists.
fn options(help: &str) -> Vec<String> {
    let listed = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let words = listed.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
    let names = words.filter_map(|word| word.split(['=', '[', ',']).next());
    names.filter(|name| *name != "---").map(str::to_owned).collect()
}

#[test]
fn shared_options_are_listed_once_and_serve_has_those_of_the_output_only() {
    let place = Place::new();
    let of = |verb: &str| place.run(&[verb.split(' ').collect(), vec!["--help"]].concat());
    let shared = options(&place.run(&["help", "options"]));
    let (output, connection): (Vec<_>, Vec<_>) = shared.iter().partition(|option| {
        ["--output", "--json", "--quiet", "--verbose", "--color", "--utc"].contains(&option.as_str())
    });
    assert!(output.len() == 6 && connection.len() > 20, "{shared:?}");
    // The file of `serve --config` is another one.
    let own = |verb: &str| if verb == "serve" { vec!["--config"] } else { Vec::new() };
    for verb in ["ping", "set", "serve", "serve user ls"] {
        let listed = options(&of(verb));
        assert_eq!(
            listed.iter().filter(|option| shared.contains(option)).collect::<Vec<_>>(),
            own(verb),
            "{verb}"
        );
    }
    for option in connection {
        let shown = place.run(&["serve", option]);
        assert!(shown.ends_with("--- exit 2\n"), "{option}: {shown}");
    }
    let rejected = "error: unexpected argument '--insecure' found\n";
    for words in [["serve", "--insecure"], ["--insecure", "serve"]] {
        assert!(place.run(&words).contains(rejected));
    }
    assert_eq!(of("serve"), place.run(&["help", "serve"]));
    assert_eq!(options(&of("serve user add")), ["--password-file", "--ask-password", "--force"]);
    assert!(of("serve").contains("\nOutput options: mqkv help options\n"));
    assert!(of("ping").contains("\nConnection and output options: mqkv help options\n"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let expected = format!("--- stdout\nmqkv {}\n--- exit 0\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(Place::new().run(&["-V"]), expected);
}

#[test]
fn color_follows_the_option() {
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
    assert_eq!(place.run(&["man", "./man"]), "--- exit 0\n");
    assert!(place.path("man/mqkv-get.1").is_file());
}

#[test]
fn a_broken_pipe_is_success() {
    let place = Place::new();
    for words in [&["help"][..], &["decode", "hlc", "1:2:n"], &["completions", "zsh"]] {
        let mut child = place.command(words).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = bounded(|| child.wait_with_output()).unwrap();
        // The process may have written before the pipe was closed; either way it ends without an error.
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}

#[test]
fn the_manual_page_of_a_verb_is_printed() {
    let place = Place::new();
    let shown = place.run(&["man", "rm"]);
    assert!(shown.contains(".TH MQKV\\-DEL 1") && shown.ends_with("--- exit 0\n"), "{shown}");
    assert!(!place.path("rm").exists());
    let shown = place.run(&["man", "lcok"]);
    assert!(shown.contains("unknown verb 'lcok'") && shown.ends_with("--- exit 2\n"), "{shown}");
    assert!(!place.path("lcok").exists());
}

#[test]
fn the_manual_page_of_a_verb_below_a_verb_is_printed() {
    let place = Place::new();
    let shown = place.run(&["man", "exchange", "status"]);
    assert!(shown.contains(".TH MQKV\\-EXCHANGE\\-STATUS 1") && shown.ends_with("--- exit 0\n"), "{shown}");
    let shown = place.run(&["man", "exchange", "stauts"]);
    assert!(shown.contains("unknown verb 'exchange stauts'") && shown.ends_with("--- exit 2\n"), "{shown}");
    assert!(!place.path("exchange").exists());
}

#[test]
#[ignore = "needs Debian's mandoc"]
fn a_checker_finds_nothing_in_the_manual_pages() {
    let place = Place::new();
    assert_eq!(place.run(&["man", "./man"]), "--- exit 0\n");
    let mut pages: Vec<_> =
        fs::read_dir(place.path("man")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 35, "{pages:?}");
    let output = bounded(|| Command::new("mandoc").args(["-T", "lint"]).args(&pages).output()).unwrap();
    let found = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && found.is_empty(), "{found}");
    for page in &pages {
        let output = bounded(|| Command::new("mandoc").args(["-T", "ascii"]).arg(page).output()).unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        // Bold is a character, a backspace, and the character again.
        let columns = |line: &str| line.len() - 2 * line.matches('\u{8}').count();
        let long: Vec<_> = shown.lines().filter(|line| columns(line) > 80).collect();
        assert!(long.is_empty(), "{}: {long:#?}", page.display());
    }
}

/// Runs a command in a terminal of 24 rows; returns the screen, which has to show a text, and what the pager has written.
fn paged(words: &[&str], variables: &[(&str, &str)], expected: &str) -> (String, Option<String>) {
    let place = Place::new();
    let mut command = place.command(words);
    command.current_dir(place.folder()).env("PATH", "/usr/bin:/bin").env("PAGER", "cat > paged");
    command.envs(variables.iter().copied());
    let mut terminal = Terminal::of_size(command, 24, 80);
    assert_eq!(terminal.end(), Some(0));
    // The terminal's reader may still be behind.
    let screen = terminal.shows(expected);
    (screen, fs::read_to_string(place.path("paged")).ok())
}

#[test]
fn long_help_on_a_terminal_is_shown_in_the_pager() {
    for words in [&["help", "serve"][..], &["serve", "--help"], &["help", "environment"], &["man", "get"]] {
        let (screen, paged) = paged(words, &[], "");
        assert!(screen.trim().is_empty() && paged.is_some_and(|text| text.lines().count() > 24), "{words:?}");
    }
    let (_, text) =
        paged(&["help", "serve"], &[("PAGER", "false"), ("MQKV_PAGER", "tr a-z A-Z > paged")], "");
    assert!(!text.unwrap().contains(char::is_lowercase), "MQKV_PAGER comes first");
    let (screen, _) = paged(&["help", "serve"], &[("PAGER", "head -n 1")], "Run an MQTT broker");
    assert!(screen.lines().count() == 1, "the pager may end early: {screen}");
}

#[test]
fn short_help_and_other_outputs_are_not_paged() {
    for (words, variables) in [
        (&["get", "-h"][..], &[][..]),
        (&["help", "serve"], &[("TERM", "dumb")]),
        (&["help", "serve"], &[("PAGER", "cat")]),
        (&["help", "serve"], &[("MQKV_PAGER", "")]),
        (&["help", "serve"], &[("PAGER", "no-such-pager")]),
    ] {
        let (screen, paged) = paged(words, variables, "mqkv help options");
        assert!(paged.is_none(), "{words:?} {variables:?}: {screen}");
    }
    let place = Place::new();
    let mut piped = place.command(&["help", "serve"]);
    let output = bounded(|| piped.current_dir(place.folder()).env("PAGER", "cat > paged").output()).unwrap();
    assert!(output.stdout.len() > 2000 && !place.path("paged").exists());
}

#[test]
fn a_key_that_interrupts_reaches_the_pager_only() {
    let place = Place::new();
    let mut command = place.command(&["help", "serve"]);
    let pager = "trap 'echo interrupted > seen' INT; cat > paged; echo ready; while [ ! -e seen ]; do sleep 0.05; done";
    command.current_dir(place.folder()).env("PATH", "/usr/bin:/bin").env("PAGER", pager);
    let mut terminal = Terminal::of_size(command, 24, 80);
    terminal.shows("ready");
    terminal.keys(super::common::CTRL_C);
    assert_eq!(terminal.end(), Some(0));
    assert!(place.path("seen").exists());
}
