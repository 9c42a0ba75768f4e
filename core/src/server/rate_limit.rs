//! Rate limiting of log events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::event::Event;
use super::event::EventSink;
use super::event::row::{Row, Subject};
use crate::clock;

/// The period in which events are counted.
const PERIOD: Duration = Duration::from_secs(10);
/// The most events of one subject that are logged in a period.
const EVENTS_MAX: u32 = 100;
/// The same of the machine.
const MACHINE_EVENTS_MAX: u32 = 10;
/// The most subjects that are counted separately in a period. All others count as one.
const SUBJECTS_MAX: usize = 10_000;

/// Returns a sink that forwards the first events of each subject in a period, and after the period the number of the
/// suppressed ones.
#[must_use]
pub fn rate_limited(sink: EventSink) -> EventSink {
    let limiter = Arc::new(RateLimiter { sink, state: Mutex::default() });
    Arc::new(move |event| limiter.handle(event))
}

struct RateLimiter {
    sink: EventSink,
    state: Mutex<EventCounts>,
}

impl RateLimiter {
    fn handle(self: &Arc<Self>, event: Event) {
        let now = clock::monotonic();
        let (events, is_first) = {
            let mut state = self.state();
            (state.handle(event, now), state.take_suppression_start())
        };
        for event in events {
            (self.sink)(event);
        }
        // Without a runtime the suppressed events are reported with the next event.
        if is_first && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Self::report_suppressed(Arc::downgrade(self), PERIOD));
        }
    }

    async fn report_suppressed(limiter: Weak<Self>, after: Duration) {
        sleep(after).await;
        if let Some(limiter) = limiter.upgrade() {
            let suppressed = limiter.state().poll(clock::monotonic());
            for event in suppressed {
                (limiter.sink)(event);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, EventCounts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the suppressed events of the last period.
impl Drop for RateLimiter {
    fn drop(&mut self) {
        let suppressed = self.state().end();
        for event in suppressed {
            (self.sink)(event);
        }
    }
}

/// The subject of an event, None for all subjects over the limit; and whether the event is a failure.
type SubjectKind = (Option<Subject>, bool);

fn events_max((subject, _): &SubjectKind) -> u32 {
    if matches!(subject, Some(Subject::Machine(_))) { MACHINE_EVENTS_MAX } else { EVENTS_MAX }
}

/// Counts of the events of a period (pure).
///
/// Contract: the owner logs the events that [`EventCounts::handle`] and [`EventCounts::poll`] return, and calls `poll` one period
/// after [`EventCounts::take_suppression_start`] has returned true.
#[derive(Debug, Default)]
struct EventCounts {
    since: Option<Instant>,
    counts: HashMap<SubjectKind, u32>,
    /// Whether an event was suppressed in this period.
    is_suppressing: bool,
    /// Whether that has not been reported by `take_suppression_start` yet.
    has_started: bool,
}

impl EventCounts {
    /// Counts an event. Returns the events to log now.
    fn handle(&mut self, event: Event, now: Instant) -> Vec<Event> {
        let mut events = self.poll(now);
        self.since.get_or_insert(now);
        let Row { subject, is_failure, .. } = event.row();
        if subject.is_none() {
            events.push(event);
            return events;
        }
        let mut subject = (subject, is_failure);
        if self.counts.len() >= SUBJECTS_MAX && !self.counts.contains_key(&subject) {
            subject.0 = None;
        }
        let max = events_max(&subject);
        let count = self.counts.entry(subject).or_insert(0);
        *count = count.saturating_add(1);
        if *count <= max {
            events.push(event);
        } else if !self.is_suppressing {
            (self.is_suppressing, self.has_started) = (true, true);
        }
        events
    }

    /// Ends the period if it is over. Returns the reports of suppressed events.
    fn poll(&mut self, now: Instant) -> Vec<Event> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) < PERIOD) {
            return Vec::new();
        }
        self.end()
    }

    /// Ends the period. Returns the reports of suppressed events.
    fn end(&mut self) -> Vec<Event> {
        let counts = std::mem::take(self).counts;
        let mut reports: Vec<_> = counts
            .into_iter()
            .filter(|(subject, count)| *count > events_max(subject))
            .map(|(subject, count)| {
                let count = count.saturating_sub(events_max(&subject));
                let (subject, is_failure) = subject;
                Event::LeftOut { subject: subject.unwrap_or(Subject::Other("others")), count, is_failure }
            })
            .collect();
        reports.sort_unstable_by_key(ToString::to_string);
        reports
    }

    /// Returns true once in a period, after the first suppressed event.
    fn take_suppression_start(&mut self) -> bool {
        std::mem::take(&mut self.has_started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker;

    fn gone(client_id: &str) -> Event {
        let (client_id, reason) = (client_id.into(), "closed by the client".to_owned());
        broker::Event::Disconnected { client_id, reason }.into()
    }

    fn refused(port: usize) -> Event {
        let (remote, reason) = (format!("192.0.2.1:{port}"), "no CONNECT in time".to_owned());
        broker::Event::Refused { remote, reason }.into()
    }

    #[test]
    fn events_over_the_limit_of_one_subject_are_counted_and_others_are_logged() {
        let start = clock::monotonic();
        let mut counts = EventCounts::default();
        let logged: usize = (0..180).map(|_| counts.handle(gone("noisy"), start).len()).sum();
        assert_eq!(logged, 100);
        assert!(counts.take_suppression_start() && !counts.take_suppression_start());
        assert_eq!(counts.handle(gone("quiet"), start), [gone("quiet")]);
        let logged: usize = (0..130).map(|port| counts.handle(refused(port), start).len()).sum();
        assert_eq!(logged, 100);
        assert_eq!(counts.poll(start + PERIOD - Duration::from_millis(1)), []);
        let reports: Vec<_> = counts
            .poll(start + PERIOD)
            .into_iter()
            .map(|event| (event.to_string(), event.row().is_failure))
            .collect();
        let expected = [
            ("… and 30 more from 192.0.2.1 within 10 s", true),
            ("… and 80 more of noisy within 10 s", false),
        ];
        assert_eq!(reports, expected.map(|(text, is_failure)| (text.to_owned(), is_failure)));
        assert_eq!(counts.handle(gone("noisy"), start + PERIOD), [gone("noisy")]);
    }

    #[test]
    fn failures_of_the_machine_are_a_line_a_second_at_most() {
        let start = clock::monotonic();
        let mut counts = EventCounts::default();
        let failed = || Event::from(broker::Event::AcceptFailed { reason: "no descriptor".to_owned() });
        let logged: usize = (0..500).map(|_| counts.handle(failed(), start).len()).sum();
        assert_eq!(logged, 10);
        let reports = counts.poll(start + PERIOD);
        let expected = "… and 490 more of connections that could not be accepted within 10 s";
        assert_eq!(reports.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn events_without_a_subject_are_never_suppressed() {
        let now = clock::monotonic();
        let mut counts = EventCounts::default();
        let event = || Event::ClockBehind { by_ms: 1_000 };
        assert!((0..200).all(|_| counts.handle(event(), now) == [event()]));
    }

    #[test]
    fn events_of_too_many_subjects_are_limited_together() {
        let now = clock::monotonic();
        let mut counts = EventCounts::default();
        let all = SUBJECTS_MAX + 1000;
        let logged: usize = (0..all).map(|number| counts.handle(gone(&number.to_string()), now).len()).sum();
        assert_eq!((logged, counts.counts.len()), (SUBJECTS_MAX + 100, SUBJECTS_MAX + 1));
        assert_eq!(counts.poll(now + PERIOD)[0].to_string(), "… and 900 more of others within 10 s");
    }

    #[tokio::test]
    async fn suppressed_events_are_reported_without_a_further_event() {
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let sink: EventSink = Arc::new(move |event| drop(sender.send(event)));
        let mut state = EventCounts::default();
        for _ in 0..105 {
            state.handle(gone("noisy"), clock::monotonic());
        }
        // Moves the start of the period into the past.
        state.since = state.since.and_then(|since| since.checked_sub(PERIOD));
        let limiter = Arc::new(RateLimiter { sink, state: Mutex::new(state) });
        RateLimiter::report_suppressed(Arc::downgrade(&limiter), Duration::ZERO).await;
        assert_eq!(events.recv().await.unwrap().to_string(), "… and 5 more of noisy within 10 s");
    }

    #[test]
    fn suppressed_events_are_reported_at_the_end() {
        let (sender, events) = std::sync::mpsc::channel();
        let sink = rate_limited(Arc::new(move |event: Event| drop(sender.send(event.to_string()))));
        (0..EVENTS_MAX + 5).for_each(|_| sink(gone("noisy")));
        drop(sink);
        assert_eq!(events.iter().last().unwrap(), "… and 5 more of noisy within 10 s");
    }
}
