//! What of a line is kept for the next session: no values (pure).

use super::definition::{Definition, Verb};
use super::line::{Statement, Target, parse, quote, statements};
use crate::shell::backslash;

/// What the history keeps of a line, if anything.
///
/// A line that begins with a blank is nobody's business. Values of `set` and `vdel` are left out, and what `raw` sends
/// beside its verb and key. A line that makes no sense is not kept: what is in it cannot be known.
#[must_use]
pub fn kept(line: &str, definition: &Definition) -> Option<String> {
    if line.trim().is_empty() || line.starts_with(char::is_whitespace) {
        return None;
    }
    let kept: Option<Vec<String>> = statements(line.as_bytes())
        .into_iter()
        .map(|statement| of_statement(statement, definition))
        .collect();
    kept.map(|lines| lines.join("\n")).filter(|kept| !kept.trim().is_empty())
}

fn of_statement(statement: &[u8], definition: &Definition) -> Option<String> {
    let text = std::str::from_utf8(statement).ok()?;
    if backslash::is_meta(statement) {
        return Some(text.to_owned());
    }
    let Statement { words, target } = parse(statement).ok()?;
    let words: Vec<_> = words.into_iter().map(|word| word.bytes).collect();
    let Some(first) = words.first() else {
        return Some(text.to_owned());
    };
    let verb = definition.verb(first)?;
    let words = match verb.name.as_str() {
        "set" | "vdel" => without_value(verb, &words)?,
        "raw" => words.into_iter().take(3).collect(),
        _ => return Some(text.to_owned()),
    };
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let target = match target {
        Target::Screen => String::new(),
        Target::Command(command) => format!(" | {}", String::from_utf8(command).ok()?),
        Target::File(file) => format!(" > {}", quote(&file)),
    };
    Some(words.join(" ") + &target)
}

/// The words but for the value; none where an option is not known.
fn without_value(verb: &Verb, words: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    kept.extend(words.next().cloned());
    let mut has_key = false;
    let mut may_be_option = true;
    while let Some(word) = words.next() {
        if may_be_option && word == b"--" {
            // The key may look like an option, and the value is gone.
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
        let cluster = verb.cluster(word)?;
        let options: Vec<_> = cluster.given.iter().map(|given| given.option).chain(cluster.pending).collect();
        let value = if cluster.pending.is_some() { words.next().cloned() } else { None };
        let has = |names: &[&str]| {
            options.iter().any(|option| option.longs.iter().any(|long| names.contains(&long.as_str())))
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

    fn keeps(line: &str) -> Option<String> {
        kept(line, &sample::definition())
    }

    #[test]
    fn values_are_left_out_and_options_stay() {
        assert_eq!(keeps("set k secret").as_deref(), Some("set k"));
        assert_eq!(keeps("SET k secret NX PX 5000").as_deref(), Some("SET k"));
        assert_eq!(keeps("set k secret --ttl 30s --nx").as_deref(), Some("set k --ttl 30s --nx"));
        assert_eq!(keeps("set --ttl 30s k --value secret").as_deref(), Some("set --ttl 30s k"));
        assert_eq!(keeps("set k --value=secret").as_deref(), Some("set k"));
        assert_eq!(keeps("set -k k secret").as_deref(), Some("set -k k"));
        assert_eq!(keeps("set k -5").as_deref(), Some("set k"));
        assert_eq!(keeps("set k -f file").as_deref(), Some("set k -f file"));
        assert_eq!(keeps("vdel 'a b' secret | cat").as_deref(), Some("vdel 'a b' | cat"));
        assert_eq!(keeps("raw SET k secret").as_deref(), Some("raw SET k"));
        assert_eq!(keeps("set k -- -secret").as_deref(), Some("set k --"));
    }

    #[test]
    fn other_lines_stay_as_they_were_typed() {
        for line in ["get  'k'", "get k | jq .", "\\timing on", "# a note", "get k\nget l"] {
            assert_eq!(keeps(line).as_deref(), Some(line));
        }
    }

    #[test]
    fn what_begins_with_a_blank_or_makes_no_sense_is_not_kept() {
        for line in
            [" get k", "", "  ", "ste k secret", "set k 'secret", "set k --vlaue secret", "get k >> f"]
        {
            assert_eq!(keeps(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_value_never_gets_into_the_history(
            verb in prop::sample::select(vec!["set", "SET", "vdel"]),
            before in prop::sample::select(vec!["", "--ttl 5s ", "--nx ", "-k x "]),
            way in prop::sample::select(vec!["", "--value ", "--value=", "--hex ", "--base64="]),
            after in prop::sample::select(vec!["", " --nx", " NX", " | cat", " > f", "\nget k"]),
            quoted in any::<bool>(),
        ) {
            let value = if quoted { "'the secret'" } else { "secret" };
            let line = format!("{verb} k {before}{way}{value}{after}");
            if let Some(kept) = keeps(&line) {
                prop_assert!(!kept.contains("secret"), "{line}: {kept}");
            }
        }
    }
}
