//! `monitor`: prints the requests, replies and notifications that pass through the broker.

mod members;
mod record;
mod selection;
mod text;
mod tracker;
pub mod traffic_event;

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::{sleep, sleep_until};

use self::record::Traffic;
use self::selection::{KeyPattern, Selection};
use self::tracker::Tracker;
use self::traffic_event::TrafficEvent;
use super::args::kind::ValueKind;
use super::duration;
use super::error::CommandError;
use super::exit::Exit;
use super::number::number;
use super::output::Emit;
use super::process::stdout;
use super::session::Session;
use super::stop_condition::StopReason;
use crate::client::{Client, Error, Reconnect, Subscription, SubscriptionEvent};
use crate::clock;
use crate::commands::process::signal::exit_of;
use crate::platform::Signals;
use crate::protocol::topic;

const HELP: &str = "\
Examples:
  mqkv monitor
  mqkv monitor -j | jq -c 'select(.refused)'    refused requests
  mqkv monitor --key 'line1/*' --full           a prefix, values in full
  mqkv monitor --client plc-7 -c 100            100 records of one client
  mqkv monitor -w 10s > traffic.tsv             ten seconds, tabs between

Records:
  REQUEST   a request: verb, key, options, size, fencing token, value
  REPLY     its reply: outcome, size, version, milliseconds since the
            request was received here
  NO-REPLY  no reply within the expiry of the request
  NOTIFY    a notification to a client that watches a key
  GAP       the connection was lost: messages between the two times are
            missing

Output:
In a pipe each record is a line of 11 columns separated by tabs: time, record, client, verb, key, options or outcome, \
size in bytes, version, fencing token, milliseconds, value. Unknown columns are empty. Times are in UTC. Control bytes are \
escaped as \\xNN; -j has the exact bytes. On a terminal, lines are cut at its width; version, size and milliseconds are \
left out if they do not fit, and -v keeps the version.

The client id is that of the request (__srcId) or of its response topic. Only the broker knows it for certain.

Permissions:
The broker must allow subscriptions to statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke and to clients/#. \
If it rejects the second, the topics of the store's notifications and of the SDKs' replies below clients/ are used; they \
do not include client ids with a slash. Other messages below clients/ are not shown.

Exit status:
0 if -c or -w was reached; 77 if the broker rejects a subscription; 124 if -w was reached before -c; 130 or 143 after \
SIGINT or SIGTERM.";

/// The topics of replies to clients of the SDKs (protocol §0 row 9), for brokers that reject `clients/#`.
const REPLIES: [&str; 4] = [
    "clients/+/services/{REQUEST}/response",
    "clients/+/services/statestore/_any_/command/invoke/response",
    "clients/+/{REQUEST}/response",
    "clients/+/{REQUEST}",
];

/// The filter for all replies and notifications.
const CLIENTS: &str = "clients/#";

/// Show requests, replies and notifications live
///
/// Each record is one line, as far as the broker allows the subscriptions, until a signal or until -c or -w is reached. A lost
/// connection is restored.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub struct MonitorArgs {
    /// Show only this key; PREFIX* for a prefix
    #[arg(short = 'k', long, value_name = "KEY", add = ValueKind::Key)]
    key: Option<KeyPattern>,
    /// Show only the traffic of this client
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Do not cut lines at the width of the terminal
    #[arg(long)]
    full: bool,
    /// Exit after N records
    #[arg(short = 'c', long, value_name = "N", value_parser = number(NonZeroU64::MIN..=NonZeroU64::MAX))]
    count: Option<NonZeroU64>,
    /// Exit after DURATION
    ///
    /// The exit status is 124 if -c is not reached.
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// What a monitor waits for.
enum Wakeup {
    Stop(StopReason),
    Subscription(Result<SubscriptionEvent, Error>),
    Due,
}

pub async fn run(args: MonitorArgs, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
    let (wait, count) = (args.wait, args.count.map(NonZeroU64::get));
    let mut signals = session.signals()?;
    let subscribe = async {
        let client = session.client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
        let (subscription, filters, refused) = subscribe(client).await?;
        let broker = client.connection_info().target.clone();
        Ok::<_, CommandError>((subscription, broker, filters, refused))
    };
    let (mut subscription, broker, filters, refused) = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit_of(signal)),
        subscribed = subscribe => subscribed?,
    };
    let mut monitor = Monitor {
        tracker: Tracker::new(filters.clone()),
        selection: Selection { key: args.key, client: args.client },
        is_full: args.full,
        count,
        sequence: 0,
        emit,
    };
    monitor.emit(TrafficEvent::Listening { broker, filters, refused }, clock::wall_ms())?;
    let reason = monitor.follow(&mut subscription, &mut signals, wait).await?;
    let missed = count.map(|count| format!("{} of {count} records received", monitor.sequence));
    reason.exit(missed, wait)
}

/// Subscribes to as much as the broker allows. Returns the filters, and why the broker has rejected wider ones.
async fn subscribe(client: &Client) -> Result<(Subscription, Vec<String>, Option<String>), CommandError> {
    let filters = vec![topic::REQUEST.to_owned(), CLIENTS.to_owned()];
    let refused = match client.subscribe(filters.clone()).await {
        Ok(subscription) => return Ok((subscription, filters, None)),
        Err(error @ Error::SubscribeRefused { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    if !matches!(&refused, Error::SubscribeRefused { filter, .. } if filter == CLIENTS) {
        return Err(subscribe_error(refused));
    }
    // No topic matches two of these filters, because some brokers would send its messages twice.
    let replies = REPLIES.iter().map(|shape| shape.replace("{REQUEST}", topic::REQUEST));
    let notifications = format!("{}/#", topic::RESERVED);
    let filters: Vec<_> = [topic::REQUEST.to_owned(), notifications].into_iter().chain(replies).collect();
    let subscription = client.subscribe(filters.clone()).await.map_err(subscribe_error)?;
    Ok((subscription, filters, Some(refused.to_string())))
}

fn subscribe_error(error: Error) -> CommandError {
    let is_refused = matches!(&error, Error::SubscribeRefused { .. });
    let error = CommandError::from(error);
    if !is_refused {
        return error;
    }
    let hint =
        "this client id (-i) needs the permission to subscribe; see `mqkv monitor --help` for all topics";
    CommandError { hints: vec![hint.to_owned()], ..error }
}

struct Monitor<'a> {
    tracker: Tracker,
    selection: Selection,
    is_full: bool,
    count: Option<u64>,
    /// The number of records so far.
    sequence: u64,
    emit: Emit<'a>,
}

impl Monitor<'_> {
    /// Emits events until the end.
    async fn follow(
        &mut self,
        subscription: &mut Subscription,
        signals: &mut Signals,
        wait: Option<Duration>,
    ) -> Result<StopReason, CommandError> {
        let timed_out = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(timed_out);
        let mut output_closed = Box::pin(stdout::closed());
        loop {
            let due = self.tracker.poll_timeout();
            let wakeup = tokio::select! {
                biased;
                signal = signals.next() => Wakeup::Stop(StopReason::Signal(signal)),
                () = &mut timed_out => Wakeup::Stop(StopReason::TimedOut),
                () = &mut output_closed => Wakeup::Stop(StopReason::OutputClosed),
                // Messages are handled before the deadlines: a reply that came in time must not be reported as missing.
                event = subscription.next() => Wakeup::Subscription(event),
                () = until(due) => Wakeup::Due,
            };
            match wakeup {
                Wakeup::Stop(reason) => return Ok(reason),
                Wakeup::Subscription(event) => self.handle_event(event?)?,
                Wakeup::Due => {
                    let (now, now_ms) = (clock::monotonic(), clock::wall_ms());
                    while let Some(event) = self.tracker.poll_unanswered(now) {
                        self.emit(event, now_ms)?;
                    }
                }
            }
            if self.count.is_some_and(|count| self.sequence >= count) {
                return Ok(StopReason::Reached);
            }
        }
    }

    fn handle_event(&mut self, event: SubscriptionEvent) -> Result<(), CommandError> {
        match event {
            SubscriptionEvent::Message { message, received, received_ms } => {
                match self.tracker.handle_message(message, received) {
                    Some(event) => self.emit(event, received_ms),
                    None => Ok(()),
                }
            }
            SubscriptionEvent::Lost { since_ms, cause } => {
                self.tracker.handle_lost();
                self.emit(TrafficEvent::Lost { since_ms, cause }, clock::wall_ms())
            }
            SubscriptionEvent::Gap { since_ms, until_ms } => {
                self.emit(TrafficEvent::Gap { since_ms, until_ms }, until_ms)
            }
        }
    }

    fn emit(&mut self, event: TrafficEvent, at_ms: u64) -> Result<(), CommandError> {
        let is_traffic = match event {
            TrafficEvent::Listening { .. } | TrafficEvent::Lost { .. } | TrafficEvent::Gap { .. } => false,
            _ if !self.selection.matches(&event) => return Ok(()),
            _ if self.count.is_some_and(|count| self.sequence >= count) => return Ok(()),
            _ => true,
        };
        self.sequence = self.sequence.saturating_add(u64::from(is_traffic));
        let sequence = is_traffic.then_some(self.sequence);
        let columns_max = if self.is_full { None } else { stdout::columns() };
        (self.emit)(&Traffic::new(event, at_ms, sequence, columns_max))?;
        Ok(())
    }
}

/// Waits until an instant; never returns if there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
