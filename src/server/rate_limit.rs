//! Keeps whoever does the same over and over from flooding what the operator is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::event::Event;
use super::event::EventSink;
use crate::broker::event::Subject;
use crate::clock;

/// How long is counted at a time.
const PERIOD: Duration = Duration::from_secs(10);
/// How many events of one subject are told in a period.
const TOLD_MAX: u32 = 100;
/// How many subjects are told apart in a period; the rest count as one.
const SUBJECTS_MAX: usize = 10_000;

/// A sink that passes on the first events of each subject in a period, and after it how many more there were.
#[must_use]
pub fn moderated(sink: EventSink) -> EventSink {
    let moderator = Arc::new(Moderated { sink, state: Mutex::default() });
    Arc::new(move |event| moderator.tell(event))
}

struct Moderated {
    sink: EventSink,
    state: Mutex<Moderator>,
}

impl Moderated {
    fn tell(self: &Arc<Self>, event: Event) {
        let now = clock::monotonic();
        let (events, is_first) = {
            let mut state = self.state();
            (state.handle(event, now), state.take_begun())
        };
        for event in events {
            (self.sink)(event);
        }
        // Without a runtime, what was left out is told with the next event.
        if is_first && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Self::tell_rest(Arc::downgrade(self), PERIOD));
        }
    }

    async fn tell_rest(moderated: Weak<Self>, after: Duration) {
        sleep(after).await;
        if let Some(moderated) = moderated.upgrade() {
            let rest = moderated.state().poll(clock::monotonic());
            for event in rest {
                (moderated.sink)(event);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, Moderator> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At the end the rest is told at once.
impl Drop for Moderated {
    fn drop(&mut self) {
        let rest = self.state().end();
        for event in rest {
            (self.sink)(event);
        }
    }
}

/// What an event is about, and whether it reports a failure.
type SubjectKind = (Option<Subject>, bool);

/// Counts the events of a period. Pure: time comes as an argument.
#[derive(Debug, Default)]
struct Moderator {
    since: Option<Instant>,
    counts: HashMap<SubjectKind, u32>,
    /// Whether something has been left out in this period.
    is_silent: bool,
    /// Whether that has just begun.
    has_begun: bool,
}

impl Moderator {
    /// Takes an event; gives back what is to be told now.
    fn handle(&mut self, event: Event, now: Instant) -> Vec<Event> {
        let mut told = self.poll(now);
        self.since.get_or_insert(now);
        let Some(subject) = event.subject() else {
            told.push(event);
            return told;
        };
        let mut subject = (Some(subject), event.is_failure());
        if self.counts.len() >= SUBJECTS_MAX && !self.counts.contains_key(&subject) {
            subject.0 = None;
        }
        let count = self.counts.entry(subject).or_insert(0);
        *count = count.saturating_add(1);
        if *count <= TOLD_MAX {
            told.push(event);
        } else if !self.is_silent {
            (self.is_silent, self.has_begun) = (true, true);
        }
        told
    }

    /// What was left out in a period that is over.
    fn poll(&mut self, now: Instant) -> Vec<Event> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) < PERIOD) {
            return Vec::new();
        }
        self.end()
    }

    /// What was left out in a period that ends now.
    fn end(&mut self) -> Vec<Event> {
        let counts = std::mem::take(self).counts;
        let mut left_out: Vec<_> = counts
            .into_iter()
            .filter(|(_, count)| *count > TOLD_MAX)
            .map(|((subject, is_failure), count)| {
                let (subject, count) =
                    (subject.unwrap_or(Subject::Other("others")), count.saturating_sub(TOLD_MAX));
                Event::LeftOut { subject, count, is_failure }
            })
            .collect();
        left_out.sort_unstable_by_key(ToString::to_string);
        left_out
    }

    fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.has_begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker;

    fn gone(client_id: &str) -> Event {
        let (client_id, reason) = (client_id.into(), "it disconnected".to_owned());
        broker::Event::Disconnected { client_id, reason }.into()
    }

    fn refused(port: usize) -> Event {
        let (remote, reason) = (format!("192.0.2.1:{port}"), "no CONNECT in time".to_owned());
        broker::Event::Refused { remote, reason }.into()
    }

    #[test]
    fn a_flood_of_one_client_is_cut_short_and_counted_and_others_are_heard() {
        let start = clock::monotonic();
        let mut moderator = Moderator::default();
        let told: usize = (0..180).map(|_| moderator.handle(gone("noisy"), start).len()).sum();
        assert_eq!(told, 100);
        assert!(moderator.take_begun() && !moderator.take_begun());
        assert_eq!(moderator.handle(gone("quiet"), start), [gone("quiet")]);
        let told: usize = (0..130).map(|port| moderator.handle(refused(port), start).len()).sum();
        assert_eq!(told, 100);
        assert_eq!(moderator.poll(start + PERIOD - Duration::from_millis(1)), []);
        let left_out: Vec<_> = moderator
            .poll(start + PERIOD)
            .into_iter()
            .map(|event| (event.to_string(), event.is_failure()))
            .collect();
        let expected = [
            ("… and 30 more from 192.0.2.1 within 10 s", true),
            ("… and 80 more of noisy within 10 s", false),
        ];
        assert_eq!(left_out, expected.map(|(text, is_trouble)| (text.to_owned(), is_trouble)));
        assert_eq!(moderator.handle(gone("noisy"), start + PERIOD), [gone("noisy")]);
    }

    #[test]
    fn what_concerns_nobody_is_always_told() {
        let now = clock::monotonic();
        let mut moderator = Moderator::default();
        let event = || Event::ClockBehind { by_ms: 1_000 };
        assert!((0..200).all(|_| moderator.handle(event(), now) == [event()]));
    }

    #[test]
    fn a_flood_of_many_clients_is_bounded_too() {
        let now = clock::monotonic();
        let mut moderator = Moderator::default();
        let all = SUBJECTS_MAX + 1000;
        let told: usize = (0..all).map(|number| moderator.handle(gone(&number.to_string()), now).len()).sum();
        assert_eq!((told, moderator.counts.len()), (SUBJECTS_MAX + 100, SUBJECTS_MAX + 1));
        assert_eq!(moderator.poll(now + PERIOD)[0].to_string(), "… and 900 more of others within 10 s");
    }

    #[tokio::test]
    async fn the_rest_is_told_though_nothing_more_happens() {
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let sink: EventSink = Arc::new(move |event| drop(sender.send(event)));
        let mut state = Moderator::default();
        for _ in 0..105 {
            state.handle(gone("noisy"), clock::monotonic());
        }
        // As if the period had begun before.
        state.since = state.since.and_then(|since| since.checked_sub(PERIOD));
        let moderated = Arc::new(Moderated { sink, state: Mutex::new(state) });
        Moderated::tell_rest(Arc::downgrade(&moderated), Duration::ZERO).await;
        assert_eq!(told.recv().await.unwrap().to_string(), "… and 5 more of noisy within 10 s");
    }

    #[test]
    fn the_rest_is_told_at_the_end() {
        let (sender, told) = std::sync::mpsc::channel();
        let sink = moderated(Arc::new(move |event: Event| drop(sender.send(event.to_string()))));
        (0..TOLD_MAX + 5).for_each(|_| sink(gone("noisy")));
        drop(sink);
        assert_eq!(told.iter().last().unwrap(), "… and 5 more of noisy within 10 s");
    }
}
