//! Hints of errors, as lines of the prompt (pure).

use clap::{Arg, Command};

use super::definition::{self, longs, shorts};

/// The name of the program and a blank, in front of a verb.
const PROGRAM: &str = "mqkv ";

/// Adapts a hint that was written for the command line: a verb needs no `mqkv`, a verb that the prompt refuses needs `\!`, a
/// URL of `-b` is one of `\c`, and options of the connection can be given only when the prompt is started.
#[must_use]
pub fn at_prompt(hint: &str, definition: &Command) -> String {
    let is_available = |text: &str| {
        let verb = text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        definition::below(definition, verb.as_bytes()).is_some()
    };
    if hint.strip_prefix(PROGRAM).is_some_and(|rest| !is_available(rest)) {
        // A command of the system takes the options of the connection itself.
        return format!("\\! {hint}");
    }
    let schemes = ["URL", "mqtt", "ws", "kube"];
    let hint = schemes.iter().fold(hint.to_owned(), |hint, scheme| {
        hint.replace(&format!("-b {scheme}"), &format!("\\c {scheme}"))
    });
    let mut parts = hint.split(PROGRAM);
    let mut adapted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if !is_available(part) {
            adapted.push_str(PROGRAM);
        }
        adapted.push_str(part);
    }
    let is_unavailable =
        |word: &str| definition.get_arguments().any(|option| option.is_hide_set() && is_named(option, word));
    if adapted.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(is_unavailable) {
        adapted.push_str(" (of `mqkv shell`)");
    }
    adapted
}

/// Returns whether a word is a name of an option, with its dashes.
fn is_named(option: &Arg, word: &str) -> bool {
    match word.strip_prefix("--") {
        Some(long) => longs(option).contains(&long),
        None => word
            .strip_prefix('-')
            .is_some_and(|short| shorts(option).iter().any(|letter| *short == letter.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::definition::sample;
    use super::*;

    fn adapted(hint: &str) -> String {
        at_prompt(hint, &sample::definition())
    }

    #[test]
    fn a_verb_of_the_prompt_needs_no_program() {
        assert_eq!(adapted("mqkv get KEY"), "get KEY");
        assert_eq!(adapted("check the value: mqkv get KEY"), "check the value: get KEY");
        assert_eq!(
            adapted("the time is not reported; see mqkv help ttl"),
            "the time is not reported; see help ttl"
        );
        assert_eq!(adapted("`mqkv help locks` explains it"), "`help locks` explains it");
    }

    #[test]
    fn a_verb_that_the_prompt_refuses_is_a_command_of_the_system() {
        assert_eq!(adapted("mqkv context ls"), "\\! mqkv context ls");
        assert_eq!(adapted("mqkv context add NAME -b URL"), "\\! mqkv context add NAME -b URL");
        assert_eq!(adapted("start a broker with `mqkv serve`"), "start a broker with `mqkv serve`");
    }

    #[test]
    fn options_of_the_connection_are_not_those_of_a_line() {
        assert_eq!(adapted("increase --timeout"), "increase --timeout (of `mqkv shell`)");
        assert_eq!(adapted("check the user name (-u)"), "check the user name (-u) (of `mqkv shell`)");
        assert_eq!(adapted("without TLS: -b mqtt://HOST:PORT"), "without TLS: \\c mqtt://HOST:PORT");
        assert_eq!(adapted("set KEY VALUE --nx"), "set KEY VALUE --nx");
    }
}
