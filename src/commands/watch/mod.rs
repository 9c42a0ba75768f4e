//! `watch`: tells what keys hold, and every change of them.

mod handler;
mod pending;
mod rules;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tokio::time::{sleep, timeout};

use self::handler::Handler;
use self::pending::Change;
use self::rules::{Kind as Kinds, News, Rules, Trigger, Until};
use super::duration;
use super::error::{CommandError, Kind};
use super::output::Output;
use super::session::Session;
use crate::client::{Client, Error, Reconnect, WatchEvent, Watcher};
use crate::clock;
use crate::commands::args::key::KeyListArgs;
use crate::commands::output::Emit;
use crate::commands::process::signal::Signals;
use crate::commands::process::stdout;
use crate::commands::stop_condition::End;
use crate::commands::verdict::Verdict;

const USAGE: &str = "mqkv watch KEY...";

/// How many requests may be under way: many keys are registered in a few round trips.
const INFLIGHT_MAX: usize = 256;

/// How long the store may take to end a watch; it forgets one with the connection anyway.
const STOP_MAX: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Examples:
  mqkv watch line1/temp
  mqkv watch a b c -j | jq .            JSON lines, with versions
  mqkv watch job/7 -c 1 --no-initial    wait for the next change
  mqkv watch job/7 --until del -w 1m    wait until there is no such key; 124 if there still is one
  mqkv watch mode --until value=auto    returns at once if it is so already
  mqkv watch config -- ./reload.sh      run a command for each change, the value on its standard input

In a pipe each record is a line of columns with tabs between: time, event, key, value. There is no fourth \
column where there is no value. Times are UTC. Control bytes are shown as \\xNN; -j has the exact bytes.

  CURRENT  what a key holds when the watch begins
  SET      the key was set
  DELETE   the key was deleted, or has expired
  GAP      the connection was lost: changes between the two times may be unknown
  RESYNC   what a key holds after a gap, if that differs from the last that was told

A lost connection is told on standard error at once, and with GAP when it is back.

A command finds in its environment: MQKV_EVENT (set, delete, initial, resync), MQKV_KEY, MQKV_FOUND (true, \
false), MQKV_VERSION (where the store names it) and MQKV_SEQ, which counts changes. A key that holds a NUL byte \
is escaped. The command runs once at a time; changes of a key that come while it runs collapse into the latest, \
and MQKV_SEQ shows how many. How it ends does not end the watch.

Exit code 0: -c, --until or -w was reached. 124: -w was reached before -c or --until. 69: the connection was \
lost with --on-gap fail. 126, 127: the command cannot be run. 130, 143: ended by SIGINT, SIGTERM.";

/// Tell what keys hold, and every change
///
/// The value at the beginning, then each change in order and once, until a signal or what -c, -w and --until say.
/// A lost connection is made anew.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct WatchArgs {
    #[command(flatten)]
    keys: KeyListArgs,
    /// End after so many changes (what --only leaves of SET, DELETE and RESYNC)
    #[arg(short = 'c', long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// End after this time; exit code 124 if -c or --until is not reached by then
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// End when a key is so: set, del or value=STR; at once if it is so already
    #[arg(long, value_name = "STATE")]
    until: Option<OsString>,
    /// Do not tell what the keys hold at the beginning
    #[arg(long)]
    no_initial: bool,
    /// Tell only these: set, del (CURRENT and RESYNC are one or the other)
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        hide_possible_values = true,
        conflicts_with = "command"
    )]
    only: Vec<Kinds>,
    /// What to do when the connection is lost: go on with another, or fail with 69
    #[arg(long, value_name = "WHAT", default_value = "continue", hide_possible_values = true)]
    on_gap: OnGap,
    /// Run CMD for these: set, del, resync, initial [default: set,del,resync]
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        hide_possible_values = true,
        requires = "command"
    )]
    exec_on: Vec<Trigger>,
    /// A command to run for each change, in place of the output
    #[arg(value_name = "CMD", last = true)]
    command: Vec<OsString>,
}

impl WatchArgs {
    /// Whether a command runs in place of the output.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        !self.command.is_empty()
    }
}

/// What to do when the connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnGap {
    /// Make another one, and tell the gap
    Continue,
    /// Give up
    Fail,
}

/// Runs the verb.
pub async fn run(args: WatchArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let on_gap = args.on_gap;
    let wait = args.wait;
    let until = args.until.as_deref().map(Until::parse).transpose()?;
    let mut follower = Follower::new(&args, until);
    let keys = args.keys.resolve(USAGE)?;
    let mut signals = session.signals()?;
    let connect = session.client_with(|settings| {
        settings.inflight_max = INFLIGHT_MAX;
        settings.reconnect = match on_gap {
            OnGap::Continue => Reconnect::WithBackoff,
            OnGap::Fail => Reconnect::Never,
        };
    });
    let client: &Client = tokio::select! {
        biased;
        signal = signals.next() => return Ok(signal.verdict()),
        client = connect => client?,
    };
    let mut watcher = client.watch(keys).await.map_err(CommandError::of_watch)?;
    let end = follower.follow(&mut watcher, &mut signals, wait, emit).await;
    // Whatever it was that ended the watch comes first; the store is asked for no more than a moment.
    let _ = timeout(STOP_MAX, watcher.stop()).await;
    let end = follower.finish(end, &mut signals, emit).await?;
    end.verdict(follower.rules.missed(), wait)
}

/// What is done with the events.
struct Follower {
    rules: Rules,
    on_gap: OnGap,
    handler: Option<Handler>,
    /// How many records there have been.
    sequence: u64,
}

/// What the watch waits for.
enum Happening {
    End(End),
    Ran(Result<Option<Output>, CommandError>),
    Event(Result<WatchEvent, Error>),
}

impl Follower {
    fn new(args: &WatchArgs, until: Option<Until>) -> Self {
        let mut command = args.command.iter().cloned();
        let handler = command.next().map(|program| Handler::new(program, command.collect()));
        let triggers = match (&handler, args.exec_on.as_slice()) {
            (Some(_), []) => vec![Trigger::Set, Trigger::Del, Trigger::Resync],
            (Some(_), triggers) => triggers.to_vec(),
            (None, _) => Trigger::value_variants().to_vec(),
        };
        let triggers =
            triggers.into_iter().filter(|trigger| *trigger != Trigger::Initial || !args.no_initial).collect();
        let only = if args.only.is_empty() { Kinds::value_variants().to_vec() } else { args.only.clone() };
        let count = args.count.map(NonZeroU64::get);
        let rules = Rules { triggers, only, until, count, changes: 0 };
        Self { rules, on_gap: args.on_gap, handler, sequence: 0 }
    }

    /// Tells events until the end.
    async fn follow(
        &mut self,
        watcher: &mut Watcher,
        signals: &mut Signals,
        wait: Option<Duration>,
        emit: Emit<'_>,
    ) -> Result<End, CommandError> {
        let late = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(late);
        let mut left = Box::pin(stdout::closed());
        loop {
            let has_handler = self.handler.is_some();
            let happening = tokio::select! {
                biased;
                signal = signals.next() => Happening::End(End::Signal(signal)),
                () = &mut late => Happening::End(End::Late),
                () = &mut left, if !has_handler => Happening::End(End::Left),
                ran = ran(&mut self.handler) => Happening::Ran(ran),
                event = watcher.next() => Happening::Event(event),
            };
            match happening {
                Happening::End(end) => return Ok(end),
                Happening::Ran(ran) => self.handle_ran(ran?, emit)?,
                Happening::Event(event) => {
                    if self.handle_event(event.map_err(CommandError::of_watch)?, clock::wall_ms(), emit)? {
                        return Ok(End::Reached);
                    }
                }
            }
        }
    }

    /// Tells an event, or runs the command for it. Returns whether it is the end.
    fn handle_event(
        &mut self,
        event: WatchEvent,
        received_ms: u64,
        emit: Emit<'_>,
    ) -> Result<bool, CommandError> {
        if let (OnGap::Fail, WatchEvent::Lost { cause, .. }) = (self.on_gap, &event) {
            // A session that others use, too, goes on without this watch.
            return Err(CommandError::new(Kind::Unavailable, format!("lost the connection: {cause}")));
        }
        let Some(news) = News::of(&event) else {
            // Gaps are data, unless the command has the place of the data.
            let is_data = matches!(event, WatchEvent::Gap { .. }) && self.handler.is_none();
            let sequence = is_data.then(|| self.next_sequence());
            emit(Output::Watched { event, received_ms, sequence })?;
            return Ok(false);
        };
        let judgement = self.rules.judge(&news);
        if judgement.is_record {
            let sequence = self.next_sequence();
            match &mut self.handler {
                Some(handler) => handler.handle(Change::new(&news, sequence))?,
                None => emit(Output::Watched { event, received_ms, sequence: Some(sequence) })?,
            }
        }
        Ok(judgement.is_end)
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    /// Says how a run of the command has ended, and begins the next.
    fn handle_ran(&mut self, ran: Option<Output>, emit: Emit<'_>) -> Result<(), CommandError> {
        if let Some(output) = ran {
            emit(output)?;
        }
        self.handler.as_mut().map_or(Ok(()), Handler::run_next)
    }

    /// Waits for the command: for what runs and, unless a signal or an error has ended the watch, for what waits.
    async fn finish(
        &mut self,
        end: Result<End, CommandError>,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<End, CommandError> {
        let mut end = end;
        match (&mut self.handler, &end) {
            (Some(handler), Ok(End::Signal(signal))) => handler.forward(*signal),
            (Some(handler), Err(_)) => handler.forget(),
            _ => {}
        }
        while self.handler.as_ref().is_some_and(|handler| !handler.is_idle()) {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    self.handler.iter_mut().for_each(|handler| handler.forward(signal));
                    end = end.map(|_| End::Signal(signal));
                }
                ran = ran(&mut self.handler) => self.handle_ran(ran?, emit)?,
            }
        }
        end
    }
}

/// How a run of the command has ended; never if there is none.
async fn ran(handler: &mut Option<Handler>) -> Result<Option<Output>, CommandError> {
    match handler {
        Some(handler) => handler.ended().await,
        None => std::future::pending().await,
    }
}
