//! `lock`: holds a lock while a command runs, until a signal, or for one lease.

mod background;
mod held_lock;
mod holder_watch;
mod lease;
mod record;
mod request;
mod sleep;
mod supervisor;
mod timing;
mod token_file;

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::args::key::KeyArgs;
use super::duration;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::output::Emit;
use super::process::context::LOCK_KEY;
use super::process::stdout;
use super::session::Session;
use crate::client::lock::LockEvent;
use crate::client::{Client, Error, Outcome, Reconnect};
use crate::clock;
use crate::commands::process::signal::exit_of;
use crate::platform::{Signal, Signals};
use crate::protocol::{ErrorReply, Key, Timestamp, Value};
use crate::random;
pub use background::BackgroundLock;
use held_lock::HeldLock;
pub use held_lock::loss_message;
use holder_watch::HolderStatus;
pub use lease::Released;
use lease::{Claim, Lease, LeaseEvent};
use record::{LockHeld, LockNote, LockWaiting, NoteCause};
use request::{LockRequest, LockUsage, StopOptions};
use sleep::sleep_until_some;
use timing::{Stop, TimingOptions};

const USAGE: &str = "mqkv lock KEY [options] [-- CMD ARG...]";

const HELP: &str = "\
Examples:
  mqkv lock deploy -- ./migrate.sh      one at a time, on all machines
  mqkv lock deploy -w 0 -- ./migrate.sh || echo 'already running'
  mqkv lock line1 -- sh -c 'mqkv set line1/recipe 7 --fence-env'
  mqkv lock deploy                      hold until a signal, or Ctrl-D
  mqkv lock deploy --once --holder ci-$RUN --ttl 10m &&
    ... && mqkv unlock deploy --holder ci-$RUN

Command:
The command runs without a shell, in its own process group, with the standard streams of mqkv. Signals are forwarded to \
it; Ctrl-Z stops neither it nor mqkv: a suspended command would keep the lock from all others, a suspended mqkv would lose \
it. Its environment contains MQKV_LOCK_KEY, MQKV_LOCK_HOLDER, MQKV_FENCING_TOKEN and MQKV_FENCING_TOKEN_FILE; the file \
always has the newest token. When the command ends, the processes that are left in its group are ended and the lock is \
released.

Loss of the lock:
If the lease cannot be renewed, the command gets SIGTERM at the lease's end minus --kill-after minus 2s (a fifth of the \
lease if it is shorter than 10s), and SIGKILL before the lease ends. If the lease is over already, because the machine or \
mqkv was suspended, it gets SIGKILL at once. A process may be suspended for longer than its \
lease, so its writes need the fencing token: see `mqkv help locks`.

Exit status:
That of the command; without a command 0 at the end of input, 128 and its number after a signal. 1 (or -E) if another client holds the lock, 125 if the lock was lost, 126 or 127 \
if the command cannot be run.";

/// Hold a lock while a command runs
///
/// Without a command, print the fencing token and hold the lock until a signal, or Ctrl-D on a terminal.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct LockArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Duration of the lease
    ///
    /// It begins anew with each renewal.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_ttl, allow_hyphen_values = true)]
    ttl: NonZeroU64,
    /// Time between renewals [default: --ttl / 3]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    renew: Option<Duration>,
    /// Time to wait for the lock
    ///
    /// 0 tries once: if another client holds the lock, the exit status is 1. The default
    /// is the same in CI, so that jobs queue; without a terminal, a wait of 5 seconds is reported.
    #[arg(short, long, value_name = "0|DURATION|forever", default_value = "forever", value_parser = duration::parse_wait)]
    wait: duration::Wait,
    /// Exit status if the lock is held [default: 1]
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// Unique name [default: the client id]
    ///
    /// Two holders of the same name are one to the store: both would hold the lock.
    #[arg(long, value_name = "NAME")]
    holder: Option<OsString>,
    /// Time from SIGTERM to SIGKILL [default: 5s]
    ///
    /// It is for the command, and may be 0. The default is at most a quarter of --ttl.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_or_zero)]
    kill_after: Option<Duration>,
    /// Do not stop the command if the lock is lost
    ///
    /// A warning is printed instead.
    #[arg(long)]
    no_kill: bool,
    /// Write the newest fencing token to FILE
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Acquire the lock for one lease, and exit
    ///
    /// Token and holder are printed; `mqkv unlock` releases the lock.
    #[arg(long, conflicts_with = "renew")]
    once: bool,
    /// Release the lock at the end of standard input
    ///
    /// Without a command only. On a terminal the end of input (Ctrl-D) releases the lock anyway.
    #[arg(long, conflicts_with = "once")]
    until_eof: bool,
    /// Command to run under the lock
    #[arg(value_name = "CMD", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub async fn run(args: LockArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let request = args.resolve()?;
    let mut signals = session.signals()?;
    match acquire(&request, session, &mut signals, &mut *emit).await? {
        Acquired::Ended(exit) => Ok(exit),
        Acquired::Held { lease, holder, token } => {
            let held = HeldLock { session, request: &request, holder, token };
            held.run(lease, &mut signals, emit).await
        }
    }
}

/// Acquires a lock to hold it while other verbs run. Reports it and returns `None` if another client
/// holds it.
///
/// # Errors
/// The lock cannot be acquired, or the arguments are for another use.
pub async fn acquire_in_background(
    args: LockArgs,
    session: &Session,
    emit: Emit<'_>,
) -> Result<Option<BackgroundLock>, CommandError> {
    session.check_write()?;
    let request = args.resolve()?;
    if !matches!(request.usage, LockUsage::Hold { .. }) {
        return Err(CommandError::new(Kind::Bug, "a background lock cannot run a command"));
    }
    match acquire(&request, session, &mut Signals::none(), emit).await? {
        Acquired::Ended(_) => Ok(None),
        Acquired::Held { lease, holder, token } => {
            BackgroundLock::new(request, holder, token, lease).map(Some)
        }
    }
}

enum Acquired {
    Held { lease: Lease, holder: Value, token: Timestamp },
    Ended(Exit),
}

async fn acquire(
    request: &LockRequest,
    session: &Session,
    signals: &mut Signals,
    emit: Emit<'_>,
) -> Result<Acquired, CommandError> {
    let client = tokio::select! {
        client = connect(request, session) => client?,
        signal = signals.next() => return Ok(Acquired::Ended(exit_of(signal))),
    };
    let holder = request.holder.clone().unwrap_or_else(|| client.connection_info().client_id.clone().into());
    let claim = Claim { key: request.key.clone(), holder: holder.clone(), options: request.timing.lease };
    let mut lease = Lease::claim(client.clone(), claim);
    match wait_for_lock(&mut lease, signals, request, &mut *emit).await {
        Wait::Acquired(token) => Ok(Acquired::Held { lease, holder, token }),
        Wait::GaveUp { unrenewed } => {
            lease.abandon().await;
            report_holder(client, request, unrenewed, emit).await.map(Acquired::Ended)
        }
        Wait::Signal(signal) => {
            lease.abandon().await;
            Ok(Acquired::Ended(exit_of(signal)))
        }
        Wait::Failed(error) => {
            let released = lease.abandon().await;
            Err(with_outcome(error, &released))
        }
    }
}

impl LockArgs {
    #[must_use]
    pub fn valid_key(&self) -> Option<Key> {
        self.key.clone().resolve(USAGE).ok().map(|(key, _)| key)
    }

    /// Returns whether the lock is held without a command and for longer than one lease.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.once && self.command.is_empty() && !self.key.has_other_word()
    }

    fn resolve(self) -> Result<LockRequest, CommandError> {
        let (key, word) = self.key.resolve(USAGE)?;
        let words: Vec<_> = word.into_iter().chain(self.command).collect();
        let holder = self.holder.map(|holder| holder_value(&holder)).transpose()?;
        if self.once && !words.is_empty() {
            return Err(CommandError::usage("--once cannot run a command").hint(USAGE));
        }
        if self.until_eof && !words.is_empty() {
            return Err(CommandError::usage("--until-eof cannot run a command").hint(USAGE));
        }
        if !words.is_empty() && key.as_bytes().contains(&0) {
            let message = format!("invalid key for a command: {LOCK_KEY} cannot contain a NUL byte");
            return Err(CommandError::usage(message));
        }
        let stops = !words.is_empty() && !self.no_kill;
        let options = TimingOptions {
            ttl: Duration::from_millis(self.ttl.get()),
            renew: self.renew,
            stop: if stops { Stop::Command(self.kill_after) } else { Stop::Nothing },
            wait: self.wait.0,
        };
        let timing = options.resolve(random::u64())?;
        let stop = StopOptions { kill_after: timing.kill_after, reserve: timing.reserve, on_loss: stops };
        let usage = match (words.is_empty(), self.once) {
            (false, _) => LockUsage::Command { words, stop },
            (true, true) => LockUsage::Once,
            (true, false) => LockUsage::Hold { until_eof: self.until_eof },
        };
        Ok(LockRequest {
            key,
            holder,
            timing,
            ttl_ms: self.ttl.get(),
            usage,
            token_file: self.token_file,
            conflict_code: self.conflict_exit_code,
        })
    }
}

/// Returns a holder's name as a value.
///
/// # Errors
/// [`Kind::Usage`] if it is empty, or contains NUL, which an environment variable cannot hold.
pub fn holder_value(holder: &OsStr) -> Result<Value, CommandError> {
    let bytes = holder.as_encoded_bytes();
    if bytes.is_empty() {
        return Err(CommandError::usage("invalid holder: the name is empty"));
    }
    if bytes.contains(&0) {
        return Err(CommandError::usage("invalid holder: the name contains a NUL byte"));
    }
    Ok(Value::copy_from_slice(bytes))
}

async fn connect(request: &LockRequest, session: &Session) -> Result<Client, CommandError> {
    let request_timeout = request.timing.request_timeout;
    let client = session.client_with(|settings| {
        settings.reconnect = Reconnect::WithBackoff;
        settings.request_timeout = settings.request_timeout.min(request_timeout);
        // A dead connection must be detected while there is time to renew the lease on another.
        settings.keep_alive = settings.keep_alive.min(Duration::from_secs(request_timeout.as_secs().max(1)));
    });
    client.await.cloned()
}

enum Wait {
    Acquired(Timestamp),
    GaveUp { unrenewed: Option<Duration> },
    Signal(Signal),
    Failed(CommandError),
}

async fn wait_for_lock(
    lease: &mut Lease,
    signals: &mut Signals,
    request: &LockRequest,
    emit: Emit<'_>,
) -> Wait {
    /// Longer than most locks are waited for.
    const NOTE_AFTER: Duration = Duration::from_secs(5);
    let key = &request.key;
    let mut last_unrenewed: Option<Duration> = None;
    // In CI, a job would wait for ever unnoticed if the value is no lock.
    let is_noted = request.timing.lease.wait.is_none() && !stdout::is_stderr_terminal();
    let (mut held_by, mut note_at) = (Value::new(), None);
    loop {
        let event = tokio::select! {
            event = lease.next() => event,
            signal = signals.next() => return Wait::Signal(signal),
            () = sleep_until_some(note_at) => {
                note_at = None;
                let cause = NoteCause::NoLimit { holder: held_by.clone() };
                let _ = emit(&LockNote { key: key.clone(), cause });
                continue;
            }
        };
        match event {
            LeaseEvent::Lock(LockEvent::Acquired { token, .. }) => return Wait::Acquired(token),
            LeaseEvent::Lock(LockEvent::GaveUp) => return Wait::GaveUp { unrenewed: last_unrenewed },
            LeaseEvent::Lock(_) | LeaseEvent::Lost(_) => {}
            LeaseEvent::Held(HolderStatus { holder, unrenewed }) => {
                last_unrenewed = unrenewed;
                if is_noted && held_by.is_empty() {
                    held_by = holder.clone();
                    note_at = clock::boottime().checked_add(NOTE_AFTER);
                }
                // If standard error is closed, the message is lost, and waiting goes on.
                let _ = emit(&LockWaiting { key: key.clone(), holder, unrenewed });
            }
            LeaseEvent::Unanswered(error) => {
                let cause = NoteCause::Unanswered { cause: error.to_string() };
                let _ = emit(&LockNote { key: key.clone(), cause });
            }
            LeaseEvent::Failed(error) => return Wait::Failed(acquire_error(key, error)),
            LeaseEvent::WatchFailed(error) => return Wait::Failed(CommandError::of_watch(error)),
        }
    }
}

/// Emits the holder of a lock that was not acquired.
async fn report_holder(
    client: Client,
    request: &LockRequest,
    unrenewed: Option<Duration>,
    emit: Emit<'_>,
) -> Result<Exit, CommandError> {
    let holder = client.get(&request.key).await?.map(|found| found.value);
    emit(&LockHeld { key: request.key.clone(), acquired: false, holder, unrenewed })?;
    Ok(request.conflict_code.map_or(Exit::No, Exit::Child))
}

/// Converts the error of an attempt that is not repeated.
fn acquire_error(key: &Key, error: Error) -> CommandError {
    let is_fenced = matches!(error, Error::Refused(ErrorReply::FenceRequired));
    let failure = CommandError::from(error);
    if is_fenced {
        let name = String::from_utf8_lossy(key.as_bytes());
        let message = format!("cannot use {name} as a lock: it was written with a fencing token");
        return CommandError { hints: Vec::new(), message, ..failure }
            .cause("a lock is acquired without a token, because tokens come from locks")
            .hint("lock another key, and write this one under that lock with --fence-env")
            .hint("delete the key to remove its fence: mqkv del KEY --fence TOKEN");
    }
    failure
}

/// Adds the outcome that is known after the release.
fn with_outcome(failure: CommandError, released: &Released) -> CommandError {
    match released {
        // The release has undone an attempt that may have succeeded.
        Released::Free | Released::Lost | Released::NotHeld => {
            CommandError { outcome: Some(Outcome::Unchanged), ..failure }
        }
        Released::Unconfirmed(_) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_fits_into_an_environment_variable() {
        assert_eq!(holder_value(OsStr::new("ci 17")).unwrap(), "ci 17");
        for name in ["", "a\0b"] {
            assert_eq!(holder_value(OsStr::new(name)).unwrap_err().kind, Kind::Usage, "{name:?}");
        }
    }

    #[test]
    fn a_fenced_key_has_an_error_of_its_own() {
        let key = Key::new("k").unwrap();
        let message = |refusal| acquire_error(&key, Error::Refused(refusal)).message;
        assert!(message(ErrorReply::FenceRequired).contains("as a lock: "));
        assert_eq!(
            message(ErrorReply::QuotaExceeded),
            "the store refused the request: the quota has been exceeded"
        );
    }

    #[test]
    fn the_outcome_of_a_failed_attempt_is_known_after_the_release() {
        let error =
            Error::Timeout { target: "h:1".into(), after: Duration::from_secs(1), outcome: Outcome::Unknown };
        let outcome = |released| with_outcome(error.clone().into(), &released).outcome;
        assert_eq!(outcome(Released::Free), Some(Outcome::Unchanged));
        assert_eq!(outcome(Released::Unconfirmed(Error::Closed)), Some(Outcome::Unknown));
    }
}
