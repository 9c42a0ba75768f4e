//! Main loop of the prompt: reads lines, handles signals, changes the connection, releases everything at the end.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::{AbortHandle, LocalSet, spawn_local};

use super::completion::keys::StoredKeys;
use super::connection_status;
use super::editor::LineEditor;
use super::history::History;
use super::input::Input;
use super::locks::Locks;
use super::printer::Printer;
use super::screen::Screen;
use super::setup::{OpenedSession, Setup};
use super::shared_state::SharedState;
use super::text;
use super::watches::Watches;
use crate::client::Reconnect;
use crate::clock;
use crate::commands::process::signal::exit_of;
use crate::commands::url_secret::has_secret;
use crate::commands::{CommandError, Exit, Kind, Session};
use crate::platform::{Signal, Signals};
use crate::render::Style;
use crate::render::escape::escape;

/// How many requests may be in flight: the start of a watch of many keys takes a few round trips.
const INFLIGHT_MAX: usize = 256;

/// The exit code of a program whose terminal hung up: 128 and SIGHUP.
const HUNG_UP: u8 = 129;

/// Runs the prompt until its end.
///
/// # Errors
/// The first connection cannot be made, for another reason than that no broker answers; or there is no terminal.
pub async fn run(setup: Setup) -> Result<Exit, CommandError> {
    LocalSet::new()
        .run_until(async {
            let mut shell = match Shell::start(setup).await? {
                Ok(shell) => shell,
                Err(signal) => return Ok(exit_of(signal)),
            };
            let exit = shell.read_lines().await;
            shell.end().await;
            Ok(exit)
        })
        .await
}

/// A running prompt.
pub struct Shell {
    pub setup: Setup,
    pub opened: OpenedSession,
    /// The context or URL of the current session; `None` for the command line's.
    destination: Option<String>,
    /// None if no broker has answered yet: then the session has no client.
    pub connection: Option<ConnectionInfo>,
    editor: LineEditor,
    history: History,
    pub signals: Signals,
    pub printer: Printer,
    pub watches: Watches,
    pub locks: Locks,
    /// The style that `\o` has set, or the command line's.
    pub style: Style,
    /// Whether a pipe or a file gets bare values.
    pub is_auto: bool,
    pub shows_timing: bool,
    status_reporter: Option<AbortHandle>,
    /// Set when the prompt has to end after the current line.
    pub exit: Option<Exit>,
}

/// Facts about a connected session.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    client_id: String,
    /// How long connecting took.
    elapsed_ms: f64,
    pub since: Instant,
}

impl Shell {
    /// Connects and starts the editor. Returns the signal that arrived before the connection was made, if one did. Without a broker that
    /// answers, it reports that and starts too.
    async fn start(setup: Setup) -> Result<Result<Self, Signal>, CommandError> {
        // First, because the editor installs its own handlers on top of these and restores these afterwards.
        let mut signals =
            Signals::new().map_err(|error| CommandError::system("listen to signals", &error))?;
        let opened = (setup.open)(None)?;
        let result = tokio::select! {
            connection = connect(&opened) => connection.map(Ok),
            signal = signals.next() => Ok(Err(signal)),
        };
        let connection = match result {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(signal)) => {
                close(opened).await;
                return Ok(Err(signal));
            }
            Err(error) if matches!(error.kind, Kind::Unavailable | Kind::Timeout) => Err(error),
            Err(error) => {
                close(opened).await;
                return Err(error);
            }
        };
        let state = Arc::new(SharedState::new(setup.definition.clone(), Arc::clone(&setup.contexts)));
        match &connection {
            Ok(_) => show_connection(&state, &opened),
            Err(_) => state.set_connection(text::NOT_CONNECTED, None, opened.url.as_deref()),
        }
        let (history, lines) = History::open(setup.history.clone());
        let color = setup.style.color_stdout;
        let no_terminal = |error| CommandError::new(Kind::File, format!("cannot use the terminal: {error}"));
        let editor = LineEditor::start(Arc::clone(&state), lines, setup.streams, color);
        let (editor, line) = editor.map_err(no_terminal)?;
        let screen = Screen::start(line, setup.streams.words, Arc::clone(&state)).map_err(no_terminal)?;
        setup.trace_output.attach(screen.clone());
        let printer = Printer::new(setup.streams, state, screen, color);
        let watches = Watches::default();
        let status_reporter = match &connection {
            Ok(_) => Some(report_status(&opened.session, &watches, &printer).await?),
            Err(error) => {
                // The greeting says what to do.
                printer.error(&text::without_serve(error), &setup.style);
                None
            }
        };
        let (style, is_auto) = (setup.style, setup.is_auto);
        Ok(Ok(Self {
            setup,
            opened,
            destination: None,
            connection: connection.ok(),
            editor,
            history,
            signals,
            printer,
            watches,
            locks: Locks::default(),
            style,
            is_auto,
            shows_timing: false,
            status_reporter,
            exit: None,
        }))
    }

    async fn read_lines(&mut self) -> Exit {
        let state = match &self.connection {
            Some(connection) => self.describe_connection(connection),
            None => text::first_steps(&escape(self.opened.broker.as_bytes())),
        };
        self.printer.text(&text::greeting(&state));
        loop {
            self.editor.request();
            let mut is_canceled = false;
            let input = loop {
                tokio::select! {
                    biased;
                    input = self.editor.next() => break input,
                    signal = self.signals.next() => match signal {
                        Signal::Interrupt if self.editor.is_late_signal() => {}
                        // While a line is edited Ctrl-C is a key, so this signal is for the line just entered.
                        Signal::Interrupt if self.editor.is_entered() => is_canceled = true,
                        Signal::Interrupt => self.editor.clear(),
                        signal => {
                            self.editor.stop().await;
                            return exit_of(signal);
                        }
                    },
                }
            };
            match input {
                Input::Line(_) if is_canceled => self.printer.message("\ncanceled before it was run"),
                Input::Line(line) => {
                    if self.editor.is_late_signal() {
                        self.discard_interrupts().await;
                    }
                    let state = Arc::clone(&self.printer.state);
                    let is_valid = |words| (self.setup.parse)(words, self.style).is_ok();
                    if let Err(error) = self.history.add(&line, state.definition(), &is_valid) {
                        self.printer.message(&format!("cannot write the history: {error}"));
                    }
                    self.run_text(&line).await;
                }
                Input::Cleared => {}
                Input::InvalidUtf8 => {
                    let error = CommandError::usage("the line is not valid UTF-8")
                        .hint("\"\\xFF\", with the quotes, is the byte FF");
                    self.printer.error(&error, &self.style);
                }
                Input::End => return Exit::Yes,
                Input::Lost => return Exit::Child(HUNG_UP),
            }
            if let Some(exit) = self.exit {
                return exit;
            }
        }
    }

    /// Describes the broker and the context of the session.
    pub fn describe_connection(&self, connection: &ConnectionInfo) -> String {
        let ConnectionInfo { client_id, elapsed_ms, .. } = connection;
        let client_id = escape(client_id.as_bytes());
        let context = self.opened.context.as_ref().map_or_else(String::new, |context| {
            let note = if context.is_read_only { ", read-only" } else { "" };
            format!("\ncontext {}{note}", escape(context.name.as_bytes()))
        });
        match self.opened.url {
            Some(_) => format!("{} in {elapsed_ms:.1} ms, as {client_id}{context}", self.opened.about),
            None => format!("{}{context}", self.opened.about),
        }
    }

    async fn end(mut self) {
        self.status_reporter.iter().for_each(AbortHandle::abort);
        self.release_locks().await;
        self.watches.stop_all(&self.printer);
        close(self.opened).await;
    }

    async fn release_locks(&mut self) {
        let is_offline = self.printer.state.is_offline();
        for key in self.locks.keys() {
            let released = self.locks.release(&key, is_offline, &self.opened.session, &self.printer).await;
            if let Err(error) = released {
                self.printer.error(&error, &self.style);
            }
        }
    }

    /// Connects to a context or URL, or again to the current one. If that fails, the current session stays.
    ///
    /// # Errors
    /// The connection cannot be made; or the keys of the current session would be lost, and it is not `is_forced`.
    pub async fn connect(&mut self, destination: Option<&str>, is_forced: bool) -> Result<(), CommandError> {
        if self.connection.is_some() && self.opened.is_transient && !is_forced {
            let argument = destination.map_or_else(String::new, |destination| {
                format!(" {}", if has_secret(destination) { "URL" } else { destination })
            });
            return Err(CommandError::usage("this store is in memory only: its keys would be lost")
                .hint(format!("\\c!{argument}"))
                .hint("export > FILE, to save the keys"));
        }
        let destination = destination.map(str::to_owned).or_else(|| self.destination.clone());
        let opened = (self.setup.open)(destination.as_deref())?;
        let connection = match connect(&opened).await {
            Ok(connection) => connection,
            Err(error) => {
                close(opened).await;
                return Err(match &self.connection {
                    Some(_) => error.cause(format!("still using {}", self.opened.broker)),
                    None => error,
                });
            }
        };
        self.status_reporter.iter().for_each(AbortHandle::abort);
        self.release_locks().await;
        match self.watches.stop_all(&self.printer) {
            0 => {}
            1 => self.printer.message("1 watch stopped"),
            count => self.printer.message(&format!("{count} watches stopped")),
        }
        close(std::mem::replace(&mut self.opened, opened)).await;
        let connected = self.describe_connection(&connection);
        self.connection = Some(connection);
        self.destination = destination;
        show_connection(&self.printer.state, &self.opened);
        self.status_reporter = Some(report_status(&self.opened.session, &self.watches, &self.printer).await?);
        self.printer.message(&connected);
        Ok(())
    }
}

async fn connect(opened: &OpenedSession) -> Result<ConnectionInfo, CommandError> {
    let client = opened.session.client_with(|settings| {
        settings.reconnect = Reconnect::WithBackoff;
        settings.inflight_max = INFLIGHT_MAX;
    });
    // Connecting writes nothing, so there is no outcome to report.
    let client = client.await.map_err(|error| CommandError { outcome: None, ..error });
    let about = client?.connection_info();
    Ok(ConnectionInfo {
        client_id: about.client_id.clone(),
        elapsed_ms: about.connect_elapsed().unwrap_or_default().as_secs_f64() * 1000.0,
        since: clock::monotonic(),
    })
}

fn show_connection(state: &SharedState, opened: &OpenedSession) {
    state.set_connection(&opened.broker, opened.context.as_ref(), opened.url.as_deref());
}

async fn report_status(
    session: &Session,
    watches: &Watches,
    printer: &Printer,
) -> Result<AbortHandle, CommandError> {
    let client = session.client().await?;
    printer.state.set_stored_keys(StoredKeys::new(client.clone()));
    let status = client.connection_status();
    Ok(spawn_local(connection_status::report(status, watches.clone(), printer.clone())).abort_handle())
}

async fn close(opened: OpenedSession) {
    opened.session.close().await;
    (opened.close)().await;
}
