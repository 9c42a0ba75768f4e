//! `monitor`: tells every request, reply and notification that the broker lets it see.

mod selection;
mod tracker;
pub mod traffic_event;

use std::num::NonZeroU64;
use std::time::Duration;

use clap::Args;
use tokio::time::{sleep, sleep_until};

use self::selection::{KeyPattern, Selection};
use self::tracker::Tracker;
use super::duration;
use super::error::CommandError;
use super::output::Output;
use super::session::Session;
use crate::client::{Client, Error, Reconnect, Subscription, SubscriptionEvent};
use crate::clock;
use crate::commands::monitor::traffic_event::TrafficEvent;
use crate::commands::output::Emit;
use crate::commands::process::signal::Signals;
use crate::commands::process::stdout;
use crate::commands::stop_condition::End;
use crate::commands::verdict::Verdict;
use crate::protocol::topic;

const EXAMPLES: &str = "\
Examples:
  mqkv monitor
  mqkv monitor -j | jq -c 'select(.refused)'   JSON lines; here the refusals
  mqkv monitor --key 'line1/*' --full          one part of the keys, values in full
  mqkv monitor --client plc-7 -c 100           the next 100 records of one client
  mqkv monitor -w 10s > traffic.tsv            ten seconds of it, columns with tabs between

  REQUEST   a client asks: verb, key, options, size, fencing token, value
  REPLY     the store answers: outcome, size, version, milliseconds since the request was seen here
  NO-REPLY  the reply to a request did not come by the end of the request's expiry
  NOTIFY    a client that watches a key is told of a change
  GAP       the connection was lost: what went over the broker between the two times was not seen

In a pipe each record is a line of 11 columns with tabs between, empty where there is nothing to say: time, \
record, client, verb, key, options or outcome, size in bytes, version, fencing token, milliseconds, value. \
Times are UTC. Control bytes are shown as \\xNN; -j has the exact bytes. On a terminal lines are cut at its \
width; version, size and milliseconds are left out where they do not fit; -v keeps the version.

A request names its client itself (__srcId), and so does a response topic: only the broker knows for sure.

The broker must allow subscriptions to statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke and \
to clients/#, or else to the topics of the SDKs' responses and of the store's notifications below clients/. \
Only the latter are then seen; a client id with a slash is not among them. What else there is below clients/ \
is not shown.

Exit code 0: -c or -w was reached. 77: the broker refuses a subscription. 124: -w was reached before -c. \
130, 143: ended by SIGINT, SIGTERM.";

/// The topics of the responses to the SDKs' clients (protocol §0 row 9), where all of `clients/` is refused.
const RESPONSES: [&str; 4] = [
    "clients/+/services/{REQUEST}/response",
    "clients/+/services/statestore/_any_/command/invoke/response",
    "clients/+/{REQUEST}/response",
    "clients/+/{REQUEST}",
];

/// All responses and notifications, whatever the shape of their topics.
const CLIENTS: &str = "clients/#";

/// Show every request, reply and notification, live
///
/// One line each, as far as the broker lets it subscribe to them, until a signal or what -c and -w say. A lost
/// connection is made anew.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct MonitorArgs {
    /// Only what is about this key, or about keys that begin so if it ends in *
    #[arg(short = 'k', long, value_name = "KEY")]
    key: Option<KeyPattern>,
    /// Only what is asked by, answered to or told to this client
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Do not cut lines at the terminal's width
    #[arg(long)]
    full: bool,
    /// End after so many records
    #[arg(short = 'c', long, value_name = "N")]
    count: Option<NonZeroU64>,
    /// End after this time; exit code 124 if -c is not reached by then
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

/// What the monitor waits for.
enum Happening {
    End(End),
    Heard(Result<SubscriptionEvent, Error>),
    Due,
}

/// Runs the verb.
pub async fn run(args: MonitorArgs, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
    let (wait, count) = (args.wait, args.count.map(NonZeroU64::get));
    let mut signals = session.signals()?;
    let subscribe = async {
        let client = session.client_with(|settings| settings.reconnect = Reconnect::WithBackoff).await?;
        let (subscription, filters, refused) = subscribe(client).await?;
        let broker = client.connection_info().target.clone();
        Ok::<_, CommandError>((subscription, TrafficEvent::Listening { broker, filters, refused }))
    };
    let (mut subscription, listening) = tokio::select! {
        biased;
        signal = signals.next() => return Ok(signal.verdict()),
        subscribed = subscribe => subscribed?,
    };
    let filters = match &listening {
        TrafficEvent::Listening { filters, .. } => filters.clone(),
        _ => Vec::new(),
    };
    let mut monitor = Monitor {
        tracker: Tracker::new(filters),
        selection: Selection { key: args.key, client: args.client },
        is_full: args.full,
        count,
        sequence: 0,
        emit,
    };
    monitor.tell(listening, clock::wall_ms())?;
    let end = monitor.follow(&mut subscription, &mut signals, wait).await?;
    end.verdict(count.map(|count| format!("{} of {count} records", monitor.sequence)), wait)
}

/// Subscribes to as much as the broker allows. Returns the filters, and why not more.
async fn subscribe(client: &Client) -> Result<(Subscription, Vec<String>, Option<String>), CommandError> {
    let filters = vec![topic::REQUEST.to_owned(), CLIENTS.to_owned()];
    let refused = match client.subscribe(filters.clone()).await {
        Ok(subscription) => return Ok((subscription, filters, None)),
        Err(error @ Error::SubscribeRefused { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    if !matches!(&refused, Error::SubscribeRefused { filter, .. } if filter == CLIENTS) {
        return Err(refusal(refused));
    }
    // No two of them match the same topic: some brokers would send it twice.
    let responses = RESPONSES.iter().map(|shape| shape.replace("{REQUEST}", topic::REQUEST));
    let notifications = format!("{}/#", topic::RESERVED);
    let filters: Vec<_> = [topic::REQUEST.to_owned(), notifications].into_iter().chain(responses).collect();
    let subscription = client.subscribe(filters.clone()).await.map_err(refusal)?;
    Ok((subscription, filters, Some(refused.to_string())))
}

fn refusal(error: Error) -> CommandError {
    let is_refused = matches!(&error, Error::SubscribeRefused { .. });
    let error = CommandError::from(error);
    if !is_refused {
        return error;
    }
    let hint = "ask for the right to subscribe to it with this client id (-i); `mqkv monitor --help` names all topics";
    CommandError { hints: vec![hint.to_owned()], ..error }
}

struct Monitor<'a> {
    tracker: Tracker,
    selection: Selection,
    is_full: bool,
    count: Option<u64>,
    /// How many records there have been.
    sequence: u64,
    emit: Emit<'a>,
}

impl Monitor<'_> {
    /// Tells what comes, until the end.
    async fn follow(
        &mut self,
        subscription: &mut Subscription,
        signals: &mut Signals,
        wait: Option<Duration>,
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
            let due = self.tracker.poll_timeout();
            let happening = tokio::select! {
                biased;
                signal = signals.next() => Happening::End(End::Signal(signal)),
                () = &mut late => Happening::End(End::Late),
                () = &mut left => Happening::End(End::Left),
                // Before the deadlines: what has come in time must not be taken for missing.
                heard = subscription.next() => Happening::Heard(heard),
                () = until(due) => Happening::Due,
            };
            match happening {
                Happening::End(end) => return Ok(end),
                Happening::Heard(heard) => self.handle_heard(heard?)?,
                Happening::Due => {
                    let (now, now_ms) = (clock::monotonic(), clock::wall_ms());
                    while let Some(event) = self.tracker.poll_unanswered(now) {
                        self.tell(event, now_ms)?;
                    }
                }
            }
            if self.count.is_some_and(|count| self.sequence >= count) {
                return Ok(End::Reached);
            }
        }
    }

    fn handle_heard(&mut self, heard: SubscriptionEvent) -> Result<(), CommandError> {
        match heard {
            SubscriptionEvent::Message { message, received, received_ms } => {
                match self.tracker.handle_message(message, received) {
                    Some(event) => self.tell(event, received_ms),
                    None => Ok(()),
                }
            }
            SubscriptionEvent::Lost { since_ms, cause } => {
                self.tracker.handle_lost();
                self.tell(TrafficEvent::Lost { since_ms, cause }, clock::wall_ms())
            }
            SubscriptionEvent::Gap { since_ms, until_ms } => {
                self.tell(TrafficEvent::Gap { since_ms, until_ms }, until_ms)
            }
        }
    }

    fn tell(&mut self, event: TrafficEvent, at_ms: u64) -> Result<(), CommandError> {
        let is_traffic = match event {
            TrafficEvent::Listening { .. } | TrafficEvent::Lost { .. } | TrafficEvent::Gap { .. } => false,
            _ if !self.selection.matches(&event) => return Ok(()),
            _ if self.count.is_some_and(|count| self.sequence >= count) => return Ok(()),
            _ => true,
        };
        self.sequence = self.sequence.saturating_add(u64::from(is_traffic));
        let sequence = is_traffic.then_some(self.sequence);
        let columns_max = if self.is_full { None } else { stdout::columns() };
        let event = Box::new(event);
        (self.emit)(Output::Traffic { event, at_ms, sequence, columns_max })?;
        Ok(())
    }
}

/// Waits until a time; for ever if there is none.
async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
