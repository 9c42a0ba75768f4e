//! `lock`: holds a lock, for as long as a command runs, until the end of input, or for one lease.

mod background;
mod held_lock;
mod holder_watch;
mod lease;
mod sleep;
mod supervisor;
mod timing;
mod token_file;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;
use super::error::{CommandError, Kind};
use super::output::Output;
use super::session::Session;
use crate::client::lock::LockEvent;
use crate::client::{Client, Error, Outcome, Reconnect};
use crate::clock;
use crate::commands::args::key::KeyArgs;
use crate::commands::output::Emit;
use crate::commands::process::context::LOCK_KEY;
use crate::commands::process::signal::{Signal, Signals};
use crate::commands::verdict::Verdict;
use crate::protocol::{ErrorReply, Key, Timestamp, Value};
use crate::random;
pub use background::Holding;
use held_lock::Held;
pub use lease::Released;
use lease::{Claim, Lease, LeaseEvent};
use supervisor::Stopping;
use timing::{Plan, Wishes};

const USAGE: &str = "mqkv lock KEY [OPTIONS] [CMD ARG...]";

const EXAMPLES: &str = "\
Examples:
  mqkv lock deploy -- ./migrate.sh      one at a time, on all machines
  mqkv lock deploy -w 0 -- ./migrate.sh || echo 'somebody else is at it'
  mqkv lock line1 -- sh -c 'mqkv set line1/recipe 7 --fence-env'
  mqkv lock deploy                      print the token, hold until Ctrl-D or a signal
  mqkv lock deploy --once --holder ci-$RUN --ttl 10m && ... && mqkv unlock deploy --holder ci-$RUN

The command gets no shell, our streams, a process group of its own, and our signals. Its code is ours. It sees \
MQKV_LOCK_KEY, MQKV_LOCK_HOLDER, MQKV_FENCING_TOKEN and MQKV_FENCING_TOKEN_FILE, which always has the newest token. \
When it ends, whatever it has left in its group is ended too, and the lock is released.

If the lease cannot be renewed, the command gets TERM at its end - --kill-after - 2s (a fifth of a lease shorter than \
10s), KILL within the lease if it is still there, and the exit code is 125. A program may always be stopped for longer \
than its lease, so what it writes needs the fencing token: see `mqkv help locks`.

Exit code 1 (or -E) says that somebody else holds the lock, 125 that it was lost, 126 and 127 that the command cannot \
be run.";

/// Hold a lock while a command runs
///
/// Without a command: print the fencing token and hold the lock until the end of input or a signal.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct LockArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// How long the lease lasts if it is not renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse_ttl, allow_hyphen_values = true)]
    ttl: NonZeroU64,
    /// How long after a renewal the next one is sent [default: a third of --ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    renew: Option<Duration>,
    /// How long to wait for a lock that somebody else holds: 0, a duration, or forever
    #[arg(short, long, value_name = "0|DURATION|forever", default_value = "forever", value_parser = duration::parse_wait)]
    wait: duration::Wait,
    /// The exit code, in place of 1, where somebody else holds the lock
    #[arg(short = 'E', long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// In whose name the lock is held: unique, or two holders pass for one [default: the client id]
    #[arg(long, value_name = "NAME")]
    holder: Option<OsString>,
    /// How long a command that is told to end may take before it is killed; 0 is allowed
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse_or_zero)]
    kill_after: Duration,
    /// Do not stop the command if the lock is lost, only tell
    #[arg(long)]
    no_kill: bool,
    /// Keep the newest fencing token in this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Take the lock for one lease, print token and holder, and leave; `unlock` releases it
    #[arg(long, conflicts_with = "renew")]
    once: bool,
    /// The command to run under the lock, and its arguments
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// What is wanted, held together before anybody is asked.
struct Wanted {
    key: Key,
    /// None: the client id.
    holder: Option<Value>,
    plan: Plan,
    ttl_ms: u64,
    use_for: Use,
    token_file: Option<PathBuf>,
    code_if_held: Option<u8>,
}

enum Use {
    Command { words: Vec<OsString>, stopping: Stopping },
    Hold,
    Once,
}

/// Runs the verb.
pub async fn run(args: LockArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let wanted = settle(args)?;
    let mut signals = session.signals()?;
    match begin(&wanted, session, &mut signals, &mut *emit).await? {
        Begun::Ended(verdict) => Ok(verdict),
        Begun::Held { lease, holder, token } => {
            let held = Held { session, wanted: &wanted, holder, token };
            held.use_up(lease, &mut signals, emit).await
        }
    }
}

/// Takes a lock to hold it while other verbs run.
///
/// # Errors
/// Why it cannot be had; also where it is wanted for something else.
pub async fn take(args: LockArgs, session: &Session, emit: Emit<'_>) -> Result<Taking, CommandError> {
    session.check_write()?;
    let wanted = settle(args)?;
    if !matches!(wanted.use_for, Use::Hold) {
        return Err(CommandError::new(Kind::Bug, "the lock is not to be held"));
    }
    match begin(&wanted, session, &mut Signals::none(), emit).await? {
        Begun::Ended(verdict) => Ok(Taking::Ended(verdict)),
        Begun::Held { lease, holder, token } => {
            let now = clock::boottime;
            Holding::new(wanted, holder, token, lease, now).map(|holding| Taking::Held(Box::new(holding)))
        }
    }
}

/// What became of taking a lock.
#[derive(Debug)]
pub enum Taking {
    /// It is held.
    Held(Box<Holding>),
    /// Somebody else holds it.
    Ended(Verdict),
}

enum Begun {
    Held { lease: Lease, holder: Value, token: Timestamp },
    Ended(Verdict),
}

async fn begin(
    wanted: &Wanted,
    session: &Session,
    signals: &mut Signals,
    emit: Emit<'_>,
) -> Result<Begun, CommandError> {
    let client = tokio::select! {
        client = connect(wanted, session) => client?,
        signal = signals.next() => return Ok(Begun::Ended(signal.verdict())),
    };
    let holder = wanted.holder.clone().unwrap_or_else(|| client.connection_info().client_id.clone().into());
    let claim = Claim {
        key: wanted.key.clone(),
        holder: holder.clone(),
        terms: wanted.plan.terms,
        now: clock::boottime,
    };
    let mut lease = Lease::claim(client.clone(), claim);
    match acquire(&mut lease, signals, &wanted.key, &mut *emit).await {
        Acquiring::Acquired(token) => Ok(Begun::Held { lease, holder, token }),
        Acquiring::GaveUp { unrenewed } => {
            lease.abandon().await;
            denied(client, wanted, unrenewed, emit).await.map(Begun::Ended)
        }
        Acquiring::Signal(signal) => {
            lease.abandon().await;
            Ok(Begun::Ended(signal.verdict()))
        }
        Acquiring::Failed(failure) => {
            let released = lease.abandon().await;
            Err(not_acquired(failure, &released))
        }
    }
}

impl LockArgs {
    /// The key, where it makes sense.
    #[must_use]
    pub fn key_word(&self) -> Option<Key> {
        self.key.clone().resolve(USAGE).ok().map(|(key, _)| key)
    }

    /// Whether the lock is to be held, and no more: no command, and not for one lease only.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.once && self.command.is_empty() && !self.key.has_other_word()
    }
}

fn settle(args: LockArgs) -> Result<Wanted, CommandError> {
    let (key, word) = args.key.resolve(USAGE)?;
    let words: Vec<_> = word.into_iter().chain(args.command).collect();
    let holder = args.holder.map(|holder| holder_value(&holder)).transpose()?;
    if args.once && !words.is_empty() {
        return Err(CommandError::usage("--once leaves at once: it runs no command").hint(USAGE));
    }
    if !words.is_empty() && key.as_bytes().contains(&0) {
        let message = format!("a key with a zero byte cannot be told to a command ({LOCK_KEY})");
        return Err(CommandError::usage(message));
    }
    let stops = !words.is_empty() && !args.no_kill;
    let wishes = Wishes {
        ttl: Duration::from_millis(args.ttl.get()),
        renew: args.renew,
        kill_after: stops.then_some(args.kill_after),
        wait: args.wait.0,
    };
    let plan = wishes.settle(random::u64())?;
    let stopping = Stopping { kill_after: args.kill_after, spare: plan.spare, when_lost: stops };
    let use_for = match (words.is_empty(), args.once) {
        (false, _) => Use::Command { words, stopping },
        (true, true) => Use::Once,
        (true, false) => Use::Hold,
    };
    Ok(Wanted {
        key,
        holder,
        plan,
        ttl_ms: args.ttl.get(),
        use_for,
        token_file: args.token_file,
        code_if_held: args.conflict_exit_code,
    })
}

/// A holder's name as a value.
///
/// # Errors
/// It is empty, or no variable of the environment could hold it.
pub fn holder_value(holder: &std::ffi::OsStr) -> Result<Value, CommandError> {
    let bytes = holder.as_encoded_bytes();
    if bytes.is_empty() {
        return Err(CommandError::usage("the holder's name is empty"));
    }
    if bytes.contains(&0) {
        return Err(CommandError::usage("the holder's name has a zero byte"));
    }
    Ok(Value::copy_from_slice(bytes))
}

async fn connect(wanted: &Wanted, session: &Session) -> Result<Client, CommandError> {
    let patience = wanted.plan.patience;
    let client = session.client_with(|settings| {
        settings.reconnect = Reconnect::WithBackoff;
        settings.request_timeout = settings.request_timeout.min(patience);
        // A connection that is dead must be noticed while there is time for another.
        settings.keep_alive = settings.keep_alive.min(Duration::from_secs(patience.as_secs().max(1)));
    });
    client.await.cloned()
}

enum Acquiring {
    Acquired(Timestamp),
    GaveUp { unrenewed: Option<Duration> },
    Signal(Signal),
    Failed(CommandError),
}

async fn acquire(lease: &mut Lease, signals: &mut Signals, key: &Key, emit: Emit<'_>) -> Acquiring {
    let mut unrenewed: Option<Duration> = None;
    loop {
        let event = tokio::select! {
            event = lease.next() => event,
            signal = signals.next() => return Acquiring::Signal(signal),
        };
        match event {
            LeaseEvent::Lock(LockEvent::Acquired { token, .. }) => return Acquiring::Acquired(token),
            LeaseEvent::Lock(LockEvent::GaveUp) => return Acquiring::GaveUp { unrenewed },
            LeaseEvent::Lock(_) | LeaseEvent::Lost(_) => {}
            LeaseEvent::Held { holder, silent } => {
                unrenewed = silent;
                // Standard error may be closed: that is no reason not to wait.
                let _ = emit(Output::LockWaiting { key: key.clone(), holder, unrenewed });
            }
            LeaseEvent::Failed(error) => return Acquiring::Failed(not_taken(key, error)),
            LeaseEvent::Unwatched(error) => return Acquiring::Failed(CommandError::of_watch(error)),
        }
    }
}

/// Says who holds the lock.
async fn denied(
    client: Client,
    wanted: &Wanted,
    unrenewed: Option<Duration>,
    emit: Emit<'_>,
) -> Result<Verdict, CommandError> {
    let holder = client.get(&wanted.key).await?.map(|found| found.value);
    emit(Output::LockHeld { key: wanted.key.clone(), holder, unrenewed })?;
    Ok(wanted.code_if_held.map_or(Verdict::No, Verdict::NoAs))
}

/// The error of a first try, or of one that need not be made again.
fn not_taken(key: &Key, error: Error) -> CommandError {
    let fenced = matches!(error, Error::Refused(ErrorReply::FenceRequired));
    let failure = CommandError::from(error);
    if fenced {
        let name = String::from_utf8_lossy(key.as_bytes());
        let message = format!("{name} cannot be a lock: it was written with a fencing token");
        return CommandError { hints: Vec::new(), message, ..failure }
            .cause("a lock is taken without a token: it is where tokens come from")
            .hint("lock another key, and write this one under that lock with --fence-env")
            .hint("`mqkv del KEY --fence TOKEN` makes the key an ordinary one again");
    }
    failure
}

/// What is known of the key once all has been given back.
fn not_acquired(failure: CommandError, released: &Released) -> CommandError {
    match released {
        // What the try may have taken has been given back.
        Released::Free | Released::Lost | Released::NotHeld => {
            CommandError { outcome: Some(Outcome::Unchanged), ..failure }
        }
        Released::Unconfirmed(_) => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_holder_s_name_fits_into_an_environment() {
        assert_eq!(holder_value(OsStr::new("ci 17")).unwrap(), "ci 17");
        for name in ["", "a\0b"] {
            assert_eq!(holder_value(OsStr::new(name)).unwrap_err().kind, Kind::Usage, "{name:?}");
        }
    }

    #[test]
    fn a_fenced_key_is_told_from_other_refusals() {
        let key = Key::new("k").unwrap();
        let told = |refusal| not_taken(&key, Error::Refused(refusal));
        assert!(told(ErrorReply::FenceRequired).message.contains("cannot be a lock"));
        assert_eq!(
            told(ErrorReply::QuotaExceeded).message,
            "the store refused the request: the quota has been exceeded"
        );
    }

    #[test]
    fn what_a_failed_try_may_have_taken_is_known_once_it_is_given_back() {
        let error =
            Error::Timeout { target: "h:1".into(), after: Duration::from_secs(1), outcome: Outcome::Unknown };
        let outcome = |released| not_acquired(error.clone().into(), &released).outcome;
        assert_eq!(outcome(Released::Free), Some(Outcome::Unchanged));
        assert_eq!(outcome(Released::Unconfirmed(Error::Closed)), Some(Outcome::Unknown));
    }
}
