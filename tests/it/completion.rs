//! Completion in real shells.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::common::{Place, TAB, Terminal, wait_until, write_script};
use crate::a_watchdog::bounded;

/// Erases the input line.
const CTRL_U: &str = "\x15";

/// Lines, each with its completion.
const LINES: &[(&str, &str)] = &[
    ("mqkv hol", "mqkv holder "),
    ("mqkv -q hol", "mqkv -q holder "),
    ("mqkv get --outp", "mqkv get --output "),
    ("mqkv get -o he", "mqkv get -o hex "),
    ("mqkv get --output=he", "mqkv get --output=hex "),
    ("mqkv watch k --only set,d", "mqkv watch k --only set,del "),
    ("mqkv get -x pr", "mqkv get -x prod "),
    ("mqkv context use pr", "mqkv context use prod "),
    ("mqkv --config other get -x sp", "mqkv --config other get -x spare "),
    ("mqkv get k -f rep", "mqkv get k -f report\\ 1 "),
    ("mqkv get k --file=rep", "mqkv get k --file=report\\ 1 "),
    ("mqkv --embedded=sto", "mqkv --embedded=store/"),
    ("mqkv lock d -- zz-m", "mqkv lock d -- zz-migrate "),
    ("mqkv -b mqtt://h lock d zz-m", "mqkv -b mqtt://h lock d zz-migrate "),
    ("mqkv watch a b -- zz-m", "mqkv watch a b -- zz-migrate "),
    ("mqkv lock d -- zz-migrate rep", "mqkv lock d -- zz-migrate report\\ 1 "),
    ("mqkv help exit", "mqkv help exit-codes "),
    ("mqkv help wat", "mqkv help watch "),
    ("mqkv help decode fr", "mqkv help decode frame "),
    ("mqkv completions fi", "mqkv completions fish "),
    ("mqkv config pa", "mqkv config path "),
    ("mqkv set k -f rep", "mqkv set k -f report\\ 1 "),
    ("mqkv get -T rep", "mqkv get -T report\\ 1 "),
    ("mqkv import rep", "mqkv import report\\ 1 "),
    ("mqkv data verify sto", "mqkv data verify store/"),
    // A context and a key are no files.
    ("mqkv get -x rep", "mqkv get -x rep"),
    ("mqkv context use rep", "mqkv context use rep"),
    ("mqkv get rep", "mqkv get rep"),
    ("mqkv get ", "mqkv get "),
    ("mqkv set k ", "mqkv set k "),
    // The server has no connection to configure.
    ("mqkv serve --brok", "mqkv serve --brok"),
    ("mqkv nonsense --outp", "mqkv nonsense --outp"),
    // Keys are listed only on request.
    ("mqkv --embedded=store get line1/t", "mqkv --embedded=store get line1/t"),
];

/// Lines, each with all candidates for the word at its end.
const LISTS: &[(&str, &str)] = &[
    ("mqkv get -x ", "prod stored"),
    ("mqkv context use ", "prod stored"),
    ("mqkv get -o ", "auto base64 hex json jsonl raw text"),
    ("mqkv completions ", "bash elvish fish powershell zsh"),
    ("mqkv config ", "path show"),
    ("mqkv help lo", "lock locks"),
    ("mqkv get ", ""),
];

/// Lines with keys of the store, each with its completion if completion of keys is enabled.
const LINES_WITH_KEYS: &[(&str, &str)] = &[
    ("mqkv --embedded=store get line1/t", "mqkv --embedded=store get line1/temp "),
    ("mqkv --embedded=store get --key=line1/t", "mqkv --embedded=store get --key=line1/temp "),
    ("mqkv -x stored del line1/temp a", "mqkv -x stored del line1/temp a\\ b "),
];

/// A home directory with contexts, files, a command and a store.
fn place() -> Place {
    let place = Place::new();
    for directory in [".config/mqkv", "bin", "store"] {
        fs::create_dir_all(place.path(directory)).unwrap();
    }
    let config = "[context.prod]\nbroker = \"mqtt://prod\"\n[context.stored]\nembedded = \"../../store\"\n";
    place.write(".config/mqkv/config.toml", config);
    place.write("other", "[context.spare]\nbroker = \"mqtt://spare\"\n");
    place.write("report 1", "");
    write_script(&place.path("bin/zz-migrate"), "#!/bin/sh\n");
    symlink(env!("CARGO_BIN_EXE_mqkv"), place.path("bin/mqkv")).unwrap();
    for key in ["line1/temp", "a b"] {
        assert_eq!(place.run(&["--embedded=store", "set", key, "v"]), "--- exit 0\n");
    }
    place
}

fn shell(place: &Place, words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(words[0]);
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.path("bin").display());
    command
        .args(&words[1..])
        .env_clear()
        .env("PATH", path)
        .env("HOME", place.folder())
        .env("LANG", "C.UTF-8")
        .env("PS1", "$ ")
        .envs(variables.iter().copied())
        .current_dir(place.folder());
    command
}

/// An interactive shell with the completions loaded.
struct Interactive(Terminal);

impl Interactive {
    fn start(command: Command, set_up: &[&str]) -> Self {
        let terminal = Terminal::start(command);
        terminal.ends_with("$");
        for line in set_up {
            terminal.line(line);
        }
        terminal.line("echo complete'd'");
        terminal.wait_for("the set-up", |screen| screen.ends_with("completed\n$"));
        Self(terminal)
    }

    /// Types a line and a Tab, and returns the line that this leaves.
    #[track_caller]
    fn complete(&self, line: &str) -> String {
        // The tilde appears at the cursor once the shell has processed the Tab.
        self.0.keys(&format!("{line}{TAB}~"));
        let has_ended = |screen: &str| screen.lines().last().is_some_and(|row| row.ends_with('~'));
        let screen = self.0.wait_for(line, has_ended);
        self.0.keys(CTRL_U);
        self.0.ends_with("$");
        let row = screen.lines().last().unwrap();
        row.trim_start_matches("$ ").trim_end_matches('~').to_owned()
    }
}

#[track_caller]
fn assert_completes(shell: &Interactive) {
    for (line, completed) in LINES {
        assert_eq!(shell.complete(line), *completed, "{line}");
    }
}

/// Asserts which words a shell offers: a script completes `$line`, split into `$@`, and prints the candidates.
#[track_caller]
fn assert_lists(place: &Place, shell_words: &[&str], script: &str) {
    for (line, expected) in LISTS {
        let words: Vec<_> = line.split(' ').collect();
        let all = [shell_words, &["-c", script, shell_words[0]], &words].concat();
        let output = bounded(|| shell(place, &all, &[]).stdin(Stdio::null()).output()).unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        let mut listed: Vec<_> = listed.lines().filter_map(|line| line.split(['\t', ':']).next()).collect();
        // Shells sort as they like.
        listed.sort_unstable();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(listed.join(" "), *expected, "{line}: {errors}");
    }
}

/// Asserts that keys are completed. It tries again, because a store that answers late on a busy machine lists no keys.
#[track_caller]
fn assert_completes_keys(complete: impl Fn(&str) -> String) {
    for (line, completed) in LINES_WITH_KEYS {
        wait_until(completed, || (complete(line) == *completed).then_some(()));
    }
}

fn bash(place: &Place, variables: &[(&str, &str)]) -> Interactive {
    let command = shell(place, &["bash", "--norc", "--noprofile", "-i"], variables);
    Interactive::start(command, &["bind 'set bell-style none'", "source <(mqkv completions bash)"])
}

fn zsh(place: &Place, variables: &[(&str, &str)]) -> Interactive {
    let command = shell(place, &["zsh", "-f", "-i"], variables);
    let set_up =
        ["unsetopt PROMPT_SP; autoload -U compinit; compinit -u -D", "source <(mqkv completions zsh)"];
    Interactive::start(command, &set_up)
}

/// elvish shows its candidates in a menu where it quotes the word, so that only plain words are completed at once.
const LINES_OF_ELVISH: &[(&str, &str)] = &[
    ("mqkv hol", "mqkv holder "),
    ("mqkv get -o he", "mqkv get -o hex "),
    ("mqkv get -x pr", "mqkv get -x prod "),
    ("mqkv get k -f oth", "mqkv get k -f other "),
    ("mqkv lock d -- zz-migrate oth", "mqkv lock d -- zz-migrate other "),
    ("mqkv serve --brok", "mqkv serve --brok"),
];

fn elvish(place: &Place) -> Interactive {
    let prompt = "set edit:prompt = { put '$ ' }; set edit:rprompt = { }";
    place.write("rc.elv", format!("{prompt}\neval (mqkv completions elvish | slurp)\n"));
    Interactive::start(shell(place, &["elvish", "-rc", "rc.elv"], &[]), &[])
}

/// Completes a line with fish, as a Tab does.
fn fish(place: &Place, line: &str, variables: &[(&str, &str)]) -> String {
    let script = "mqkv completions fish | source; complete -C $argv[1]";
    let mut command = shell(place, &["fish", "--no-config", "-c", script, line], variables);
    let output = bounded(|| command.stdin(Stdio::null()).output()).unwrap();
    let candidates = String::from_utf8(output.stdout).unwrap();
    let candidates: Vec<_> =
        candidates.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
    let [word] = candidates.as_slice() else { return line.to_owned() };
    let (before, _) = line.rsplit_once(' ').unwrap();
    let blank = if word.ends_with('/') { "" } else { " " };
    format!("{before} {}{blank}", word.replace(' ', "\\ "))
}

#[test]
fn bash_completes_the_word_at_the_cursor() {
    let place = place();
    let bash = bash(&place, &[]);
    assert_completes(&bash);
    // In quotes, and after words that bash splits.
    assert_eq!(bash.complete("mqkv get -x 'pr"), "mqkv get -x 'prod' ");
    assert_eq!(
        bash.complete("mqkv -b mqtt://h:1 get 'a b' --outp"),
        "mqkv -b mqtt://h:1 get 'a b' --output "
    );
    assert_eq!(bash.complete("mqkv get k > rep"), "mqkv get k > report\\ 1 ");
    assert_eq!(bash.complete("true; mqkv hol"), "true; mqkv holder ");
}

#[test]
fn bash_offers_what_belongs_at_the_cursor_and_nothing_else() {
    let script = "source <(mqkv completions bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                  COMP_LINE=\"$*\"; COMP_POINT=${#COMP_LINE}; _mqkv mqkv \"${COMP_WORDS[COMP_CWORD]}\"; \
                  ((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"";
    assert_lists(&place(), &["bash", "--norc"], script);
}

#[test]
#[ignore = "needs Debian's zsh"]
fn zsh_offers_what_belongs_at_the_cursor_and_nothing_else() {
    let script = "autoload -U compinit; compinit -u -D; source <(mqkv completions zsh); \
                  _describe() { print -l -- \"${(@P)2}\" }; \
                  words=(\"$@\"); CURRENT=$#; PREFIX=${@[-1]}; _mqkv";
    assert_lists(&place(), &["zsh", "-f"], script);
}

#[test]
#[ignore = "needs Debian's fish"]
fn fish_offers_what_belongs_at_the_cursor_and_nothing_else() {
    let script = "mqkv completions fish | source; complete -C (string join ' ' -- $argv[2..])";
    assert_lists(&place(), &["fish", "--no-config"], script);
}

#[test]
fn bash_lists_the_candidates_of_a_second_tab() {
    let place = place();
    let Interactive(terminal) = bash(&place, &[]);
    terminal.keys(&format!("mqkv get k --color {TAB}{TAB}"));
    terminal.shows("always  auto    never");
}

#[test]
fn bash_completes_keys_if_enabled() {
    let place = place();
    let bash = bash(&place, &[("MQKV_COMPLETE_KEYS", "1")]);
    assert_completes_keys(|line| bash.complete(line));
    wait_until("keys in quotes", || {
        let completed = bash.complete("mqkv --embedded=store get 'a");
        (completed == "mqkv --embedded=store get 'a b' ").then_some(())
    });
}

#[test]
#[ignore = "needs Debian's zsh"]
fn zsh_completes_the_word_at_the_cursor() {
    let place = place();
    assert_completes(&zsh(&place, &[]));
}

#[test]
#[ignore = "needs Debian's zsh"]
fn zsh_completes_keys_if_enabled() {
    let place = place();
    let zsh = zsh(&place, &[("MQKV_COMPLETE_KEYS", "1")]);
    assert_completes_keys(|line| zsh.complete(line));
}

#[test]
#[ignore = "needs Debian's fish"]
fn fish_completes_the_word_at_the_cursor() {
    let place = place();
    for (line, completed) in LINES {
        assert_eq!(fish(&place, line, &[]), *completed, "{line}");
    }
    let verbs = "mqkv completions fish | source; complete -C 'mqkv '";
    let output = bounded(|| shell(&place, &["fish", "--no-config", "-c", verbs], &[]).output()).unwrap();
    let verbs = String::from_utf8(output.stdout).unwrap();
    assert!(verbs.lines().any(|line| line.starts_with("get\t") && line.len() > 4), "{verbs}");
}

#[test]
#[ignore = "needs Debian's fish"]
fn fish_completes_keys_if_enabled() {
    let place = place();
    assert_completes_keys(|line| fish(&place, line, &[("MQKV_COMPLETE_KEYS", "1")]));
}

#[test]
#[ignore = "needs Debian's elvish"]
fn elvish_completes_what_belongs_at_the_cursor() {
    let place = place();
    let elvish = elvish(&place);
    for (line, completed) in LINES_OF_ELVISH {
        assert_eq!(elvish.complete(line), *completed, "{line}");
    }
}

#[test]
fn an_option_is_offered_only_for_verbs_that_accept_it() {
    let place = Place::new();
    for (verb, has_broker, has_password) in [
        (&["get"][..], true, true),
        (&["serve"], false, false),
        (&["serve", "user"], false, false),
        (&["serve", "user", "add"], false, true),
        (&["serve", "user", "rm"], false, false),
    ] {
        let has = |option: &str| {
            let words = [&["__complete", "fish"], verb, &[option]].concat();
            place.run(&words).lines().any(|line| line.split('\t').next() == Some(option))
        };
        assert!(has("--json") && has("--color"), "{verb:?}");
        assert_eq!([has("--broker"), has("-b"), has("--force-write")], [has_broker; 3], "{verb:?}");
        assert_eq!(has("--password-file"), has_password, "{verb:?}");
    }
}

#[test]
fn an_unknown_shell_is_a_usage_error() {
    let place = Place::new();
    assert_eq!(
        place.run(&["__complete", "tcsh", "mqkv "]),
        "--- stderr\nerror: __complete takes the name of a shell\n--- exit 2\n"
    );
    assert!(!place.run(&["help"]).contains("__complete"));
}
