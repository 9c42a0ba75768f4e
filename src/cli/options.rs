//! Options that several verbs share: connection and output; accepted before and after the verb.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, Error, ValueEnum, ValueHint};

use crate::commands::args::kind::{KUBE, ValueKind};
use crate::commands::duration;
use crate::commands::number::number;

/// Options of the verbs that connect to a broker or work with the settings of connections.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Write although the context is read-only
    #[arg(long, help_heading = CONNECTION)]
    pub force_write: bool,
    #[command(flatten)]
    pub display: DisplayArgs,
}

/// Headings of the shared options.
pub const CONNECTION: &str = "Connection options";
pub const OUTPUT: &str = "Output options";

/// The broker and the way to connect to it, as typed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = CONNECTION)]
pub struct ConnectionArgs {
    /// Broker URL [default: mqtt://localhost:1883]
    ///
    /// mqtt://HOST[:1883], mqtts://HOST[:8883] for TLS, ws:// or wss://HOST[:PORT][/PATH] for WebSockets. HOST[:PORT] alone
    /// is mqtt://.
    ///
    /// kube: is the broker of Azure IoT Operations in the current context of kubectl, which forwards a port and gets CA and
    /// token. The form is kube://CONTEXT[/NAMESPACE[/SERVICE[:PORT]]], with ?serviceaccount=NAME at the end for another account.
    #[arg(short, long, value_name = "URL", add = KUBE, conflicts_with_all = ["hostname", "port", "embedded"])]
    pub broker: Option<String>,
    /// Host name of the broker; implies TLS and port 8883
    #[arg(short = 'n', long, visible_alias = "host", value_name = "HOST", conflicts_with = "embedded")]
    pub hostname: Option<String>,
    /// Port of the broker
    #[arg(short, long, value_name = "N", conflicts_with = "embedded", value_parser = number(1..=u16::MAX))]
    pub port: Option<u16>,
    /// Plain MQTT without TLS
    #[arg(long, visible_alias = "no-tls")]
    pub notls: bool,
    /// Trusted CA certificates, PEM [default: the system's]
    #[arg(short = 'T', long, value_name = "FILE")]
    pub cafile: Option<PathBuf>,
    /// Client certificate with its chain, PEM
    #[arg(short = 'C', long, value_name = "FILE")]
    pub certfile: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(short = 'K', long, value_name = "FILE")]
    pub keyfile: Option<PathBuf>,
    /// File that contains the password of the private key
    #[arg(short = 'P', long, value_name = "FILE")]
    pub keypasswordfile: Option<PathBuf>,
    /// Name in the broker's certificate [default: the host]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Accept any broker certificate
    ///
    /// An attacker can then read and change everything.
    #[arg(long)]
    pub insecure: bool,
    /// User name
    #[arg(short, long, value_name = "NAME")]
    pub username: Option<String>,
    /// File whose first line is the password
    ///
    /// - reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "ask_password")]
    pub password_file: Option<PathBuf>,
    /// Ask for the password on the terminal
    #[arg(long)]
    pub ask_password: bool,
    /// File with a Kubernetes service account token
    ///
    /// It is read at each connection attempt.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["username", "password_file", "ask_password"])]
    pub sat_file: Option<PathBuf>,
    /// Use a store inside this process
    ///
    /// The data is in DIR. Without DIR the data is in memory and lost at exit.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, num_args = 0..=1, require_equals = true)]
    pub embedded: Option<Option<PathBuf>>,
    /// MQTT client id [default: mqkv-HOST-RANDOM]
    #[arg(short = 'i', long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Time to wait for each answer [default: 10s]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
    /// Time to wait for the connection [default: 5s]
    ///
    /// A shorter --timeout is the default.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub connect_timeout: Option<Duration>,
    /// Number of further connection attempts [default: 0]
    ///
    /// They are made if the first connection fails. A failed authentication is not retried.
    #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX))]
    pub retries: Option<u32>,
    /// MQTT keep-alive interval [default: 10s]
    ///
    /// Whole seconds. The connection counts as lost after 1.5 times this interval without a packet from the broker.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_keep_alive)]
    pub keep_alive: Option<Duration>,
    /// Send nothing before the broker has accepted the client
    ///
    /// Otherwise a read is sent together with CONNECT, which saves a round trip. If a broker drops or rejects it, it is sent again after
    /// the CONNACK; `mqkv doctor` reports such a broker.
    #[arg(long)]
    pub cautious: bool,
    /// Context to use
    ///
    /// A context is a broker with credentials and more under one name; see `mqkv help config`.
    #[arg(short = 'x', long, value_name = "CONTEXT", add = ValueKind::Context, conflicts_with = "no_context")]
    pub context: Option<String>,
    /// Use no context, not even the default
    #[arg(long)]
    pub no_context: bool,
    /// Configuration file [default: see `mqkv config path`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every MQTT packet on standard error
    ///
    /// With FILE, append it there. One decoded packet per line with its time in UTC; JSON with -j. A new file is readable by its owner only.
    ///
    /// Passwords and tokens are omitted. Keys and values are printed, at most 512 bytes of each.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, help_heading = OUTPUT)]
    pub trace: Option<Option<PathBuf>>,
}

/// The form of the output, as typed.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct DisplayArgs {
    /// Output format
    ///
    /// See `mqkv help formats`.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,
    /// Same as --output json
    #[arg(short, long, conflicts_with = "output")]
    pub json: bool,
    /// Print failures only, no negative answers
    ///
    /// A negative answer, such as a missing key, is the exit status 1 alone.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print more details, such as versions
    #[arg(short, long)]
    pub verbose: bool,
    /// When to use color [default: auto]
    #[arg(long, value_name = "WHEN")]
    pub color: Option<ColorWhen>,
    /// Show times on a terminal in UTC
    ///
    /// Without it they are local times. In pipes and files they are always UTC.
    #[arg(long)]
    pub utc: bool,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text on a terminal, bare values and lines in a pipe
    Auto,
    /// Escaped text for people
    Text,
    /// Exact bytes, no line feed
    Raw,
    /// Hexadecimal digits
    Hex,
    /// Base64
    Base64,
    /// One JSON object
    Json,
    /// One JSON object per line
    Jsonl,
}

/// When to use color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal that supports it
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Options that can stand on several levels of a command line: `mqkv -b URL context -j add NAME`.
///
/// They are arguments of every level instead of global arguments of clap, because clap would then accept and list them
/// for all verbs, including those that do not connect.
pub trait Shared: Args {
    /// Returns these options, completed by those of a level before them on the command line.
    #[must_use]
    fn or(self, before: Self) -> Self;
}

impl Shared for Options {
    fn or(self, before: Self) -> Self {
        Self {
            connection: self.connection.or(before.connection),
            force_write: self.force_write || before.force_write,
            display: self.display.or(before.display),
        }
    }
}

impl Shared for ConnectionArgs {
    fn or(self, before: Self) -> Self {
        Self {
            broker: self.broker.or(before.broker),
            hostname: self.hostname.or(before.hostname),
            port: self.port.or(before.port),
            notls: self.notls || before.notls,
            cafile: self.cafile.or(before.cafile),
            certfile: self.certfile.or(before.certfile),
            keyfile: self.keyfile.or(before.keyfile),
            keypasswordfile: self.keypasswordfile.or(before.keypasswordfile),
            server_name: self.server_name.or(before.server_name),
            insecure: self.insecure || before.insecure,
            username: self.username.or(before.username),
            password_file: self.password_file.or(before.password_file),
            ask_password: self.ask_password || before.ask_password,
            sat_file: self.sat_file.or(before.sat_file),
            embedded: self.embedded.or(before.embedded),
            client_id: self.client_id.or(before.client_id),
            timeout: self.timeout.or(before.timeout),
            connect_timeout: self.connect_timeout.or(before.connect_timeout),
            retries: self.retries.or(before.retries),
            keep_alive: self.keep_alive.or(before.keep_alive),
            cautious: self.cautious || before.cautious,
            context: self.context.or(before.context),
            no_context: self.no_context || before.no_context,
            config: self.config.or(before.config),
            trace: self.trace.or(before.trace),
        }
    }
}

impl Shared for DisplayArgs {
    fn or(self, before: Self) -> Self {
        Self {
            output: self.output.or(before.output),
            json: self.json || before.json,
            quiet: self.quiet || before.quiet,
            verbose: self.verbose || before.verbose,
            color: self.color.or(before.color),
            utc: self.utc || before.utc,
        }
    }
}

/// Adds the options to a command and to all commands below it.
pub fn add_to<O: Shared>(command: Command) -> Command {
    add_to_both::<O, O>(command)
}

/// Adds the options `O` to a command, and `Below` to all commands below it.
pub fn add_to_both<O: Shared, Below: Shared>(command: Command) -> Command {
    let (about, long_about) = (command.get_about().cloned(), command.get_long_about().cloned());
    // The options bring a description of their own.
    let command = O::augment_args(command).about(Resettable::from(about));
    let command = command.long_about(Resettable::from(long_about));
    command.mut_subcommands(|below| below.defer(add_to::<Below>))
}

/// Collects the options of a level and of all levels below it. Where two levels set one option, the lower one wins.
///
/// # Errors
/// The levels are not those of a command that [`add_to`] has changed.
pub fn collect<O: Shared>(matches: &ArgMatches) -> Result<O, Error> {
    let mut options = O::from_arg_matches(matches)?;
    let mut level = matches;
    while let Some((_, below)) = level.subcommand() {
        options = O::from_arg_matches(below)?.or(options);
        level = below;
    }
    Ok(options)
}

/// Returns whether a command, which must have been built, has the options of connections.
#[must_use]
pub fn has_connection(command: &Command) -> bool {
    command.get_arguments().any(|option| option.get_help_heading() == Some(CONNECTION))
}

/// Returns the identifiers of the options.
#[must_use]
pub fn ids<O: Args>() -> Vec<String> {
    let options = O::augment_args(Command::new("options"));
    options.get_arguments().map(|arg| arg.get_id().to_string()).collect()
}
