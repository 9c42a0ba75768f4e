//! `shell`: runs the prompt with the definition of the command line, connections and the streams of the process.

use std::ffi::OsString;
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command as Definition, CommandFactory, FromArgMatches};

use super::args::{self, Cli, Verb};
use super::config::variables::Variables;
use super::config::{Configuration, context_names};
use super::connection::{Connection, Endpoint, Login};
use super::help::show;
use super::kube::url::KubeUrl;
use super::options::{self, ConnectionArgs, Options, OutputFormat};
use super::report::{self, Reporter};
use super::session::{guarded, session};
use super::trace::Tracing;
use super::{pager, runtime};
use crate::cli::environment;
use crate::cli::signals::EndSignals;
use crate::client::{Authentication, Tracer};
use crate::commands::grammar::{Grammar, arguments};
use crate::commands::lines::words::Word;
use crate::commands::{Command, CommandError, Exit, trace, usage_error};
use crate::render::Style;
use crate::render::escape::escape;
use crate::shell::{
    self, ActiveContext, CloseFuture, OpenedSession, ParsedLine, Setup, Streams, TraceOutput,
};

/// Parses a line that is written in this program.
pub fn line(line: &str) -> Result<Command, CommandError> {
    let words = line.split(' ').map(|word| Word { bytes: word.into(), is_quoted: false });
    Grammar::default().parse(words.collect())
}

/// Runs the verb.
///
/// # Errors
/// Standard output is not a terminal, or the broker is unavailable.
pub fn run(options: Options, variables: &Variables, reporter: &Reporter) -> Result<Exit, CommandError> {
    if !environment::is_at_terminal() {
        return Err(CommandError::usage("the prompt requires that standard output is a terminal")
            .hint("mqkv batch FILE"));
    }
    let style = reporter.style();
    let trace_output = TraceOutput::new(report::put_words, style.color_stderr);
    let to_file = match &options.connection.trace {
        Some(Some(path)) => Some(Tracing::to_file(path, &style)?),
        _ => None,
    };
    let tracer = match &to_file {
        Some(to_file) => to_file.tracer.clone(),
        None => {
            let (output, is_on) = (trace_output.clone(), options.connection.trace.is_some());
            Tracer::new(is_on, move |traced, at_ms| output.print(trace::line(traced, at_ms, &style)))
        }
    };
    let connection_tracer = tracer.clone();
    let is_auto = Configuration::resolve(&options.connection, &options.display, variables)
        .is_ok_and(|configuration| environment::is_auto(&configuration.settings));
    let (named, named_with) = (options.connection.clone(), variables.clone());
    let opened_with = variables.clone();
    let setup = Setup {
        definition: definition(),
        parse: Box::new(parse),
        open: Box::new(move |destination| {
            open(&options, &opened_with, &connection_tracer, style, destination)
        }),
        contexts: Arc::new(move || context_names(&named, &named_with)),
        streams: Streams { data: report::put_data, words: report::put_words },
        style,
        is_auto,
        history: environment::history_path(),
        login_shell: environment::login_shell(),
        pager: |text| pager::command_for(text).map(OsString::into_encoded_bytes),
        tracer,
        trace_output,
    };
    // A second thread keeps the session alive while this one waits for input.
    let runtime = runtime::start()?;
    let exit = runtime.handle().block_on(shell::run(setup));
    // Does not wait for commands of the system that still run.
    drop(runtime);
    if let Some(to_file) = to_file {
        to_file.finish();
    }
    exit
}

/// Opens a session with the broker of the command line, of a URL or of a context.
fn open(
    options: &Options,
    variables: &Variables,
    tracer: &Tracer,
    style: Style,
    destination: Option<&str>,
) -> Result<OpenedSession, CommandError> {
    let contexts = || context_names(&options.connection, variables);
    let is_url = |word: &str| is_url(word, &contexts());
    let args = match destination {
        None => options.connection.clone(),
        Some(url) if is_url(url) => to_url(&options.connection, url)?,
        Some(context) => to_context(&options.connection, context),
    };
    let configuration = Configuration::resolve(&args, &options.display, variables);
    let configuration = configuration.map_err(|error| of_destination(error, &contexts()))?;
    let mut connection = Connection::of(&configuration.settings, environment::process())?;
    if destination.is_some_and(is_url) {
        let configured = contexts().into_iter().map(|name| to_context(&options.connection, &name));
        let configured = std::iter::once(options.connection.clone()).chain(configured).filter_map(|args| {
            let configuration = Configuration::resolve(&args, &options.display, variables).ok()?;
            Connection::of(&configuration.settings, environment::process()).ok()
        });
        connection.login = login_at(&connection, configured);
    }
    let url = connection.endpoint.url();
    let (broker, about) = match &connection.endpoint {
        Endpoint::Network { .. } => {
            let place = match &connection.endpoint {
                Endpoint::Network { kube: Some(kube), .. } => kube.url.to_string(),
                endpoint => endpoint.address().unwrap_or_default(),
            };
            (place.clone(), format!("connected to {}", escape(place.as_bytes())))
        }
        Endpoint::Embedded { data: None } => {
            ("embedded".to_owned(), "embedded store in memory: its data is lost at exit".to_owned())
        }
        Endpoint::Embedded { data: Some(folder) } => {
            let folder = escape(folder.as_os_str().as_encoded_bytes());
            ("embedded".to_owned(), format!("embedded store in {folder}"))
        }
    };
    let is_transient = matches!(connection.endpoint, Endpoint::Embedded { data: None });
    // The prompt handles the signals itself.
    let (session, embedded) = session(Some(connection), Some(tracer.clone()), EndSignals::default(), style);
    // --force-write on the command line applies to the broker of the command line only.
    let session = guarded(session, &configuration, options.force_write && destination.is_none());
    // Standard input belongs to the prompt.
    session.close_input();
    let context = configuration.context.as_ref().map(|context| ActiveContext {
        name: context.name.to_string(),
        shade: context.shade,
        is_read_only: configuration.read_only().is_some(),
    });
    let close = Box::new(move || -> CloseFuture { Box::pin(embedded.stop()) });
    Ok(OpenedSession { session, broker, context, about, url, is_transient, close })
}

/// Returns whether the argument of `\c` is a URL or a host, not a context. A host without a port is one with a dot, or `localhost`: any
/// other word can be a mistyped context.
fn is_url(word: &str, contexts: &[String]) -> bool {
    let may_be_host = word.contains([':', '.']) || word == "localhost";
    word.contains("://") || (may_be_host && !contexts.iter().any(|name| name == word))
}

/// Adapts the hints of an error about the argument of `\c`.
fn of_destination(error: CommandError, contexts: &[String]) -> CommandError {
    let here = |hint: String| if contexts.contains(&hint) { format!("\\c {hint}") } else { hint };
    CommandError { hints: error.hints.into_iter().map(here).collect(), ..error }
}

/// Returns the credentials for a URL. If it has a user but no password, those of a configured connection to the same broker
/// with the same user are used; without one, the password is asked for.
fn login_at(connection: &Connection, mut configured: impl Iterator<Item = Connection>) -> Login {
    let Login::Known(Authentication::Password { username, password: None }) = &connection.login else {
        return connection.login.clone();
    };
    let has_password = |login: &Login| match login {
        Login::Known(Authentication::Password { username: user, password: Some(_) }) => user == username,
        _ => false,
    };
    let same = configured
        .find(|other| other.endpoint.url() == connection.endpoint.url() && has_password(&other.login));
    same.map_or_else(|| Login::Ask { username: username.clone() }, |same| same.login)
}

/// Returns the options with another broker, without the context and credentials of the old one.
///
/// # Errors
/// The URL contains a password.
fn to_url(args: &ConnectionArgs, url: &str) -> Result<ConnectionArgs, CommandError> {
    let to = |url: String| ConnectionArgs { broker: Some(url), no_context: true, ..without_broker(args) };
    if KubeUrl::parse(url)?.is_some() {
        return Ok(to(url.to_owned()));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("mqtt", url));
    if rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        let message = "a password in the URL is not accepted: it stays on the screen";
        return Err(
            CommandError::usage(message).hint(format!("\\c {scheme}://USER@HOST asks for the password"))
        );
    }
    Ok(to(format!("{scheme}://{rest}")))
}

/// Returns the options for a context: those of the command line that do not depend on the broker.
fn to_context(args: &ConnectionArgs, context: &str) -> ConnectionArgs {
    ConnectionArgs {
        context: Some(context.to_owned()),
        no_context: false,
        cafile: None,
        certfile: None,
        keyfile: None,
        keypasswordfile: None,
        server_name: None,
        insecure: false,
        ..without_broker(args)
    }
}

/// Returns the options without the broker, its context and its credentials.
fn without_broker(args: &ConnectionArgs) -> ConnectionArgs {
    ConnectionArgs {
        broker: None,
        hostname: None,
        port: None,
        embedded: None,
        notls: false,
        username: None,
        password_file: None,
        ask_password: false,
        sat_file: None,
        context: None,
        ..args.clone()
    }
}

fn parse(mut words: Vec<Word>, style: Style) -> Result<ParsedLine, CommandError> {
    if words.first().is_some_and(|verb| verb.bytes.eq_ignore_ascii_case(b"help")) {
        // The names after `help` are accepted in any case too.
        words.iter_mut().for_each(|word| word.bytes.make_ascii_lowercase());
    }
    let words = arguments(words);
    let verb = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let mut definer = Cli::command().no_binary_name(true);
    let matches = match definer.try_get_matches_from_mut(&words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let help = show::requested(&words, &args::definition(), environment::prompt_screen());
            return Ok(ParsedLine::Show(help));
        }
        Err(error) if error.kind() == ErrorKind::DisplayVersion => {
            return Ok(ParsedLine::Show(error.render().to_string()));
        }
        Err(error) => {
            let known = definer.find_subcommand(&verb).is_some();
            let help = if known { format!("help {verb}") } else { "\\? lists the commands".to_owned() };
            let context =
                usage_error::Context { program: "", is_first_level: !known, is_available, words: &words };
            let mut failure = usage_error::explain(&error, &context);
            if let Some(habit) = habit(&verb) {
                failure.hints = vec![habit.to_owned()];
            }
            return Err(if known || failure.hints.is_empty() { failure.hint(help) } else { failure });
        }
    };
    refuse_connection(&matches)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| {
        let context =
            usage_error::Context { program: "", is_first_level: false, is_available, words: &words };
        usage_error::explain(&error, &context)
    })?;
    let display = &cli.options.display;
    let is_formatted = display.json || display.output.is_some_and(|output| output != OutputFormat::Auto);
    let is_json = matches!(&cli.verb, Some(Verb::Command(command)) if command.is_json());
    let is_formatted = is_formatted || is_json;
    let style = Style {
        format: if is_formatted {
            environment::style(&Configuration::typed(display).settings, is_json).format
        } else {
            style.format
        },
        verbose: style.verbose || display.verbose,
        quiet: style.quiet || display.quiet,
        ..style
    };
    match cli.verb {
        Some(Verb::Command(command)) => {
            let is_forced = cli.options.force_write;
            Ok(ParsedLine::Run { command: Box::new(command), style, is_formatted, is_forced })
        }
        Some(Verb::Help(args)) if args.names.is_empty() => Ok(ParsedLine::Help),
        Some(Verb::Help(args)) => {
            show::text(&args.names, &args::definition(), environment::prompt_screen()).map(ParsedLine::Show)
        }
        Some(Verb::Shell(_)) => Err(CommandError::usage("the prompt is running already").hint("\\?")),
        Some(
            Verb::Serve(_)
            | Verb::Store(_)
            | Verb::Data(_)
            | Verb::Completions(_)
            | Verb::Man(_)
            | Verb::Context(_)
            | Verb::Config(_),
        ) => Err(CommandError::usage(format!("{verb} is not available at the prompt"))
            .hint(format!("\\! mqkv {verb}"))),
        None => Err(CommandError::usage("a verb is missing").hint("\\?")),
    }
}

/// Rejects connection options: the session is open.
fn refuse_connection(matches: &ArgMatches) -> Result<(), CommandError> {
    let names = options::ids::<ConnectionArgs>();
    let mut matches = Some(matches);
    while let Some(level) = matches {
        for id in level.ids().filter(|id| names.iter().any(|name| name == id.as_str())) {
            if level.value_source(id.as_str()) == Some(ValueSource::CommandLine) {
                let option = id.as_str().replace('_', "-");
                let message = format!("--{option} is not available at the prompt: the session is open");
                let hint = match option.as_str() {
                    "trace" => "\\trace on",
                    context if context.contains("context") => "\\c CONTEXT",
                    _ => "\\c URL",
                };
                return Err(CommandError::usage(message).hint(hint));
            }
        }
        matches = level.subcommand().map(|(_, below)| below);
    }
    Ok(())
}

/// Verbs that the prompt refuses.
const REFUSED: [&str; 8] = ["shell", "serve", "store", "data", "completions", "man", "context", "config"];

fn is_available(verb: &str) -> bool {
    !REFUSED.contains(&verb)
}

/// Returns the definition of a line, for completion and hints: what the prompt refuses is hidden.
fn definition() -> Definition {
    let connection = options::ids::<ConnectionArgs>();
    let definition = args::definition().mut_subcommands(|verb| {
        let is_available = is_available(verb.get_name());
        verb.hide(!is_available)
    });
    hide_options(definition, &connection)
}

fn hide_options(verb: Definition, ids: &[String]) -> Definition {
    let is_hidden = |id: &str| ids.iter().any(|hidden| hidden == id);
    verb.mut_args(|option| if is_hidden(option.get_id().as_str()) { option.hide(true) } else { option })
        .mut_subcommands(|below| hide_options(below, ids))
}

/// Returns the hint for a word that is no verb here: a habit from other prompts, or from the command line.
fn habit(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "quit" | "exit" | "bye" | "logout" | "q" => "\\q",
        "connect" | "use" => "\\c",
        "auth" | "login" => "\\c mqtt://USER@HOST asks for the password",
        "clear" => "Ctrl-L clears the screen",
        "mqkv" => "omit mqkv: a line begins with the verb",
        "unwatch" => "\\unwatch",
        "watches" => "\\watches",
        "locks" => "\\locks",
        "timing" => "\\timing",
        "trace" => "\\trace",
        "conninfo" => "\\conninfo",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lines::words::split;
    use crate::render::Format;

    const STYLE: Style = Style::PLAIN;

    fn meaning(line: &str) -> Result<ParsedLine, CommandError> {
        parse(split(line.as_bytes()).unwrap(), STYLE)
    }

    fn error(line: &str) -> CommandError {
        meaning(line).unwrap_err()
    }

    #[test]
    fn a_line_is_parsed_as_on_the_command_line() {
        let shown = |line| match meaning(line) {
            Ok(ParsedLine::Run { command, .. }) => format!("{command:?}"),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(shown("SET k v NX PX 5000"), shown("set k v --nx --ttl 5s"));
        assert_eq!(shown("set k '-x'"), shown("set k -- -x"), "a quoted word is data");
        let forced = meaning("set k '-v' --force-write");
        assert!(matches!(forced, Ok(ParsedLine::Run { is_forced: true, .. })), "{forced:?}");
        assert!(matches!(meaning("help"), Ok(ParsedLine::Help)));
        assert!(matches!(meaning("help set"), Ok(ParsedLine::Show(text)) if text.contains("--ttl")));
        let is_of_prompt = |text: &str| text.contains("\nOutput options: help options");
        assert!(matches!(meaning("set -h"), Ok(ParsedLine::Show(text)) if is_of_prompt(&text)));
        assert_eq!(error("help lokcs").hints, ["did you mean 'help locks'?", "help"]);
        assert!(matches!(meaning("HELP SET"), Ok(ParsedLine::Show(text)) if text.contains("--ttl")));
        assert!(matches!(meaning("get --help"), Ok(ParsedLine::Show(_))));
    }

    #[test]
    fn a_host_is_distinguished_from_a_context() {
        let is_url = |word| is_url(word, &["a.b".to_owned(), "c:d".to_owned()]);
        for url in ["mqtt://h", "h:1", "localhost", "plant.example", "10.0.0.1", "kube:", "kube://c"] {
            assert!(is_url(url), "{url}");
        }
        for context in ["prod", "a.b", "c:d"] {
            assert!(!is_url(context), "{context}");
        }
    }

    #[test]
    fn a_line_can_select_an_output_format() {
        let of = |line| match meaning(line) {
            Ok(ParsedLine::Run { style, is_formatted, .. }) => (style.format, is_formatted),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(of("get k"), (Format::Text, false));
        assert_eq!(of("get k -j"), (Format::Json, true));
        assert_eq!(of("-o raw get k"), (Format::Raw, true));
    }

    #[test]
    fn lines_that_the_prompt_rejects_get_a_hint() {
        assert_eq!(error("gte k").hints, ["did you mean 'get'?"]);
        assert_eq!(error("QUIT").hints, ["\\q"]);
        assert_eq!(error("exit").hints, ["\\q"]);
        assert_eq!(error("nonsense k").hints, ["\\? lists the commands"]);
        assert_eq!(error("auth secret").hints, ["\\c mqtt://USER@HOST asks for the password"]);
        assert_eq!(error("mqkv get k").hints, ["omit mqkv: a line begins with the verb"]);
        assert_eq!(error("set k v --tll 5s").hints, ["did you mean --ttl?", "help set"]);
        assert_eq!(error("get k -b mqtt://h").hints, ["\\c URL"]);
        assert_eq!(error("get k --timeout 1s").hints, ["\\c URL"]);
        assert_eq!(error("get k --trace").hints, ["\\trace on"]);
        assert_eq!(error("get k -x prod").hints, ["\\c CONTEXT"]);
        assert_eq!(error("serve").hints, ["\\! mqkv serve"]);
    }
}
