//! What can follow on a half-typed line (pure): it is never asked of the broker.

use super::definition::{Definition, Expected, KEY, Operand, Verb};
use super::line::{quote, split_open};
use crate::shell::backslash;

/// What completion goes by.
pub struct Known<'a> {
    /// The verbs and their options.
    pub definition: &'a Definition,
    /// The keys that this session has seen, in order.
    pub keys: Vec<Vec<u8>>,
    /// The locks that are held.
    pub locks: Vec<Vec<u8>>,
    /// The numbers of the watches.
    pub watches: Vec<String>,
    /// The contexts that there are.
    pub contexts: Vec<String>,
    /// The brokers that were named.
    pub brokers: Vec<String>,
    /// The files whose paths begin so; folders end with a slash.
    pub files: &'a dyn Fn(&str) -> Vec<String>,
}

/// What can stand in the place of the last word.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// Where the last word begins, in bytes.
    pub start: usize,
    /// What it could be.
    pub candidates: Vec<Candidate>,
}

/// What a word could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// For the list.
    pub shown: String,
    /// For the line.
    pub typed: String,
}

/// What can follow on this text.
#[must_use]
pub fn complete(text: &str, known: &Known<'_>) -> Completion {
    if let Some((start, prefix)) = context_after_its_option(text) {
        return Completion { start, candidates: texts(known.contexts.clone(), prefix.as_bytes()) };
    }
    if let Some((start, prefix, domain)) = backslash::expectation(text) {
        let candidates = of_meta(&domain, &prefix, known);
        return Completion { start, candidates };
    }
    let Some(open) = split_open(text.as_bytes()) else {
        return Completion { start: text.len(), candidates: Vec::new() };
    };
    let candidates = match (open.target, open.words.as_slice()) {
        (Some(b'>'), _) => files("", &open.prefix, known),
        (Some(_), _) => Vec::new(),
        (None, []) => {
            // What is typed in upper case stays so.
            let shouts = open.prefix.first().is_some_and(u8::is_ascii_uppercase);
            let case = |name: &String| if shouts { name.to_ascii_uppercase() } else { name.clone() };
            let names: Vec<_> = known.definition.verbs.iter().map(|verb| case(&verb.name)).collect();
            texts(names, &open.prefix)
        }
        (None, words) => of_verb(words, &open.prefix, known),
    };
    Completion { start: open.start, candidates }
}

/// The name behind `-x`, wherever that stands: also in a command of the system.
fn context_after_its_option(text: &str) -> Option<(usize, &str)> {
    let start = text.rfind(char::is_whitespace)?.saturating_add(1);
    let (before, prefix) = text.split_at_checked(start)?;
    let option = before.split_whitespace().next_back()?;
    (option == "-x" || option == "--context").then_some((start, prefix))
}

fn of_meta(domain: &backslash::Domain, prefix: &str, known: &Known<'_>) -> Vec<Candidate> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let words = match domain {
        backslash::Domain::Commands => backslash::NAMES.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        backslash::Domain::OneOf(values) => owned(values),
        backslash::Domain::Files => return files("", prefix.as_bytes(), known),
        backslash::Domain::Watches => known.watches.clone(),
        backslash::Domain::Brokers => known.contexts.iter().chain(&known.brokers).cloned().collect(),
        backslash::Domain::Nothing => Vec::new(),
    };
    texts(words, prefix.as_bytes())
}

fn of_verb(words: &[Vec<u8>], prefix: &[u8], known: &Known<'_>) -> Vec<Candidate> {
    let Some((verb, rest)) = known.definition.resolve(words) else {
        return Vec::new();
    };
    let (count, may_be_option) = match verb.expects(rest) {
        Expected::Value(operand) => return of_operand("", operand, prefix, verb, known),
        Expected::Word { count, may_be_option } => (count, may_be_option),
    };
    if may_be_option && prefix.starts_with(b"-") {
        return of_option(&String::from_utf8_lossy(prefix), verb, known);
    }
    if count == 0 && !verb.below.is_empty() {
        return texts(verb.below.iter().map(|below| below.name.clone()), prefix);
    }
    verb.operand(count).map_or_else(Vec::new, |operand| of_operand("", operand, prefix, verb, known))
}

fn of_option(prefix: &str, verb: &Verb, known: &Known<'_>) -> Vec<Candidate> {
    if let Some((name, value)) = prefix.split_once('=') {
        let taken = verb.option(name.as_bytes()).and_then(|option| option.takes.as_ref());
        let before = format!("{name}=");
        return taken
            .map_or_else(Vec::new, |operand| of_operand(&before, operand, value.as_bytes(), verb, known));
    }
    let longs = verb.options.iter().filter_map(|option| option.longs.first());
    texts(longs.map(|long| format!("--{long}")), prefix.as_bytes())
}

/// What an operand may be; `before` stands before it in the same word.
fn of_operand(
    before: &str,
    operand: &Operand,
    prefix: &[u8],
    verb: &Verb,
    known: &Known<'_>,
) -> Vec<Candidate> {
    if !operand.values.is_empty() {
        let values = operand.values.iter().filter(|value| value.as_bytes().starts_with(prefix));
        return values.map(|value| whole(value, &format!("{before}{value}"))).collect();
    }
    match operand.name.as_str() {
        KEY => {
            let is_unlock = verb.name == "unlock" && !known.locks.is_empty();
            let keys = if is_unlock { &known.locks } else { &known.keys };
            let keys = keys.iter().filter(|key| key.starts_with(prefix));
            keys.map(|key| whole(&quote(key), &format!("{before}{}", quote(key)))).collect()
        }
        name if name.starts_with("FILE") => files(before, prefix, known),
        "VERB|TOPIC" => {
            let verbs = known.definition.verbs.iter().map(|verb| &verb.name);
            texts(verbs.chain(&known.definition.topics).cloned(), prefix)
        }
        _ => Vec::new(),
    }
}

fn files(before: &str, prefix: &[u8], known: &Known<'_>) -> Vec<Candidate> {
    let Ok(prefix) = std::str::from_utf8(prefix) else {
        return Vec::new();
    };
    let candidate = |path: String| {
        let is_folder = path.ends_with('/');
        let (shown, typed) = (path.clone(), format!("{before}{}", quote(path.as_bytes())));
        // Within a folder the word goes on.
        if is_folder { Candidate { shown, typed } } else { whole(&shown, &typed) }
    };
    (known.files)(prefix).into_iter().map(candidate).collect()
}

/// Those of the texts that begin so.
fn texts(texts: impl IntoIterator<Item = String>, prefix: &[u8]) -> Vec<Candidate> {
    let fitting = texts.into_iter().filter(|text| text.as_bytes().starts_with(prefix));
    fitting.map(|text| whole(&text, &text)).collect()
}

/// A candidate after which the next word begins.
fn whole(shown: &str, typed: &str) -> Candidate {
    Candidate { shown: shown.to_owned(), typed: format!("{typed} ") }
}

#[cfg(test)]
mod tests {
    use super::super::definition::sample;
    use super::*;

    fn with<T>(ask: impl FnOnce(&Known<'_>) -> T) -> T {
        let definition = sample::definition();
        let files = |prefix: &str| {
            let all = ["out/", "out.json", "a file"];
            all.iter().filter(|path| path.starts_with(prefix)).map(ToString::to_string).collect()
        };
        ask(&Known {
            definition: &definition,
            keys: ["a b", "line1/rpm", "line1/temp"].map(Vec::from).to_vec(),
            locks: vec![b"deploy".to_vec()],
            watches: vec!["1".into(), "2".into()],
            contexts: vec!["lab".into(), "prod".into()],
            brokers: vec!["mqtt://h:1".into()],
            files: &files,
        })
    }

    /// What could be typed in the place of the last word.
    fn typed(text: &str) -> Vec<String> {
        with(|known| complete(text, known).candidates.into_iter().map(|candidate| candidate.typed).collect())
    }

    #[test]
    fn the_first_word_is_a_verb() {
        assert_eq!(typed("un"), ["unlock "]);
        assert_eq!(typed("UN"), ["UNLOCK "]);
        assert_eq!(typed("").len(), 8);
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
        assert_eq!(typed("unlock "), ["deploy "]);
    }

    #[test]
    fn options_and_their_values_are_known() {
        assert_eq!(typed("set k v --t"), ["--ttl "]);
        assert_eq!(typed("get -o "), ["raw ", "json "]);
        assert_eq!(typed("get --output=j"), ["--output=json "]);
        assert_eq!(typed("get -- -"), Vec::<String>::new());
        assert_eq!(typed("decode "), ["topic "]);
        assert_eq!(typed("help lo"), ["locks "]);
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
        assert_eq!(typed("\\c "), ["lab ", "prod ", "mqtt://h:1 "]);
        assert_eq!(typed("\\! mqkv get k -x p"), ["prod "]);
        assert_eq!(typed("get k --context l"), ["lab "]);
        assert_eq!(typed("\\o ba"), ["base64 "]);
    }

    #[test]
    fn the_word_is_replaced_from_its_beginning_on() {
        let start = |text| with(|known| complete(text, known).start);
        assert_eq!(start("get 'a b"), 4);
        assert_eq!(start("get "), 4);
        assert_eq!(start("get a\nget b"), 10);
        assert_eq!(start("\\o js"), 3);
    }
}
