//! Fast parser for the frequent verbs: builds the definition of one verb instead of all, with the same result.
//!
//! Building the whole definition takes more instructions than the rest of a `get`.

use std::ffi::OsString;

use clap::{Args, Command as Definition};

use super::args::{Cli, Verb};
use super::options::{self, DisplayArgs, Options, Shared};
use crate::commands::Command;

/// Returns the parsed command line if it begins with one of these verbs and is valid. Otherwise the whole definition has
/// to parse it, which can also suggest what was meant.
pub fn parse(words: &[OsString]) -> Option<Cli> {
    let [_, verb, rest @ ..] = words else {
        return None;
    };
    match verb.to_str()? {
        "get" => client_verb(rest, |verb| Verb::Command(Command::Get(verb))),
        "set" => client_verb(rest, |verb| Verb::Command(Command::Set(verb))),
        "del" => client_verb(rest, |verb| Verb::Command(Command::Del(verb))),
        "vdel" => client_verb(rest, |verb| Verb::Command(Command::Vdel(verb))),
        // A server would hold the memory of the whole definition for as long as it runs.
        "store" => client_verb(rest, Verb::Store)
            .filter(|cli| !matches!(&cli.verb, Some(Verb::Store(args)) if args.action.is_some())),
        "serve" => {
            let (verb, display) = parse_as::<_, DisplayArgs>(rest)?;
            Some(Cli { verb: Some(Verb::Serve(verb)), options: Options { display, ..Options::default() } })
        }
        _ => None,
    }
}

fn client_verb<A: Args>(words: &[OsString], verb_of: fn(A) -> Verb) -> Option<Cli> {
    let (verb, options) = parse_as(words)?;
    Some(Cli { verb: Some(verb_of(verb)), options })
}

fn parse_as<A: Args, O: Shared>(words: &[OsString]) -> Option<(A, O)> {
    let definition = A::augment_args(Definition::new("mqkv").no_binary_name(true));
    let definition = options::add_to::<O>(definition);
    let mut matches = definition.try_get_matches_from(words).ok()?;
    let options = options::collect(&matches).ok()?;
    Some((A::from_arg_matches_mut(&mut matches).ok()?, options))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn the_fast_parser_agrees_with_the_whole_definition() {
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
            "get k --cautious",
            "store -b mqtt://h --data dir --keys-max 5 -q --requests in/+",
            "serve",
            "serve --data dir --keys-max 5 -q",
            "serve --listen ws://127.0.0.1:0/mqtt --port-file p --users u",
            "serve user add FILE NAME -j",
            "serve user add FILE NAME --password-file p",
            "get k -x prod --config file --trace=t",
            "set k v --no-context --force-write",
        ] {
            let words: Vec<OsString> = ["mqkv"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let whole = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            let fast = parse(&words).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(format!("{fast:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn invalid_lines_and_requests_for_help_are_left_to_the_whole_definition() {
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
            "serve -b mqtt://h:1",
            "serve user ls FILE --trace=t",
            "serve user",
            "serve unknown",
        ] {
            let words: Vec<OsString> =
                ["mqkv"].into_iter().chain(line.split_whitespace()).map(Into::into).collect();
            if Cli::try_parse_from(&words).is_err() {
                assert!(parse(&words).is_none(), "{line}");
            }
        }
    }
}
