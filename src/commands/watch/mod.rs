//! `watch`: prints the values of keys and every change.

mod handler;
mod pending;
mod prefix;
pub mod record;
mod rules;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use tokio::time::{sleep, timeout};

use self::handler::Handler;
use self::pending::Change;
use self::prefix::{Listings, PrefixSearch};
use self::record::{CommandEnded, Watched, Watching};
use self::rules::{Decision, KeyUpdate, StateKind, TargetState, Trigger, WatchRules};
use super::args::key::KeyListArgs;
use super::duration;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::number::number;
use super::output::{Emit, Hint};
use super::process::stdout;
use super::session::Session;
use super::stop_condition::StopReason;
use crate::client::{Client, Error, Reconnect, WatchEvent, Watcher};
use crate::clock;
use crate::commands::process::signal::exit_of;
use crate::platform::Signals;
use crate::protocol::Key;

const USAGE: &str = "mqkv watch KEY...";

/// The number of requests in flight, so that many keys are registered in a few round trips.
const INFLIGHT_MAX: usize = 256;

/// How long to wait for the end of the watch; the store ends it with the connection anyway.
const STOP_MAX: Duration = Duration::from_secs(2);

const HELP: &str = "\
Examples:
  mqkv watch line1/temp
  mqkv watch a b c -j | jq .            JSON lines, with versions
  mqkv watch --prefix line1/            all keys with this prefix
  mqkv watch job/7 -c 1 --no-initial    wait for the next change
  mqkv watch job/7 --until del -w 1m    wait for the DEL, at most 1 minute
  mqkv watch mode --until value=auto    at once, if it has the value
  mqkv watch config -- ./reload.sh      a command gets each change as input
  mqkv watch job --exit-on-error -- ./run.sh

Output:
In a pipe each record is a line with tabs between the columns time, event, key and value; without a value there is no \
fourth column. Times are in UTC. Control bytes are escaped as \\xNN; -j has the exact bytes. -v and -j have the version and, of a \
store of mqkv, the time to live.

  CURRENT  the value when the watch starts
  SET      the key was set
  DELETE   the key was deleted or has expired
  GAP      the connection was lost: changes between the two times may be
           missing
  RESYNC   the value after a gap, if it differs from the last one or the
           store has started anew

A lost connection is reported on standard error at once, and as GAP when it is restored.

Prefixes:
A server of mqkv notifies of all keys with the prefix: all changes are reported at once, also of new keys. At most 10000 keys \
may have the prefix.

The protocol watches single keys. With other stores, and with mqkv store, the keys are listed and watched, and listed again every \
3 seconds: a new key is reported as SET when it is found. A key that is created and deleted between two listings is not \
seen, and of several changes before a new key is found only the last. Keys that are not UTF-8 are not listed. A deleted \
key is watched for another minute. Standard error then has: new keys within 3 s.

Commands:
The environment of CMD contains MQKV_EVENT (set, delete, initial, resync), MQKV_KEY, MQKV_FOUND (true, false), \
MQKV_VERSION (if the store sends it) and MQKV_SEQ, the number of the change. A key with a NUL byte is escaped. CMD runs \
once at a time; changes of a key that arrive meanwhile collapse into the latest one, which the gaps in MQKV_SEQ show. \
The watch goes on whatever the exit status of CMD is. With --exit-on-error it ends with the first one that is not 0, and runs \
CMD for no other change.

Exit status:
0 if -c, --until or -w was reached; 124 if -w was reached before -c or --until; 69 if the connection was lost with \
--on-gap fail; 126 or 127 if CMD cannot be run; 130 or 143 after SIGINT or SIGTERM. With --exit-on-error the status of a CMD that failed, \
128 plus the number of the signal if one ended it.";

/// Print the value of keys and every change
///
/// Changes are printed once and in order, until a signal or until -c, -w or --until is reached. A lost connection is
/// restored.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct WatchArgs {
    #[command(flatten)]
    keys: KeyListArgs,
    /// Watch all keys that begin with P; new keys within 3 s
    ///
    /// A server of mqkv reports new keys at once; see Prefixes.
    #[arg(long, value_name = "P", conflicts_with_all = ["key_words", "key_options", "key_hex", "key_base64"])]
    prefix: Option<OsString>,
    /// Exit after N changes (SET, DELETE and RESYNC)
    #[arg(short = 'c', long, value_name = "N", value_parser = number(NonZeroU64::MIN..=NonZeroU64::MAX))]
    count: Option<NonZeroU64>,
    /// Exit after DURATION
    ///
    /// The exit status is 124 if -c or --until is not reached.
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Exit when a key is in STATE: set, del or value=STR
    #[arg(long, value_name = "STATE")]
    until: Option<OsString>,
    /// Do not print the initial values
    #[arg(long)]
    no_initial: bool,
    /// Print only these changes: set, del
    #[arg(
        long,
        value_name = "KIND",
        value_delimiter = ',',
        hide_possible_values = true,
        conflicts_with = "command"
    )]
    only: Vec<StateKind>,
    /// Action if the connection is lost
    ///
    /// continue restores the connection; fail exits with 69.
    #[arg(long, value_name = "WHAT", default_value = "continue", hide_possible_values = true)]
    on_gap: OnGap,
    /// Events that run CMD [default: set,del,resync]
    ///
    /// The events are set, del, resync and initial, separated by commas.
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        hide_possible_values = true,
        requires = "command"
    )]
    exec_on: Vec<Trigger>,
    /// Exit with the status of CMD when it fails
    #[arg(long, requires = "command")]
    exit_on_error: bool,
    /// Command to run for each change
    #[arg(value_name = "CMD", last = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

impl WatchArgs {
    /// Returns whether a command runs in place of the output.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        !self.command.is_empty()
    }
}

/// What to do when the connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnGap {
    /// Reconnect and report the gap
    Continue,
    /// Exit with an error
    Fail,
}

pub async fn run(args: WatchArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let on_gap = args.on_gap;
    let wait = args.wait;
    let until = args.until.as_deref().map(TargetState::parse).transpose()?;
    let mut follower = Follower::new(&args, until);
    let search = args.prefix.map(PrefixSearch::new).transpose()?;
    let keys = match &search {
        Some(_) => Vec::new(),
        None => args.keys.resolve(USAGE)?,
    };
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
        signal = signals.next() => return Ok(exit_of(signal)),
        connected = connect => connected?,
    };
    let started = match search {
        Some(search) => search.watch(client).await.map(|(watcher, listings)| (watcher, Some(listings))),
        None => {
            emit(&Watching { keys: keys.clone(), prefix: None, interval: None })?;
            client.watch(keys).await.map(|watcher| (watcher, None))
        }
    };
    let (mut watcher, mut listings) = started.map_err(CommandError::of_watch)?;
    let reason = follower.follow(&mut watcher, listings.as_mut(), &mut signals, wait, emit).await;
    drop(listings);
    // If this fails too, the reason of the end is what counts.
    let _ = timeout(STOP_MAX, watcher.stop()).await;
    let reason = follower.finish(reason, &mut signals, emit).await?;
    reason.exit(follower.rules.missed(), wait)
}

/// Handles the events of a watch.
struct Follower {
    rules: WatchRules,
    on_gap: OnGap,
    handler: Option<Handler>,
    /// Whether a command that fails ends the watch.
    exits_on_error: bool,
    /// The number of records so far.
    sequence: u64,
}

/// What a watch waits for.
enum Wakeup {
    Stop(StopReason),
    CommandEnded(Result<Option<CommandEnded>, CommandError>),
    Listing(Result<Watching, CommandError>),
    Event(Result<WatchEvent, Error>),
}

impl Follower {
    fn new(args: &WatchArgs, until: Option<TargetState>) -> Self {
        let mut command = args.command.iter().cloned();
        let handler = command.next().map(|program| Handler::new(program, command.collect()));
        let triggers = match (&handler, args.exec_on.as_slice()) {
            (Some(_), []) => vec![Trigger::Set, Trigger::Del, Trigger::Resync],
            (Some(_), triggers) => triggers.to_vec(),
            (None, _) => Trigger::value_variants().to_vec(),
        };
        let triggers =
            triggers.into_iter().filter(|trigger| *trigger != Trigger::Initial || !args.no_initial).collect();
        let only =
            if args.only.is_empty() { StateKind::value_variants().to_vec() } else { args.only.clone() };
        let count = args.count.map(NonZeroU64::get);
        let rules = WatchRules { triggers, only, until, count, changes: 0 };
        Self { rules, on_gap: args.on_gap, handler, exits_on_error: args.exit_on_error, sequence: 0 }
    }

    /// Handles events until the end.
    async fn follow(
        &mut self,
        watcher: &mut Watcher,
        mut listings: Option<&mut Listings>,
        signals: &mut Signals,
        wait: Option<Duration>,
        emit: Emit<'_>,
    ) -> Result<StopReason, CommandError> {
        let timed_out = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timed_out);
        // A watch without changes prints nothing, so no failed write would report a closed pipe.
        let mut output_closed = Box::pin(stdout::closed());
        loop {
            let has_handler = self.handler.is_some();
            let wakeup = tokio::select! {
                biased;
                signal = signals.next() => Wakeup::Stop(StopReason::Signal(signal)),
                () = &mut timed_out => Wakeup::Stop(StopReason::TimedOut),
                () = &mut output_closed, if !has_handler => Wakeup::Stop(StopReason::OutputClosed),
                ended = command_ended(&mut self.handler) => Wakeup::CommandEnded(ended),
                // Before the values of the keys.
                report = next_listing(&mut listings) => Wakeup::Listing(report),
                event = watcher.next() => Wakeup::Event(event),
            };
            match wakeup {
                Wakeup::Stop(reason) => return Ok(reason),
                Wakeup::CommandEnded(ended) => {
                    if let Some(reason) = self.handle_command_end(ended?, emit)? {
                        return Ok(reason);
                    }
                }
                Wakeup::Listing(report) => emit(&report?)?,
                Wakeup::Event(event) => {
                    if self.handle_event(event.map_err(CommandError::of_watch)?, clock::wall_ms(), emit)? {
                        return Ok(StopReason::Reached);
                    }
                }
            }
        }
    }

    /// Emits an event, or runs the command for it. Returns whether the watch ends.
    fn handle_event(
        &mut self,
        event: WatchEvent,
        received_ms: u64,
        emit: Emit<'_>,
    ) -> Result<bool, CommandError> {
        if let (OnGap::Fail, WatchEvent::Lost { cause, .. }) = (self.on_gap, &event) {
            // A session that other verbs share reconnects; this watch fails all the same.
            return Err(CommandError::new(Kind::Unavailable, format!("connection lost: {cause}")));
        }
        let Some(update) = KeyUpdate::of(&event) else {
            // Gaps are data, unless the output belongs to the command.
            let is_data = matches!(event, WatchEvent::Gap { .. }) && self.handler.is_none();
            let sequence = is_data.then(|| self.next_sequence());
            emit(&Watched { event, received_ms, sequence })?;
            return Ok(false);
        };
        if let (Trigger::Initial, false) = (update.trigger, update.found)
            && let Some(hint) = pattern_hint(update.key)
        {
            emit(&Hint(hint))?;
        }
        let Decision { is_record, is_end } = self.rules.decide(&update);
        if is_record {
            let sequence = self.next_sequence();
            match &mut self.handler {
                Some(handler) => handler.handle(Change::new(&update, sequence))?,
                None => emit(&Watched { event, received_ms, sequence: Some(sequence) })?,
            }
        }
        Ok(is_end)
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    /// Emits the failure of a command, and runs it for the next change. Returns why the watch ends, if a failure ends it.
    fn handle_command_end(
        &mut self,
        failure: Option<CommandEnded>,
        emit: Emit<'_>,
    ) -> Result<Option<StopReason>, CommandError> {
        let Some(handler) = &mut self.handler else { return Ok(None) };
        let mut reason = None;
        if let Some(failure) = failure {
            emit(&failure)?;
            if self.exits_on_error {
                handler.clear();
                reason = Some(StopReason::CommandFailed(failure.ended.code()));
            }
        }
        handler.run_next()?;
        Ok(reason)
    }

    /// Waits for the running command and, unless a signal or an error has ended the watch, for the changes that wait.
    async fn finish(
        &mut self,
        reason: Result<StopReason, CommandError>,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<StopReason, CommandError> {
        let mut reason = reason;
        match (&mut self.handler, &reason) {
            (Some(handler), Ok(StopReason::Signal(signal))) => handler.forward(*signal),
            (Some(handler), Err(_)) => handler.clear(),
            _ => {}
        }
        while self.handler.as_ref().is_some_and(|handler| !handler.is_idle()) {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    self.handler.iter_mut().for_each(|handler| handler.forward(signal));
                    reason = reason.map(|_| StopReason::Signal(signal));
                }
                ended = command_ended(&mut self.handler) => {
                    let failed = self.handle_command_end(ended?, emit)?;
                    reason = match (reason, failed) {
                        // A signal has ended the command too.
                        (Ok(StopReason::Signal(signal)), _) => Ok(StopReason::Signal(signal)),
                        (Ok(_), Some(failed)) => Ok(failed),
                        (reason, _) => reason,
                    };
                }
            }
        }
        reason
    }
}

/// Returns the hint for a key that does not exist and looks like a pattern.
fn pattern_hint(key: &Key) -> Option<String> {
    let star = key.as_bytes().iter().position(|byte| *byte == b'*')?;
    let prefix = String::from_utf8_lossy(key.as_bytes().get(..star)?).into_owned();
    Some(format!("watch takes keys, not patterns; for a prefix: mqkv watch --prefix '{prefix}'"))
}

/// Waits for a report or the end of the listings. Never returns if there are none.
async fn next_listing(listings: &mut Option<&mut Listings>) -> Result<Watching, CommandError> {
    match listings {
        Some(listings) => listings.next().await,
        None => std::future::pending().await,
    }
}

/// Waits for the end of the command. Never returns if there is none.
async fn command_ended(handler: &mut Option<Handler>) -> Result<Option<CommandEnded>, CommandError> {
    match handler {
        Some(handler) => handler.ended().await,
        None => std::future::pending().await,
    }
}
