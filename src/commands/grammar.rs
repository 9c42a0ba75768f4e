//! Parses the words of a line as a verb, with the definition of the command line.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use super::command::Command;
use super::del::DelArgs;
use super::duration::parse_ttl;
use super::error::CommandError;
use super::get::GetArgs;
use super::set::SetArgs;
use super::usage_error;
use super::vdel::VdelArgs;
use crate::commands::args::fence::FenceArgs;
use crate::commands::args::key::{KeyArgs, KeyListArgs};
use crate::commands::args::value::ValueArgs;
use crate::commands::lines::words::Word;
use crate::platform::os_string;
use crate::protocol::Condition;

#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    verb: Command,
}

/// A parser of lines.
///
/// Words become arguments, and clap parses these. Only the plain forms `get KEY`, `set KEY VALUE NX PX 5000`, `del KEY` and
/// `vdel KEY VALUE`, of which a batch has thousands, do without clap, which takes tens of microseconds for a line.
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
        if is_data(&words) {
            words = match plain(words) {
                Ok(command) => return Ok(command),
                Err(words) => words,
            };
        }
        self.parse_any(words)
    }

    /// Parses words with the whole definition. For the plain forms the result is the same as of [`plain`].
    fn parse_any(&mut self, words: Vec<Word>) -> Result<Command, CommandError> {
        let words = arguments(words);
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
                    let context = usage_error::Context {
                        program: "",
                        is_first_level: true,
                        is_available,
                        words: &words,
                    };
                    usage_error::explain(&error, &context).hint(help)
                }
            }
        })
    }
}

/// Returns key and value of a line `set KEY VALUE` without quotes, escapes, options and operators. [`Grammar`] parses all others.
#[must_use]
pub fn plain_set(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let words = line.strip_prefix(b"set ")?;
    let blank = words.iter().position(|byte| *byte == b' ')?;
    let (key, value) = (words.get(..blank)?, words.get(blank.checked_add(1)?..)?);
    let is_plain = |byte: &u8| {
        !matches!(
            byte,
            0 | b'\t' | b'\n' | b'\r' | b' ' | b'"' | b'&' | b'\'' | b';' | b'<' | b'>' | b'\\' | b'|'
        )
    };
    // Without an end at the first match the compiler compares many bytes at a time.
    let is_word = |word: &[u8]| {
        !matches!(word, [] | [b'-', ..]) && word.iter().fold(true, |all, byte| all & is_plain(byte))
    };
    (is_word(key) && is_word(value)).then_some((key, value))
}

/// Returns the words of a line as arguments of a command line.
///
/// The verb may be in any case, and `set KEY VALUE` may be followed by the options of the wire, `NX`, `NEX`, `PX 5000`, in any
/// case. In a line without options, or with flags at its end only, a quoted word is data: `set k "--nx"` stores these four
/// characters, and `set k "-"` a hyphen.
#[must_use]
pub fn arguments(mut words: Vec<Word>) -> Vec<OsString> {
    if let Some(verb) = words.first_mut() {
        verb.bytes.make_ascii_lowercase();
    }
    let flags = words.iter().rev().take_while(|word| is_flag(word)).count();
    let flags_at = words.len().saturating_sub(flags);
    let is_data = is_data(words.get(..flags_at).unwrap_or_default());
    let options = split_wire_options(&mut words);
    let has_value = words.first().is_some_and(|verb| matches!(verb.bytes.as_slice(), b"set" | b"vdel"));
    let (mut arguments, mut behind_dashes) = (Vec::new(), Vec::new());
    for (at, Word { bytes, is_quoted }) in words.into_iter().enumerate() {
        let is_flag = at >= flags_at;
        let looks_like_option = is_data && is_quoted && at > 0 && bytes.starts_with(b"-");
        let is_hyphen_as_value = looks_like_option && has_value && at == 2 && bytes == b"-";
        let word = os_string(bytes);
        if is_hyphen_as_value {
            // As a word it would be standard input.
            arguments.extend(["--value".into(), word]);
        } else if looks_like_option || !behind_dashes.is_empty() && !is_flag {
            behind_dashes.push(word);
        } else {
            arguments.push(word);
        }
    }
    arguments.extend(options.into_iter().map(os_string));
    if !behind_dashes.is_empty() {
        arguments.push("--".into());
        arguments.extend(behind_dashes);
    }
    arguments
}

/// Returns whether a word at the end of a line is an option without a value, or with its value in the same word.
fn is_flag(word: &Word) -> bool {
    let is_number = word.bytes.get(1).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
    !word.is_quoted
        && word.bytes.starts_with(b"-")
        && !is_number
        && !matches!(word.bytes.as_slice(), b"-" | b"--")
}

/// Returns whether no word behind the verb is an option.
fn is_data(words: &[Word]) -> bool {
    words.iter().skip(1).all(|word| word.is_quoted || !word.bytes.starts_with(b"-"))
}

/// Parses a plain form, or returns the words.
fn plain(mut words: Vec<Word>) -> Result<Command, Vec<Word>> {
    Ok(match words.as_mut_slice() {
        [verb, key] if verb.bytes == b"get" => Command::Get(GetArgs::plain(KeyListArgs::word(take(key)))),
        [verb, key] if verb.bytes == b"del" => {
            Command::Del(DelArgs::plain(KeyListArgs::word(take(key)), FenceArgs::default()))
        }
        [verb, key, value] if verb.bytes == b"vdel" => {
            Command::Vdel(VdelArgs::plain(KeyArgs::word(take(key)), value_of(value), FenceArgs::default()))
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
            Command::Set(SetArgs::plain(KeyArgs::word(take(key)), value_of(value), condition, ttl))
        }
        _ => return Err(words),
    })
}

fn take(word: &mut Word) -> OsString {
    os_string(std::mem::take(&mut word.bytes))
}

fn value_of(word: &mut Word) -> ValueArgs {
    let is_hyphen = word.bytes == b"-";
    if is_hyphen { ValueArgs::literal(take(word)) } else { ValueArgs::word(take(word)) }
}

fn is_option(word: &Word, name: &[u8]) -> bool {
    word.bytes.eq_ignore_ascii_case(name)
}

/// Removes what follows `set KEY VALUE`, and returns it with the options of the wire as those of the command line: `--nx --ttl
/// 5000ms` for `NX PX 5000`.
fn split_wire_options(words: &mut Vec<Word>) -> Vec<Vec<u8>> {
    let is_set = words.first().is_some_and(|verb| verb.bytes == b"set");
    let has_value = words.get(..3).is_some_and(is_data);
    if !is_set || !has_value {
        return Vec::new();
    }
    let mut options = words.split_off(3).into_iter().map(|word| word.bytes).peekable();
    let mut arguments = Vec::new();
    while let Some(word) = options.next() {
        let number = options.peek().and_then(|number| milliseconds(number));
        match (word.to_ascii_uppercase().as_slice(), number) {
            (b"NX", _) => arguments.push(b"--nx".to_vec()),
            (b"NEX", _) => arguments.push(b"--nex".to_vec()),
            (b"PX", Some(ttl)) => {
                options.next();
                arguments.extend([b"--ttl".to_vec(), ttl.into_bytes()]);
            }
            // Words after one that is no option of the wire are left as they are.
            _ => {
                arguments.push(word);
                arguments.extend(options);
                break;
            }
        }
    }
    arguments
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
    use crate::commands::lines::operators;
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
    fn a_word_in_quotes_is_data_in_a_line_without_options() {
        assert_eq!(formatted("set k '--nx'"), formatted("set k -- --nx"));
        assert_eq!(formatted("set k \"-\""), formatted("set k --value -"));
        assert_eq!(formatted("set '-k' \"-\" NX"), formatted("set --nx --value - -- -k"));
        assert_eq!(formatted("del a '-b' c"), formatted("del -- a -b c"));
        assert_eq!(formatted("raw SET k '-v'"), formatted("raw -- SET k -v"));
        assert_eq!(formatted("decode topic '-x'"), formatted("decode topic -- -x"));
        assert!(parse("get '-k'").is_ok() && parse("del '-k'").is_ok() && parse("vdel '-k' '-v'").is_ok());
        assert_eq!(formatted("set k '-v' --persist"), formatted("set k --persist -- -v"));
        assert_eq!(formatted("get '-k' --default=x"), formatted("get --default=x -- -k"));
        assert!(parse("set k '-v' --ttl 5s").is_err(), "rejected, not guessed");
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

    #[test]
    fn a_line_with_key_and_value_is_a_plain_set_and_one_with_more_is_not() {
        assert_eq!(plain_set(b"set line1/temp 21.5"), Some((&b"line1/temp"[..], &b"21.5"[..])));
        for other in ["set k", "set k v NX", "SET k v", "get k v", "set k 'v'", "set k -"] {
            assert_eq!(plain_set(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_plain_set_is_parsed_as_its_words_are(
            arguments in vec(prop_oneof![
                4 => "[a-z#=/.ä-]{0,4}".prop_map(String::into_bytes),
                1 => vec(any::<u8>(), 0..3),
                1 => prop::sample::select(vec!["it's", "NX", "PX"]).prop_map(|word| word.as_bytes().to_vec()),
            ], 0..4),
        ) {
            let line = [b"set".to_vec(), arguments.join(&b' ')].join(&b' ');
            if let Some((key, value)) = plain_set(&line) {
                prop_assert!(operators::refuse_all(&line).is_ok());
                let words: Vec<_> = split(&line).unwrap().into_iter().map(|word| word.bytes).collect();
                prop_assert_eq!(&words, &[&b"set"[..], key, value]);
                let command = Grammar::default().parse(split(&line).unwrap());
                let expected = SetArgs::plain(
                    KeyArgs::word(os_string(key.to_vec())),
                    ValueArgs::word(os_string(value.to_vec())),
                    None,
                    None,
                );
                prop_assert_eq!(format!("{:?}", command.unwrap()), format!("{:?}", Command::Set(expected)));
            }
        }

        #[test]
        fn plain_forms_parse_as_the_whole_definition_does(words in vec((word(), any::<bool>()), 1..7)) {
            let words: Vec<_> = words.into_iter().map(|(bytes, is_quoted)| Word { bytes, is_quoted }).collect();
            let mut grammar = Grammar::default();
            let whole = grammar.parse_any(words.clone());
            let quick = grammar.parse(words);
            prop_assert_eq!(format!("{quick:?}"), format!("{whole:?}"));
        }
    }
}
