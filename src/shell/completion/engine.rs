//! Completion engine: what can stand at the cursor of a command line, for the prompt and for the system's shells (pure).
//!
//! `clap_complete`'s engine, which walks the same definition, lists the files itself instead of leaving them to the shell,
//! completes no command behind `--`, offers options again that were given, and does not pass the options that were typed to
//! what lists contexts and keys.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, ValueHint};

use crate::commands::args::kind::{CommonValues, HelpSubject, ValueKind};
use crate::shell::definition::{self, Expected, Parsed, is_command, longs, shorts};

/// What can stand at the cursor.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The command line before the cursor.
    pub parsed: Parsed<'a>,
    /// The bytes of the word at the cursor that stay in front of each candidate, as `--output=` does.
    pub kept: usize,
    pub candidates: Candidates,
}

/// Candidates, or what the caller has to list: the engine reads no files and asks no broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Candidates {
    /// These words.
    Words(Vec<Candidate>),
    /// Values of this kind.
    Listed(ValueKind),
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
pub fn complete<'a>(definition: &'a Command, words: &[Vec<u8>], current: &[u8]) -> Option<Completion<'a>> {
    let parsed = definition::parse(definition, words)?;
    let (kept, candidates) = match parsed.expected {
        Expected::Value(option) => values(option, 0, words, current),
        Expected::Argument(first) => (0, Candidates::Command(first)),
        Expected::Word { has_dashes: false, .. } if current.starts_with(b"-") => {
            match value_within(parsed.verb, current) {
                Some((option, at)) => values(option, at, words, current),
                None => (0, Candidates::Words(options(&parsed, current))),
            }
        }
        Expected::Word { count: 0, .. } if parsed.verb.has_subcommands() => {
            (0, Candidates::Words(verbs(parsed.verb, current)))
        }
        Expected::Word { count, has_dashes } => match definition::operand(parsed.verb, count, has_dashes) {
            Some(operand) => match operand.get::<HelpSubject>() {
                Some(topics) => {
                    let subject: Vec<_> = parsed.operands.iter().filter_map(|at| words.get(*at)).collect();
                    (0, Candidates::Words(subjects(definition, &subject, topics, current)))
                }
                None => values(operand, 0, words, current),
            },
            None => (0, Candidates::Words(Vec::new())),
        },
    };
    Some(Completion { parsed, kept, candidates })
}

/// The value that a word with its option contains, and where it begins: `--output=js`, `-ojs`.
fn value_within<'a>(verb: &'a Command, current: &[u8]) -> Option<(&'a Arg, usize)> {
    let cluster = definition::cluster(verb, current)?;
    let option = cluster.given.last().filter(|last| last.option.get_action().takes_values())?.option;
    Some((option, cluster.value_at?))
}

fn values(arg: &Arg, at: usize, words: &[Vec<u8>], current: &[u8]) -> (usize, Candidates) {
    let value = current.get(at..).unwrap_or_default();
    let is_delimiter = |byte: &u8| arg.get_value_delimiter() == Some(char::from(*byte));
    let last_delimiter = value.iter().rposition(is_delimiter);
    let kept = at.saturating_add(last_delimiter.map_or(0, |at| at.saturating_add(1)));
    let prefix = current.get(kept..).unwrap_or_default();
    let choices = || arg.get_possible_values().into_iter().filter(|choice| !choice.is_hide_set());
    let candidates = match (arg.get::<ValueKind>(), arg.get_value_hint()) {
        (Some(kind), _) => Candidates::Listed(*kind),
        (None, ValueHint::DirPath) => Candidates::Directories,
        (None, ValueHint::FilePath | ValueHint::AnyPath) => Candidates::Files,
        (None, _) if is_command(arg) => Candidates::Command(words.len()),
        (None, _) => {
            let common = arg.get::<CommonValues>().map_or(&[][..], |CommonValues(common)| common);
            let common = common.iter().map(|(word, about)| candidate(word, about));
            Candidates::Words(beginning_with(prefix, choices().map(choice).chain(common)))
        }
    };
    (kept, candidates)
}

fn choice(value: PossibleValue) -> Candidate {
    let about = value.get_help().map(ToString::to_string).unwrap_or_default();
    Candidate { word: value.get_name().to_owned(), about }
}

/// The options that can still be given, by their first long names.
fn options(parsed: &Parsed<'_>, current: &[u8]) -> Vec<Candidate> {
    let is_left = |option: &&Arg| {
        matches!(option.get_action(), ArgAction::Append | ArgAction::Count)
            || !parsed.given.iter().any(|given| given.option.get_id() == option.get_id())
    };
    let left: Vec<_> = definition::options(parsed.verb).filter(is_left).collect();
    let about = |option: &Arg| option.get_help().map(ToString::to_string).unwrap_or_default();
    // A short option that is complete is offered as it is, so that the shell adds a blank.
    if let [b'-', letter] = current
        && *letter != b'-'
    {
        let known = left.iter().find(|option| shorts(option).contains(&char::from(*letter)));
        let short = |option: &&Arg| candidate(&format!("-{}", char::from(*letter)), &about(option));
        return known.map(short).into_iter().collect();
    }
    let first_of = |names_max: usize| {
        let named = left.iter().flat_map(|option| {
            let names = longs(option).into_iter().take(names_max);
            names.map(|long| candidate(&format!("--{long}"), &about(option)))
        });
        beginning_with(current, named)
    };
    let names = first_of(1);
    if names.is_empty() { first_of(usize::MAX) } else { names }
}

/// The verbs below a verb by name; by alias if no name fits.
fn verbs(verb: &Command, current: &[u8]) -> Vec<Candidate> {
    let about = |verb: &Command| verb.get_about().map(ToString::to_string).unwrap_or_default();
    let names = definition::verbs(verb).map(|verb| candidate(verb.get_name(), &about(verb)));
    let names = beginning_with(current, names);
    if !names.is_empty() {
        return names;
    }
    let aliases = definition::verbs(verb)
        .flat_map(|verb| verb.get_visible_aliases().map(move |alias| candidate(alias, &about(verb))));
    beginning_with(current, aliases)
}

/// The verbs and topics of `help`; behind a verb, the verbs below it.
fn subjects(
    definition: &Command,
    path: &[&Vec<u8>],
    HelpSubject(topics): &HelpSubject,
    current: &[u8],
) -> Vec<Candidate> {
    let Some(verb) = path.iter().try_fold(definition, |verb, word| definition::below(verb, word)) else {
        return Vec::new();
    };
    let mut subjects = verbs(verb, current);
    if path.is_empty() {
        let topics = topics().into_iter().map(|(topic, about)| candidate(topic, about));
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

    use super::*;
    use crate::shell::definition::sample;

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
    }

    #[test]
    fn keys_stand_where_a_key_belongs() {
        assert_listed("get ", 0, Candidates::Listed(ValueKind::Key));
        assert_listed("get -k ", 0, Candidates::Listed(ValueKind::Key));
        assert_listed("get --key=a", 6, Candidates::Listed(ValueKind::Key));
        assert_listed("get -ka", 2, Candidates::Listed(ValueKind::Key));
        assert_listed("del a b ", 0, Candidates::Listed(ValueKind::Key));
        assert_listed("del -- -", 0, Candidates::Listed(ValueKind::Key));
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
        assert_listed("get -x ", 0, Candidates::Listed(ValueKind::Context));
        assert_listed("-x p", 0, Candidates::Listed(ValueKind::Context));
        assert_listed("get k -f o", 0, Candidates::Files);
        assert_listed("get --embedded=st", 11, Candidates::Directories);
        assert_listed("get --embedded ", 0, Candidates::Listed(ValueKind::Key));
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
        assert_listed("watch a ", 0, Candidates::Listed(ValueKind::Key));
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
