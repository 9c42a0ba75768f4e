//! Help, the version, completions, manual pages, and broken pipes.

use std::process::Stdio;

use super::common::Place;

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
        assert!(!shown.contains("\\x1b"), "{words:?}: colour in a pipe");
    }
}

#[test]
fn the_paragraphs_of_help_are_filled_to_100_columns() {
    let place = Place::new();
    let verbs = [
        "get", "set", "del", "vdel", "watch", "lock", "unlock", "holder", "keys", "export", "import",
        "batch", "ping", "doctor", "raw", "monitor", "decode", "shell", "serve", "context", "config",
    ];
    for verb in verbs {
        let help = place.run(&[verb, "--help"]);
        let lines: Vec<_> = help.lines().collect();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with([' ', '-']) && !line.ends_with(':');
        for pair in lines.windows(2) {
            let [line, next] = pair else { continue };
            let word = next.split(' ').next().unwrap_or_default();
            // Without a terminal the width is 100 columns.
            let had_room = line.len() + 1 + word.len() <= 100;
            assert!(!is_prose(line) || !is_prose(next) || !had_room, "{verb}: {line}\n{next}");
        }
    }
}

/// The options of every verb.
const COMMON: [&str; 7] = ["--help", "--output", "--json", "--quiet", "--verbose", "--color", "--utc"];

#[test]
fn the_help_of_serve_has_no_connection_options() {
    let place = Place::new();
    let of = |verb: &str| place.run(&[verb.split(' ').collect(), vec!["--help"]].concat());
    let options = |help: &str| -> Vec<String> {
        let listed =
            help.lines().filter(|line| line.trim_start().starts_with('-')).flat_map(str::split_whitespace);
        let listed = listed.map(|word| word.trim_end_matches(',').split(['=', '[']).next().unwrap_or(word));
        listed.filter(|word| word.starts_with("--") && *word != "---").map(str::to_owned).collect()
    };
    let (ping, serve) = (options(&of("ping")), options(&of("serve")));
    let shared: Vec<_> = ping.iter().filter(|option| serve.contains(option)).collect();
    assert_eq!(shared, COMMON);
    for option in ping.iter().filter(|option| !serve.contains(option)) {
        let shown = place.run(&["serve", option]);
        assert!(shown.ends_with("--- exit 2\n"), "{option}: {shown}");
    }
    let rejected = "error: unexpected argument '--insecure' found\n";
    for words in [["serve", "--insecure"], ["--insecure", "serve"]] {
        assert!(place.run(&words).contains(rejected));
    }
    assert_eq!(of("serve"), place.run(&["help", "serve"]));
    let add = options(&of("serve user add"));
    let password = ["--password-file", "--ask-password"];
    assert!(password.iter().chain(&COMMON).all(|option| add.contains(&(*option).to_owned())), "{add:?}");
    assert_eq!(add.len(), 9, "{add:?}");
    assert_eq!(options(&of("serve user ls")), COMMON);
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
    assert_eq!(place.run(&["man", "man"]), "--- exit 0\n");
    assert!(place.path("man/mqkv-get.1").is_file());
}

#[test]
fn a_broken_pipe_is_success() {
    let place = Place::new();
    for words in [&["help"][..], &["decode", "hlc", "1:2:n"], &["completions", "zsh"]] {
        let mut child = place.command(words).stdin(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        // The process may have written before the pipe was closed; either way it ends without an error.
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        assert_eq!(output.stderr, b"", "{words:?}");
    }
}
