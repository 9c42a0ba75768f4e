//! Redaction of lines for the history: no values (pure).

use clap::Command;

use super::backslash;
use super::definition::{self, longs};
use super::line::{OutputTarget, Statement, parse, quote, statements};
use crate::commands::lines::words::Word;
use crate::commands::url_secret::has_secret;

/// The verbs whose arguments contain a value.
const WITH_VALUE: [&str; 3] = ["set", "vdel", "raw"];

/// Returns a line without its values: those of `set` and `vdel`, and the words of `raw` behind verb and key.
///
/// Returns `None` for a line that must not be stored: one that begins with a blank, as in bash; one that is not valid,
/// because a value in it would not be recognized; and one that contains another command with a value, or a password in a
/// URL.
#[must_use]
pub fn redacted(line: &str, definition: &Command, is_valid: &dyn Fn(Vec<Word>) -> bool) -> Option<String> {
    if line.trim().is_empty() || line.starts_with(char::is_whitespace) {
        return None;
    }
    let lines: Option<Vec<String>> = statements(line.as_bytes())
        .into_iter()
        .map(|statement| redacted_statement(statement, definition, is_valid))
        .collect();
    lines.map(|lines| lines.join("\n")).filter(|text| !text.trim().is_empty())
}

fn redacted_statement(
    statement: &[u8],
    definition: &Command,
    is_valid: &dyn Fn(Vec<Word>) -> bool,
) -> Option<String> {
    let text = std::str::from_utf8(statement).ok()?;
    let unchanged = |arguments| (!has_value(arguments) && !has_password(text)).then(|| text.to_owned());
    if backslash::is_backslash_command(statement) {
        return backslash::parse(text).ok().and_then(|_| unchanged(text));
    }
    let Statement { words, target } = parse(statement).ok()?;
    let Some(first) = words.first() else {
        return unchanged(text);
    };
    let verb = definition::below(definition, &first.bytes.to_ascii_lowercase())?;
    if !is_valid(words.clone()) {
        return None;
    }
    let words: Vec<_> = words.into_iter().map(|word| word.bytes).collect();
    let words = match verb.get_name() {
        "set" | "vdel" => without_value(verb, &words)?,
        "raw" => words.into_iter().take(3).collect(),
        _ => {
            let arguments = text.trim_start().split_once(char::is_whitespace);
            return unchanged(arguments.map_or("", |(_, arguments)| arguments));
        }
    };
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let target = match target {
        OutputTarget::Screen => String::new(),
        OutputTarget::Command(command) => {
            let command =
                String::from_utf8(command).ok().filter(|text| !has_value(text) && !has_password(text));
            format!(" | {}", command?)
        }
        OutputTarget::File(file) => format!(" > {}", quote(&file)),
    };
    Some(words.join(" ") + &target)
}

/// Returns whether a text contains a command with a value: behind a `;` as in a shell, which is no separator here, behind a
/// `|`, as the command of a verb, or in a comment.
fn has_value(text: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || "#!;&|<>(){}`\"'\\$".contains(c);
    let mut words = text.split(separates).filter(|word| !word.is_empty());
    let is_verb = |word: &str| WITH_VALUE.iter().any(|verb| verb.eq_ignore_ascii_case(word));
    words.any(is_verb) && words.next().is_some()
}

/// Returns whether a line contains a URL with what may be a password.
fn has_password(text: &str) -> bool {
    let is_url = |word: &&str| word.contains("://") || text.trim_start().starts_with("\\c");
    text.split_whitespace().filter(is_url).any(has_secret)
}

/// Returns the words without the value, or `None` if an option is unknown.
fn without_value(verb: &Command, words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    kept.extend(words.next().cloned());
    let mut has_key = false;
    let mut may_be_option = true;
    while let Some(word) = words.next() {
        if may_be_option && word == b"--" {
            // Behind it the key may look like an option.
            may_be_option = false;
            kept.push(word.clone());
            continue;
        }
        let is_option = may_be_option && word.len() > 1 && word.starts_with(b"-") && !is_number(word);
        if !is_option {
            if !has_key {
                kept.push(word.clone());
            }
            has_key = true;
            continue;
        }
        let cluster = definition::cluster(verb, word)?;
        let value = if cluster.pending.is_some() { words.next().cloned() } else { None };
        let has = |names: &[&str]| {
            cluster.options().any(|option| longs(option).iter().any(|long| names.contains(long)))
        };
        if has(&["value", "hex", "base64"]) {
            continue;
        }
        has_key = has_key || has(&["key", "key-hex", "key-base64"]);
        kept.push(word.clone());
        kept.extend(value);
    }
    Some(kept)
}

fn is_number(word: &[u8]) -> bool {
    word.get(1).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::definition::sample;
    use super::*;

    fn stored(line: &str) -> Option<String> {
        redacted(line, &sample::definition(), &|_| true)
    }

    #[test]
    fn values_are_removed_and_options_stay() {
        assert_eq!(stored("set k secret").as_deref(), Some("set k"));
        assert_eq!(stored("SET k secret NX PX 5000").as_deref(), Some("SET k"));
        assert_eq!(stored("set k secret --ttl 30s --nx").as_deref(), Some("set k --ttl 30s --nx"));
        assert_eq!(stored("set --ttl 30s k --value secret").as_deref(), Some("set --ttl 30s k"));
        assert_eq!(stored("set k --value=secret").as_deref(), Some("set k"));
        assert_eq!(stored("set -k k secret").as_deref(), Some("set -k k"));
        assert_eq!(stored("set -kk secret").as_deref(), Some("set -kk"));
        assert_eq!(stored("set -qk k secret").as_deref(), Some("set -qk k"));
        assert_eq!(stored("set k -5").as_deref(), Some("set k"));
        assert_eq!(stored("set k -f file").as_deref(), Some("set k -f file"));
        assert_eq!(stored("vdel 'a b' secret | cat").as_deref(), Some("vdel 'a b' | cat"));
        assert_eq!(stored("raw SET k secret").as_deref(), Some("raw SET k"));
        assert_eq!(stored("set k -- -secret").as_deref(), Some("set k --"));
    }

    #[test]
    fn other_lines_stay_unchanged() {
        for line in ["get  'k'", "get k | jq .", "\\timing on", "# a note", "get k\nget l"] {
            assert_eq!(stored(line).as_deref(), Some(line));
        }
    }

    #[test]
    fn a_line_with_a_leading_blank_or_an_error_is_not_stored() {
        for line in
            [" get k", "", "  ", "ste k secret", "set k 'secret", "set k --vlaue secret", "get k >> f"]
        {
            assert_eq!(stored(line), None, "{line}");
        }
    }

    #[test]
    fn an_invalid_line_is_not_stored() {
        let is_valid = |words: Vec<Word>| words.len() < 3;
        let stored = |line| redacted(line, &sample::definition(), &is_valid);
        assert_eq!(stored("get k").as_deref(), Some("get k"));
        for line in
            ["get k secret", "holder k secret", "get k\nget k secret", "\\timing secret", "\\nothing secret"]
        {
            assert_eq!(stored(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_with_another_command_that_has_a_value_is_not_stored() {
        for line in [
            "get k; set k secret",
            "get k;set k secret",
            "get k && SET k secret",
            "get k | mqkv set k secret",
            "get k | xargs -I{} mqkv vdel k 'secret'",
            "get k; mqkv raw SET k secret",
            "lock k -- mqkv set k secret",
            "\\! mqkv set k secret",
            "\\! (mqkv set k secret)",
            "\\!set k secret",
            "set k v | mqkv set k secret",
            "# set k secret",
            "#set k secret",
        ] {
            assert_eq!(stored(line), None, "{line}");
        }
        for line in ["help set", "get set", "get line1/set k", "get k | sort", "\\! git set-url x"] {
            assert_eq!(stored(line).as_deref(), Some(line));
        }
    }

    #[test]
    fn a_password_in_a_url_is_not_stored() {
        for line in [
            "\\c mqtt://user:secret@h",
            "\\c! mqtts://user:secret@h:8883",
            "\\c user:secret@h",
            "\\connect wss://user/secret@h",
            "\\c wss://h/mqtt?password=secret",
            "get k | curl -d @- https://user:secret@h/",
            "\\! mqkv -b mqtt://user:secret@h get k",
        ] {
            assert_eq!(stored(line), None, "{line}");
        }
        for line in ["\\c prod", "\\c mqtt://ann@h:1884", "\\c", "get k | curl -d @- http://h:1/a"] {
            assert_eq!(stored(line).as_deref(), Some(line));
        }
    }

    proptest! {
        #[test]
        fn no_value_is_ever_stored(
            verb in prop::sample::select(vec!["set", "SET", "vdel"]),
            before in prop::sample::select(vec!["", "--ttl 5s ", "--nx ", "-k x "]),
            way in prop::sample::select(vec!["", "--value ", "--value=", "--hex ", "--base64="]),
            after in prop::sample::select(vec!["", " --nx", " NX", " | cat", " > f", "\nget k"]),
            quoted in any::<bool>(),
        ) {
            let value = if quoted { "'the secret'" } else { "secret" };
            let line = format!("{verb} k {before}{way}{value}{after}");
            if let Some(kept) = stored(&line) {
                prop_assert!(!kept.contains("secret"), "{line}: {kept}");
            }
        }
    }
}
