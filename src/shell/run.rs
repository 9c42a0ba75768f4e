//! Runs what was entered: statements one after the other, each as a verb or as a command of the prompt.

use std::io;
use std::pin::Pin;

use super::line::{Statement, Target, parse, statements};
use super::{Meaning, Shell, text};
use crate::client::{Access, Outcome};
use crate::commands::process::file;
use crate::commands::process::signal::Signal;
use crate::commands::{Command, CommandError, Kind, Session, Taking, Verdict, take};
use crate::render::escape::escape;
use crate::render::{Format, Style};
use crate::shell::backslash;
use crate::shell::backslash::Meta;
use crate::shell::redirection;
use crate::shell::redirection::Outlet;

/// How deep files may read files.
const DEPTH_MAX: usize = 8;

/// How a statement has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It is done, whether the store said yes or no.
    Done,
    /// It did not do what it was asked for, and that was told.
    Failed,
    /// Ctrl-C has stopped it: nothing of the same text follows.
    Stopped,
}

impl Shell {
    /// Runs everything that was entered at once.
    pub(super) async fn run_text(&mut self, text: &str) {
        for statement in statements(text.as_bytes()) {
            let ended = self.run_statement(statement, 0).await;
            if ended == Ended::Stopped || self.is_leaving.is_some() {
                return;
            }
        }
    }

    async fn run_statement(&mut self, statement: &[u8], depth: usize) -> Ended {
        let begun = (self.voice.streams.now)();
        let result = if backslash::is_meta(statement) {
            self.run_meta(&String::from_utf8_lossy(statement), depth).await
        } else {
            self.run_verb(statement).await
        };
        let ended = result.unwrap_or_else(|error| {
            self.voice.fail(&self.explained(error), &self.style);
            Ended::Failed
        });
        self.forget_interrupt().await;
        if ended == Ended::Stopped {
            self.voice.repaint_soon();
        }
        if self.times && !statement.trim_ascii().is_empty() {
            let took = (self.voice.streams.now)().saturating_duration_since(begun);
            self.voice.say_dim(&format!("took {:.1} ms", took.as_secs_f64() * 1000.0));
        }
        ended
    }

    /// An error; where it is that the session has ended, with what makes another.
    fn explained(&self, error: CommandError) -> CommandError {
        match error.kind {
            Kind::Unavailable | Kind::Authorization if self.opened.session.has_ended() => error.hint("\\c"),
            _ => error,
        }
    }

    /// A Ctrl-C that a command of the system has had, or that came too late, is not for what runs next.
    async fn forget_interrupt(&mut self) {
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
                Some(signal) => self.is_leaving = Some(signal.verdict()),
            }
        }
    }

    async fn run_verb(&mut self, statement: &[u8]) -> Result<Ended, CommandError> {
        let Statement { words, target } = parse(statement)?;
        if words.is_empty() {
            return Ok(Ended::Done);
        }
        let (command, style, is_formatted, is_forced) = match (self.house.parse)(words, self.style)? {
            Meaning::Run { command, style, is_formatted, is_forced } => {
                (*command, style, is_formatted, is_forced)
            }
            Meaning::Help => return self.show(&text::help(&self.house.definition), target).await,
            Meaning::Show(text) => return self.show(&text, target).await,
        };
        let is_auto = self.is_auto && !is_formatted;
        let session = &self.opened.session;
        let session = if is_forced { session.writable() } else { session.clone() };
        match (command, target) {
            (Command::Lock(args), Target::Screen) if args.holds() => {
                self.take_lock(args, &session, &style).await
            }
            (Command::Lock(args), _) if args.holds() => {
                let message = "a lock without a command is held in the background, and says nothing";
                Err(CommandError::usage(message).hint("lock KEY").hint("lock KEY -- CMD"))
            }
            (Command::Unlock(args), Target::Screen)
                if args.key_without_holder().is_some_and(|key| self.locks.has(&key)) =>
            {
                let Some(key) = args.key_without_holder() else { return Ok(Ended::Done) };
                self.locks.release(key.as_bytes(), false, &session, &self.voice).await?;
                Ok(Ended::Done)
            }
            (command, Target::Screen) if command.is_watch_of_records() => {
                let line = escape(statement.trim_ascii());
                self.watches.begin(command, &line, &self.opened.session, style, &self.voice);
                Ok(Ended::Done)
            }
            (command, Target::Screen) => self.run_to_screen(command, &session, &style).await,
            (command, target) => {
                let style = Self::style_of_outlet(style, is_auto);
                self.run_to_outlet(command, &session, style, outlet_of(target)?).await
            }
        }
    }

    async fn run_to_screen(
        &mut self,
        command: Command,
        session: &Session,
        style: &Style,
    ) -> Result<Ended, CommandError> {
        let voice = self.voice.clone();
        let mut emit = |output| voice.put(&output, style);
        let ended = self.run_command(command, session, style, &mut emit).await;
        if style.format == Format::Raw {
            self.voice.begin_line();
        }
        ended.map(|(ended, _)| ended)
    }

    async fn run_to_outlet(
        &mut self,
        command: Command,
        session: &Session,
        style: Style,
        mut outlet: Outlet,
    ) -> Result<Ended, CommandError> {
        let voice = self.voice.clone();
        let mut is_closed = false;
        let mut emit = |output| {
            let rendered = voice.render(&output, &style);
            let put = outlet.put(&rendered.data);
            is_closed |= put.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            put
        };
        let result = self.run_command(command, session, &style, &mut emit).await;
        let is_well = matches!(result, Ok((Ended::Done, Verdict::Yes)));
        let may_have_printed = matches!(outlet, Outlet::Command { .. });
        let finished = outlet.finish(is_well).await;
        if may_have_printed {
            self.voice.begin_line();
        }
        let (ended, _) = match result {
            // A command that has had enough is no failure.
            Err(_) if is_closed => (Ended::Done, Verdict::Yes),
            other => other?,
        };
        if let Some(said) = finished?
            && !style.quiet
        {
            self.voice.say(&escape(said.as_bytes()));
        }
        Ok(ended)
    }

    /// Runs a verb until it ends or Ctrl-C stops it.
    async fn run_command(
        &mut self,
        command: Command,
        session: &Session,
        style: &Style,
        emit: &mut dyn FnMut(crate::commands::Output) -> io::Result<()>,
    ) -> Result<(Ended, Verdict), CommandError> {
        let access = command.access();
        // These listen to signals themselves, and have something to put in order.
        let mut ends_itself = command.handles_signals();
        let run = command.run(session, emit);
        tokio::pin!(run);
        loop {
            tokio::select! {
                result = &mut run => {
                    let verdict = result?;
                    let is_stopped = matches!(verdict, Verdict::Interrupted | Verdict::Terminated);
                    return Ok((if is_stopped { Ended::Stopped } else { Ended::Done }, verdict));
                }
                signal = self.signals.next() => match signal {
                    _ if ends_itself => ends_itself = false,
                    signal => {
                        self.tell_stopped(access, signal, style);
                        if signal != Signal::Interrupt {
                            self.is_leaving = Some(signal.verdict());
                        }
                        return Ok((Ended::Stopped, signal.verdict()));
                    }
                },
            }
        }
    }

    fn tell_stopped(&self, access: Access, signal: Signal, style: &Style) {
        // The terminal has shown ^C, and the cursor stands behind it.
        match (access, signal.write_error()) {
            (Access::Write, Some(failure)) if style.format == Format::Json => {
                self.voice.say("");
                self.voice.fail(&CommandError { outcome: Some(Outcome::Unknown), ..failure }, style);
            }
            (Access::Write, Some(_)) => {
                self.voice.say("\nstopped; a write that was sent may or may not have happened");
            }
            (Access::Read, _) if signal == Signal::Interrupt => self.voice.say("\nstopped"),
            (Access::Read | Access::Write, _) => {}
        }
    }

    async fn take_lock(
        &mut self,
        args: crate::commands::LockArgs,
        session: &Session,
        style: &Style,
    ) -> Result<Ended, CommandError> {
        if let Some(key) = args.key_word().filter(|key| self.locks.has(key)) {
            let name = escape(key.as_bytes());
            return Err(
                CommandError::usage(format!("{name} is held by this session already")).hint("\\locks")
            );
        }
        let (session, voice) = (session.without_signals(), self.voice.clone());
        let mut emit = |output| voice.put(&output, style);
        let taking = tokio::select! {
            taking = take(args, &session, &mut emit) => taking?,
            signal = self.signals.next() => {
                match signal {
                    Signal::Interrupt => self.voice.say("\nstopped waiting for the lock"),
                    signal => self.is_leaving = Some(signal.verdict()),
                }
                return Ok(Ended::Stopped);
            }
        };
        if let Taking::Held(holding) = taking {
            self.locks.keep(*holding, &self.opened.session, &self.voice);
        }
        Ok(Ended::Done)
    }

    /// Shows a text, or puts it where the line says.
    async fn show(&mut self, text: &str, target: Target) -> Result<Ended, CommandError> {
        if target == Target::Screen {
            self.voice.print(text);
            return Ok(Ended::Done);
        }
        let mut outlet = outlet_of(target)?;
        // A command that has had enough is no failure.
        let _ = outlet.put(text.as_bytes());
        outlet.finish(true).await?;
        Ok(Ended::Done)
    }

    async fn run_meta(&mut self, line: &str, depth: usize) -> Result<Ended, CommandError> {
        match backslash::parse(line)? {
            Meta::Help => self.voice.print(&text::help(&self.house.definition)),
            Meta::Quit => self.is_leaving = Some(Verdict::Yes),
            Meta::Connect(destination, is_forced) => {
                return self.connect_until_stopped(destination.as_deref(), is_forced).await;
            }
            Meta::ConnInfo => self.tell_connection(),
            Meta::Timing(wanted) => {
                self.times = wanted.unwrap_or(!self.times);
                self.voice.say(if self.times { "timing is on" } else { "timing is off" });
            }
            Meta::Trace(wanted) => {
                let is_on = wanted.unwrap_or(!self.house.tracer.is_enabled());
                self.house.tracer.set_enabled(is_on);
                self.voice.say(if is_on { "trace is on" } else { "trace is off" });
            }
            Meta::Format(None) => self.voice.say(&format!("the format is {}", self.format_name())),
            Meta::Format(Some(format)) => self.set_format(&format),
            Meta::Watches => self.list(self.watches.list(), "nothing is watched"),
            Meta::Unwatch(which) => self.watches.end(which, &self.voice)?,
            Meta::Locks => self.list(self.locks.list(), "no lock is held"),
            Meta::Include(file) => return self.include(file, depth).await,
            Meta::System(line) => {
                let program = match line {
                    Some(_) => redirection::SHELL.into(),
                    None => self.house.login_shell.clone(),
                };
                let code = redirection::system(program, line.as_deref()).await?;
                self.voice.begin_line();
                if let Some(code) = code {
                    self.voice.say_dim(&format!("exit code {code}"));
                }
            }
        }
        Ok(Ended::Done)
    }

    async fn connect_until_stopped(
        &mut self,
        destination: Option<&str>,
        is_forced: bool,
    ) -> Result<Ended, CommandError> {
        let mut signals =
            std::mem::replace(&mut self.signals, crate::commands::process::signal::Signals::none());
        let result = tokio::select! {
            result = self.connect(destination, is_forced) => Some(result),
            signal = signals.next() => {
                if signal != Signal::Interrupt {
                    self.is_leaving = Some(signal.verdict());
                }
                None
            }
        };
        self.signals = signals;
        match result {
            Some(result) => result.map(|()| Ended::Done),
            None => {
                self.voice.say(&format!("\nstopped; still at {}", self.opened.broker));
                Ok(Ended::Stopped)
            }
        }
    }

    fn tell_connection(&self) {
        let since = (self.voice.streams.now)().saturating_duration_since(self.connected.since);
        let since = crate::commands::duration::of_ms(since.as_secs().saturating_mul(1000));
        self.voice.say(&self.place());
        let state = if self.voice.live.is_offline() { "offline now; trying again" } else { "connected" };
        let (watches, locks) = (self.watches.count(), self.locks.keys().len());
        self.voice.say(&format!("{state}; session of {since}, watches: {watches}, locks: {locks}"));
    }

    fn list(&self, lines: Vec<String>, none: &str) {
        if lines.is_empty() {
            self.voice.say(none);
        }
        for line in lines {
            self.voice.say(&line);
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

    /// Runs the lines of a file; the first trouble ends it.
    fn include(
        &mut self,
        path: String,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Result<Ended, CommandError>> + '_>> {
        Box::pin(async move {
            if depth >= DEPTH_MAX {
                return Err(CommandError::usage(format!(
                    "{path} reads itself, or files are read {DEPTH_MAX} deep"
                )));
            }
            let text = file::read(path.as_ref())?;
            let mut number: usize = 1;
            for statement in statements(&text) {
                let ended = self.run_statement(statement, depth.saturating_add(1)).await;
                match ended {
                    Ended::Done => {}
                    Ended::Stopped => return Ok(ended),
                    Ended::Failed => {
                        let message = format!("{path} ends at line {number}");
                        return Err(CommandError::new(Kind::Data, message));
                    }
                }
                if self.is_leaving.is_some() {
                    return Ok(Ended::Done);
                }
                let lines = statement.iter().filter(|byte| **byte == b'\n').count();
                number = number.saturating_add(lines).saturating_add(1);
            }
            Ok(Ended::Done)
        })
    }
}

fn outlet_of(target: Target) -> Result<Outlet, CommandError> {
    match target {
        Target::Command(line) => Outlet::command(line),
        Target::File(path) => Ok(Outlet::file(path)),
        Target::Screen => Err(CommandError::new(Kind::Bug, "the screen is no outlet")),
    }
}
