//! Checks the store behind the broker: its replies, its clock, its notifications.

use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::check::{Check, Detail, Warning};
use super::report::Report;
use crate::client::{
    Access, Client, Error, Outcome, RawRequest, WatchEvent, Watcher, decode_response, unexpected_reply,
};
use crate::clock;
use crate::commands::error::{CLOCK_HINT, CommandError, Kind};
use crate::protocol::message::Qos;
use crate::protocol::{Key, Reply, Request, Timestamp, Value, timestamp, topic};
use crate::random;

/// The difference between the clocks that is a warning, in milliseconds.
const SKEW_WARN_MS: u64 = 10_000;
/// The difference from which requests or replies are rejected (protocol §2), in milliseconds.
const SKEW_FAIL_MS: u64 = timestamp::SKEW_MAX_MS;
/// The pause between two versions that shows whether the store's versions advance with time.
const ADVANCE_PAUSE: Duration = Duration::from_millis(100);
/// A time in the past of every machine: September 2001.
const PAST_MS: u64 = 1_000_000_000_000;
/// The time to live of the key, in case it cannot be deleted.
const CLOCK_TTL_MS: NonZeroU64 = NonZeroU64::new(1000).unwrap();
/// The same while notifications are awaited.
const WATCH_TTL_MS: NonZeroU64 = NonZeroU64::new(30_000).unwrap();

/// Checks the store with a key that does not exist; `no_writes` is the reason for skipping the checks that write.
pub(super) async fn check(
    client: &Client,
    key: &Key,
    request_timeout: Duration,
    no_writes: Option<&str>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let bug = |error: String| CommandError::new(Kind::Bug, error);
    let past = match Timestamp::zero(format!("doctor{:016x}", random::u64())) {
        Ok(zero) => zero.tick(PAST_MS),
        Err(error) => return report.fail(Check::Settings, None, bug(error.to_string())),
    };
    let store = Store { client, key: key.clone(), past, request_timeout };
    report.start();
    if !store.subscribe(report).await? || !store.request(report).await? {
        return report.skip_rest();
    }
    if let Some(why) = no_writes {
        report.skip(Check::Clock, why)?;
        return report.skip(Check::Notifications, why);
    }
    report.start();
    if !store.clock(report).await? {
        return if report.has(Check::Notifications) { Ok(()) } else { report.skip_rest() };
    }
    report.start();
    match store.notifications().await {
        Ok(detail) => report.pass(Check::Notifications, detail, Vec::new()),
        Err(error) => report.fail(Check::Notifications, None, error),
    }
}

struct Store<'a> {
    client: &'a Client,
    /// The key that is set and deleted.
    key: Key,
    /// The timestamp of all writes. The store replies with its own clock, and never rejects this one as too far ahead.
    past: Timestamp,
    request_timeout: Duration,
}

impl Store<'_> {
    async fn subscribe(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let topic = topic::response(&self.client.connection_info().client_id);
        match self.client.subscribe(vec![topic.clone()]).await {
            Ok(subscription) => {
                let granted = subscription.granted_qos();
                let warning = (granted == Qos::AtMostOnce).then(|| Warning {
                    message: "the broker grants QoS 0: replies may be lost".to_owned(),
                    hint: "allow QoS 1 for subscriptions of this client".to_owned(),
                });
                let detail = Detail::Subscription { topic, qos: granted as u8 };
                report.pass(Check::Subscribe, detail, warning.into_iter().collect())?;
                Ok(true)
            }
            Err(error) => report.fail(Check::Subscribe, None, error).map(|()| false),
        }
    }

    /// Returns whether a store answers, even with an error.
    async fn request(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let request = Request::Get { key: self.key.clone() };
        let raw = RawRequest { payload: request.encode(), access: Access::Read, properties: None };
        let response = self.client.send(raw).await;
        let has_status = response.as_ref().is_ok_and(|response| response.has_status);
        let result = match response.and_then(|response| decode_response(request.verb(), response)) {
            Ok((Reply::Absent | Reply::Value(_), _)) => Ok(()),
            Ok((other, _)) => Err(unexpected_reply(request.verb(), &other)),
            Err(error) => Err(error),
        };
        let denied = match &result {
            // The store has answered. The rules may allow this client keys of its own only.
            Err(Error::Denied(denial)) => Some(Warning {
                message: format!("the store refuses the key of this check: {denial}"),
                hint: "the client needs permissions for the keys that it uses only: mqkv get KEY".to_owned(),
            }),
            _ => None,
        };
        match result {
            Ok(()) | Err(Error::Denied(_)) => {
                let warning = (!has_status).then(|| Warning {
                    message: "the reply has no __stat: Microsoft's clients reject it".to_owned(),
                    hint: "use a store that sends __stat with every reply".to_owned(),
                });
                let detail = Detail::Answer { key: self.key.clone() };
                report.pass(Check::Request, detail, denied.into_iter().chain(warning).collect())?;
                Ok(true)
            }
            Err(error) => {
                let answers = matches!(error, Error::Refused(_) | Error::ClockSkew { .. });
                let is_silent = matches!(error, Error::Timeout { .. });
                let mut error = CommandError::from(error);
                if is_silent {
                    // Mosquitto accepts the subscription, and then delivers nothing.
                    let topic = topic::response(&self.client.connection_info().client_id);
                    error = error.hint(format!(
                        "if the store runs: the rules of the broker must allow this client to receive on {topic}"
                    ));
                }
                report.fail(Check::Request, None, error)?;
                Ok(answers)
            }
        }
    }

    /// Returns whether the store accepts writes. If no rule allows them, `notifications` is skipped too.
    async fn clock(&self, report: &mut Report<'_>) -> io::Result<bool> {
        let (sent_ms, sent) = (clock::wall_ms(), clock::monotonic());
        let version = self.set(CLOCK_TTL_MS).await;
        let (round_trip, answered) = (elapsed(sent), clock::monotonic());
        let version = match version {
            Ok(version) => version,
            // As with `request`: the rules may allow this client keys of its own only.
            Err(Error::Denied(denial)) => {
                let why = format!("it writes, and the store refuses the key of this check: {denial}");
                report.skip(Check::Clock, &why)?;
                report.skip(Check::Notifications, &why)?;
                return Ok(false);
            }
            Err(error) => return report.fail_at(answered, Check::Clock, None, error).map(|()| false),
        };
        // If this fails, the key expires within a second.
        let _ = self.del().await;
        let (detail, ahead_ms) = difference(&version, sent_ms, round_trip);
        match ahead_ms.unsigned_abs() {
            ..SKEW_WARN_MS => report.pass_at(answered, Check::Clock, detail, Vec::new())?,
            skew_ms => {
                let is_ahead = ahead_ms > 0;
                let stands = is_ahead && self.stands(&version, answered).await;
                let Warning { message, hint } = explain(skew_ms, is_ahead, stands, clock::is_synchronized());
                if skew_ms < SKEW_FAIL_MS {
                    let warning = Warning { message, hint };
                    report.pass_at(answered, Check::Clock, detail, vec![warning])?;
                } else {
                    let error = CommandError::new(Kind::Refused, message).hint(hint);
                    report.fail_at(answered, Check::Clock, Some(detail), error)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns whether the store's versions have not advanced with time since the store returned this one.
    async fn stands(&self, version: &Timestamp, returned: Instant) -> bool {
        sleep(ADVANCE_PAUSE).await;
        let half_ms = elapsed(returned).as_millis() / 2;
        let next = self.set(CLOCK_TTL_MS).await;
        let _ = self.del().await;
        next.is_ok_and(|next| u128::from(next.ms.saturating_sub(version.ms)) < half_ms)
    }

    async fn notifications(&self) -> Result<Detail, CommandError> {
        let watcher = self.client.watch([self.key.clone()]).await;
        let mut watcher = watcher.map_err(CommandError::of_watch)?;
        let result = self.changes(&mut watcher).await;
        if result.is_err() {
            // If this fails, the key expires.
            let _ = self.del().await;
        }
        watcher.stop().await;
        result
    }

    async fn changes(&self, watcher: &mut Watcher) -> Result<Detail, CommandError> {
        let is_current = |event: &WatchEvent| matches!(event, WatchEvent::Current { .. });
        // SUBSCRIBE, KEYNOTIFY and GET have their own timeouts with better messages, so this one is longer than all three.
        let initial_timeout = self.request_timeout.saturating_mul(4);
        self.wait_for(watcher, "the initial value of a watched key", is_current, initial_timeout).await?;
        let sent = clock::monotonic();
        self.set(WATCH_TTL_MS).await?;
        let is_set = |event: &WatchEvent| matches!(event, WatchEvent::Set { .. });
        self.wait_for(watcher, "the SET of a watched key", is_set, self.request_timeout).await?;
        let set = elapsed(sent);
        let sent = clock::monotonic();
        self.del().await?;
        let is_delete = |event: &WatchEvent| matches!(event, WatchEvent::Delete { .. });
        self.wait_for(watcher, "the DEL of a watched key", is_delete, self.request_timeout).await?;
        Ok(Detail::Notified { set, delete: elapsed(sent) })
    }

    /// Waits for an event. The error has the notification that was skipped meanwhile.
    async fn wait_for(
        &self,
        watcher: &mut Watcher,
        what: &str,
        is_expected: impl Fn(&WatchEvent) -> bool,
        limit: Duration,
    ) -> Result<(), CommandError> {
        let mut skipped = None;
        let events = async {
            loop {
                match watcher.next().await? {
                    event if is_expected(&event) => return Ok(()),
                    WatchEvent::Skipped { cause, .. } => skipped = Some(cause),
                    _ => {}
                }
            }
        };
        match timeout(limit, events).await {
            Ok(result) => result.map_err(CommandError::of_watch),
            Err(_) => {
                let message = format!("timed out after {limit:?}: no notification of {what}");
                let error = CommandError::new(Kind::Timeout, message)
                    .hint("run `mqkv monitor` in another terminal to see the notifications of the store");
                Err(match skipped {
                    Some(cause) => error.cause(format!("malformed notification: {cause}")),
                    None => error,
                })
            }
        }
    }

    /// Sets the key. Returns the version, which is the store's clock.
    async fn set(&self, ttl_ms: NonZeroU64) -> Result<Timestamp, Error> {
        let value = Value::from("mqkv doctor");
        let request = Request::Set { key: self.key.clone(), value, condition: None, ttl_ms: Some(ttl_ms) };
        match self.client.request_at(&request, self.past.clone()).await? {
            (Reply::Done, Some(version)) => Ok(version),
            (Reply::Done, None) => {
                let cause = "+OK to SET has no version (__ts)".to_owned();
                Err(Error::MalformedReply { cause, outcome: Outcome::Unknown })
            }
            (other, _) => Err(unexpected_reply(request.verb(), &other)),
        }
    }

    async fn del(&self) -> Result<(), Error> {
        let request = Request::Del { key: self.key.clone() };
        match self.client.request_at(&request, self.past.clone()).await? {
            // The key may have expired meanwhile.
            (Reply::Count(0 | 1), _) => Ok(()),
            (other, _) => Err(unexpected_reply(request.verb(), &other)),
        }
    }
}

fn elapsed(since: Instant) -> Duration {
    clock::monotonic().saturating_duration_since(since)
}

/// Returns what is known about clocks that differ, and what to do. `stands`: the store's versions do not advance with time.
fn explain(skew_ms: u64, is_ahead: bool, stands: bool, is_synchronized: Option<bool>) -> Warning {
    let seconds = skew_ms / 1000;
    if stands {
        return Warning {
            message: format!(
                "the store's versions are {seconds} s ahead of this machine's clock, and stand still: the store's own \
                 clock was ahead before and has been set back; the limit is 60 s"
            ),
            hint: format!(
                "wait {seconds} s until the store's clock has caught up with its versions; a store in memory can be \
                 restarted instead, and one of `mqkv serve --data DIR` repaired: mqkv data lower-versions DIR"
            ),
        };
    }
    let side = if is_ahead { "ahead of" } else { "behind" };
    let hint = match is_synchronized {
        Some(true) => {
            "a time server synchronizes the clock of this machine: correct the clock of the broker's machine"
        }
        // Without a time server of its own, a virtual machine may follow the clock of its host.
        Some(false) | None => CLOCK_HINT,
    };
    Warning {
        message: format!("the store's clock is {seconds} s {side} this machine's; the limit is 60 s"),
        hint: hint.to_owned(),
    }
}

/// Returns by how much the store's clock is ahead. The version was created between the request and the reply.
fn difference(version: &Timestamp, sent_ms: u64, round_trip: Duration) -> (Detail, i64) {
    let half_ms = u64::try_from(round_trip.as_millis().div_ceil(2)).unwrap_or(u64::MAX);
    let here_ms = i128::from(sent_ms).saturating_add(i128::from(half_ms));
    let ahead_ms = i128::from(version.ms).saturating_sub(here_ms);
    let ahead_ms = i64::try_from(ahead_ms).unwrap_or(if ahead_ms > 0 { i64::MAX } else { i64::MIN });
    // Both clocks are read in whole milliseconds.
    (Detail::Clock { ahead_ms, margin_ms: half_ms.saturating_add(1) }, ahead_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_the_clock_that_is_wrong_if_it_is_known() {
        let hint =
            |is_ahead, stands, is_synchronized| explain(90_500, is_ahead, stands, is_synchronized).hint;
        for is_ahead in [true, false] {
            assert!(hint(is_ahead, false, Some(true)).ends_with("correct the clock of the broker's machine"));
            assert_eq!(hint(is_ahead, false, Some(false)), CLOCK_HINT);
            assert_eq!(hint(is_ahead, false, None), CLOCK_HINT);
        }
        assert!(hint(true, true, Some(true)).starts_with("wait 90 s until the store's clock has caught up"));
    }

    #[test]
    fn the_difference_is_to_the_middle_of_the_round_trip() {
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
