//! What can be typed: the verbs, and the options that every verb takes before or after it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::config::verb::ConfigArgs;
use super::context::ContextArgs;
use super::generate::{CompletionsArgs, ManArgs};
use super::help::HelpArgs;
use super::prompt::ShellArgs;
use super::serve::ServeArgs;
use crate::cli::serve::misplaced;
use crate::commands::{Command, duration};

const AFTER_HELP: &str = "\
Examples:
  mqkv serve                            a broker with a state store, in this terminal
  mqkv set line1/temp 21.5              in another one
  mqkv get line1/temp
  mqkv --embedded=./state set k v       no broker at all: a store inside this process

--embedded keeps everything in memory, gone at the end; --embedded=DIR keeps everything in DIR.
More: mqkv help VERB, mqkv help config, mqkv help exit-codes, mqkv help formats, mqkv help environment, \
mqkv help locks";

/// Command line for the Azure IoT Operations state store
///
/// Reads and writes the keys of the state store behind an MQTT broker, or of a store of its own.
/// Where nothing says something else, the broker is mqtt://localhost:1883, where `mqkv serve` listens.
#[derive(Debug, Parser)]
#[command(name = "mqkv", version, after_help = AFTER_HELP, disable_help_subcommand = true)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// The options of every verb.
    #[command(flatten)]
    pub options: Options,
}

/// Everything that can be done.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process has one of them")]
pub enum Verb {
    #[command(flatten)]
    Command(Command),
    Shell(ShellArgs),
    #[command(defer(misplaced::hide))]
    Serve(Box<ServeArgs>),
    Context(ContextArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Help(HelpArgs),
}

/// The options of every verb.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub display: DisplayArgs,
    /// Write, although the context is read-only
    #[arg(long, global = true, help_heading = "Connection", hide_short_help = true)]
    pub force_write: bool,
}

/// Where the broker is and how to talk to it, as typed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The broker: mqtt://HOST[:1883] or, with TLS, mqtts://HOST[:8883]; over WebSockets ws://HOST[:80][/PATH] or wss://
    #[arg(short, long, global = true, value_name = "URL", conflicts_with_all = ["hostname", "port", "embedded"])]
    pub broker: Option<String>,
    /// The broker's host; with TLS and port 8883 unless told otherwise
    #[arg(
        short = 'n',
        long,
        visible_alias = "host",
        global = true,
        value_name = "HOST",
        conflicts_with = "embedded"
    )]
    pub hostname: Option<String>,
    /// The broker's port
    #[arg(short, long, global = true, value_name = "N", conflicts_with = "embedded", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Plain MQTT, no TLS
    #[arg(long, visible_alias = "no-tls", global = true)]
    pub notls: bool,
    /// The certificates of the CAs to trust, in PEM [default: those of this machine]
    #[arg(short = 'T', long, global = true, value_name = "FILE", hide_short_help = true)]
    pub cafile: Option<PathBuf>,
    /// The client's certificate, and those that lead to its CA, in PEM
    #[arg(short = 'C', long, global = true, value_name = "FILE", hide_short_help = true)]
    pub certfile: Option<PathBuf>,
    /// The client's key, in PEM
    #[arg(short = 'K', long, global = true, value_name = "FILE", hide_short_help = true)]
    pub keyfile: Option<PathBuf>,
    /// The file with the key's password
    #[arg(short = 'P', long, global = true, value_name = "FILE", hide_short_help = true)]
    pub keypasswordfile: Option<PathBuf>,
    /// The name that the broker's certificate must have [default: the host]
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub server_name: Option<String>,
    /// Trust any certificate, and so anybody in between
    #[arg(long, global = true, hide_short_help = true)]
    pub insecure: bool,
    /// The user's name
    #[arg(short, long, global = true, value_name = "NAME", hide_short_help = true)]
    pub username: Option<String>,
    /// The file with the user's password in its first line; - is standard input
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, conflicts_with = "ask_password")]
    pub password_file: Option<PathBuf>,
    /// Ask for the user's password on the terminal
    #[arg(long, global = true, hide_short_help = true)]
    pub ask_password: bool,
    /// The file with a Kubernetes service account token; read again for every connection
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, conflicts_with_all = ["username", "password_file", "ask_password"])]
    pub sat_file: Option<PathBuf>,
    /// A broker and store of its own inside this process
    ///
    /// In memory, gone at the end; with =DIR everything is kept in DIR.
    #[arg(long, global = true, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    pub embedded: Option<Option<PathBuf>>,
    /// The MQTT client id [default: mqkv-HOST-RANDOM]
    #[arg(short = 'i', long, global = true, value_name = "ID", hide_short_help = true)]
    pub client_id: Option<String>,
    /// How long to wait for each answer [default: 10s]
    #[arg(short, long, global = true, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
    /// How long to wait for the connection [default: 5s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::parse, hide_short_help = true)]
    pub connect_timeout: Option<Duration>,
    /// How often to try again for a connection that could not be made [default: 0]
    ///
    /// Never after a refusal: a wrong password stays wrong.
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    pub retries: Option<u32>,
    /// How long the broker may be silent before it is probed, in whole seconds [default: 10s]
    ///
    /// It is taken for lost after half as much again.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration::parse_keep_alive, hide_short_help = true)]
    pub keep_alive: Option<Duration>,
    /// The context to use: broker, credentials and more under one name (see `mqkv help config`)
    #[arg(short = 'x', long, global = true, value_name = "NAME", conflicts_with = "no_context")]
    pub context: Option<String>,
    /// Use no context, not even the default one
    #[arg(long, global = true, hide_short_help = true)]
    pub no_context: bool,
    /// The configuration file [default: ~/.config/mqkv/config.toml]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// Show every MQTT packet, with its time in UTC, on standard error or in a file
    ///
    /// Decoded, a line each, as JSON with -j. Passwords and tokens are left out; keys and values are not, as far as they
    /// are shown: a text or a value is cut after 512 bytes. A file is appended to; a new one only its owner can read.
    #[arg(long, global = true, value_name = "FILE", num_args = 0..=1, require_equals = true, hide_short_help = true, help_heading = "Output")]
    pub trace: Option<Option<PathBuf>>,
}

/// What the output shall look like, as typed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct DisplayArgs {
    /// The shape of the output (see `mqkv help formats`)
    #[arg(short, long, global = true, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,
    /// Short for --output json
    #[arg(short, long, global = true, conflicts_with = "output")]
    pub json: bool,
    /// No words about what was done or not done; errors stay
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more: versions beside values
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Whether to use colour [default: auto]
    #[arg(long, global = true, value_name = "WHEN", hide_short_help = true)]
    pub color: Option<ColorWhen>,
}

/// The shapes that output can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text on a terminal, bare values and lines in a pipe
    Auto,
    /// For people: escaped, and in words
    Text,
    /// Exact bytes, no line feed
    Raw,
    /// Hexadecimal digits
    Hex,
    /// Base64
    Base64,
    /// One JSON object
    Json,
    /// JSON objects, one a line
    Jsonl,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal that takes it
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_stand_before_or_after_the_verb() {
        let before = Cli::try_parse_from(["mqkv", "-p", "1884", "-j", "get", "k"]).unwrap();
        let after = Cli::try_parse_from(["mqkv", "get", "k", "-p", "1884", "-j"]).unwrap();
        for cli in [before, after] {
            assert_eq!(cli.options.connection.port, Some(1884));
            assert!(cli.options.display.json);
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
