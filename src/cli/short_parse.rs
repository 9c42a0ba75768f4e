//! The short way to the verbs that are run most: one verb's definition instead of all, with the same result.
//!
//! To build and drop the whole definition takes more instructions than all the rest of a `get`.

use std::ffi::OsString;

use clap::{Args, Parser};

use super::args::{Cli, Options, Verb};
use crate::commands::Command;

/// One verb with the options of every verb.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Lean<A: Args> {
    #[command(flatten)]
    verb: A,
    #[command(flatten)]
    options: Options,
}

/// What the words mean, if they begin with such a verb and make sense. If not, the whole definition judges them: it
/// knows better what may have been meant.
pub fn parse(words: &[OsString]) -> Option<Cli> {
    let [_, verb, rest @ ..] = words else {
        return None;
    };
    match verb.to_str()? {
        "get" => parse_as(rest, |verb| Verb::Command(Command::Get(verb))),
        "set" => parse_as(rest, |verb| Verb::Command(Command::Set(verb))),
        "del" => parse_as(rest, |verb| Verb::Command(Command::Del(verb))),
        "vdel" => parse_as(rest, |verb| Verb::Command(Command::Vdel(verb))),
        // It is memory that a server keeps for as long as it runs.
        "serve" => parse_as(rest, Verb::Serve),
        _ => None,
    }
}

fn parse_as<A: Args>(words: &[OsString], verb_of: fn(A) -> Verb) -> Option<Cli> {
    let Lean { verb, options } = Lean::<A>::try_parse_from(words).ok()?;
    Some(Cli { verb: Some(verb_of(verb)), options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_comes_to_the_same() {
        for line in [
            "get k",
            "get -k k -n host -p 1883 --notls",
            "get k -j -t 3s -b mqtt://h:1",
            "get k -f file --default x",
            "get --embedded=dir k -o hex -q -v --color never",
            "get -- -k",
            "get help",
            "set k v --ttl 30s --nx",
            "set k -5 -i me",
            "set k -",
            "set -k k --value -abc --persist --fence 1:2:x",
            "set k --hex 00ff --connect-timeout 1s",
            "del a b c --ignore-missing",
            "vdel k v --keep-alive 3s",
            "serve",
            "serve --data dir --keys-max 5 -q",
            "serve --listen ws://127.0.0.1:0/mqtt --port-file p --users u",
            "serve user add FILE NAME -j",
            "serve user add FILE NAME --password-file p",
            "serve -b mqtt://h:1 -x prod --trace=t",
            "get k -x prod --config file",
            "set k v --no-context --force-write",
        ] {
            let words: Vec<OsString> = ["mqkv"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let whole = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            let lean = parse(&words).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(format!("{lean:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_or_asks_for_help_is_left_to_the_whole_definition() {
        for line in [
            "",
            "get",
            "get --help",
            "get k -V",
            "set k",
            "set k v --nx --nex",
            "-j get k",
            "ping",
            "get a b c",
            "serve --keys-max 0",
            "serve user",
            "serve somebody",
        ] {
            let words: Vec<OsString> =
                ["mqkv"].into_iter().chain(line.split_whitespace()).map(Into::into).collect();
            if Cli::try_parse_from(&words).is_err() {
                assert!(parse(&words).is_none(), "{line}");
            }
        }
    }
}
