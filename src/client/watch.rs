//! The watch of some keys as a state machine: initial values, changes, gaps (pure).

use std::collections::{HashMap, VecDeque};

use crate::clock::Reading;
use crate::protocol::message::{Message, TIMESTAMP};
use crate::protocol::topic::Topic;
use crate::protocol::{Key, Notification, Timestamp, Value};

use super::Found;

/// What a watcher is told of one key, or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// What the key holds when the watch begins.
    Current {
        /// The key.
        key: Key,
        /// Its value, if it exists.
        found: Option<Found>,
    },
    /// The key was set.
    Set {
        /// The key.
        key: Key,
        /// Its new value, where the store names it.
        value: Option<Value>,
        /// The new version, where the store names it.
        version: Option<Timestamp>,
    },
    /// The key was deleted, or has expired.
    Delete {
        /// The key.
        key: Key,
        /// The version that is gone, where the store names it.
        version: Option<Timestamp>,
    },
    /// The connection is lost; nothing is told until it is back.
    Lost {
        /// Wall clock, milliseconds: the last time at which the watch was surely in force.
        since_ms: u64,
        /// Why it is lost.
        cause: String,
    },
    /// The connection was lost: changes between the two times may be unknown. In force again.
    Gap {
        /// Wall clock, milliseconds: the last time at which the watch was surely in force.
        since_ms: u64,
        /// Wall clock, milliseconds: from here on it is in force again.
        until_ms: u64,
    },
    /// What the key holds after a gap, where that differs from the last that was told.
    Resync {
        /// The key.
        key: Key,
        /// Its value, if it exists.
        found: Option<Found>,
    },
    /// A message came that says nothing about a watched key; it was skipped.
    Skipped {
        /// Its topic.
        topic: String,
        /// What is wrong with it.
        cause: String,
    },
}

/// What the watch asks of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Subscribe to the notifications; answered by [`Watch::handle_subscribed`].
    Subscribe,
    /// Send KEYNOTIFY for this key; answered by [`Watch::handle_registered`].
    Register(Key),
    /// Send GET for this key; answered by [`Watch::handle_read`].
    Read(Key),
}

/// The watch of some keys over one session, through losses of its connection.
///
/// Contract: the owner carries out every step of [`Watch::poll_step`], reports each one's success, and hands on every
/// notification of a watched key ([`recipient`] says which those are). A failed step ends the watch, except that steps which a lost connection took away are
/// begun again after [`Watch::handle_connected`]. Between the KEYNOTIFY's answer and the GET's nothing can be lost;
/// a change that comes before the GET's answer is held back, and told apart from it by its version.
#[derive(Debug)]
pub struct Watch {
    keys: HashMap<Key, Watched>,
    /// The keys in the order in which they were asked for.
    order: Vec<Key>,
    steps: VecDeque<Step>,
    events: VecDeque<WatchEvent>,
    /// Wall clock, milliseconds: since when changes may have been missed.
    gap_since_ms: Option<u64>,
    /// There is no connection, and that was told.
    lost: bool,
}

#[derive(Debug, Default)]
struct Watched {
    state: State,
    last: Option<Last>,
    /// Changes that came before the value.
    early: Vec<Change>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not registered in this connection.
    #[default]
    Unregistered,
    /// Registered, the value not known yet.
    Unread,
    /// The value is known, changes are told as they come.
    Live,
}

#[derive(Debug)]
struct Change {
    notification: Notification,
    version: Option<Timestamp>,
}

/// The last that was told of a key. A deletion carries the version of the value that it removes, so it comes after it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Last {
    version: Option<Timestamp>,
    deleted: bool,
}

/// Which key a message to this client notifies of.
///
/// # Errors
/// Why it is no notification, or none to this client.
pub fn recipient(message: &Message, client_id: &str) -> Result<Key, &'static str> {
    match Topic::parse(&message.topic) {
        Some(Topic::Notify { client_id: addressee, key }) if addressee == client_id.as_bytes() => Ok(key),
        Some(Topic::Notify { .. }) => Err("it notifies another client"),
        _ => Err("it is no notification of a key"),
    }
}

impl Watch {
    /// A watch of these keys, each of them once.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut watch = Self {
            keys: HashMap::new(),
            order: Vec::new(),
            steps: VecDeque::new(),
            events: VecDeque::new(),
            gap_since_ms: None,
            lost: false,
        };
        for key in keys {
            if watch.keys.insert(key.clone(), Watched::default()).is_none() {
                watch.order.push(key);
            }
        }
        watch
    }

    /// The watched keys, in the order in which they were asked for.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.order
    }

    /// Whether the key is watched.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// The session has a connection: everything is begun (again).
    pub fn handle_connected(&mut self) {
        self.steps = VecDeque::from([Step::Subscribe]);
        self.lost = false;
    }

    /// The session has lost its connection, or has failed to get another; it was surely there until `since_ms`
    /// (wall clock).
    pub fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        self.steps.clear();
        if !std::mem::replace(&mut self.lost, true) {
            self.events.push_back(WatchEvent::Lost { since_ms, cause: cause.to_owned() });
        }
        // Before the first value was told there is nothing to have a gap in.
        if self.keys.values().any(|watched| watched.last.is_some()) {
            self.gap_since_ms.get_or_insert(since_ms);
        }
        for watched in self.keys.values_mut() {
            // What came early is older than what the next GET will tell.
            watched.early.clear();
            watched.state = State::Unregistered;
        }
    }

    /// The subscription is in force.
    pub fn handle_subscribed(&mut self) {
        self.steps.extend(self.order.iter().cloned().map(Step::Register));
    }

    /// KEYNOTIFY is in force for the key.
    pub fn handle_registered(&mut self, key: &Key) {
        if let Some(watched) = self.keys.get_mut(key)
            && watched.state == State::Unregistered
        {
            watched.state = State::Unread;
            self.steps.push_back(Step::Read(key.clone()));
        }
    }

    /// The key's value is known.
    pub fn handle_read(&mut self, key: &Key, found: Option<Found>, now: Reading) {
        let Some(watched) = self.keys.get_mut(key) else { return };
        if watched.state != State::Unread {
            return;
        }
        watched.state = State::Live;
        let known = Last { version: found.as_ref().and_then(|found| found.version.clone()), deleted: false };
        let mut early = std::mem::take(&mut watched.early);
        if found.is_none() {
            // The value is gone, so whatever was told up to the last deletion is behind us.
            let last_delete = early.iter().rposition(|change| change.notification == Notification::Delete);
            early.drain(..last_delete.map_or(0, |at| at.saturating_add(1)));
        }
        let told = watched.last.take();
        let again = told.is_some();
        let changed = match (&told, &found) {
            (Some(told), None) => !told.deleted,
            (told, _) => told.as_ref() != Some(&known),
        };
        watched.last = Some(match (&found, told) {
            (Some(_), _) => known,
            (None, Some(told)) => Last { deleted: true, ..told },
            (None, None) => Last { version: None, deleted: true },
        });
        let key = key.clone();
        if again {
            self.tell_gap(now);
        }
        match (again, changed) {
            (false, _) => self.events.push_back(WatchEvent::Current { key: key.clone(), found }),
            (true, true) => self.events.push_back(WatchEvent::Resync { key: key.clone(), found }),
            (true, false) => {}
        }
        for change in early {
            self.tell(&key, change);
        }
    }

    /// The gap ends when the first key is known again; it is told once, before anything that follows it.
    fn tell_gap(&mut self, now: Reading) {
        if let Some(since_ms) = self.gap_since_ms.take() {
            let until_ms = now.wall_ms.max(since_ms);
            self.events.push_back(WatchEvent::Gap { since_ms, until_ms });
        }
    }

    /// A notification of a watched key came.
    pub fn handle_notification(&mut self, key: &Key, message: &Message) {
        let notification = match Notification::decode(&message.payload) {
            Ok(notification) => notification,
            Err(error) => return self.skip(message, error.to_string()),
        };
        let version = match message.user_property(TIMESTAMP).map(str::parse::<Timestamp>).transpose() {
            Ok(version) => version,
            Err(error) => return self.skip(message, error.to_string()),
        };
        let change = Change { notification, version };
        match self.keys.get_mut(key) {
            Some(watched) if watched.state != State::Live => watched.early.push(change),
            _ => self.tell(key, change),
        }
    }

    /// A message came that nobody can use: it is told and skipped.
    pub fn skip(&mut self, message: &Message, cause: String) {
        self.events.push_back(WatchEvent::Skipped { topic: message.topic.clone(), cause });
    }

    /// Tells a change, unless it is one that was told already.
    fn tell(&mut self, key: &Key, change: Change) {
        let Some(watched) = self.keys.get_mut(key) else { return };
        let Change { notification, version } = change;
        let next = Last { version, deleted: notification == Notification::Delete };
        // Without versions there is nothing to tell apart by: better twice than never.
        let versions =
            next.version.is_some() && watched.last.as_ref().is_some_and(|last| last.version.is_some());
        if versions && watched.last.as_ref().is_some_and(|last| next <= *last) {
            return;
        }
        let version = next.version.clone();
        watched.last = Some(next);
        let key = key.clone();
        self.events.push_back(match notification {
            Notification::Set(value) => WatchEvent::Set { key, value, version },
            Notification::Delete => WatchEvent::Delete { key, version },
        });
    }

    /// A step had no answer, though there is a connection: it is tried again.
    pub fn handle_unanswered(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    /// What to ask of the session next, if anything.
    pub fn poll_step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// What to tell the watcher next, if anything.
    pub fn poll_event(&mut self) -> Option<WatchEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests;
