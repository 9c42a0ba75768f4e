//! Watches a lock that somebody else holds.

use std::pin::Pin;
use std::time::{Duration, Instant};

use super::lease::LeaseEvent;
use crate::client::{Client, Error, WatchEvent, Watcher};
use crate::commands::lock::sleep::until;
use crate::protocol::{Key, Value};

/// After how long a watch that had no answer is begun again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What has become known of the lock's key.
#[derive(Debug)]
pub enum News {
    /// It exists (again), or it does not (any more).
    Changed {
        /// Whether it exists.
        exists: bool,
        /// What is worth telling.
        told: Option<LeaseEvent>,
    },
    /// The key cannot be watched.
    Failed(Error),
}

/// The watch of a lock's key, while one is wanted.
pub struct Waiting {
    client: Client,
    key: Key,
    ttl: Duration,
    state: State,
    holder: Option<Value>,
    /// Since when nothing has been heard of the holder.
    silent_since: Option<Instant>,
}

enum State {
    Off,
    Pausing(Instant),
    Beginning(Pin<Box<dyn Future<Output = Result<Watcher, Error>> + Send>>),
    On(Watcher),
}

impl Waiting {
    /// No watch yet.
    pub fn new(client: Client, key: Key, ttl: Duration) -> Self {
        Self { client, key, ttl, state: State::Off, holder: None, silent_since: None }
    }

    /// Begins to watch.
    pub fn begin(&mut self, now: Instant) {
        self.silent_since = Some(now);
        self.state = self.beginning();
    }

    fn beginning(&self) -> State {
        let (client, key) = (self.client.clone(), self.key.clone());
        State::Beginning(Box::pin(async move { client.watch([key]).await }))
    }

    /// Ends the watch, at the store too.
    pub fn end(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let state = std::mem::replace(&mut self.state, State::Off);
        async move {
            match state {
                State::Off | State::Pausing(_) => {}
                State::Beginning(begun) => {
                    if let Ok(watcher) = begun.await {
                        watcher.stop().await;
                    }
                }
                State::On(watcher) => watcher.stop().await,
            }
        }
    }

    /// The next that becomes known. May be dropped at any time.
    pub async fn next(&mut self, now: fn() -> Instant) -> News {
        loop {
            let result = match &mut self.state {
                State::Off => std::future::pending().await,
                State::Pausing(pause) => {
                    until(*pause, now).await;
                    self.state = self.beginning();
                    continue;
                }
                State::Beginning(begun) => match begun.await {
                    Ok(watcher) => {
                        self.state = State::On(watcher);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                State::On(watcher) => watcher.next().await,
            };
            match result {
                Ok(event) => {
                    if let Some(news) = self.understand(event, now()) {
                        return news;
                    }
                }
                Err(Error::Timeout { .. } | Error::NoStore { .. } | Error::Lost { .. })
                    if !self.client.has_ended() =>
                {
                    let now = now();
                    self.state = State::Pausing(now.checked_add(AGAIN_AFTER).unwrap_or(now));
                }
                Err(error) => {
                    self.state = State::Off;
                    return News::Failed(error);
                }
            }
        }
    }

    fn understand(&mut self, event: WatchEvent, now: Instant) -> Option<News> {
        let is_first = matches!(event, WatchEvent::Current { .. });
        let (exists, holder) = match event {
            WatchEvent::Current { found, .. } | WatchEvent::Resync { found, .. } => {
                (found.is_some(), found.map(|found| found.value))
            }
            WatchEvent::Set { value, .. } => (true, value.or_else(|| self.holder.take())),
            WatchEvent::Delete { .. } => (false, None),
            WatchEvent::Lost { .. } | WatchEvent::Gap { .. } | WatchEvent::Skipped { .. } => return None,
        };
        if !is_first {
            self.silent_since = Some(now);
        }
        self.holder.clone_from(&holder);
        let told = holder.filter(|_| is_first).map(|holder| LeaseEvent::Held { holder, silent: None });
        Some(News::Changed { exists, told })
    }

    /// A try was refused: whether that holder has been silent for longer than a lease should last. Told once a holder.
    pub fn still_held(&mut self, now: Instant) -> Option<LeaseEvent> {
        let silent = now.saturating_duration_since(self.silent_since?);
        if silent < self.ttl {
            return None;
        }
        let holder = self.holder.clone()?;
        self.silent_since = None;
        Some(LeaseEvent::Held { holder, silent: Some(silent) })
    }
}
