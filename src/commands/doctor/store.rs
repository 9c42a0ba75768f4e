//! The store behind the broker: whether it answers, what its clock says, and whether it tells of changes.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::super::error::{CommandError, Kind, SYNCHRONISE};
use super::check::{Check, Detail, Warning};
use crate::client::{
    Access, Client, Error, Outcome, RawRequest, RequestProperties, WatchEvent, Watcher, decode_response,
    unexpected_reply,
};
use crate::clock;
use crate::commands::doctor::report::Report;
use crate::protocol::message::Qos;
use crate::protocol::{Key, Reply, Request, Timestamp, Value, topic};
use crate::random;

/// From here on a difference of the clocks is worth a warning, in milliseconds.
const SKEW_WARN_MS: u64 = 10_000;
/// From here on requests or their answers are refused (protocol §2), in milliseconds.
const SKEW_FAIL_MS: u64 = crate::protocol::timestamp::SKEW_MAX_MS;
/// Before any clock that counts.
const LONG_AGO_MS: u64 = 1_000_000_000_000;
/// When the key is gone if nobody deletes it.
const CLOCK_TTL_MS: NonZeroU64 = NonZeroU64::new(1000).unwrap();
/// Alike, while changes of it are waited for.
const WATCH_TTL_MS: NonZeroU64 = NonZeroU64::new(30_000).unwrap();

/// Looks at the store through a connected client; nothing is written where there is a reason not to.
pub(super) async fn examine(
    client: &Client,
    patience: Duration,
    why_not_write: Option<&str>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let bug = |error: String| CommandError::new(Kind::Bug, error);
    let key = match Key::new(format!("mqkv-doctor/{:016x}", random::u64())) {
        Ok(key) => key,
        Err(error) => return report.fail(Check::Settings, None, bug(error.to_string())),
    };
    let long_ago = match Timestamp::zero(format!("doctor{:016x}", random::u64())) {
        Ok(zero) => zero.tick(LONG_AGO_MS),
        Err(error) => return report.fail(Check::Settings, None, bug(error.to_string())),
    };
    let store = Store { client, key, long_ago, patience };
    report.begin();
    if !store.subscribe(report).await? || !store.request(report).await? {
        return report.skip_rest();
    }
    if let Some(why) = why_not_write {
        report.skip(Check::Clock, why)?;
        return report.skip(Check::Notifications, why);
    }
    report.begin();
    if !store.clock(report).await? {
        return report.skip_rest();
    }
    report.begin();
    match store.notifications().await {
        Ok(detail) => report.note(Check::Notifications, detail, Vec::new()),
        Err(error) => report.fail(Check::Notifications, None, error),
    }
}

struct Store<'a> {
    client: &'a Client,
    /// The key that is thrown away.
    key: Key,
    /// The timestamp of all writes: the store answers with its own clock, and never finds it too far ahead.
    long_ago: Timestamp,
    patience: Duration,
}

impl Store<'_> {
    async fn subscribe(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let topic = topic::response(&self.client.connection_info().client_id);
        match self.client.subscribe(vec![topic.clone()]).await {
            Ok(subscription) => {
                let granted = subscription.granted_qos();
                let advice = (granted == Qos::AtMostOnce).then(|| Warning {
                    message: "the broker grants QoS 0: answers may be lost".to_owned(),
                    hint: "QoS 1 for this client's subscriptions".to_owned(),
                });
                let detail = Detail::Subscription { topic, qos: granted as u8 };
                report.note(Check::Subscribe, detail, advice.into_iter().collect())?;
                Ok(true)
            }
            Err(error) => report.fail(Check::Subscribe, None, error).map(|()| false),
        }
    }

    /// Returns whether there is a store that answers, be it with a refusal.
    async fn request(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let request = Request::Get { key: self.key.clone() };
        let (access, properties) = (Access::Read, RequestProperties::default());
        let response = self.client.send(RawRequest { payload: request.encode(), access, properties }).await;
        let has_status = response.as_ref().is_ok_and(|response| response.has_status);
        let result = match response.and_then(|response| decode_response(&request, response)) {
            Ok((Reply::Absent | Reply::Value(_), _)) => Ok(()),
            Ok((other, _)) => Err(unexpected_reply(&request, &other)),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                let advice = (!has_status).then(|| Warning {
                    message: "the answer has no __stat: Microsoft's clients do not take it".to_owned(),
                    hint: "a store that sends __stat with every answer".to_owned(),
                });
                let detail = Detail::Answer { key: self.key.clone() };
                report.note(Check::Request, detail, advice.into_iter().collect())?;
                Ok(true)
            }
            Err(error) => {
                let answers = matches!(error, Error::Refused(_) | Error::ClockSkew { .. });
                report.fail(Check::Request, None, error)?;
                Ok(answers)
            }
        }
    }

    /// Returns whether the store takes writes.
    async fn clock(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let (asked_ms, asked) = (clock::wall_ms(), clock::monotonic());
        let version = self.set(CLOCK_TTL_MS).await;
        let (round_trip, answered) = (self.since(asked), clock::monotonic());
        let version = match version {
            Ok(version) => version,
            Err(error) => return report.fail_at(answered, Check::Clock, None, error).map(|()| false),
        };
        // It is gone within a second anyway.
        let _ = self.del().await;
        let (detail, ahead_ms) = difference(&version, asked_ms, round_trip);
        match ahead_ms.unsigned_abs() {
            ..SKEW_WARN_MS => report.note_at(answered, Check::Clock, detail, Vec::new())?,
            skew_ms @ ..SKEW_FAIL_MS => {
                let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
                let message = format!(
                    "the store's clock is {} s {side} this machine's; the limit is 60 s",
                    skew_ms / 1000
                );
                let advice = Warning { message, hint: SYNCHRONISE.to_owned() };
                report.note_at(answered, Check::Clock, detail, vec![advice])?;
            }
            skew_ms if ahead_ms > 0 => {
                let error = Error::ClockSkew { ahead_ms: skew_ms, outcome: Outcome::Unchanged };
                report.fail_at(answered, Check::Clock, Some(detail), error)?;
            }
            skew_ms => {
                let message = format!(
                    "the store's clock is {} s behind this machine's; the limit is 60 s",
                    skew_ms / 1000
                );
                let error = CommandError::new(Kind::Refused, message).hint(SYNCHRONISE);
                report.fail_at(answered, Check::Clock, Some(detail), error)?;
            }
        }
        Ok(true)
    }

    async fn notifications(&self) -> Result<Detail, CommandError> {
        let watcher = self.client.watch([self.key.clone()]).await;
        let mut watcher = watcher.map_err(CommandError::of_watch)?;
        let result = self.changes(&mut watcher).await;
        if result.is_err() {
            // It is gone after a while anyway.
            let _ = self.del().await;
        }
        watcher.stop().await;
        result
    }

    async fn changes(&self, watcher: &mut Watcher) -> Result<Detail, CommandError> {
        let is_current = |event: &WatchEvent| matches!(event, WatchEvent::Current { .. });
        // Subscribing, registering and reading have an end each, and say more when they come to it.
        let patience = self.patience.saturating_mul(4);
        self.hear(watcher, "what the watched key holds", is_current, patience).await?;
        let asked = clock::monotonic();
        self.set(WATCH_TTL_MS).await?;
        let is_set = |event: &WatchEvent| matches!(event, WatchEvent::Set { .. });
        self.hear(watcher, "the SET of a watched key", is_set, self.patience).await?;
        let set = self.since(asked);
        let asked = clock::monotonic();
        self.del().await?;
        let is_delete = |event: &WatchEvent| matches!(event, WatchEvent::Delete { .. });
        self.hear(watcher, "the DEL of a watched key", is_delete, self.patience).await?;
        Ok(Detail::Notified { set, delete: self.since(asked) })
    }

    /// Waits for an event, and says what came in its place if it does not.
    async fn hear(
        &self,
        watcher: &mut Watcher,
        what: &str,
        is_it: impl Fn(&WatchEvent) -> bool,
        patience: Duration,
    ) -> Result<(), CommandError> {
        let mut skipped = None;
        let hearing = async {
            loop {
                match watcher.next().await? {
                    event if is_it(&event) => return Ok(()),
                    WatchEvent::Skipped { cause, .. } => skipped = Some(cause),
                    _ => {}
                }
            }
        };
        match timeout(patience, hearing).await {
            Ok(heard) => heard.map_err(CommandError::of_watch),
            Err(_) => {
                let message = format!("the store has not told of {what} within {patience:?}");
                let error = CommandError::new(Kind::Timeout, message)
                    .hint("`mqkv monitor` in another terminal shows what the store tells, and to whom");
                Err(match skipped {
                    Some(cause) => error.cause(format!("what came instead makes no sense: {cause}")),
                    None => error,
                })
            }
        }
    }

    /// Sets the key; the store's clock.
    async fn set(&self, ttl_ms: NonZeroU64) -> Result<Timestamp, Error> {
        let value = Value::from("mqkv doctor");
        let request = Request::Set { key: self.key.clone(), value, condition: None, ttl_ms: Some(ttl_ms) };
        match self.client.request_at(&request, self.long_ago.clone()).await? {
            (Reply::Done, Some(version)) => Ok(version),
            (Reply::Done, None) => {
                let cause = "+OK to SET has no version (__ts)".to_owned();
                Err(Error::MalformedReply { cause, outcome: Outcome::Unknown })
            }
            (other, _) => Err(unexpected_reply(&request, &other)),
        }
    }

    async fn del(&self) -> Result<(), Error> {
        let request = Request::Del { key: self.key.clone() };
        match self.client.request_at(&request, self.long_ago.clone()).await? {
            // It may have expired meanwhile.
            (Reply::Count(0 | 1), _) => Ok(()),
            (other, _) => Err(unexpected_reply(&request, &other)),
        }
    }

    fn since(&self, at: Instant) -> Duration {
        clock::monotonic().saturating_duration_since(at)
    }
}

/// How far a clock is ahead that said this somewhere between asking and the answer.
fn difference(version: &Timestamp, asked_ms: u64, round_trip: Duration) -> (Detail, i64) {
    let half_ms = u64::try_from(round_trip.as_millis().div_ceil(2)).unwrap_or(u64::MAX);
    let here_ms = i128::from(asked_ms).saturating_add(i128::from(half_ms));
    let ahead_ms = i128::from(version.ms).saturating_sub(here_ms);
    let ahead_ms = i64::try_from(ahead_ms).unwrap_or(if ahead_ms > 0 { i64::MAX } else { i64::MIN });
    // Both clocks are read in whole milliseconds.
    (Detail::Clock { ahead_ms, margin_ms: half_ms.saturating_add(1) }, ahead_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_that_to_the_middle_of_the_round_trip() {
        let of = |there_ms, here_ms, round_trip_ms| {
            let there = Timestamp::of_store(there_ms, 0);
            difference(&there, here_ms, Duration::from_millis(round_trip_ms)).0
        };
        assert_eq!(of(1005, 1000, 10), Detail::Clock { ahead_ms: 0, margin_ms: 6 });
        assert_eq!(of(91_000, 1000, 1), Detail::Clock { ahead_ms: 89_999, margin_ms: 2 });
        assert_eq!(of(1000, 91_000, 0), Detail::Clock { ahead_ms: -90_000, margin_ms: 1 });
        assert_eq!(of(u64::MAX, 0, 0), Detail::Clock { ahead_ms: i64::MAX, margin_ms: 1 });
    }
}
