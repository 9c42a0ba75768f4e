//! The watches of a session: carries out their actions, and delivers events to their handles.

use std::collections::{HashMap, HashSet};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::error::Error;
use super::request::{RawRequest, RequestProperties, Response, decode_response, unexpected_reply};
use super::results::VersionedValue;
use super::watch::{Watch, WatchAction, WatchEvent, notified_key};
use crate::clock::Reading;
use crate::protocol::message::{Message, Qos};
use crate::protocol::{Key, Reply, Request, topic};

/// Identifies a watch within its session.
pub(super) type WatchId = u64;

/// The channel of a watch's events. An error is the last event.
pub(super) type EventSender = mpsc::Sender<Result<WatchEvent, Error>>;

/// Identifies the watch and action of a response.
#[derive(Debug)]
pub(super) struct ActionTicket {
    watch: WatchId,
    action: WatchAction,
}

impl ActionTicket {
    /// Returns the topic of the notifications of the key, if the action is about one, and otherwise the filter for all keys.
    pub(super) fn topic(&self, client_id: &str) -> String {
        let topic = match &self.action {
            WatchAction::Register(key) => topic::notify(client_id, key),
            WatchAction::Subscribe | WatchAction::Read(_) => None,
        };
        topic.unwrap_or_else(|| topic::notify_filter(client_id))
    }
}

/// The watches of one session, through losses of its connection.
///
/// Contract: the owner reports connections, losses, messages and answers with `handle_*`, and sends every call of
/// [`Watches::poll_call`]. Afterwards it calls [`Watches::deliver`], and reads no packets while that returns a full channel. It
/// removes the watches of [`Watches::dropped`] and stops the notifications of their keys.
#[derive(Debug, Default)]
pub(super) struct Watches {
    active: HashMap<WatchId, Active>,
    /// Keys whose notifications the store has been asked to stop, without an answer yet.
    stopping: HashSet<Key>,
    /// The keys whose topics were subscribed to in this connection; `None` if one filter is for all.
    subscribed: Option<HashSet<Key>>,
}

#[derive(Debug)]
struct Active {
    watch: Watch,
    events: EventSender,
    /// Whether it has had an initial value: then a timeout is retried, before that it ends the watch.
    is_established: bool,
}

/// A call to the session for an action.
pub(super) enum WatchCall {
    Subscribe(ActionTicket),
    Send(RawRequest, ActionTicket),
}

impl Active {
    /// Delivers the pending events and then the error, in a task of its own: a slow reader must not block the session.
    fn end(mut self, error: Error) {
        tokio::spawn(async move {
            while let Some(event) = self.watch.poll_event() {
                if self.events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            let _ = self.events.send(Err(error)).await;
        });
    }
}

impl Watches {
    pub(super) fn add(&mut self, id: WatchId, mut watch: Watch, events: EventSender, is_connected: bool) {
        if is_connected {
            watch.handle_connected();
        }
        self.active.insert(id, Active { watch, events, is_established: false });
    }

    /// Removes a watch. Returns the keys that no other watch needs: the store is to stop their notifications.
    pub(super) fn remove(&mut self, id: WatchId) -> Vec<Key> {
        let removed = self.active.remove(&id);
        self.unneeded(removed.map_or_else(Vec::new, |removed| removed.watch.keys().to_vec()))
    }

    /// Handles a new list of the keys of a watch. Returns keys as [`Watches::remove`] does.
    pub(super) fn handle_listing(&mut self, id: WatchId, listed: Vec<Key>) -> Vec<Key> {
        let removed = self.active.get_mut(&id).map(|active| active.watch.handle_listing(listed));
        self.unneeded(removed.unwrap_or_default())
    }

    fn unneeded(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.retain(|key| !self.active.values().any(|other| other.watch.contains(key)));
        keys
    }

    /// Handles that the store is asked to stop the notifications of a key.
    pub(super) fn handle_stopping(&mut self, key: Key) {
        self.stopping.insert(key);
    }

    /// Handles that the store has stopped the notifications of a key, or has not answered.
    pub(super) fn handle_stopped(&mut self, key: &Key) {
        self.stopping.remove(key);
    }

    /// Handles a new connection. Without wildcards, each key has a subscription.
    pub(super) fn handle_connected(&mut self, has_wildcards: bool) {
        self.subscribed = (!has_wildcards).then(HashSet::new);
        for active in self.active.values_mut() {
            active.watch.handle_connected();
        }
    }

    pub(super) fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        self.stopping.clear();
        for active in self.active.values_mut() {
            active.watch.handle_lost(since_ms, cause);
        }
    }

    /// Ends every watch with the error of the session.
    pub(super) fn handle_closed(&mut self, error: &Error) {
        for (_, active) in self.active.drain() {
            active.end(error.clone());
        }
    }

    /// Handles a message that is not a response.
    pub(super) fn handle_message(&mut self, message: &Message, client_id: &str) {
        let cause = match notified_key(message, client_id) {
            Ok(key) => {
                let mut is_watched = false;
                for active in self.active.values_mut().filter(|active| active.watch.contains(&key)) {
                    active.watch.handle_notification(&key, message);
                    is_watched = true;
                }
                if is_watched || self.stopping.contains(&key) {
                    return;
                }
                "the key is not watched"
            }
            Err(cause) => cause,
        };
        for active in self.active.values_mut() {
            active.watch.skip(message, cause.to_owned());
        }
    }

    pub(super) fn handle_subscribed(&mut self, ticket: ActionTicket, result: Result<Qos, Error>) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        match result {
            Ok(_) => match (ticket.action, &mut self.subscribed) {
                (WatchAction::Register(key), Some(subscribed)) => {
                    subscribed.insert(key.clone());
                    active.watch.handle_unanswered(WatchAction::Register(key));
                }
                _ => active.watch.handle_subscribed(),
            },
            Err(error) => self.handle_failed(ticket, error),
        }
    }

    pub(super) fn handle_answer(
        &mut self,
        ticket: ActionTicket,
        result: Result<Response, Error>,
        now: Reading,
    ) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        const REGISTER: &str = "KEYNOTIFY";
        let error = match &ticket.action {
            WatchAction::Subscribe => return,
            WatchAction::Read(key) => match result.and_then(VersionedValue::decode) {
                Ok(found) => {
                    active.is_established = true;
                    return active.watch.handle_read(key, found, now);
                }
                Err(error) => error,
            },
            WatchAction::Register(key) => {
                match result.and_then(|response| decode_response(REGISTER, response)) {
                    Ok((Reply::Done, _)) => return active.watch.handle_registered(key),
                    Ok((other, _)) => unexpected_reply(REGISTER, &other),
                    Err(error) => error,
                }
            }
        };
        self.handle_failed(ticket, error);
    }

    fn handle_failed(&mut self, ticket: ActionTicket, error: Error) {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return };
        match error {
            // After a reconnect the watch starts over.
            Error::Lost { .. } => {}
            Error::Timeout { .. } | Error::NoStore { .. } if active.is_established => {
                active.watch.handle_unanswered(ticket.action);
            }
            error => {
                if let Some(active) = self.active.remove(&ticket.watch) {
                    active.end(error);
                }
            }
        }
    }

    /// Returns the next call to the session.
    pub(super) fn poll_call(&mut self) -> Option<WatchCall> {
        let (watch, action) =
            self.active.iter_mut().find_map(|(id, active)| Some((*id, active.watch.poll_action()?)))?;
        let is_subscribed = |key| self.subscribed.as_ref().is_none_or(|subscribed| subscribed.contains(key));
        let request = match &action {
            WatchAction::Subscribe if self.subscribed.is_some() => {
                self.active.get_mut(&watch)?.watch.handle_subscribed();
                return self.poll_call();
            }
            WatchAction::Subscribe => return Some(WatchCall::Subscribe(ActionTicket { watch, action })),
            WatchAction::Register(key) if !is_subscribed(key) => {
                return Some(WatchCall::Subscribe(ActionTicket { watch, action }));
            }
            WatchAction::Register(key) => {
                let request = Request::KeyNotify { key: key.clone(), stop: false };
                RawRequest::new(&request, RequestProperties { details: true, ..RequestProperties::default() })
            }
            WatchAction::Read(key) => VersionedValue::detailed_request(key),
        };
        Some(WatchCall::Send(request, ActionTicket { watch, action }))
    }

    /// Returns the watches whose handles were dropped.
    pub(super) fn dropped(&self) -> Vec<WatchId> {
        self.active.iter().filter(|(_, active)| active.events.is_closed()).map(|(id, _)| *id).collect()
    }

    /// Delivers events. Returns the first channel that is full: the connection must not be read until it has room.
    pub(super) fn deliver(&mut self) -> Option<EventSender> {
        let mut full = None;
        for active in self.active.values_mut() {
            loop {
                let room = match active.events.try_reserve() {
                    Ok(room) => room,
                    // The handle was dropped; `dropped` reports the watch.
                    Err(TrySendError::Closed(())) => break,
                    Err(TrySendError::Full(())) => {
                        full = Some(active.events.clone());
                        break;
                    }
                };
                match active.watch.poll_event() {
                    Some(event) => room.send(Ok(event)),
                    None => break,
                }
            }
        }
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Notification;

    fn key(name: &'static str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn a_late_notification_of_a_key_whose_watch_has_ended_is_ignored() {
        let (events, mut received) = mpsc::channel(10);
        let mut watches = Watches::default();
        watches.add(1, Watch::new([key("ended")]), events.clone(), true);
        watches.add(2, Watch::new([key("other")]), events, true);
        assert_eq!(watches.remove(1), [key("ended")]);
        watches.handle_stopping(key("ended"));
        let late = Message {
            topic: topic::notify("me", &key("ended")).unwrap().into(),
            payload: Notification::Delete.encode(),
            ..Message::default()
        };
        watches.handle_message(&late, "me");
        watches.deliver();
        assert!(received.try_recv().is_err());
        // After the store's answer it is an error of the broker.
        watches.handle_stopped(&key("ended"));
        watches.handle_message(&late, "me");
        watches.deliver();
        assert!(matches!(received.try_recv(), Ok(Ok(WatchEvent::Skipped { .. }))));
    }

    #[test]
    fn without_wildcards_the_topic_of_each_key_is_subscribed_to_once_before_its_keynotify() {
        let (events, _received) = mpsc::channel(1);
        let mut watches = Watches::default();
        watches.add(1, Watch::new([key("k")]), events.clone(), false);
        watches.handle_connected(false);
        let Some(WatchCall::Subscribe(ticket)) = watches.poll_call() else { panic!() };
        assert_eq!(ticket.topic("me"), topic::notify("me", &key("k")).unwrap());
        assert!(watches.poll_call().is_none());
        watches.handle_subscribed(ticket, Ok(Qos::AtLeastOnce));
        let keynotify = Request::KeyNotify { key: key("k"), stop: false }.encode();
        let registers = |watches: &mut Watches| {
            let Some(WatchCall::Send(request, _)) = watches.poll_call() else { panic!() };
            request.payload == keynotify
        };
        assert!(registers(&mut watches));
        watches.add(2, Watch::new([key("k")]), events, true);
        assert!(registers(&mut watches));
    }
}
