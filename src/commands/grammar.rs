//! Parses the words of a line as a verb, with the definition of the command line.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use super::command::Command;
use super::del::DelArgs;
use super::duration::parse_ttl;
use super::error::CommandError;
use super::get::GetArgs;
use super::set::SetArgs;
use super::usage;
use super::vdel::VdelArgs;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::{KeyArgs, KeyListArgs};
use crate::commands::args::value::ValueArgs;
use crate::commands::lines::words::Word;
use crate::protocol::Condition;

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    verb: Command,
}

/// A parser of lines.
///
/// Verbs are case-insensitive, and `set KEY VALUE` may be followed by the options of the wire, `NX`, `NEX`, `PX 5000`, in
/// any case. In the plain forms `get KEY`, `set KEY VALUE NX PX 5000`, `del KEY` and `vdel KEY VALUE` a quoted word is
/// data: `set k "--nx"` stores these four characters, and `set k "-"` a hyphen.
#[derive(Debug)]
pub struct Grammar {
    definition: clap::Command,
}

impl Default for Grammar {
    fn default() -> Self {
        Self { definition: Line::command() }
    }
}

impl Grammar {
    /// Parses words as a verb.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::commands::Kind::Usage).
    pub fn parse(&mut self, mut words: Vec<Word>) -> Result<Command, CommandError> {
        if let Some(verb) = words.first_mut() {
            verb.bytes.make_ascii_lowercase();
        }
        if is_plain(&words) {
            words = match plain(words) {
                Ok(command) => return Ok(command),
                Err(words) => words,
            };
        }
        self.parse_any(words.into_iter().map(|word| word.bytes).collect())
    }

    /// Parses words with the whole definition. For plain words without quotes the result is the same as of [`plain`].
    fn parse_any(&mut self, words: Vec<Vec<u8>>) -> Result<Command, CommandError> {
        let words: Vec<_> = wire_options_as_flags(words).into_iter().map(OsString::from_vec).collect();
        let verb = words.first().map(|word| word.to_string_lossy().into_owned());
        let matches = self.definition.try_get_matches_from_mut(&words);
        matches.and_then(|matches| Line::from_arg_matches(&matches)).map(|line| line.verb).map_err(|error| {
            let known = verb.filter(|verb| self.definition.find_subcommand(verb).is_some());
            let help = known.map_or_else(|| "mqkv help".to_owned(), |verb| format!("mqkv help {verb}"));
            match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    CommandError::usage("help is not available here").hint(help)
                }
                _ => {
                    let is_available = |verb: &str| Line::command().find_subcommand(verb).is_some();
                    let context =
                        usage::Context { program: "", is_first_level: true, is_available, words: &words };
                    usage::explain(&error, &context).hint(help)
                }
            }
        })
    }
}

/// Returns whether the words may have one of the plain forms, which spare the whole definition (tens of microseconds).
fn is_plain(words: &[Word]) -> bool {
    let is_data = |word: &Word| word.is_quoted || !word.bytes.starts_with(b"-");
    matches!(words, [_, rest @ ..] if rest.iter().all(is_data))
}

/// Parses a plain form, or returns the words.
fn plain(mut words: Vec<Word>) -> Result<Command, Vec<Word>> {
    Ok(match words.as_mut_slice() {
        [verb, key] if verb.bytes == b"get" => Command::Get(GetArgs::plain(key_list_of(key))),
        [verb, key] if verb.bytes == b"del" => {
            Command::Del(DelArgs::plain(key_list_of(key), FenceArgs::default()))
        }
        [verb, key, value] if verb.bytes == b"vdel" => {
            Command::Vdel(VdelArgs::plain(key_of(key), value_of(value), FenceArgs::default()))
        }
        [verb, key, value, options @ ..] if verb.bytes == b"set" => {
            let (condition, options) = match options {
                [word, rest @ ..] if is_option(word, b"NX") => (Some(Condition::Absent), rest),
                [word, rest @ ..] if is_option(word, b"NEX") => (Some(Condition::AbsentOrEqual), rest),
                rest => (None, rest),
            };
            let ttl = match options {
                [] => None,
                [word, number] if is_option(word, b"PX") => {
                    match milliseconds(&number.bytes).and_then(|text| parse_ttl(&text).ok()) {
                        Some(ttl) => Some(ttl),
                        None => return Err(words),
                    }
                }
                _ => return Err(words),
            };
            Command::Set(SetArgs::plain(key_of(key), value_of(value), condition, ttl))
        }
        _ => return Err(words),
    })
}

fn take(word: &mut Word) -> Word {
    Word { bytes: std::mem::take(&mut word.bytes), is_quoted: word.is_quoted }
}

fn key_of(word: &mut Word) -> KeyArgs {
    let Word { bytes, is_quoted } = take(word);
    if is_quoted { KeyArgs::bytes(bytes) } else { KeyArgs::word(OsString::from_vec(bytes)) }
}

fn key_list_of(word: &mut Word) -> KeyListArgs {
    let Word { bytes, is_quoted } = take(word);
    if is_quoted { KeyListArgs::bytes(bytes) } else { KeyListArgs::word(OsString::from_vec(bytes)) }
}

fn value_of(word: &mut Word) -> ValueArgs {
    let Word { bytes, is_quoted } = take(word);
    if is_quoted { ValueArgs::bytes(bytes) } else { ValueArgs::word(OsString::from_vec(bytes)) }
}

fn is_option(word: &Word, name: &[u8]) -> bool {
    word.bytes.eq_ignore_ascii_case(name)
}

/// Rewrites `set KEY VALUE NX PX 5000` as `set KEY VALUE --nx --ttl 5000ms`.
#[must_use]
pub fn wire_options_as_flags(mut words: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_set = words.first().is_some_and(|verb| verb == b"set");
    let has_value = words.iter().skip(1).take(2).filter(|word| !word.starts_with(b"-")).count() == 2;
    if !is_set || !has_value || words.len() < 4 {
        return words;
    }
    let mut options = words.split_off(3).into_iter().peekable();
    while let Some(word) = options.next() {
        let number = options.peek().and_then(|number| milliseconds(number));
        match (word.to_ascii_uppercase().as_slice(), number) {
            (b"NX", _) => words.push(b"--nx".to_vec()),
            (b"NEX", _) => words.push(b"--nex".to_vec()),
            (b"PX", Some(ttl)) => {
                options.next();
                words.extend([b"--ttl".to_vec(), ttl.into_bytes()]);
            }
            // Words after one that is no option of the wire are left as they are.
            _ => {
                words.push(word);
                words.extend(options);
                break;
            }
        }
    }
    words
}

fn milliseconds(word: &[u8]) -> Option<String> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    digits.then(|| format!("{}ms", String::from_utf8_lossy(word)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::commands::lines::words::split;

    fn parse(line: &str) -> Result<Command, CommandError> {
        Grammar::default().parse(split(line.as_bytes()).unwrap())
    }

    fn formatted(line: &str) -> String {
        format!("{:?}", parse(line).unwrap())
    }

    #[test]
    fn verbs_are_case_insensitive_and_options_may_be_those_of_the_wire() {
        assert_eq!(formatted("SET k v NX PX 5000"), formatted("set k v --nx --ttl 5s"));
        assert_eq!(formatted("Set k v nex"), formatted("set k v --nex"));
        assert_eq!(formatted("set k v px 5 --persist"), formatted("set k v --ttl 5ms --persist"));
        assert_eq!(formatted("GET k"), formatted("get k"));
        assert_eq!(formatted("DEL a b"), formatted("del a b"));
    }

    #[test]
    fn an_invalid_word_is_rejected_with_a_hint() {
        let error = parse("gte k").unwrap_err();
        assert_eq!(error.message, "unknown command 'gte'");
        assert_eq!(error.hints, ["did you mean 'get'?", "mqkv help"]);
        let error = parse("set k v XX").unwrap_err();
        assert_eq!(error.message, "unexpected argument 'XX' found");
        assert_eq!(error.hints, ["mqkv help set"]);
        assert_eq!(parse("get --help").unwrap_err().hints, ["mqkv help get"], "help is not printed");
        assert!(parse("set k v PX 0").unwrap_err().message.contains("longer than zero"));
        assert!(parse("set k v NX NEX").is_err());
    }

    #[test]
    fn a_word_in_quotes_is_data_in_the_plain_forms() {
        let set = |value: &str| {
            let (key, value) = (KeyArgs::word("k".into()), ValueArgs::bytes(value.into()));
            format!("{:?}", Command::Set(SetArgs::plain(key, value, None, None)))
        };
        assert_eq!(formatted("set k '--nx'"), set("--nx"));
        assert_eq!(formatted("set k \"-\""), set("-"));
        assert!(parse("get '-k'").is_ok() && parse("del '-k'").is_ok() && parse("vdel '-k' '-v'").is_ok());
        assert!(parse("set k '-v' --persist").is_err(), "rejected, not guessed");
    }

    fn word() -> impl Strategy<Value = Vec<u8>> {
        let known: Vec<&str> =
            "get GET set Set del vdel delete rm keys nx NX nex px PX 0 5 5000 -5 - -- --nx -k --ttl 99999999999999999999 k"
                .split(' ')
                .collect();
        prop_oneof![
            6 => prop::sample::select(known).prop_map(|word| word.as_bytes().to_vec()),
            2 => vec(any::<u8>().prop_filter("an argument of a process cannot contain NUL", |byte| *byte != 0), 0..4),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn plain_forms_parse_as_the_whole_definition_does(words in vec(word(), 1..7)) {
            let mut grammar = Grammar::default();
            let mut lower = words.clone();
            lower[0].make_ascii_lowercase();
            let whole = grammar.parse_any(lower);
            let quick = grammar.parse(words.into_iter().map(|bytes| Word { bytes, is_quoted: false }).collect());
            prop_assert_eq!(format!("{quick:?}"), format!("{whole:?}"));
        }
    }
}
