//! Completion of a line of the prompt: quotes, redirections, backslash commands, and what the session knows (pure).

use std::collections::BTreeSet;

use clap::Command;

use super::engine::{Candidates, Completion, complete};
use crate::commands::args::kind::{CommonValues, KUBE, ValueKind};
use crate::render::escape::{escape, is_safe};
use crate::shell::backslash;
use crate::shell::line::{quote, split_partial};

/// What completion goes by.
pub struct Known<'a> {
    pub definition: &'a Command,
    /// The keys that this session has seen, in order.
    pub keys: Vec<Vec<u8>>,
    /// Lists keys of the store that begin with a prefix, in bounded time: a broker that does not answer must not block a key press.
    pub stored_keys: &'a dyn Fn(&[u8]) -> Vec<Vec<u8>>,
    /// The keys of the locks that are held.
    pub locks: Vec<Vec<u8>>,
    /// The numbers of the running watches.
    pub watches: Vec<String>,
    /// The brokers that the session was connected to, as URLs.
    pub brokers: Vec<String>,
    /// Lists the contexts of the configuration file.
    pub contexts: &'a dyn Fn() -> Vec<String>,
    /// Lists the paths that begin with a text; directories end with a slash.
    pub files: &'a dyn Fn(&str) -> Vec<String>,
}

/// What can replace the last word of a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Replacements {
    /// Where the last word begins, in bytes.
    pub start: usize,
    pub replacements: Vec<Replacement>,
}

/// A word in two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// For the list of candidates.
    pub shown: String,
    /// For the line: quoted, and with a blank behind it where a new word begins.
    pub typed: String,
}

/// Completes a text that ends at the cursor.
#[must_use]
pub fn complete_line(text: &str, known: &Known<'_>) -> Replacements {
    if let Some((start, prefix)) = context_option(text) {
        return Replacements { start, replacements: words((known.contexts)(), prefix.as_bytes()) };
    }
    if let Some((start, prefix, argument)) = backslash::expectation(text) {
        return Replacements { start, replacements: backslash_argument(argument, &prefix, known) };
    }
    let Some(partial) = split_partial(text.as_bytes()) else {
        return Replacements { start: text.len(), replacements: Vec::new() };
    };
    let replacements = match partial.operator {
        Some(b'>') => files("", &partial.prefix, known),
        Some(_) => Vec::new(),
        None if is_verb_in_capitals(&partial.words, &partial.prefix) => {
            let prefix = partial.prefix.to_ascii_lowercase();
            in_capitals(of_words(&partial.words, &prefix, known))
        }
        None => of_words(&partial.words, &partial.prefix, known),
    };
    Replacements { start: partial.start, replacements }
}

fn of_words(words: &[Vec<u8>], current: &[u8], known: &Known<'_>) -> Vec<Replacement> {
    let completion = complete(known.definition, words, current);
    completion.map(|completion| of_completion(completion, current, known)).unwrap_or_default()
}

/// Returns whether the word at the cursor is a verb that is typed in capitals, of the line or of `help`.
fn is_verb_in_capitals(words: &[Vec<u8>], current: &[u8]) -> bool {
    let is_verb = words.first().is_none_or(|verb| verb == b"help");
    is_verb && current.first().is_some_and(u8::is_ascii_uppercase)
}

fn in_capitals(mut replacements: Vec<Replacement>) -> Vec<Replacement> {
    for Replacement { shown, typed } in &mut replacements {
        shown.make_ascii_uppercase();
        typed.make_ascii_uppercase();
    }
    replacements
}

/// The start and text of a context's name behind `-x`, wherever that stands: also in a command of the system.
fn context_option(text: &str) -> Option<(usize, &str)> {
    let start = text.rfind(char::is_whitespace)?.saturating_add(1);
    let (before, prefix) = text.split_at_checked(start)?;
    let option = before.split_whitespace().next_back()?;
    (option == "-x" || option == "--context").then_some((start, prefix))
}

fn backslash_argument(argument: backslash::Argument, prefix: &str, known: &Known<'_>) -> Vec<Replacement> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let all = match argument {
        backslash::Argument::Name => backslash::NAMES.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        backslash::Argument::OneOf(values) => owned(values),
        backslash::Argument::File => return files("", prefix.as_bytes(), known),
        backslash::Argument::Watch => known.watches.clone(),
        backslash::Argument::Broker => {
            let contexts = (known.contexts)();
            let CommonValues(common) = KUBE;
            let common = common.iter().map(|(url, _)| (*url).to_owned());
            contexts.into_iter().chain(known.brokers.iter().cloned()).chain(common).collect()
        }
        backslash::Argument::Other => Vec::new(),
    };
    words(all, prefix.as_bytes())
}

fn of_completion(completion: Completion<'_>, current: &[u8], known: &Known<'_>) -> Vec<Replacement> {
    let Completion { parsed, kept, candidates } = completion;
    let (before, prefix) = current.split_at_checked(kept).unwrap_or((current, b""));
    let before = String::from_utf8_lossy(before);
    match candidates {
        Candidates::Words(candidates) => candidates
            .into_iter()
            .map(|candidate| whole(&candidate.word, &format!("{before}{}", candidate.word)))
            .collect(),
        Candidates::Listed(ValueKind::Key) => {
            let is_unlock = parsed.verb.get_name() == "unlock" && !known.locks.is_empty();
            let stored = if is_unlock { Vec::new() } else { (known.stored_keys)(prefix) };
            let keys = if is_unlock { &known.locks } else { &known.keys };
            let keys: BTreeSet<_> =
                keys.iter().chain(&stored).filter(|key| key.starts_with(prefix)).collect();
            keys.into_iter().map(|key| whole(&quote(key), &format!("{before}{}", quote(key)))).collect()
        }
        Candidates::Listed(ValueKind::Context) => words((known.contexts)(), prefix),
        // The paths of the prompt are few; directories among them lead to both.
        Candidates::Files | Candidates::Directories => files(&before, prefix, known),
        // No key press waits for an answer of the broker.
        Candidates::Listed(ValueKind::Leaf | ValueKind::Conflict) => Vec::new(),
        // A line of the prompt runs no command of the system: `lock` holds its lock in the background.
        Candidates::Command(_) => Vec::new(),
    }
}

fn files(before: &str, prefix: &[u8], known: &Known<'_>) -> Vec<Replacement> {
    let Ok(prefix) = std::str::from_utf8(prefix) else {
        return Vec::new();
    };
    let replacement = |path: String| {
        let is_directory = path.ends_with('/');
        let (shown, typed) = (escape(path.as_bytes()), format!("{before}{}", quote(path.as_bytes())));
        // Within a directory the word goes on.
        if is_directory { Replacement { shown, typed } } else { whole(&shown, &typed) }
    };
    (known.files)(prefix).into_iter().map(replacement).collect()
}

/// The texts that begin with a prefix. They are inserted without quotes, so one that a terminal does not show as it is is left
/// out.
fn words(texts: Vec<String>, prefix: &[u8]) -> Vec<Replacement> {
    let is_fitting = |text: &String| text.as_bytes().starts_with(prefix) && text.chars().all(is_safe);
    let fitting = texts.into_iter().filter(is_fitting);
    fitting.map(|text| whole(&text, &text)).collect()
}

/// A replacement behind which the next word begins.
fn whole(shown: &str, typed: &str) -> Replacement {
    Replacement { shown: shown.to_owned(), typed: format!("{typed} ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::definition::sample;

    fn with<T>(ask: impl FnOnce(&Known<'_>) -> T) -> T {
        let definition = sample::definition();
        let files = |prefix: &str| {
            let all = ["out/", "out.json", "a file"];
            all.iter().filter(|path| path.starts_with(prefix)).map(ToString::to_string).collect()
        };
        ask(&Known {
            definition: &definition,
            keys: ["a b", "line1/rpm", "line1/temp"].map(Vec::from).to_vec(),
            stored_keys: &|prefix| match prefix {
                b"line" | b"line2/" => ["line1/temp", "line2/temp"].map(Vec::from).to_vec(),
                _ => Vec::new(),
            },
            locks: vec![b"deploy".to_vec()],
            watches: vec!["1".into(), "2".into()],
            brokers: vec!["mqtt://h:1".into()],
            contexts: &|| vec!["lab".into(), "prod".into()],
            files: &files,
        })
    }

    /// What could be typed in the place of the last word.
    fn typed(text: &str) -> Vec<String> {
        with(|known| complete_line(text, known).replacements.into_iter().map(|word| word.typed).collect())
    }

    #[test]
    fn the_first_word_is_a_verb() {
        assert_eq!(typed("un"), ["unlock "]);
        assert_eq!(typed("UN"), ["UNLOCK "]);
        assert_eq!(typed("HELP UN"), ["UNLOCK "]);
        assert_eq!(typed("").len(), 10);
        assert_eq!(typed("nonsense "), Vec::<String>::new());
    }

    #[test]
    fn keys_that_were_seen_stand_where_a_key_stands() {
        assert_eq!(typed("get line1/t"), ["line1/temp "]);
        assert_eq!(typed("GET line1/"), ["line1/rpm ", "line1/temp "]);
        assert_eq!(typed("get a"), ["'a b' "]);
        assert_eq!(typed("get 'a "), ["'a b' "]);
        assert_eq!(typed("set line1/temp l"), Vec::<String>::new(), "a value is no key");
        assert_eq!(typed("rm a line1/r"), ["line1/rpm "]);
        assert_eq!(typed("get -k line1/r"), ["line1/rpm "]);
        assert_eq!(typed("get --key=line1/r"), ["--key=line1/rpm "]);
        assert_eq!(typed("get --key=a"), ["--key='a b' "]);
        assert_eq!(typed("unlock "), ["deploy "]);
    }

    #[test]
    fn keys_of_the_store_stand_beside_those_that_were_seen() {
        assert_eq!(typed("get line"), ["line1/rpm ", "line1/temp ", "line2/temp "]);
        assert_eq!(typed("get line2/"), ["line2/temp "]);
        assert_eq!(typed("unlock line2/"), Vec::<String>::new(), "only the locks that are held");
    }

    #[test]
    fn no_candidate_has_a_character_that_a_terminal_does_not_show() {
        let definition = sample::definition();
        let texts = ["a\u{202E}b", "a\u{AD}", "a\u{E0041}", "a\u{200B}\u{1b}[2J"];
        let known = Known {
            definition: &definition,
            keys: texts.map(|text| text.as_bytes().to_owned()).to_vec(),
            stored_keys: &|_| Vec::new(),
            locks: Vec::new(),
            watches: Vec::new(),
            brokers: texts.map(str::to_owned).to_vec(),
            contexts: &|| texts.map(str::to_owned).to_vec(),
            files: &|_| texts.map(str::to_owned).to_vec(),
        };
        let replaced = |line| complete_line(line, &known).replacements;
        assert!(replaced("get ").iter().any(|word| word.typed == "\"a\\xE2\\x80\\xAEb\" "));
        assert_eq!((replaced("get ").len(), replaced("\\i ").len()), (4, 4));
        for line in ["get ", "\\i ", "get k > ", "\\c ", "get k -x "] {
            for Replacement { shown, typed } in replaced(line) {
                assert!(shown.chars().chain(typed.chars()).all(is_safe), "{line}: {shown:?} {typed:?}");
            }
        }
    }

    #[test]
    fn options_and_their_values_are_known() {
        assert_eq!(typed("set k v --t"), ["--ttl "]);
        assert_eq!(typed("get -o "), ["raw ", "json "]);
        assert_eq!(typed("get --output=j"), ["--output=json "]);
        assert_eq!(typed("get -- -"), Vec::<String>::new());
        assert_eq!(typed("decode "), ["topic "]);
        assert_eq!(typed("help lo"), ["lock ", "locks "]);
        assert_eq!(typed("lock d "), Vec::<String>::new());
    }

    #[test]
    fn files_stand_after_file_options_and_redirections() {
        assert_eq!(typed("set k -f out"), ["out/", "out.json "]);
        assert_eq!(typed("get k > a"), ["'a file' "]);
        assert_eq!(typed("\\i out."), ["out.json "]);
        assert_eq!(typed("get k | o"), Vec::<String>::new());
    }

    #[test]
    fn backslash_commands_are_completed_too() {
        assert_eq!(typed("\\ti"), ["\\timing "]);
        assert_eq!(typed("\\unwatch "), ["1 ", "2 "]);
        assert_eq!(typed("\\c m"), ["mqtt://h:1 "]);
        assert_eq!(typed("\\c k"), ["kube: "]);
        assert_eq!(typed("\\c "), ["lab ", "prod ", "mqtt://h:1 ", "kube: "]);
        assert_eq!(typed("\\! mqkv get k -x p"), ["prod "]);
        assert_eq!(typed("get k --context l"), ["lab "]);
        assert_eq!(typed("\\o ba"), ["base64 "]);
    }

    #[test]
    fn the_word_is_replaced_from_its_beginning_on() {
        let start = |text| with(|known| complete_line(text, known).start);
        assert_eq!(start("get 'a b"), 4);
        assert_eq!(start("get "), 4);
        assert_eq!(start("get a\nget b"), 10);
        assert_eq!(start("\\o js"), 3);
    }
}
