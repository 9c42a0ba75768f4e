//! Definition of the command line: the verbs, with the shared options before and after each.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{
    ArgMatches, Args, Command as Definition, CommandFactory, Error, FromArgMatches, Parser, Subcommand,
    ValueHint,
};

use super::completion_script::Shell;
use super::context::args::ContextArgs;
use super::context::config::ConfigArgs;
use super::data::DataArgs;
use super::help::topics;
use super::options::{self, ConnectionArgs, DisplayArgs, Options, Shared};
use super::serve::args::ServeArgs;
use super::store::args::StoreArgs;
use crate::commands::Command;
use crate::commands::args::kind::HelpSubject;

const EXAMPLES: &str = "\
Examples:
  mqkv serve                            broker with a state store
  mqkv set line1/temp 21.5              in another terminal
  mqkv get line1/temp
  mqkv --embedded=./state set k v       no broker: a store in this process

`mqkv help VERB` or `mqkv VERB --help` explains a verb, `mqkv help TOPIC` a topic. Without a verb, on a terminal, the \
prompt opens.";

/// A parsed command line.
#[derive(Debug)]
pub struct Cli {
    pub verb: Option<Verb>,
    /// The options before and after the verb together.
    pub options: Options,
}

/// Command line for the Azure IoT Operations state store
///
/// Reads and writes the keys of the state store behind an MQTT broker, or of a store inside this process.
/// The default broker is mqtt://localhost:1883, where `mqkv serve` listens.
#[derive(Debug, Parser)]
#[command(name = "mqkv", version, after_long_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
struct Root {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    before_verb: Options,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    #[command(flatten)]
    Command(Command),
    Shell(ShellArgs),
    Serve(Box<ServeArgs>),
    Store(Box<StoreArgs>),
    Data(DataArgs),
    Context(ContextArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Help(HelpArgs),
}

const SHELL_EXAMPLES: &str = "\
Examples:
  mqkv                                  the same, on a terminal
  mqkv --embedded                       on an embedded store
  mqkv shell -b mqtt://aio-broker:1883

The prompt takes the verbs of the command line, in any case; \\? lists the commands that begin with a backslash. `watch` \
and `lock` run in the background. `get k | jq .` and `get k > file` redirect the output. Ctrl-C cancels the running \
command, Ctrl-D exits.

The history is in $XDG_STATE_HOME/mqkv/history (~/.local/state/mqkv/history; Windows: %LOCALAPPDATA%), readable by its \
owner only. It contains neither the values of set and vdel nor lines that begin with a blank.

If standard input is not a terminal, its lines are run as by `mqkv batch -`.";

/// Open an interactive prompt on one session
#[derive(Debug, Args)]
#[command(after_long_help = SHELL_EXAMPLES)]
pub struct ShellArgs {}

const COMPLETIONS_HELP: &str = "\
Examples:
  mqkv completions bash > ~/.local/share/bash-completion/completions/mqkv
  mqkv completions zsh > ~/.zfunc/_mqkv
  mqkv completions fish > ~/.config/fish/completions/mqkv.fish
  mqkv completions elvish >> ~/.config/elvish/rc.elv
  mqkv completions powershell >> $PROFILE

The script runs mqkv, found through PATH, for each completion. Keys, leaves and conflicts are completed only if MQKV_COMPLETE_KEYS is 1: each \
completion of a key then connects to the broker, and waits at most 300 ms.

The directory of the script must exist. zsh finds scripts in the directories of fpath, before compinit is run.";

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_name = "SHELL", required_unless_present = "all")]
    pub shell: Option<Shell>,
    /// Write the scripts of all shells to this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "shell")]
    pub all: Option<PathBuf>,
}

/// Print the manual page, or write those of all verbs
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Verb to print the page of, or directory for all pages
    #[arg(value_name = "VERB|DIR", value_hint = ValueHint::Other)]
    pub of: Vec<PathBuf>,
}

impl ManArgs {
    /// Returns the verb, and the verbs below it: several words, or a name without a slash that is no directory. A directory with the
    /// name of a verb, or a new one, is written with a slash: `./man`.
    #[must_use]
    pub fn verbs(&self) -> Option<Vec<String>> {
        let names: Vec<_> = self.of.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let is_of_verb = match names.as_slice() {
            [] => false,
            [name] => {
                let is_verb = Cli::command().find_subcommand(name).is_some();
                is_verb || !(name.contains('/') || Path::new(name).is_dir())
            }
            _ => true,
        };
        is_of_verb.then_some(names)
    }
}

/// Show help for a verb or a topic
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A verb, or a topic such as locks
    #[arg(value_name = "VERB|TOPIC", add = HelpSubject(topics::names))]
    pub names: Vec<String>,
}

/// Returns whether a verb connects to a broker or works with the settings of connections.
fn takes_connection(verb: &str) -> bool {
    !WITHOUT_CONNECTION.contains(&verb)
}

/// The verb that connects, while the verbs below it do not.
const STORE: &str = "store";

const WITHOUT_CONNECTION: [&str; 5] = ["serve", "data", "completions", "man", "help"];

impl CommandFactory for Cli {
    fn command() -> Definition {
        Root::command().mut_subcommands(|verb| {
            // Deferred: most runs need the options of one verb only.
            if verb.get_name() == STORE {
                verb.defer(options::add_to_both::<Options, DisplayArgs>)
            } else if takes_connection(verb.get_name()) {
                verb.defer(options::add_to::<Options>)
            } else {
                verb.defer(options::add_to::<DisplayArgs>)
            }
        })
    }

    fn command_for_update() -> Definition {
        Self::command()
    }
}

impl FromArgMatches for Cli {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let Root { verb, before_verb } = Root::from_arg_matches(matches)?;
        if !connects(matches) {
            refuse_connection_options(matches)?;
        }
        Ok(Self { verb, options: options_of(matches, before_verb)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Parser for Cli {}

impl Cli {
    /// Parses the words of a command line.
    ///
    /// # Errors
    /// That of the whole definition, which also suggests what was meant.
    pub fn parse_words(words: &[OsString]) -> Result<Self, Error> {
        let parsed = definition_for(words).and_then(|definition| {
            let mut matches = definition.try_get_matches_from(words).ok()?;
            let options = options_of(&matches, Options::default()).ok()?;
            Some(Self { verb: Some(Verb::from_arg_matches_mut(&mut matches).ok()?), options })
        });
        parsed.map_or_else(|| Self::try_parse_from(words), Ok)
    }
}

/// Returns the definition of the program, built: as completion and help walk it.
#[must_use]
pub fn definition() -> Definition {
    let mut definition = Cli::command();
    definition.build();
    definition
}

/// Returns a definition with the one verb that the words begin with, if that is a frequent one: all verbs take more instructions
/// than the rest of a `get`, and a server would hold their memory for as long as it runs.
fn definition_for(words: &[OsString]) -> Option<Definition> {
    let verb = match words.get(1)?.to_str()? {
        "serve" => options::add_to::<DisplayArgs>(ServeArgs::augment_args(Definition::new("serve"))),
        STORE => {
            options::add_to_both::<Options, DisplayArgs>(StoreArgs::augment_args(Definition::new(STORE)))
        }
        name => options::add_to::<Options>(Command::define_frequent(name)?),
    };
    Some(Definition::new("mqkv").subcommand(verb))
}

/// Returns whether the verb connects to a broker or works with the settings of connections.
fn connects(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((STORE, below)) => below.subcommand().is_none(),
        Some((verb, _)) => takes_connection(verb),
        None => true,
    }
}

/// Returns the options of all levels, those before the verb included.
fn options_of(matches: &ArgMatches, before_verb: Options) -> Result<Options, Error> {
    match matches.subcommand() {
        None => Ok(before_verb),
        Some((_, below)) if connects(matches) => Ok(options::collect::<Options>(below)?.or(before_verb)),
        Some((_, below)) => {
            let display = options::collect::<DisplayArgs>(below)?.or(before_verb.display);
            Ok(Options { display, ..Options::default() })
        }
    }
}

/// Rejects connection options before a verb that does not connect, as clap rejects them after it.
fn refuse_connection_options(before_verb: &ArgMatches) -> Result<(), Error> {
    let connection = ConnectionArgs::augment_args(Definition::new("connection"));
    let is_typed = |id: &str| before_verb.value_source(id) == Some(ValueSource::CommandLine);
    let options = connection.get_arguments().map(|arg| (arg.get_id().as_str(), arg.get_long()));
    let mut typed = options.chain([("force_write", Some("force-write"))]).filter(|(id, _)| is_typed(id));
    let Some((id, long)) = typed.next() else { return Ok(()) };
    let mut error = Error::new(ErrorKind::UnknownArgument);
    let name = format!("--{}", long.unwrap_or(id));
    error.insert(ContextKind::InvalidArg, ContextValue::String(name));
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_without_connection_options_exists() {
        let definition = Cli::command();
        for verb in WITHOUT_CONNECTION {
            assert!(definition.find_subcommand(verb).is_some(), "{verb}");
        }
    }

    #[test]
    fn options_stand_before_or_after_the_verb() {
        for line in [
            "mqkv -p 1884 -j get k",
            "mqkv get k -p 1884 -j",
            "mqkv -j get -p 1884 k",
            "mqkv -p 1884 context show -j",
            "mqkv context -p 1884 -j show",
            "mqkv context -j show -p 1884",
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.options.connection.port, Some(1884), "{line}");
            assert!(cli.options.display.json, "{line}");
        }
    }

    #[test]
    fn a_frequent_verb_is_parsed_as_by_the_whole_definition() {
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
            "store status --etcd http://h -j",
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
            assert!(definition_for(&words).is_some(), "{line}");
            let fast = Cli::parse_words(&words).unwrap();
            assert_eq!(format!("{fast:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn an_invalid_line_of_a_frequent_verb_has_the_error_of_the_whole_definition() {
        for line in
            ["get", "get k -V", "get --help", "set k v --nx --nex", "serve -b mqtt://h:1", "serve user"]
        {
            let words: Vec<OsString> = ["mqkv"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let whole = Cli::try_parse_from(&words).map(drop).map_err(|error| error.to_string());
            assert_eq!(
                Cli::parse_words(&words).map(drop).map_err(|error| error.to_string()),
                whole,
                "{line}"
            );
        }
    }

    #[test]
    fn an_option_after_the_verb_wins_over_the_same_option_before_it() {
        let cli = Cli::try_parse_from(["mqkv", "-b", "mqtt://a", "get", "k", "-b", "mqtt://b"]).unwrap();
        assert_eq!(cli.options.connection.broker.as_deref(), Some("mqtt://b"));
        let twice = Cli::try_parse_from(["mqkv", "get", "k", "-p", "1", "-p", "2"]).unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn verbs_that_do_not_connect_have_output_options_only() {
        for verb in ["serve", "serve user ls f", "data verify d", "completions bash", "man", "help"] {
            for option in ["-b mqtt://h", "--insecure", "--force-write", "-x c"] {
                for line in [format!("mqkv {verb} {option}"), format!("mqkv {option} {verb}")] {
                    let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{line}");
                }
            }
            for line in [format!("mqkv {verb} -j --color never"), format!("mqkv --color never -j {verb}")] {
                let cli = Cli::try_parse_from(line.split(' ')).unwrap();
                assert!(cli.options.display.json && cli.options.display.color.is_some(), "{line}");
            }
        }
    }

    #[test]
    fn the_command_lines_of_microsofts_tool_parse() {
        for line in [
            "mqkv get -k KEY -n HOST -p 1883 --notls",
            "mqkv get -k KEY -f FILE -n HOST",
            "mqkv -n HOST get -k KEY --valuefile FILE",
            "mqkv set -k KEY --value V -n HOST -p 1883 --notls",
            "mqkv set -k KEY -f FILE -n HOST -T ca -C cert -K key -P password-file",
            "mqkv set -k KEY --valuefile FILE --hostname HOST --port 1883 --cafile F --certfile F --keyfile F",
            "mqkv delete -k KEY -n HOST",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
