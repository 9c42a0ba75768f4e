//! Completion engine: what can stand at the cursor of a command line, for the prompt and for the system's shells (pure).

use super::definition::{Definition, Expected, Operand, Place, ValueKind, Verb, VerbOption};

/// What can stand at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The command line before the cursor.
    pub place: Place<'a>,
    /// The bytes of the word at the cursor that stay in front of each candidate, as `--output=` does.
    pub kept: usize,
    pub candidates: Candidates,
}

/// Candidates, or what the caller has to list: the engine reads no files and asks no broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Candidates {
    /// These words.
    Words(Vec<Candidate>),
    Keys,
    Contexts,
    Leaves,
    Conflicts,
    Files,
    Directories,
    /// What the command that begins with the word of this index takes; a program's name where that word is missing.
    Command(usize),
}

/// A word that can stand at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub word: String,
    /// One sentence, or nothing.
    pub about: String,
}

/// Completes `current`, the part of a word in front of the cursor, behind `words`. Returns `None` if the words contain a
/// verb that does not exist.
#[must_use]
pub fn complete<'a>(definition: &'a Definition, words: &[Vec<u8>], current: &[u8]) -> Option<Completion<'a>> {
    let place = definition.place(words)?;
    let (kept, candidates) = match place.expected {
        Expected::Value(operand) => values(operand, 0, words, current, definition),
        Expected::Argument(first) => (0, Candidates::Command(first)),
        Expected::Word { has_dashes: false, .. } if current.starts_with(b"-") => {
            match value_within(place.verb, current) {
                Some((operand, at)) => values(operand, at, words, current, definition),
                None => (0, Candidates::Words(options(&place, current))),
            }
        }
        Expected::Word { count: 0, .. } if !place.verb.verbs.is_empty() => {
            (0, Candidates::Words(verbs(place.verb, current, definition.ignores_case)))
        }
        Expected::Word { count, has_dashes } => match place.verb.operand(count, has_dashes) {
            Some(Operand { kind: ValueKind::HelpSubject, .. }) => {
                let subject: Vec<_> = place.operands.iter().filter_map(|at| words.get(*at)).collect();
                (0, Candidates::Words(subjects(definition, &subject, current)))
            }
            Some(operand) => values(operand, 0, words, current, definition),
            None => (0, Candidates::Words(Vec::new())),
        },
    };
    Some(Completion { place, kept, candidates })
}

/// The value that a word with its option contains, and where it begins: `--output=js`, `-ojs`.
fn value_within<'a>(verb: &'a Verb, current: &[u8]) -> Option<(&'a Operand, usize)> {
    let cluster = verb.cluster(current)?;
    let last = cluster.given.last()?;
    Some((last.option.value.as_ref()?, cluster.value_at?))
}

fn values(
    operand: &Operand,
    at: usize,
    words: &[Vec<u8>],
    current: &[u8],
    definition: &Definition,
) -> (usize, Candidates) {
    let value = current.get(at..).unwrap_or_default();
    let last_delimiter =
        operand.delimiter.and_then(|delimiter| value.iter().rposition(|byte| char::from(*byte) == delimiter));
    let kept = at.saturating_add(last_delimiter.map_or(0, |at| at.saturating_add(1)));
    let prefix = current.get(kept..).unwrap_or_default();
    let candidates = match &operand.kind {
        ValueKind::Choices(choices) => {
            let choices = choices.iter().map(|(word, about)| candidate(word, about));
            Candidates::Words(beginning_with(prefix, choices))
        }
        ValueKind::Key => Candidates::Keys,
        ValueKind::File => Candidates::Files,
        ValueKind::Directory => Candidates::Directories,
        ValueKind::Context => Candidates::Contexts,
        ValueKind::Leaf => Candidates::Leaves,
        ValueKind::Conflict => Candidates::Conflicts,
        ValueKind::Command => Candidates::Command(words.len()),
        ValueKind::HelpSubject => Candidates::Words(subjects(definition, &[], prefix)),
        ValueKind::Other => Candidates::Words(Vec::new()),
    };
    (kept, candidates)
}

/// The options that can still be given, by their first long names.
fn options(place: &Place<'_>, current: &[u8]) -> Vec<Candidate> {
    let is_left = |option: &&VerbOption| {
        option.is_repeatable || !place.given.iter().any(|given| given.option.longs == option.longs)
    };
    let left: Vec<_> = place.verb.options.iter().filter(is_left).collect();
    // A short option that is complete is offered as it is, so that the shell adds a blank.
    let short = match current {
        [b'-', short] if *short != b'-' => Some(char::from(*short)),
        _ => None,
    };
    if let Some(short) = short {
        let known = left.iter().find(|option| option.shorts.contains(&short));
        return known.map(|option| candidate(&format!("-{short}"), &option.about)).into_iter().collect();
    }
    let by = |pick: fn(&VerbOption) -> &[String]| {
        let named = left.iter().flat_map(|option| {
            pick(option).iter().map(|long| candidate(&format!("--{long}"), &option.about))
        });
        beginning_with(current, named)
    };
    let names = by(|option| option.longs.get(..1).unwrap_or_default());
    if names.is_empty() { by(|option| &option.longs) } else { names }
}

/// The verbs below a verb by name; by alias if no name fits.
fn verbs(verb: &Verb, current: &[u8], ignores_case: bool) -> Vec<Candidate> {
    let is_upper = ignores_case && current.first().is_some_and(u8::is_ascii_uppercase);
    let case = |name: &str| if is_upper { name.to_ascii_uppercase() } else { name.to_owned() };
    let names = verb.verbs.iter().map(|verb| candidate(&case(&verb.name), &verb.about));
    let names = beginning_with(current, names);
    if !names.is_empty() {
        return names;
    }
    let aliases = verb.verbs.iter().flat_map(|verb| {
        verb.aliases.iter().map(|alias| candidate(&case(alias), &verb.about)).collect::<Vec<_>>()
    });
    beginning_with(current, aliases)
}

/// The verbs and topics of `help`; behind a verb, the verbs below it.
fn subjects(definition: &Definition, path: &[&Vec<u8>], current: &[u8]) -> Vec<Candidate> {
    let mut verb = &definition.root;
    for word in path {
        let Some(below) = verb.below(word, definition.ignores_case) else { return Vec::new() };
        verb = below;
    }
    let mut subjects = verbs(verb, current, definition.ignores_case);
    if path.is_empty() {
        let topics = definition.topics.iter().map(|(topic, about)| candidate(topic, about));
        subjects.extend(beginning_with(current, topics));
    }
    subjects
}

/// Keeps the candidates that begin with a prefix.
pub fn beginning_with(prefix: &[u8], candidates: impl IntoIterator<Item = Candidate>) -> Vec<Candidate> {
    candidates.into_iter().filter(|candidate| candidate.word.as_bytes().starts_with(prefix)).collect()
}

fn candidate(word: &str, about: &str) -> Candidate {
    Candidate { word: word.to_owned(), about: about.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::definition::sample;
    use super::*;

    /// Completes the last word of a line without quotes.
    fn completed(line: &str) -> Option<(usize, Candidates)> {
        let definition = sample::definition();
        let mut words: Vec<Vec<u8>> = line.split(' ').map(Vec::from).collect();
        let current = words.pop().unwrap();
        complete(&definition, &words, &current).map(|completion| (completion.kept, completion.candidates))
    }

    fn words(line: &str) -> Vec<String> {
        match completed(line) {
            Some((kept, Candidates::Words(words))) => {
                let current = line.rsplit(' ').next().unwrap();
                words.into_iter().map(|candidate| format!("{}{}", &current[..kept], candidate.word)).collect()
            }
            None => vec!["no such verb".to_owned()],
            other => panic!("{line}: {other:?}"),
        }
    }

    #[track_caller]
    fn assert_listed(line: &str, kept: usize, candidates: Candidates) {
        assert_eq!(completed(line), Some((kept, candidates)), "{line}");
    }

    #[test]
    fn verbs_stand_first_and_aliases_only_where_no_name_fits() {
        assert_eq!(words("").len(), 10);
        assert_eq!(words("un"), ["unlock"]);
        assert_eq!(words("r"), ["raw"]);
        assert_eq!(words("rm"), ["rm"]);
        assert_eq!(words("-q un"), ["unlock"], "options may stand before the verb");
        assert_eq!(words("decode "), ["topic"]);
        assert_eq!(words("unknown "), ["no such verb"]);
        assert_eq!(words("UN"), ["UNLOCK"]);
    }

    #[test]
    fn keys_stand_where_a_key_belongs() {
        assert_listed("get ", 0, Candidates::Keys);
        assert_listed("get -k ", 0, Candidates::Keys);
        assert_listed("get --key=a", 6, Candidates::Keys);
        assert_listed("get -ka", 2, Candidates::Keys);
        assert_listed("del a b ", 0, Candidates::Keys);
        assert_listed("del -- -", 0, Candidates::Keys);
        assert_eq!(words("get a "), [""; 0]);
        assert_eq!(words("set k "), [""; 0], "a value cannot be known");
        assert_eq!(words("set -k k "), [""; 0], "the key is an option, so a value follows");
    }

    #[test]
    fn options_are_offered_until_they_are_given() {
        assert_eq!(words("set k v --t"), ["--ttl"]);
        assert_eq!(words("set k v --ttl 5s --t"), [""; 0]);
        assert_eq!(words("get -q --q"), [""; 0]);
        assert_eq!(words("watch --only set --on"), ["--only"], "this one may be repeated");
        assert_eq!(words("lock --"), ["--key", "--once"]);
        assert_eq!(words("get -o"), ["-o"]);
        assert_eq!(words("get k -- --"), [""; 0], "no option can follow --");
    }

    #[test]
    fn values_of_options_are_known_in_every_spelling() {
        assert_eq!(words("get -o "), ["raw", "json"]);
        assert_eq!(words("get --output r"), ["raw"]);
        assert_eq!(words("get --output=j"), ["--output=json"]);
        assert_eq!(words("get -oj"), ["-ojson"]);
        assert_eq!(words("get -qo "), ["raw", "json"]);
        assert_eq!(words("get -qoj"), ["-qojson"]);
        assert_eq!(words("watch k --only set,d"), ["--only set,del".rsplit(' ').next().unwrap()]);
        assert_eq!(words("watch k --only=set,d"), ["--only=set,del"]);
        assert_listed("get -x ", 0, Candidates::Contexts);
        assert_listed("-x p", 0, Candidates::Contexts);
        assert_listed("get k -f o", 0, Candidates::Files);
        assert_listed("get --embedded=st", 11, Candidates::Directories);
        assert_listed("get --embedded ", 0, Candidates::Keys);
    }

    #[test]
    fn a_command_and_its_arguments_are_left_to_the_caller() {
        assert_listed("lock d -- l", 0, Candidates::Command(3));
        assert_listed("lock d l", 0, Candidates::Command(2));
        assert_listed("lock -k d l", 0, Candidates::Command(3));
        assert_listed("lock d -- ls -", 0, Candidates::Command(3));
        assert_listed("lock d ls -- ", 0, Candidates::Command(2));
        assert_listed("watch a b -- ", 0, Candidates::Command(4));
        assert_listed("watch a b -- c d", 0, Candidates::Command(4));
        assert_listed("watch a ", 0, Candidates::Keys);
    }

    #[test]
    fn help_explains_verbs_topics_and_verbs_below_verbs() {
        assert_eq!(words("help lo"), ["lock", "locks"]);
        assert_eq!(words("help decode "), ["topic"]);
        assert_eq!(words("help locks "), [""; 0]);
    }

    proptest! {
        /// The bytes that stay are within the word, and end at a character.
        #[test]
        fn any_words_are_completed(
            words in prop::collection::vec("(get|lock|watch|help|--|-[a-z]{0,2}|--only=?|é?,?[a-z]?)", 0..5),
            current in "-{0,2}(only=|o|key=)?[é,=a-z]{0,3}",
        ) {
            let definition = sample::definition();
            let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
            if let Some(completion) = complete(&definition, &words, current.as_bytes()) {
                prop_assert!(current.is_char_boundary(completion.kept));
                if let Candidates::Command(first) = completion.candidates {
                    prop_assert!(first <= words.len());
                }
            }
        }
    }
}
