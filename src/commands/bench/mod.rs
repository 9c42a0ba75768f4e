//! `bench`: measures throughput and latency of the store.

mod bands;
mod clients;
mod histogram;
mod keys;
mod load;
mod record;
pub mod report;
mod slot;
mod text;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;
use tokio::time::timeout;

use self::clients::{Bench, Interruption, Stopped};
use self::report::{BenchEnd, BenchReport, BenchSettings, Failure, FailureCount, Limit, Measured, Workload};
use super::duration;
use super::error::CommandError;
use super::exit::Exit;
use super::number::number;
use super::output::Emit;
use super::session::Session;
use super::size;
use crate::commands::process::signal::{exit_of, write_error_of};
use crate::platform::Signals;
use crate::protocol::key::VALUE_BYTES_MAX;
use crate::random;

const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const WARMUP_DEFAULT: Duration = Duration::from_secs(1);
const CLIENTS_DEFAULT: u32 = 10;
const CLIENTS_MAX: u32 = 10_000;
/// With a rate, requests in flight are room for a store that is slower for a while.
const INFLIGHT_DEFAULT_WITH_RATE: u32 = 64;
/// The most requests in flight, of all clients together.
const SLOTS_MAX: u32 = 65_536;
const RATE_MAX: u32 = 1_000_000;
const SIZE_DEFAULT: u64 = 100;
const KEYS_DEFAULT: u32 = 1000;
const KEYS_MAX: u32 = 1_000_000;
const PREFIX_DEFAULT: &str = "mqkv-bench/";
/// The time to live of keys, from the planned end on.
const TTL_AFTER_END: Duration = Duration::from_secs(10 * 60);
/// The time to live of keys if the end is not planned.
const TTL_WITHOUT_END: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the deletion of the keys may take for each 1000 of them.
const CLEAN_UP_MAX: Duration = Duration::from_secs(10);

const HELP: &str = "\
Examples:
  mqkv bench                            half get, half set, for 10 seconds
  mqkv bench set --clients 50 -d 30s
  mqkv bench get --clients 1 --inflight 64
  mqkv bench --rate 5000 --max-p99 5ms  for CI: exit 1 if it is slower
  mqkv bench lock -c 10000 -j           one JSON record
  mqkv bench watch --embedded           no broker: a store in this process

Workloads:
  set    SET of a key that exists; keys are used in turn
  get    GET of a key that exists; keys are used in turn
  mix    GET and SET in turn
  lock   acquire a free lock (SET NEX PX), release it (VDEL); a lock for
         each request in flight
  watch  SET of a key, until another client that watches it has received
         the notification (with --clients 1, the same client); a key for
         each request in flight

The bytes of a value are all x.

Load:
Each of --clients has its own MQTT session, with up to --inflight operations in flight. Without --rate, each operation is \
followed by the next at once: the load adapts to the store. With --rate, operations are due at equal intervals, whether or \
not the store keeps up. An operation that is due while --inflight operations of all clients are in flight is sent when one \
has ended. A broker accepts a limited number of unacknowledged requests of a client, its Receive Maximum. If --inflight is above \
it, a warning is printed: further operations wait in the client, and their latency includes that.

Latency:
With --rate, a latency counts from the time at which the operation was due, so that a stall of the store is not hidden: it \
delays all operations that are due meanwhile. An operation without an answer counts with the time that it has waited: until \
its --timeout, or if it was not sent, until the end. Operations that fail otherwise have no latency. Operations that begin \
during the warm-up are not measured; their failures are counted. Values in the table are in milliseconds, with an error \
below 0.1 %.

Keys:
Keys begin with --prefix and a number that differs in each run; no other keys are touched. They are deleted at the end, also \
after Ctrl-C. If that fails, a warning is printed, and they expire: 10 minutes after the planned end, with -c after a day.

Early end:
The first Ctrl-C ends the measurement, prints what was measured and deletes the keys, the second one ends at once. A lost connection and a \
store that answers no operation within --timeout end it, too.

Exit status:
1 if the 99th percentile is above --max-p99, or if an answer of the store was no; if operations failed, the greatest status \
of their errors: 69 after a lost connection, 76 if the store refused one, 124 after a timeout. A rate that is not met is a \
warning; use --max-p99.";

/// Measure throughput and latency of the store
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct BenchArgs {
    /// set, get, mix, lock or watch [default: mix]
    #[arg(value_name = "WORKLOAD", hide_possible_values = true)]
    workload: Option<Workload>,
    /// Duration of the measurement [default: 10s]
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "count")]
    duration: Option<Duration>,
    /// Measure N operations
    #[arg(short = 'c', long, value_name = "N", value_parser = number(NonZeroU64::MIN..=NonZeroU64::MAX))]
    count: Option<NonZeroU64>,
    /// Number of MQTT sessions [default: 10]
    #[arg(long, value_name = "N", value_parser = number(1..=CLIENTS_MAX))]
    clients: Option<u32>,
    /// Operations in flight per client [default: 1]
    ///
    /// With --rate the default is 64, or the broker's Receive Maximum if that is less: room for a store that is slower for a while.
    #[arg(long, value_name = "N", value_parser = number(1..=SLOTS_MAX))]
    inflight: Option<u32>,
    /// Operations per second, of all clients together
    ///
    /// By default, each operation follows the one before it.
    #[arg(long, value_name = "N", value_parser = number(1..=RATE_MAX))]
    rate: Option<u32>,
    /// Size of the values [default: 100B]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Number of keys of set, get and mix [default: 1000]
    #[arg(long, value_name = "N", value_parser = number(1..=KEYS_MAX))]
    keys: Option<u32>,
    /// Time before the measurement [default: 1s; 0 with -c]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_or_zero)]
    warmup: Option<Duration>,
    /// Exit with 1 if the 99th percentile is above DURATION
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    max_p99: Option<Duration>,
    /// Beginning of the keys [default: mqkv-bench/]
    #[arg(long, value_name = "P")]
    prefix: Option<OsString>,
}

impl BenchArgs {
    /// Returns the settings in effect; `run` distinguishes the keys of this run.
    fn settings(self, run: u64) -> Result<BenchSettings, CommandError> {
        let workload = self.workload.unwrap_or(Workload::Mix);
        let clients = self.clients.unwrap_or(CLIENTS_DEFAULT);
        let slots_max = SLOTS_MAX.checked_div(clients).unwrap_or(1);
        let adapts_inflight = self.inflight.is_none() && self.rate.is_some();
        let inflight = match (self.inflight, self.rate) {
            (Some(inflight), _) => inflight,
            (None, Some(_)) => INFLIGHT_DEFAULT_WITH_RATE.min(slots_max),
            (None, None) => 1,
        };
        let slots = clients.saturating_mul(inflight);
        if slots > SLOTS_MAX {
            let message =
                format!("too many operations in flight: --clients {clients} with --inflight {inflight}");
            return Err(CommandError::usage(message).hint(format!("at most {SLOTS_MAX} in flight together")));
        }
        if self.keys.is_some() && !workload.shares_keys() {
            let message = format!("{} has no --keys: each operation in flight has its own", workload.name());
            return Err(CommandError::usage(message));
        }
        if self.size.is_some() && workload == Workload::Lock {
            return Err(CommandError::usage("lock has no --size: the value is the holder's name"));
        }
        if self.size.is_some_and(|size| usize::try_from(size).is_ok_and(|size| size > VALUE_BYTES_MAX)) {
            return Err(CommandError::usage(format!("a value has at most {VALUE_BYTES_MAX} bytes")));
        }
        let limit = match (self.count, self.duration) {
            (Some(count), _) => Limit::Count(count.get()),
            (None, duration) => Limit::Time(duration.unwrap_or(DURATION_DEFAULT)),
        };
        let (warmup, ttl) = match limit {
            Limit::Time(time) => {
                let warmup = self.warmup.unwrap_or(WARMUP_DEFAULT);
                (warmup, warmup.saturating_add(time).saturating_add(TTL_AFTER_END))
            }
            Limit::Count(_) => (self.warmup.unwrap_or_default(), TTL_WITHOUT_END),
        };
        let prefix = self.prefix.unwrap_or_else(|| PREFIX_DEFAULT.into()).into_encoded_bytes();
        Ok(BenchSettings {
            workload,
            limit,
            warmup,
            clients,
            inflight,
            adapts_inflight,
            rate: self.rate,
            size: (workload != Workload::Lock).then(|| self.size.unwrap_or(SIZE_DEFAULT)),
            keys: if workload.shares_keys() { self.keys.unwrap_or(KEYS_DEFAULT) } else { slots },
            max_p99: self.max_p99,
            prefix: [prefix, format!("{run:016x}/").into_bytes()].concat(),
            ttl,
        })
    }
}

pub async fn run(args: BenchArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let settings = args.settings(random::u64())?;
    let mut signals = session.signals()?;
    let client_settings = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit_of(signal)),
        settings = session.second_settings() => settings?,
    };
    let broker = client_settings.target.to_string();
    let mut bench = Bench::new(settings, client_settings)?;
    let result = bench.run(&mut signals, emit).await;
    let receive_max = bench.receive_max();
    let keys_left = clean_up(&mut bench, &result, &mut signals, emit).await;
    let settings = bench.into_settings();
    let explain = |error: CommandError| match &keys_left {
        Some(cause) => error.cause(settings.keys_left_message(cause)),
        None => error,
    };
    let Stopped { measured, interruption } = result.map_err(explain)?;
    let signal = interruption.map(|interruption| interruption.signal);
    let (Some(measured), Some(receive_max)) = (measured, receive_max) else {
        let error = signal.and_then(write_error_of).filter(|_| keys_left.is_some());
        return error.map_or(Ok(signal.map_or(Exit::Yes, exit_of)), |error| Err(explain(error)));
    };
    let exit = signal.map_or_else(|| exit(&measured), |signal| Ok(exit_of(signal)));
    let report = BenchReport { broker, settings, receive_max, measured, keys_left };
    let is_p99_met = report.is_p99_met();
    emit(&report)?;
    match exit? {
        Exit::Yes if is_p99_met == Some(false) => Ok(Exit::No),
        exit => Ok(exit),
    }
}

/// Ends the clients and deletes the keys. Returns why keys may be left; None if all were deleted.
async fn clean_up(
    bench: &mut Bench,
    result: &Result<Stopped, CommandError>,
    signals: &mut Signals,
    emit: Emit<'_>,
) -> Option<String> {
    let is_drained = match result {
        // Operations that time out would not delete anything either.
        Ok(Stopped { measured: Some(Measured { end: BenchEnd::Unanswered, .. }), .. }) => {
            return Some("the store does not answer".to_owned());
        }
        Ok(Stopped { interruption: Some(Interruption { is_final: true, .. }), .. }) => {
            return Some("interrupted".to_owned());
        }
        Ok(Stopped { interruption: Some(interruption), .. }) => interruption.is_drained,
        _ => true,
    };
    let time = CLEAN_UP_MAX.saturating_mul(bench.settings().keys.div_ceil(1000));
    tokio::select! {
        biased;
        deleted = timeout(time, bench.delete_keys(is_drained, emit)) => match deleted {
            Ok(result) => result.err().map(|error| error.message),
            Err(_) => Some(format!("the deletion took longer than {}", duration::text(time))),
        },
        _ = signals.next() => Some("interrupted".to_owned()),
    }
}

/// Returns how the verb ends if operations failed.
///
/// # Errors
/// The worst error of the operations, or the one that ended them.
fn exit(measured: &Measured) -> Result<Exit, CommandError> {
    let errors = measured.failures.iter().filter_map(|FailureCount { failure, .. }| match failure {
        Failure::Error(error) => Some(error),
        Failure::No(_) => None,
    });
    let count = measured.failed();
    let operations = if count == 1 { "operation" } else { "operations" };
    if let Some(worst) = errors.max_by_key(|error| error.kind) {
        let message = format!("{count} {operations} failed: {}", worst.message);
        return Err(CommandError { message, outcome: None, ..worst.clone() });
    }
    match &measured.end {
        BenchEnd::Failed(error) => Err(CommandError { outcome: None, ..error.clone() }),
        _ if count > 0 => Ok(Exit::No),
        _ => Ok(Exit::Yes),
    }
}
