//! A watch of keys as a state machine: initial values, changes, gaps (pure).

mod discovery;
mod prefix;

use std::collections::{HashMap, VecDeque};

use crate::clock::Reading;
use crate::protocol::message::{KEY_FENCE, Message, TIME_TO_LIVE, TIMESTAMP};
use crate::protocol::topic::Topic;
use crate::protocol::{Details, Key, Notification, Timestamp, Value};

use self::discovery::PrefixState;
pub use self::discovery::{Discovery, Registration};
use super::results::VersionedValue;

/// For how many listings a deleted key is still watched: a key that is set and deleted again and again stays watched.
const UNLISTED_MAX: u32 = 20;

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The value of a key at the start of the watch, if it exists.
    Current { key: Key, found: Option<VersionedValue> },
    /// The key was set. Value, version and details are None if the store did not send them.
    Set { key: Key, value: Option<Value>, version: Option<Timestamp>, details: Option<Box<Details>> },
    /// The key was deleted, or has expired. The version is the deleted one; None if the store did not send it.
    Delete { key: Key, version: Option<Timestamp> },
    /// The connection was lost. No events follow until it is made again.
    Lost {
        /// Wall clock, milliseconds: the last time at which the watch was certainly in force.
        since_ms: u64,
        cause: String,
    },
    /// The watch is in force again. Changes between the two times may be missing.
    Gap {
        /// Wall clock, milliseconds: the last time at which the watch was certainly in force.
        since_ms: u64,
        /// Wall clock, milliseconds: the time from which on it is in force again.
        until_ms: u64,
    },
    /// The value of a key after a gap, if it differs from the last reported one, or if the store has started anew: its
    /// versions are then older than the reported ones.
    Resync { key: Key, found: Option<VersionedValue> },
    /// A message on this topic is no valid notification of a watched key, and was skipped.
    Skipped { topic: String, cause: String },
}

/// An action for the owner of the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchAction {
    /// Subscribe to the notifications; answered by [`Watch::handle_subscribed`].
    Subscribe,
    /// Send KEYNOTIFY; answered by [`Watch::handle_registered`] or, for a prefix, by [`Watch::handle_prefix_registered`] or
    /// [`Watch::handle_prefix_refused`].
    Register(Registration),
    /// Send GET for this key; answered by [`Watch::handle_read`].
    Read(Key),
}

/// A watch of keys in one session, through losses of its connection.
///
/// Contract: the owner carries out every action of [`Watch::poll_action`] and reports each success, and it passes on every
/// notification of a key that it [covers](Watch::covers), as found by [`notified_key`]. A failed action ends the watch, except that the actions of a lost
/// connection start over after [`Watch::handle_connected`].
///
/// No change is missed: notifications are in force before the value is read. A change that arrives before the value is held
/// back, and compared with the value by its version.
///
/// Versions order the changes of one life of the store only. A store that keeps its keys in memory may give older versions
/// after a restart, and a restart ends the connection. So the first state that a connection reports for a key replaces the
/// state of the earlier connection, however old its version.
///
/// The keys are those of [`Watch::new`], or those with the prefix of [`Watch::of_prefix`]. These are found by listings, which the
/// owner passes to [`Watch::handle_listing`] as [`Watch::poll_discovery`] asks for it, and by notifications if the store has the
/// extension for that.
#[derive(Debug)]
pub struct Watch {
    keys: HashMap<Key, Watched>,
    /// The keys in the order of [`Watch::new`] or in which they were found.
    order: Vec<Key>,
    /// If the keys are those with a prefix.
    prefix: Option<Box<PrefixState>>,
    actions: VecDeque<WatchAction>,
    events: VecDeque<WatchEvent>,
    /// Wall clock, milliseconds: start of the gap that is not reported yet.
    gap_since_ms: Option<u64>,
    /// Whether the loss of the connection has been reported.
    is_lost: bool,
}

#[derive(Debug, Default)]
struct Watched {
    state: State,
    /// Whether a listing has found the key after the start of the watch: its first value is a change.
    is_late: bool,
    /// The number of successive listings without the key.
    unlisted: u32,
    last: Option<Last>,
    origin: Origin,
    /// Changes that arrived before the value.
    early: Vec<Change>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not registered in this connection.
    #[default]
    Unregistered,
    /// Registered; the value has not been read.
    Unread,
    /// The value has been read; changes are reported as they arrive.
    Live,
}

/// The connection that `last` was received on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    #[default]
    Current,
    /// The store may have started anew since then.
    Earlier,
    /// Like `Earlier`; the absence of the key has been reported on this connection.
    Resynced,
}

#[derive(Debug)]
struct Change {
    notification: Notification,
    version: Option<Timestamp>,
    details: Option<Box<Details>>,
}

/// The last reported state of a key. Its order is the order of changes: a deletion has the version of the value that it
/// removes, and follows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Last {
    version: Option<Timestamp>,
    is_deleted: bool,
}

impl Last {
    /// Returns whether this state is the other one or an older one. Without versions the order is unknown: a change that is
    /// reported twice is better than a missing one.
    fn is_older(&self, than: &Self) -> bool {
        self.version.is_some() && than.version.is_some() && self <= than
    }
}

impl Watched {
    /// Whether the key was deleted, as far as this connection has read it.
    fn is_gone(&self) -> bool {
        self.state == State::Live && self.last.as_ref().is_some_and(|last| last.is_deleted)
    }

    /// Returns whether a change that is older than the last reported state belongs to a new life of the store.
    ///
    /// It does if the key was absent when this connection read it, and the change sets the key with an older version: the
    /// broker drops the notifications of an earlier connection with that connection's session. A deletion, or a SET with the
    /// same version, repeats what has been reported.
    fn is_from_new_life(&self, next: &Last) -> bool {
        let is_replaced = self.last.as_ref().is_some_and(|last| next.version < last.version);
        self.origin != Origin::Current && !next.is_deleted && is_replaced
    }
}

/// Returns the key that a message notifies this client of.
///
/// # Errors
/// It is no notification, or a notification of another client.
pub fn notified_key(message: &Message, client_id: &str) -> Result<Key, &'static str> {
    match Topic::parse(&message.topic) {
        Some(Topic::Notify { client_id: addressee, key }) if addressee == client_id.as_bytes() => Ok(key),
        Some(Topic::Notify { .. }) => Err("notification of another client"),
        _ => Err("not a notification of a key"),
    }
}

impl Watch {
    /// Returns a watch of these keys. Duplicates are ignored.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut watch = Self {
            keys: HashMap::new(),
            order: Vec::new(),
            prefix: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            gap_since_ms: None,
            is_lost: false,
        };
        for key in keys {
            if !watch.contains(&key) {
                watch.add(key, Watched::default());
            }
        }
        watch
    }

    /// Adds a key that is not watched.
    fn add(&mut self, key: Key, watched: Watched) {
        self.order.push(key.clone());
        self.keys.insert(key, watched);
    }

    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    /// Handles a new connection: all actions start over.
    pub fn handle_connected(&mut self) {
        self.actions = VecDeque::from([WatchAction::Subscribe]);
        self.is_lost = false;
    }

    /// Handles the loss of the connection, or a failed attempt. The connection was certainly up at `since_ms` (wall clock).
    pub fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        self.actions.clear();
        let was_notified = self.handle_prefix_lost();
        if !std::mem::replace(&mut self.is_lost, true) {
            self.events.push_back(WatchEvent::Lost { since_ms, cause: cause.to_owned() });
        }
        // Before the first reported value there is nothing to have a gap in.
        if was_notified || self.keys.values().any(|watched| watched.last.is_some()) {
            self.gap_since_ms.get_or_insert(since_ms);
        }
        for watched in self.keys.values_mut() {
            // These changes are older than the value that will be read next.
            watched.early.clear();
            watched.state = State::Unregistered;
            watched.origin = Origin::Earlier;
        }
    }

    /// Handles that the subscription is in force.
    pub fn handle_subscribed(&mut self) {
        match &self.prefix {
            Some(prefix) => self.actions.push_back(WatchAction::Register(prefix.registration())),
            None => self.register_keys(),
        }
    }

    fn register_keys(&mut self) {
        let keys = self.order.iter().cloned().map(Registration::Key);
        self.actions.extend(keys.map(WatchAction::Register));
    }

    /// Handles that KEYNOTIFY is in force for the key.
    pub fn handle_registered(&mut self, key: &Key) {
        if let Some(watched) = self.keys.get_mut(key)
            && watched.state == State::Unregistered
        {
            watched.state = State::Unread;
            self.actions.push_back(WatchAction::Read(key.clone()));
        }
    }

    /// Handles the value of a key.
    pub fn handle_read(&mut self, key: &Key, found: Option<VersionedValue>, now: Reading) {
        let Some(watched) = self.keys.get_mut(key) else { return };
        if watched.state != State::Unread {
            return;
        }
        watched.state = State::Live;
        let is_late = watched.is_late;
        let mut early = std::mem::take(&mut watched.early);
        let next = match &found {
            Some(found) => Some(Last { version: found.version.clone(), is_deleted: false }),
            // The key is absent, so all changes up to the last deletion are older than the read.
            None => {
                let deletion = early.iter().rposition(|change| change.notification == Notification::Delete);
                let older = early.drain(..deletion.map_or(0, |at| at.saturating_add(1)));
                older.last().map(|change| Last { version: change.version, is_deleted: true })
            }
        };
        let reported = watched.last.take();
        let is_resync = reported.is_some();
        let is_changed = match (&reported, &found) {
            // Older changes on this connection are those of a new life.
            (Some(reported), None) => {
                !reported.is_deleted || next.as_ref().is_some_and(|next| next.is_older(reported))
            }
            (reported, _) => *reported != next,
        };
        (watched.last, watched.origin) = match (next, reported) {
            (Some(next), _) => (Some(next), Origin::Current),
            // The answer has no version. The last one still identifies a repeated notification.
            (None, Some(reported)) => {
                let origin = if is_changed { Origin::Resynced } else { watched.origin };
                (Some(Last { is_deleted: true, ..reported }), origin)
            }
            (None, None) => (Some(Last { version: None, is_deleted: true }), Origin::Current),
        };
        let key = key.clone();
        if is_resync {
            self.report_gap(now);
        }
        match (is_resync, is_changed) {
            (false, _) if is_late => {
                // A key that was deleted since it was listed is not reported, because its value was not either.
                let set = |VersionedValue { value, version, details }| WatchEvent::Set {
                    key: key.clone(),
                    value: Some(value),
                    version,
                    details,
                };
                self.events.extend(found.map(set));
            }
            (false, _) => self.events.push_back(WatchEvent::Current { key: key.clone(), found }),
            (true, true) => self.events.push_back(WatchEvent::Resync { key: key.clone(), found }),
            (true, false) => {}
        }
        for change in early {
            self.report(&key, change);
        }
    }

    /// Reports the gap once, when the first key has been read again, before any event that follows it.
    fn report_gap(&mut self, now: Reading) {
        if let Some(since_ms) = self.gap_since_ms.take() {
            let until_ms = now.wall_ms.max(since_ms);
            self.events.push_back(WatchEvent::Gap { since_ms, until_ms });
        }
    }

    /// Handles a notification of a watched key.
    pub fn handle_notification(&mut self, key: &Key, message: &Message) {
        let notification = match Notification::decode(&message.payload) {
            Ok(notification) => notification,
            Err(error) => return self.skip(message, error.to_string()),
        };
        let version = match message.user_property(TIMESTAMP).map(str::parse::<Timestamp>).transpose() {
            Ok(version) => version,
            Err(error) => return self.skip(message, error.to_string()),
        };
        let (ttl, fence) = (message.user_property(TIME_TO_LIVE), message.user_property(KEY_FENCE));
        let details = match Details::parse(ttl, fence) {
            Ok(details) => details.map(Box::new),
            Err(name) => return self.skip(message, format!("malformed {name}")),
        };
        let change = Change { notification, version, details };
        match self.keys.get_mut(key) {
            Some(watched) if watched.state != State::Live => watched.early.push(change),
            Some(_) => {
                self.report(key, change);
                self.forget_many_deleted();
            }
            None => self.handle_found(key, change),
        }
    }

    /// Reports a message that cannot be used.
    pub fn skip(&mut self, message: &Message, cause: String) {
        self.events.push_back(WatchEvent::Skipped { topic: message.topic.to_string(), cause });
    }

    /// Reports a change, unless it is older than the last reported state.
    fn report(&mut self, key: &Key, change: Change) {
        let Some(watched) = self.keys.get_mut(key) else { return };
        let Change { notification, version, details } = change;
        let next = Last { version, is_deleted: notification == Notification::Delete };
        let is_older = watched.last.as_ref().is_some_and(|last| next.is_older(last));
        let is_new_life = is_older && watched.is_from_new_life(&next);
        if is_older && !is_new_life {
            return;
        }
        if is_new_life && watched.origin == Origin::Earlier {
            self.events.push_back(WatchEvent::Resync { key: key.clone(), found: None });
        }
        let version = next.version.clone();
        (watched.last, watched.origin) = (Some(next), Origin::Current);
        let key = key.clone();
        match notification {
            Notification::Set(value) => {
                self.events.push_back(WatchEvent::Set { key, value, version, details });
            }
            Notification::Delete => {
                self.events.push_back(WatchEvent::Delete { key, version });
                self.count_deletion();
            }
        }
    }

    /// Handles an action without an answer, although there is a connection: repeats it.
    pub fn handle_unanswered(&mut self, step: WatchAction) {
        self.actions.push_back(step);
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<WatchAction> {
        self.actions.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<WatchEvent> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests;
