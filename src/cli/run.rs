//! One run: parse, resolve the configuration, run the verb, report, exit.

use std::cell::RefCell;
use std::ffi::OsString;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;

use super::args::{Cli, Verb, definition};
use super::completion::answer;
use super::config::Configuration;
use super::config::setting::{is_on, value};
use super::config::value::EmbeddedStore;
use super::config::variables::Variables;
use super::connection::{Connection, Process};
use super::context::args::ContextVerb;
use super::context::config::{self, ConfigVerb};
use super::context::{self, Done};
use super::habits::{LockAtHost, check_embedded_folder, check_lock_key, hint_of_number, warning_of_memory};
use super::help::show;
use super::options::{ConnectionArgs, DisplayArgs, Options};
use super::parse_error::{self, Instead};
use super::report::{self, Reporter};
use super::serve::args::ServeArgs;
use super::serve::configuration::Completed;
use super::session::{guarded, session};
use super::signals::{self, EndSignals};
use super::store::args::StoreArgs;
use super::trace::{self, Tracing};
use super::{data, environment, exchange, generate, pager, prompt, runtime, serve, store};
use crate::client::Access;
use crate::commands::process::signal::{exit_of, signal_of};
use crate::commands::process::stdin;
use crate::commands::{Command, CommandError, Exit, Hint, Kind, Session};
use crate::platform::{adopt_orphans, hold_hangup, release_hangup};
use crate::render::Record;

/// Runs the command line that `words` contain; the first word is the program.
pub fn run(words: &[OsString]) -> Exit {
    if let [_, verb, arguments @ ..] = words
        && verb == answer::VERB
    {
        let mut reporter = Reporter::new(environment::style(&Configuration::default().settings, false));
        let result = complete(arguments, &mut reporter);
        return end(result, &mut reporter);
    }
    if words.iter().any(|word| word == "serve" || word == "store") {
        hold_hangup();
    }
    let completed = match serve::configuration::complete(words) {
        Ok(completed) => completed,
        Err(error) => return end(Err(error), &mut reporter_of_usage(words)),
    };
    let words = completed.as_ref().map_or(words, |completed| &completed.words);
    let (mut reporter, result) = match Cli::parse_words(words) {
        Ok(cli) => run_parsed(cli, words),
        Err(error) => {
            let mut reporter = reporter_of_usage(words);
            let instead = match (parse_error::explain(error, words), &completed) {
                (Instead::Fail(error), Some(Completed { file, .. })) => {
                    Instead::Fail(error.cause(format!("with the options of {}", file.display())))
                }
                (instead, _) => instead,
            };
            let result = show_or_fail(instead, words, &mut reporter);
            (reporter, result)
        }
    };
    end(result, &mut reporter)
}

/// Returns the reporter for the errors of a command line that cannot be parsed.
fn reporter_of_usage(words: &[OsString]) -> Reporter {
    let json = parse_error::wants_json(words);
    let typed = Configuration::typed(&DisplayArgs { json, ..DisplayArgs::default() });
    Reporter::new(environment::style(&typed.settings, false))
}

/// Answers a completion script; no command line is parsed for it.
fn complete(arguments: &[OsString], reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let answer = answer::answer(arguments, &environment::variables())?;
    reporter.data(&answer)?;
    Ok(Exit::Yes)
}

fn run_parsed(cli: Cli, words: &[OsString]) -> (Reporter, Result<Exit, CommandError>) {
    let (habit, number) = (LockAtHost::of(&cli, words), hint_of_number(&cli, words));
    let is_json = matches!(&cli.verb, Some(Verb::Command(command)) if command.is_json());
    let variables = environment::variables();
    match configuration(&cli, &variables) {
        Ok(configuration) => {
            let mut reporter = Reporter::new(environment::style(&configuration.settings, is_json));
            reporter.warn_of_names(&variables.mistyped());
            configuration.context.iter().for_each(|context| reporter.warn_of_settings(&context.file));
            let checked = habit.as_ref().map_or(Ok(()), LockAtHost::check);
            let checked = checked.and_then(|()| check_lock_key(&cli, words));
            let checked = checked.and_then(|()| check_embedded_folder(&cli, words));
            let result =
                checked.and_then(|()| run_verb(cli, words, &configuration, &variables, &mut reporter));
            let result = match &habit {
                Some(habit) => result.map_err(|error| habit.explain(error)),
                None => result,
            };
            let result = result.map_err(|error| match number {
                Some(hint) if error.kind == Kind::Unavailable => error.hint(hint),
                _ => error,
            });
            (reporter, result)
        }
        Err(error) => {
            // The output options hold for this error too, as far as they are valid.
            let display = Configuration::of_display(&cli.options.display, &variables);
            let display = display.unwrap_or_else(|_| Configuration::typed(&cli.options.display));
            (Reporter::new(environment::style(&display.settings, is_json)), Err(error))
        }
    }
}

/// Resolves as much of the configuration as the verb needs: help works with an invalid configuration, and a verb that
/// does not connect reads no configuration file.
fn configuration(cli: &Cli, variables: &Variables) -> Result<Configuration, CommandError> {
    let Options { connection, display, .. } = &cli.options;
    match &cli.verb {
        None if !environment::is_at_terminal() && !stdin::has_content() => Ok(Configuration::typed(display)),
        Some(Verb::Help(_) | Verb::Completions(_) | Verb::Man(_)) => Ok(Configuration::typed(display)),
        Some(Verb::Serve(_) | Verb::Data(_) | Verb::Context(_)) => {
            Configuration::of_display(display, variables)
        }
        Some(Verb::Store(args)) if args.action.is_some() => Configuration::of_display(display, variables),
        Some(Verb::Config(args)) if matches!(args.verb, ConfigVerb::Path) => {
            Configuration::of_display(display, variables)
        }
        Some(Verb::Command(command)) if command.is_offline() => Configuration::of_display(display, variables),
        _ => Configuration::resolve(connection, display, variables),
    }
}

fn end(result: Result<Exit, CommandError>, reporter: &mut Reporter) -> Exit {
    match result {
        _ if reporter.has_broken_pipe() => Exit::Yes,
        Ok(exit) => exit,
        Err(error) => {
            let exit = reporter.error(&error);
            if let Some(signal) = signal_of(error.kind) {
                signal.take_effect();
            }
            exit
        }
    }
}

fn run_verb(
    cli: Cli,
    words: &[OsString],
    configuration: &Configuration,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let Cli { verb, options } = cli;
    let is_server = match &verb {
        Some(Verb::Serve(args)) => args.action.is_none() && !args.exchange.leave_exchange,
        Some(Verb::Store(args)) => args.action.is_none(),
        _ => false,
    };
    if !is_server {
        release_hangup();
    }
    let verb = match verb {
        Some(verb) => verb,
        None if environment::is_at_terminal() => return prompt::run(options, variables, reporter),
        None if stdin::has_content() => Verb::Command(prompt::line("batch -")?),
        None => return Err(CommandError::usage("a verb is missing").hint("mqkv help")),
    };
    let trace = options.connection.trace.clone();
    let trace = trace.as_ref();
    match verb {
        Verb::Shell(_) if stdin::is_terminal() => {
            return prompt::run(options, variables, reporter);
        }
        Verb::Shell(_) => {
            let batch = prompt::line("batch -")?;
            return run_command(batch, configuration, options.force_write, trace, reporter);
        }
        Verb::Command(Command::Exchange(ref args)) if let Some(check) = args.check() => {
            return exchange::check::run(check, reporter);
        }
        Verb::Command(Command::Doctor(ref args)) if let Some(etcd) = args.etcd() => {
            if options.connection.broker.is_some() || options.connection.hostname.is_some() {
                let error = CommandError::usage("doctor --etcd checks etcd, not a broker");
                return Err(error.hint("run mqkv doctor twice: once with --etcd, once with -b"));
            }
            return store::doctor(etcd, args.is_read_only(), variables, reporter);
        }
        Verb::Command(command) => {
            let warns = value(&configuration.settings.embedded) == Some(&EmbeddedStore::Memory)
                && report::takes_warnings(&reporter.style());
            let warning = warns.then(|| warning_of_memory(&command, words)).flatten();
            let result = run_command(command, configuration, options.force_write, trace, reporter);
            if result.is_ok() {
                warning.iter().for_each(|warning| report::log(warning));
            }
            return result;
        }
        Verb::Serve(mut args) => {
            let excludes_etcd = args.excludes_etcd();
            args.cluster.complete(variables, excludes_etcd)?;
            return run_serve(&args, configuration, &options.display, reporter);
        }
        Verb::Store(mut args) => {
            if let Some(action) = &args.action {
                return store::run_action(action, variables, reporter);
            }
            args.cluster.complete(variables, args.data.data.is_some())?;
            return run_store(&args, configuration, &options.display, reporter);
        }
        Verb::Data(args) => {
            return data::run(&args, reporter);
        }
        Verb::Context(args) => return run_context(&args.verb, options, variables, reporter),
        Verb::Config(args) => {
            let record = match args.verb {
                ConfigVerb::Path => config::path(&options.connection, variables)?,
                ConfigVerb::Show { origin } => config::show(configuration, origin)?,
            };
            reporter.put(&record)?;
        }
        Verb::Completions(args) => reporter.data(&generate::completions(&args)?)?,
        Verb::Man(args) => match args.verbs() {
            Some(verbs) if environment::is_at_terminal() => {
                let screen = environment::screen(reporter.has_color());
                let text = show::text(&verbs, &definition(), screen)?;
                pager::show(&text, reporter)?;
            }
            _ => reporter.data(&generate::man(&args)?)?,
        },
        Verb::Help(args) => {
            let text = show::text(&args.names, &definition(), environment::screen(reporter.has_color()))?;
            pager::show(&text, reporter)?;
        }
    }
    Ok(Exit::Yes)
}

fn run_serve(
    args: &ServeArgs,
    configuration: &Configuration,
    display: &DisplayArgs,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let settings = &configuration.settings;
    let (quiet, verbose) = (is_on(&settings.quiet), is_on(&settings.verbose));
    let display = DisplayArgs { quiet, verbose, ..display.clone() };
    if let Some(action) = &args.action {
        return serve::user::run(action, reporter);
    }
    if args.exchange.leave_exchange
        && let Some(directory) = &args.data.data
    {
        return serve::exchange::leave(directory, reporter);
    }
    serve::run(args, &display, reporter.style())
}

/// The client id of a store behind another broker; in a cluster, the name of the instance follows.
const STORE_CLIENT_ID: &str = "mqkv-store";

fn run_store(
    args: &StoreArgs,
    configuration: &Configuration,
    display: &DisplayArgs,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let settings = &configuration.settings;
    // One client id: the broker ends the session of an earlier store.
    let process = Process { client_id: || STORE_CLIENT_ID.to_owned(), ..environment::process() };
    let mut connection = Connection::of(settings, process)?;
    if args.cluster.describe().is_some() && connection.client_id == STORE_CLIENT_ID {
        connection.client_id = format!("{STORE_CLIENT_ID}-{}", args.cluster.instance());
    }
    let (quiet, verbose) = (is_on(&settings.quiet), is_on(&settings.verbose));
    let display = DisplayArgs { quiet, verbose, ..display.clone() };
    store::run(args, &connection, &display, reporter.style())
}

fn run_context(
    verb: &ContextVerb,
    options: Options,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    match context::run(verb, &options.connection, variables)? {
        Done::Record(record, hint, exit) => {
            reporter.put(&record)?;
            if let Some(hint) = hint {
                reporter.put(&Hint(hint))?;
            }
            Ok(exit)
        }
        Done::Test(name) => {
            let context = name.or(options.connection.context.clone());
            let connection = ConnectionArgs { context, ..options.connection };
            let configuration = Configuration::resolve(&connection, &options.display, variables)?;
            let trace = connection.trace.as_ref();
            run_command(prompt::line("ping")?, &configuration, false, trace, reporter)
        }
    }
}

/// Destination of a trace, if there is one: a file, or standard error.
type Trace<'a> = Option<&'a Option<PathBuf>>;

fn run_command(
    command: Command,
    configuration: &Configuration,
    is_forced: bool,
    trace: Trace<'_>,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let connection = match command.is_offline() {
        true => None,
        false => Some(Connection::of(&configuration.settings, environment::process())?),
    };
    let tracing = match &connection {
        Some(_) => Tracing::start(trace, &reporter.style())?,
        None => None,
    };
    if matches!(command, Command::Lock(_)) {
        adopt_orphans();
    }
    let minds_signals = command.handles_signals();
    let is_write = command.access() == Access::Write && !minds_signals;
    let has_to_end = connection.as_ref().is_some_and(Connection::has_to_end);
    let signals =
        if minds_signals { EndSignals::default() } else { EndSignals::of(command.access(), has_to_end) };
    let retries = connection.as_ref().map_or(0, |connection| connection.connect_retries);
    let tracer = match &tracing {
        Some(tracing) => Some(tracing.tracer.clone()),
        None => trace::attempts(retries, &reporter.style()),
    };
    let (session, embedded) = session(connection, tracer, signals.clone(), reporter.style());
    let session = guarded(session, configuration, is_forced);
    // One thread is enough for a verb that waits for the network. Where a slow reader of the output can block this
    // thread, a second one keeps the session alive and handles the signals.
    let has_driver = command.is_lasting() || signals.has_handler();
    runtime::block_on(has_driver, async {
        let many = command.is_bulk();
        if many {
            // Lines of a trace on standard error would overwrite the progress bar.
            reporter.hold(environment::shows_progress() && trace != Some(&None));
        }
        let result = {
            let mut run = pin!(run_and_flush(command, &session, reporter));
            tokio::select! {
                biased;
                result = &mut run => result,
                signal = signals.next(), if is_write => {
                    // Pending requests fail, so that the verb ends and reports what is known of them.
                    let (result, ()) = tokio::join!(run, session.cancel());
                    signals::interrupted_result(signal, many, result)
                }
                signal = signals.next(), if !minds_signals => Ok(exit_of(signal)),
            }
        };
        session.close().await;
        embedded.stop().await;
        if let Some(tracing) = &tracing {
            tracing.finish();
        }
        result
    })?
}

/// Runs a verb; writes its held-back output whenever it waits.
async fn run_and_flush(
    command: Command,
    session: &Session,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let reporter = RefCell::new(reporter);
    let mut emit = |record: &dyn Record| reporter.borrow_mut().put(record);
    let mut run = pin!(command.run(session, &mut emit));
    let run_and_flush_at_each_wait = poll_fn(|context| {
        let poll = run.as_mut().poll(context);
        match reporter.borrow_mut().flush() {
            Ok(()) => poll,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    });
    let result = run_and_flush_at_each_wait.await;
    reporter.borrow_mut().clear();
    result
}

fn show_or_fail(instead: Instead, words: &[OsString], reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let text = match instead {
        Instead::Fail(error) => return Err(error),
        Instead::Help => {
            let words = words.get(1..).unwrap_or_default();
            show::requested(words, &definition(), environment::screen(reporter.has_color()))
        }
        Instead::Version(text) => text,
    };
    pager::show(&text, reporter)?;
    Ok(Exit::Yes)
}
