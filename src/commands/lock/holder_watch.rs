//! Watches the key of a lock that another client holds.

use std::pin::Pin;
use std::time::{Duration, Instant};

use super::sleep::sleep_until;
use crate::client::{Client, Error, WatchEvent, Watcher};
use crate::clock;
use crate::protocol::{Key, Value};

/// The pause before a watch is requested again that got no answer.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// How often the holder is reported.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// An event of the lock's key.
#[derive(Debug)]
pub enum KeyEvent {
    /// The key exists, or it does not exist any more.
    Changed {
        exists: bool,
        /// The holder, if it is to be reported.
        holder: Option<HolderStatus>,
    },
    /// The key cannot be watched.
    Failed(Error),
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderStatus {
    /// The value of the key.
    pub holder: Value,
    /// The time since the last renewal, if it is longer than a lease lasts.
    pub unrenewed: Option<Duration>,
}

/// The watch of a lock's key, while the lock is waited for.
pub struct HolderWatch {
    client: Client,
    key: Key,
    ttl: Duration,
    state: State,
    holder: Option<Value>,
    /// The time of the last renewal; None after it has been reported as overdue.
    renewed_at: Option<Instant>,
    /// When the holder is reported next.
    report_at: Option<Instant>,
}

enum State {
    Off,
    Pausing(Instant),
    Starting(Pin<Box<dyn Future<Output = Result<Watcher, Error>> + Send>>),
    On(Watcher),
}

impl HolderWatch {
    /// Creates a watch that is not started.
    pub fn new(client: Client, key: Key, ttl: Duration) -> Self {
        Self { client, key, ttl, state: State::Off, holder: None, renewed_at: None, report_at: None }
    }

    pub fn start(&mut self) {
        self.renewed_at = Some(clock::boottime());
        self.state = self.starting();
    }

    fn starting(&self) -> State {
        let (client, key) = (self.client.clone(), self.key.clone());
        State::Starting(Box::pin(async move { client.watch([key]).await }))
    }

    /// Ends the watch; the future ends it at the store too.
    pub fn stop(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let state = std::mem::replace(&mut self.state, State::Off);
        async move {
            match state {
                State::Off | State::Pausing(_) => {}
                State::Starting(starting) => {
                    if let Ok(watcher) = starting.await {
                        watcher.stop().await;
                    }
                }
                State::On(watcher) => watcher.stop().await,
            }
        }
    }

    /// Returns the next event. Cancel-safe.
    pub async fn next(&mut self) -> KeyEvent {
        loop {
            let result = match &mut self.state {
                State::Off => std::future::pending().await,
                State::Pausing(end) => {
                    sleep_until(*end).await;
                    self.state = self.starting();
                    continue;
                }
                State::Starting(starting) => match starting.await {
                    Ok(watcher) => {
                        self.state = State::On(watcher);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                State::On(watcher) => {
                    let report_at = self.report_at;
                    tokio::select! {
                        biased;
                        event = watcher.next() => event,
                        () = sleep_until(report_at.unwrap_or_else(clock::boottime)), if report_at.is_some() => {
                            let now = clock::boottime();
                            self.report_at = now.checked_add(REPORT_EVERY);
                            match self.holder.clone() {
                                Some(holder) => return self.still_held(holder, now),
                                None => continue,
                            }
                        }
                    }
                }
            };
            match result {
                Ok(event) => {
                    if let Some(event) = self.handle(event, clock::boottime()) {
                        return event;
                    }
                }
                Err(Error::Timeout { .. } | Error::NoStore { .. } | Error::Lost { .. })
                    if !self.client.has_ended() =>
                {
                    let now = clock::boottime();
                    self.state = State::Pausing(now.checked_add(RETRY_AFTER).unwrap_or(now));
                }
                Err(error) => {
                    self.state = State::Off;
                    return KeyEvent::Failed(error);
                }
            }
        }
    }

    fn handle(&mut self, event: WatchEvent, now: Instant) -> Option<KeyEvent> {
        let is_initial = matches!(event, WatchEvent::Current { .. });
        let (exists, holder) = match event {
            WatchEvent::Current { found, .. } | WatchEvent::Resync { found, .. } => {
                (found.is_some(), found.map(|found| found.value))
            }
            WatchEvent::Set { value, .. } => (true, value.or_else(|| self.holder.take())),
            WatchEvent::Delete { .. } => (false, None),
            WatchEvent::Lost { .. } | WatchEvent::Gap { .. } | WatchEvent::Skipped { .. } => return None,
        };
        if !is_initial {
            self.renewed_at = Some(now);
        }
        self.holder.clone_from(&holder);
        if is_initial {
            self.report_at = now.checked_add(REPORT_EVERY);
        }
        let holder = holder.filter(|_| is_initial).map(|holder| HolderStatus { holder, unrenewed: None });
        Some(KeyEvent::Changed { exists, holder })
    }

    fn still_held(&self, holder: Value, now: Instant) -> KeyEvent {
        let since = self.renewed_at.map(|renewed_at| now.saturating_duration_since(renewed_at));
        let unrenewed = since.filter(|unrenewed| *unrenewed >= self.ttl);
        KeyEvent::Changed { exists: true, holder: Some(HolderStatus { holder, unrenewed }) }
    }

    /// Returns the holder when a try has failed, if it has not renewed the lock for longer than a lease lasts. Returns
    /// it once per holder.
    pub fn overdue(&mut self) -> Option<HolderStatus> {
        let unrenewed = clock::boottime().saturating_duration_since(self.renewed_at?);
        if unrenewed < self.ttl {
            return None;
        }
        let holder = self.holder.clone()?;
        self.renewed_at = None;
        Some(HolderStatus { holder, unrenewed: Some(unrenewed) })
    }
}
