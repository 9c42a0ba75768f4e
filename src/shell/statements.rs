//! Execution of statements: verbs and backslash commands, one after the other.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use super::backslash::{self, BackslashCommand};
use super::line::{OutputTarget, Statement, parse, statements};
use super::main_loop::Shell;
use super::redirection::{self, Redirection};
use super::setup::ParsedLine;
use super::text;
use crate::client::{Access, Outcome};
use crate::clock;
use crate::commands::lines::words::{Word, has_escape_in_path};
use crate::commands::process::file;
use crate::commands::process::signal::{exit_of, write_error_of};
use crate::commands::{
    Command, CommandError, Emit, Exit, Kind, LockArgs, Place, Session, acquire_in_background, duration,
};
use crate::platform::{Signal, Signals};
use crate::protocol::Key;
use crate::render::escape::escape;
use crate::render::{Format, Record, Style};

/// How deep `\i` may be nested.
const DEPTH_MAX: usize = 8;

/// Whether a line is `exit` or `quit`, as other prompts have it.
fn is_exit(words: &[Word]) -> bool {
    let [Word { bytes, is_quoted: false }] = words else { return false };
    [&b"exit"[..], b"quit"].iter().any(|name| bytes.eq_ignore_ascii_case(name))
}

/// How a statement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It was executed, whether the store's answer was yes or no.
    Done,
    /// It failed, and the error was printed.
    Failed,
    /// Ctrl-C has canceled it; the rest of the same text is skipped.
    Canceled,
}

impl Shell {
    /// Runs the statements of a line, or of several lines that were pasted.
    pub(super) async fn run_text(&mut self, text: &str) {
        for statement in statements(text.as_bytes()) {
            let end = self.run_statement(statement, 0, None).await;
            if end == End::Canceled || self.exit.is_some() {
                return;
            }
        }
    }

    /// Runs a statement; `place` is its line in a file.
    async fn run_statement(&mut self, statement: &[u8], depth: usize, place: Option<Place>) -> End {
        let begun = clock::monotonic();
        let is_backslash_command = backslash::is_backslash_command(statement);
        let result = if is_backslash_command {
            self.run_backslash_command(&String::from_utf8_lossy(statement), depth).await
        } else {
            self.run_verb(statement).await
        };
        let end = result.unwrap_or_else(|error| {
            let error = self.with_hint(error);
            // What was printed does not show where the file has stopped.
            let is_repetition = error.is_repetition && place.is_none();
            // That of a nested file has its own line.
            let place = error.place.clone().or(place);
            self.printer.error(&CommandError { place, is_repetition, ..error }, &self.style);
            End::Failed
        });
        self.discard_interrupts().await;
        if end == End::Canceled {
            self.printer.repaint_soon();
        }
        if self.shows_timing && !is_backslash_command && !statement.trim_ascii().is_empty() {
            let took = clock::monotonic().saturating_duration_since(begun);
            self.printer.dim_message(&format!("took {:.1} ms", took.as_secs_f64() * 1000.0));
        }
        end
    }

    /// Adds the hint to reconnect, if the session has ended.
    fn with_hint(&self, error: CommandError) -> CommandError {
        match error.kind {
            Kind::Unavailable | Kind::Authorization if self.opened.session.has_ended() => error.hint("\\c"),
            _ => error,
        }
    }

    /// Discards a SIGINT that a system command received too, or that arrived too late: it is not for the next statement.
    pub(super) async fn discard_interrupts(&mut self) {
        self.signals.sync().await;
        loop {
            let pending = tokio::select! {
                biased;
                signal = self.signals.next() => Some(signal),
                () = std::future::ready(()) => None,
            };
            match pending {
                None => return,
                Some(Signal::Interrupt) => {}
                Some(signal) => self.exit = Some(exit_of(signal)),
            }
        }
    }

    async fn run_verb(&mut self, statement: &[u8]) -> Result<End, CommandError> {
        let Statement { words, target } = parse(statement)?;
        if words.is_empty() {
            return Ok(End::Done);
        }
        if is_exit(&words) {
            self.exit = Some(Exit::Yes);
            return Ok(End::Done);
        }
        let (command, style, is_formatted, is_forced) = match (self.setup.parse)(words, self.style)? {
            ParsedLine::Run { command, style, is_formatted, is_forced } => {
                (*command, style, is_formatted, is_forced)
            }
            ParsedLine::Help => return self.show(&text::help(&self.setup.definition), target).await,
            ParsedLine::Show(text) => return self.show(&text, target).await,
        };
        if self.connection.is_none() && !command.is_offline() {
            match self.connect_or_cancel(None, false).await? {
                End::Done => {}
                end => return Ok(end),
            }
        }
        if has_escape_in_path(statement) && !style.quiet {
            self.printer
                .dim_message("note: double quotes interpret \\t and \\n; single quotes keep a backslash");
        }
        if !command.is_offline() && !style.quiet {
            self.report_offline(&command);
        }
        let is_auto = self.is_auto && !is_formatted;
        let session = &self.opened.session;
        let session = if is_forced { session.writable() } else { session.clone() };
        if let Command::Lock(args) = &command
            && let Some(key) = args.valid_key().filter(|key| self.locks.has(key))
        {
            // Its holder would be the same: the store would let it have the lock, and its end would release it.
            let name = escape(key.as_bytes());
            let message = format!("this session holds the lock {name} already");
            return Err(CommandError::usage(message).hint("\\locks"));
        }
        match (command, target) {
            (Command::Lock(args), OutputTarget::Screen) if args.holds() => {
                self.take_lock(args, &session, &style).await
            }
            (Command::Lock(args), _) if args.holds() => {
                let message = "a lock without a command has no output to redirect";
                Err(CommandError::usage(message).hint("lock KEY").hint("lock KEY -- CMD"))
            }
            (Command::Unlock(args), OutputTarget::Screen)
                if args.key_without_holder().is_some_and(|key| self.locks.has(&key)) =>
            {
                let Some(key) = args.key_without_holder() else { return Ok(End::Done) };
                self.release_lock(&key, &session).await
            }
            (command, OutputTarget::Screen) if command.is_watch_of_records() => {
                let line = escape(statement.trim_ascii());
                self.watches.start(command, &line, &self.opened.session, style, &self.printer);
                Ok(End::Done)
            }
            (command, OutputTarget::Screen) => self.run_to_screen(command, &session, &style).await,
            (command, target) => {
                self.run_redirected(
                    command,
                    &session,
                    redirected_style(style, is_auto),
                    redirection_to(target)?,
                )
                .await
            }
        }
    }

    /// Reports that a command waits for the connection.
    fn report_offline(&self, command: &Command) {
        if !self.printer.state.is_offline() || self.opened.session.has_ended() {
            return;
        }
        let broker = escape(self.opened.broker.as_bytes());
        let waiting = format!("offline: waiting for the connection to {broker}");
        let note = if command.is_watch_of_records() { "" } else { "; Ctrl-C cancels" };
        self.printer.dim_message(&format!("{waiting}{note}"));
    }

    async fn release_lock(&mut self, key: &Key, session: &Session) -> Result<End, CommandError> {
        tokio::select! {
            result = self.locks.release(key.as_bytes(), false, session, &self.printer) => result.map(|()| End::Done),
            signal = self.signals.next() => {
                match signal {
                    Signal::Interrupt => {
                        let key = escape(key.as_bytes());
                        self.printer.message(&format!("\ncanceled; the release of {key} is not confirmed"));
                    }
                    signal => self.exit = Some(exit_of(signal)),
                }
                Ok(End::Canceled)
            }
        }
    }

    async fn run_to_screen(
        &mut self,
        command: Command,
        session: &Session,
        style: &Style,
    ) -> Result<End, CommandError> {
        let printer = self.printer.clone();
        let mut emit = |record: &dyn Record| printer.record(record, style);
        let result = self.run_command(command, session, style, &mut emit).await;
        if style.format == Format::Raw {
            self.printer.begin_line();
        }
        result.map(|(end, _)| end)
    }

    async fn run_redirected(
        &mut self,
        command: Command,
        session: &Session,
        style: Style,
        mut redirection: Redirection,
    ) -> Result<End, CommandError> {
        let printer = self.printer.clone();
        let mut is_closed = false;
        let mut emit = |record: &dyn Record| {
            let rendered = printer.render(record, &style);
            let written = redirection.write(&rendered.stdout);
            is_closed |= written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            written
        };
        let result = self.run_command(command, session, &style, &mut emit).await;
        let is_complete = matches!(result, Ok((End::Done, Exit::Yes)));
        let may_have_printed = matches!(redirection, Redirection::Command { .. });
        let finished = redirection.finish(is_complete).await;
        if may_have_printed {
            self.printer.begin_line();
        }
        let (end, _) = match result {
            // A command need not read all of its input.
            Err(_) if is_closed => (End::Done, Exit::Yes),
            // As JSON it is in the output, not on the screen.
            Err(error) if style.format == Format::Json => {
                return Err(CommandError { is_repetition: false, ..error });
            }
            other => other?,
        };
        if let Some(message) = finished?
            && !style.quiet
        {
            self.printer.message(&escape(message.as_bytes()));
        }
        Ok(end)
    }

    /// Runs a verb until it ends or Ctrl-C cancels it.
    async fn run_command(
        &mut self,
        command: Command,
        session: &Session,
        style: &Style,
        emit: Emit<'_>,
    ) -> Result<(End, Exit), CommandError> {
        let access = command.access();
        // Such a verb listens to signals itself and ends in order, so the first one is left to it.
        let mut ends_itself = command.handles_signals();
        let ends_with_output = matches!(command, Command::Bench(_));
        // An editor has the whole screen, and the answer to a question stands behind it.
        let _held = command.asks().then(|| self.printer.hold_background());
        // A verb of many writes reports its progress before the first one.
        let is_bulk = command.is_bulk();
        let reached = RefCell::new(String::new());
        let mut emit_and_note = |record: &dyn Record| {
            if let Some(progress) = record.progress() {
                reached.replace(format!(" after {}", progress.text));
            }
            emit(record)
        };
        let run = command.run(session, &mut emit_and_note);
        tokio::pin!(run);
        loop {
            tokio::select! {
                result = &mut run => {
                    let exit = result?;
                    let is_canceled = matches!(exit, Exit::Failed(Kind::Interrupted | Kind::Terminated));
                    return Ok((if is_canceled { End::Canceled } else { End::Done }, exit));
                }
                signal = self.signals.next() => match signal {
                    _ if ends_itself => {
                        ends_itself = false;
                        if ends_with_output {
                            // The terminal has echoed ^C.
                            self.printer.begin_line();
                        }
                    }
                    signal => {
                        let has_begun = !is_bulk || !reached.borrow().is_empty();
                        let access = if has_begun { access } else { Access::Read };
                        self.report_canceled(access, signal, &reached.borrow(), style);
                        if signal != Signal::Interrupt {
                            self.exit = Some(exit_of(signal));
                        }
                        return Ok((End::Canceled, exit_of(signal)));
                    }
                },
            }
        }
    }

    /// Reports a verb that a signal has canceled; `reached` is its last progress, if it reports any.
    fn report_canceled(&self, access: Access, signal: Signal, reached: &str, style: &Style) {
        // The terminal has echoed ^C, and the cursor is behind it.
        match (access, write_error_of(signal)) {
            (Access::Write, Some(error)) if style.format == Format::Json => {
                self.printer.message("");
                let error =
                    if reached.is_empty() { error } else { error.cause(format!("canceled{reached}")) };
                self.printer.error(&CommandError { outcome: Some(Outcome::Unknown), ..error }, style);
            }
            (Access::Write, Some(_)) => {
                let outcome = "the outcome of a write that was sent is unknown";
                self.printer.message(&format!("\ncanceled{reached}; {outcome}"));
            }
            (Access::Read, _) if signal == Signal::Interrupt => self.printer.message("\ncanceled"),
            (Access::Read | Access::Write, _) => {}
        }
    }

    async fn take_lock(
        &mut self,
        args: LockArgs,
        session: &Session,
        style: &Style,
    ) -> Result<End, CommandError> {
        let (session, printer) = (session.without_signals(), self.printer.clone());
        let mut emit = |record: &dyn Record| printer.record(record, style);
        let acquired = tokio::select! {
            acquired = acquire_in_background(args, &session, &mut emit) => acquired?,
            signal = self.signals.next() => {
                match signal {
                    Signal::Interrupt => self.printer.message("\ncanceled waiting for the lock"),
                    signal => self.exit = Some(exit_of(signal)),
                }
                return Ok(End::Canceled);
            }
        };
        if let Some(lock) = acquired {
            self.locks.hold(lock, &self.opened.session, &self.printer);
        }
        Ok(End::Done)
    }

    /// Prints a text to the target of the line.
    async fn show(&mut self, text: &str, target: OutputTarget) -> Result<End, CommandError> {
        if target == OutputTarget::Screen {
            let is_shown = match (self.setup.pager)(text) {
                Some(pager) => {
                    // A pager has the whole screen.
                    let _held = self.printer.hold_background();
                    redirection::page(pager, text.as_bytes()).await?
                }
                None => false,
            };
            if !is_shown {
                self.printer.text(text);
            }
            return Ok(End::Done);
        }
        let mut redirection = redirection_to(target)?;
        // A command need not read all of its input.
        let _ = redirection.write(text.as_bytes());
        redirection.finish(true).await?;
        Ok(End::Done)
    }

    async fn run_backslash_command(&mut self, line: &str, depth: usize) -> Result<End, CommandError> {
        match backslash::parse(line)? {
            BackslashCommand::Help => {
                return self.show(&text::help(&self.setup.definition), OutputTarget::Screen).await;
            }
            BackslashCommand::Quit => self.exit = Some(Exit::Yes),
            BackslashCommand::Connect(destination, is_forced) => {
                return self.connect_or_cancel(destination.as_deref(), is_forced).await;
            }
            BackslashCommand::ConnInfo => self.show_connection(),
            BackslashCommand::Timing(wanted) => {
                self.shows_timing = wanted.unwrap_or(!self.shows_timing);
                self.printer.message(if self.shows_timing { "timing is on" } else { "timing is off" });
            }
            BackslashCommand::Trace(wanted) => {
                let is_on = wanted.unwrap_or(!self.setup.tracer.is_enabled());
                self.setup.tracer.set_enabled(is_on);
                self.printer.message(if is_on { "trace is on" } else { "trace is off" });
            }
            BackslashCommand::Format(None) => {
                self.printer.message(&format!("the format is {}", self.format_name()))
            }
            BackslashCommand::Format(Some(format)) => self.set_format(&format),
            BackslashCommand::Watches => self.list(self.watches.list(), "no watch is running"),
            BackslashCommand::Unwatch(selection) => self.watches.stop(selection, &self.printer)?,
            BackslashCommand::Locks => self.list(self.locks.list(), "no lock is held"),
            BackslashCommand::Include(file) => return self.include(file, depth).await,
            BackslashCommand::System(line) => {
                let login_shell = self.setup.login_shell.clone();
                let code = redirection::run_program(line.as_deref(), login_shell).await?;
                self.printer.begin_line();
                if let Some(code) = code {
                    self.printer.dim_message(&format!("exit code {code}"));
                }
            }
        }
        Ok(End::Done)
    }

    /// Changes the connection until Ctrl-C cancels that.
    async fn connect_or_cancel(
        &mut self,
        destination: Option<&str>,
        is_forced: bool,
    ) -> Result<End, CommandError> {
        let mut signals = std::mem::replace(&mut self.signals, Signals::none());
        let result = tokio::select! {
            result = self.connect(destination, is_forced) => Some(result),
            signal = signals.next() => {
                if signal != Signal::Interrupt {
                    self.exit = Some(exit_of(signal));
                }
                None
            }
        };
        self.signals = signals;
        match result {
            Some(result) => result.map(|()| End::Done),
            None => {
                let state = match &self.connection {
                    Some(_) => format!("still using {}", escape(self.opened.broker.as_bytes())),
                    None => text::NOT_CONNECTED.to_owned(),
                };
                self.printer.message(&format!("\ncanceled; {state}"));
                Ok(End::Canceled)
            }
        }
    }

    fn show_connection(&self) {
        let Some(connection) = &self.connection else {
            return self.printer.message(&text::first_steps(&escape(self.opened.broker.as_bytes())));
        };
        let age = clock::monotonic().saturating_duration_since(connection.since);
        let age = duration::of_ms(age.as_secs().saturating_mul(1000));
        self.printer.message(&self.describe_connection(connection));
        let state = if self.printer.state.is_offline() { "offline, reconnecting" } else { "connected" };
        let (watches, locks) = (self.watches.count(), self.locks.keys().len());
        self.printer.message(&format!("{state}; session open for {age}, watches: {watches}, locks: {locks}"));
    }

    fn list(&self, lines: Vec<String>, none: &str) {
        if lines.is_empty() {
            self.printer.message(none);
        }
        for line in lines {
            self.printer.message(&line);
        }
    }

    fn format_name(&self) -> &'static str {
        match self.style.format {
            _ if self.is_auto => "auto",
            Format::Text | Format::Lines => "text",
            Format::Raw => "raw",
            Format::Hex => "hex",
            Format::Base64 => "base64",
            Format::Json => "json",
        }
    }

    fn set_format(&mut self, name: &str) {
        self.is_auto = name == "auto";
        self.style.format = match name {
            "raw" => Format::Raw,
            "hex" => Format::Hex,
            "base64" => Format::Base64,
            "json" | "jsonl" => Format::Json,
            _ => Format::Text,
        };
    }

    /// Runs the lines of a file up to the first error.
    fn include(
        &mut self,
        path: String,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Result<End, CommandError>> + '_>> {
        Box::pin(async move {
            if depth >= DEPTH_MAX {
                let message = format!("{path}: \\i is nested more than {DEPTH_MAX} deep");
                return Err(CommandError::usage(message));
            }
            let text = file::read(path.as_ref())?;
            let file: Arc<Path> = Path::new(&path).into();
            let mut line: u64 = 1;
            for statement in statements(&text) {
                let place = Place { file: Arc::clone(&file), line };
                match self.run_statement(statement, depth.saturating_add(1), Some(place)).await {
                    End::Done => {}
                    // The error has been printed.
                    end => return Ok(end),
                }
                if self.exit.is_some() {
                    return Ok(End::Done);
                }
                let lines = statement.iter().filter(|byte| **byte == b'\n').count();
                line = line.saturating_add(u64::try_from(lines).unwrap_or(0)).saturating_add(1);
            }
            Ok(End::Done)
        })
    }
}

/// The style of output that does not go to the screen.
fn redirected_style(style: Style, is_auto: bool) -> Style {
    let format = if is_auto { Format::Lines } else { style.format };
    Style { format, color_stdout: false, stdout_is_terminal: false, ..style }
}

fn redirection_to(target: OutputTarget) -> Result<Redirection, CommandError> {
    match target {
        OutputTarget::Command(line) => Redirection::to_command(line),
        OutputTarget::File(path) => Ok(Redirection::to_file(path)),
        OutputTarget::Screen => Err(CommandError::new(Kind::Bug, "the screen is no redirection")),
    }
}
