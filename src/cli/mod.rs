//! The process edge: parse, settle, run, report, exit.

mod args;
mod broker;
mod config;
mod connection;
mod context;
mod descriptors;
mod detached;
mod embedded;
mod exit;
pub mod generate;
mod help;
mod log;
mod password;
mod permissions;
mod progress;
mod prompt;
mod report;
mod resolve;
mod runtime;
mod serve;
mod short_parse;
mod signals;
mod terminal;
mod trace;
mod usage;

use std::cell::RefCell;
use std::ffi::OsString;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::Poll;

use clap::Parser;
use tokio::time::timeout;

use args::{Cli, ConnectionArgs, DisplayArgs, Options, Verb};
use config::Configuration;
use config::origin::Line;
use config::setting::Setting;
use config::variables::Variables;
use config::verb::ConfigVerb;
use connection::{Connection, Login, Place};
use context::{ContextVerb, Done};
use detached::aside;
use embedded::Embedded;
use exit::Exit;
use report::Reporter;
use serve::ServeArgs;
use signals::Heeded;
use trace::Tracing;
use usage::Instead;

use crate::client::{Access, Authentication, PasswordSource, Settings, Target, Tracer};
use crate::commands::output::Outcome;
use crate::commands::process::signal::Signal;
use crate::commands::{Command, CommandError, Connecting, Kind, Output, Session, Verdict};
use crate::net::{ClientTls, TlsOptions};
use crate::render::escape::escape;
use crate::render::{Format, Style};

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    // The panic itself has been told on standard error by then; what is left is the code.
    let run = AssertUnwindSafe(|| run(&words));
    catch_unwind(run).unwrap_or(Exit::Bug).into()
}

fn run(words: &[OsString]) -> Exit {
    let (mut reporter, result) =
        match short_parse::parse(words).map_or_else(|| Cli::try_parse_from(words), Ok) {
            Ok(cli) => run_typed(cli),
            Err(error) => {
                let typed = Configuration::typed(&display_of_nonsense(words));
                let mut reporter = Reporter::new(resolve::style(&typed.settled, false));
                let result = run_instead(usage::judge(error, words), &mut reporter);
                (reporter, result)
            }
        };
    end(result, &mut reporter)
}

fn run_typed(cli: Cli) -> (Reporter, Result<Exit, CommandError>) {
    let is_json = matches!(&cli.verb, Some(Verb::Command(command)) if command.is_json());
    let variables = resolve::variables();
    match configuration(&cli, &variables) {
        Ok(configuration) => {
            let mut reporter = Reporter::new(resolve::style(&configuration.settled, is_json));
            reporter.warn_of_names(&variables.mistyped());
            let result = run_verb(cli, &configuration, &variables, &mut reporter);
            (reporter, result)
        }
        Err(error) => {
            // As far as it makes sense, what is said of the output counts all the same.
            let display = Configuration::of_display(&cli.options.display, &variables);
            let display = display.unwrap_or_else(|_| Configuration::typed(&cli.options.display));
            (Reporter::new(resolve::style(&display.settled, is_json)), Err(error))
        }
    }
}

/// As much of the configuration as the verb needs: help never fails for it, and what asks no broker reads no file.
fn configuration(cli: &Cli, variables: &Variables) -> Result<Configuration, CommandError> {
    let Options { connection, display, .. } = &cli.options;
    match &cli.verb {
        None if !resolve::is_at_terminal() => Ok(Configuration::typed(display)),
        Some(Verb::Help(_) | Verb::Completions(_) | Verb::Man(_)) => Ok(Configuration::typed(display)),
        Some(Verb::Serve(_) | Verb::Context(_)) => Configuration::of_display(display, variables),
        Some(Verb::Config(args)) if matches!(args.verb, ConfigVerb::Path) => {
            Configuration::of_display(display, variables)
        }
        Some(Verb::Command(command)) if command.is_offline() => Configuration::of_display(display, variables),
        _ => Configuration::settle(connection, display, variables),
    }
}

fn end(result: Result<Exit, CommandError>, reporter: &mut Reporter) -> Exit {
    match result {
        _ if reporter.is_closed() => Exit::Yes,
        Ok(exit) => exit,
        Err(error) => {
            let exit = reporter.error(&error);
            if let Some(signal) = Signal::behind(error.kind) {
                signal.take_effect();
            }
            exit
        }
    }
}

fn run_verb(
    cli: Cli,
    configuration: &Configuration,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let Cli { verb, options } = cli;
    let verb = match verb {
        Some(verb) => verb,
        None if resolve::is_at_terminal() => return prompt::run(options, variables, reporter),
        None => return Err(CommandError::usage("a verb is missing").hint("mqkv help")),
    };
    let trace = options.connection.trace.clone();
    let trace = trace.as_ref();
    match verb {
        Verb::Shell(_) if resolve::is_input_terminal() => return prompt::run(options, variables, reporter),
        Verb::Shell(_) => {
            return run_command(
                prompt::line("batch -")?,
                configuration,
                options.force_write,
                trace,
                reporter,
            );
        }
        Verb::Command(command) => {
            return run_command(command, configuration, options.force_write, trace, reporter);
        }
        Verb::Serve(args) => {
            let settled = &configuration.settled;
            let (quiet, verbose) = (settled.is_on(Setting::Quiet), settled.is_on(Setting::Verbose));
            let display = DisplayArgs { quiet, verbose, ..options.display.clone() };
            if let ServeArgs { action: Some(action), .. } = &*args {
                return serve::user::run(action, Options { display, ..options }, reporter);
            }
            serve::misplaced::refuse(&options)?;
            if let Some(done) = args.data.run(&display, reporter) {
                return done;
            }
            return Ok(serve::run(&args, &display)?.into());
        }
        Verb::Context(args) => return run_context(&args.verb, options, variables, reporter),
        Verb::Config(args) => {
            let record = match args.verb {
                ConfigVerb::Path => config::verb::path(&options.connection, variables)?,
                ConfigVerb::Show { origin } => config::verb::show(configuration, origin)?,
            };
            reporter.put(&Output::Configured(Box::new(record)))?;
        }
        Verb::Completions(args) => reporter.data(&generate::completions(&args)?)?,
        Verb::Man(args) => reporter.data(&generate::man(&args)?)?,
        Verb::Help(args) => {
            let text = help::text(&args, reporter.has_color())?;
            reporter.data(text.as_bytes())?;
        }
    }
    Ok(Exit::Yes)
}

fn run_context(
    verb: &ContextVerb,
    options: Options,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    match context::run(verb, &options.connection, variables)? {
        Done::Told(record, verdict) => {
            reporter.put(&Output::Configured(Box::new(record)))?;
            Ok(verdict.into())
        }
        Done::Test(name) => {
            let context = name.or(options.connection.context.clone());
            let connection = ConnectionArgs { context, ..options.connection };
            let configuration = Configuration::settle(&connection, &options.display, variables)?;
            let trace = connection.trace.as_ref();
            run_command(prompt::line("ping")?, &configuration, false, trace, reporter)
        }
    }
}

/// Where a trace is asked for: standard error, or a file.
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
        false => Some(Connection::of(&configuration.settled, resolve::process())?),
    };
    let tracing = match &connection {
        Some(_) => Tracing::start(trace, &reporter.style())?,
        None => None,
    };
    let minds_signals = command.minds_signals();
    let is_write = command.access() == Access::Write && !minds_signals;
    let asks = matches!(&connection, Some(Connection { login: Login::Ask { .. }, .. }));
    let heeded = if minds_signals { Heeded::default() } else { Heeded::of(command.access(), asks) };
    let tracer = tracing.as_ref().map(|tracing| tracing.tracer.clone());
    let (session, embedded) = session(connection, tracer, heeded.clone(), reporter.style());
    let session = guard(session, configuration, is_forced);
    // One thread: a verb waits for the network and computes next to nothing. Where a slow reader can hold it up,
    // another thread keeps the session alive, and hears the signals.
    let has_driver = command.is_lasting() || heeded.listens();
    runtime::block_on(has_driver, async {
        if command.is_bulk() {
            // A line of a trace would go right through the bar.
            reporter.hold(resolve::shows_progress() && trace != Some(&None));
        }
        let many = command.is_bulk();
        let result = {
            let mut run = pin!(run_and_flush(command, &session, reporter));
            tokio::select! {
                biased;
                result = &mut run => result,
                signal = heeded.next(), if is_write => {
                    // The requests under way fail, so that the verb ends by itself and says what is known.
                    let (result, ()) = tokio::join!(run, session.end());
                    signals::ended(signal, many, result)
                }
                signal = heeded.next(), if !minds_signals => Ok(signal.verdict()),
            }
        };
        session.close().await;
        stop(embedded).await;
        if let Some(tracing) = &tracing {
            tracing.finish();
        }
        Ok(Exit::from(result?))
    })?
}

/// Runs a verb; whenever it has to wait, what it has said goes out.
async fn run_and_flush(
    command: Command,
    session: &Session,
    reporter: &mut Reporter,
) -> Result<Verdict, CommandError> {
    let reporter = RefCell::new(reporter);
    let mut emit = |output| reporter.borrow_mut().put(&output);
    let mut run = pin!(command.run(session, &mut emit));
    let run_until_silent = poll_fn(|context| {
        let poll = run.as_mut().poll(context);
        match reporter.borrow_mut().flush() {
            Ok(()) => poll,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    });
    let result = run_until_silent.await;
    reporter.borrow_mut().clear();
    result
}

/// The store inside this process, if one was started.
type Started = Rc<RefCell<Option<Embedded>>>;

/// A session that connects when it must; from then on signals are heeded.
fn session(
    connection: Option<Connection>,
    tracer: Option<Tracer>,
    heeded: Heeded,
    style: Style,
) -> (Session, Started) {
    let embedded = Started::default();
    let started = Rc::clone(&embedded);
    let takes_input = matches!(&connection, Some(Connection { login: Login::Input { .. }, .. }));
    let connect = move || -> Connecting {
        let heeding = heeded.begin();
        let connecting = connect(connection.clone(), Rc::clone(&started), style);
        let tracer = tracer.clone();
        Box::pin(async move {
            heeding?;
            Ok(Settings { tracer, ..connecting.await? })
        })
    };
    let session = Session::new(connect, resolve::surroundings());
    if takes_input {
        session.close_input();
    }
    (session, embedded)
}

/// Keeps what is read-only from being written to.
fn guard(session: Session, configuration: &Configuration, is_forced: bool) -> Session {
    match configuration.read_only() {
        Some(line) if !is_forced => session.guarded(read_only(line)),
        _ => session,
    }
}

fn read_only(line: &Line) -> CommandError {
    let error = CommandError::new(Kind::Configuration, format!("the context {} is read-only", line.context));
    let error = error.cause(format!("{}: read_only = true", line.place())).hint("--force-write");
    CommandError { outcome: Some(Outcome::Unchanged), ..error }
}

async fn stop(embedded: Started) {
    let embedded = embedded.take();
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
}

/// Where to connect to; starts the store inside this process if that is where.
async fn connect(
    connection: Option<Connection>,
    started: Started,
    style: Style,
) -> Result<Settings, CommandError> {
    let connection =
        connection.ok_or_else(|| CommandError::new(Kind::Bug, "a verb that needs no store asked for one"))?;
    let (target, tls, web_socket) = match &connection.place {
        Place::Network { host, port, tls, web_socket } => {
            // Who wants nothing but errors is to know this all the same.
            if tls.as_ref().is_some_and(|tls| tls.insecure) && style.format != Format::Json {
                report::log(
                    "warning: --insecure: whoever answers is trusted, and may read and change everything",
                );
            }
            let tls = look_at_files(&connection, tls.clone(), style).await?;
            (Target::Tcp { host: host.clone(), port: *port }, tls, web_socket.clone())
        }
        Place::Embedded { data } => {
            let embedded = Embedded::start(data.as_deref()).await?;
            let target = embedded.target();
            started.replace(Some(embedded));
            (target, None, None)
        }
    };
    let authentication = authentication(&connection.login).await?;
    Ok(Settings { web_socket, ..connection.settings(target, tls, authentication) })
}

/// Reads what TLS needs, and warns of secrets that others may read, where warnings are told. For no longer than a
/// connection may take: a file may be a pipe, or on a disk that hangs.
async fn look_at_files(
    connection: &Connection,
    options: Option<TlsOptions>,
    style: Style,
) -> Result<Option<ClientTls>, CommandError> {
    let secrets: Vec<PathBuf> = match report::takes_warnings(&style) {
        true => connection.secret_files().cloned().collect(),
        false => Vec::new(),
    };
    if options.is_none() && secrets.is_empty() {
        return Ok(None);
    }
    let look = aside(move || {
        secrets.iter().filter_map(|file| permissions::warning(file)).for_each(|line| report::log(&line));
        options.as_ref().map(ClientTls::load).transpose()
    });
    let within = connection.connect_timeout;
    let late = |_| {
        let message = format!("the files of the connection could not be read within {within:?}");
        CommandError::new(Kind::File, message).hint("mqkv config show --origin")
    };
    Ok(timeout(within, look).await.map_err(late)???)
}

/// Who the client says it is, when it must be known.
async fn authentication(login: &Login) -> Result<Authentication, CommandError> {
    let (username, password) = match login {
        Login::Known(authentication) => return Ok(authentication.clone()),
        Login::Input { username } => (username, aside(resolve::read_password).await??),
        Login::Ask { username } => {
            (username, password::ask(format!("password of {}: ", escape(username.as_bytes()))).await?)
        }
    };
    Ok(Authentication::Password {
        username: username.clone(),
        password: Some(PasswordSource::Given(password)),
    })
}

fn run_instead(instead: Instead, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    match instead {
        Instead::Fail(error) => Err(error),
        Instead::Show(text) => {
            let text = text.render();
            let text = if reporter.has_color() { text.ansi().to_string() } else { text.to_string() };
            reporter.data(text.as_bytes())?;
            Ok(Exit::Yes)
        }
    }
}

fn display_of_nonsense(words: &[OsString]) -> DisplayArgs {
    DisplayArgs { json: usage::wants_json(words), ..DisplayArgs::default() }
}
