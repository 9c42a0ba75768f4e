//! The watches of a session: carries out their actions, and delivers events to their handles.

use std::collections::{HashMap, HashSet};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch as observe};

use super::error::Error;
use super::request::{RawRequest, RequestProperties, Response, decode_response, unexpected_reply};
use super::results::VersionedValue;
use super::watch::{Discovery, Registration, Watch, WatchAction, WatchEvent, notified_key};
use crate::clock::Reading;
use crate::protocol::message::{Message, Qos};
use crate::protocol::{Key, Reply, Request, topic};

/// Identifies a watch within its session.
pub(super) type WatchId = u64;

/// The channel of a watch's events. An error is the last event.
pub(super) type EventSender = mpsc::Sender<Result<WatchEvent, Error>>;

/// The channel for how the keys of a prefix are found.
pub(super) type DiscoverySender = observe::Sender<Option<Discovery>>;

/// The channels of a watch; that for the discovery only if it is of a prefix.
pub(super) type Channels = (EventSender, Option<DiscoverySender>);

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
            WatchAction::Register(Registration::Key(key)) => topic::notify(client_id, key),
            WatchAction::Register(Registration::Prefix(_))
            | WatchAction::Subscribe
            | WatchAction::Read(_) => None,
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
    /// What the store has been asked to stop the notifications of, without an answer yet.
    stopping: HashSet<Registration>,
    /// The keys whose topics were subscribed to in this connection; `None` if one filter is for all.
    subscribed: Option<HashSet<Key>>,
}

#[derive(Debug)]
struct Active {
    watch: Watch,
    events: EventSender,
    /// None if the watch is not of a prefix.
    discovery: Option<DiscoverySender>,
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
    pub(super) fn add(
        &mut self,
        id: WatchId,
        mut watch: Watch,
        (events, discovery): Channels,
        is_connected: bool,
    ) {
        if is_connected {
            watch.handle_connected();
        }
        self.active.insert(id, Active { watch, events, discovery, is_established: false });
    }

    /// Removes a watch. Returns the registrations that no other watch needs: the store is to stop their notifications.
    pub(super) fn remove(&mut self, id: WatchId) -> Vec<Registration> {
        let removed = self.active.remove(&id);
        self.unneeded(removed.map_or_else(Vec::new, |removed| removed.watch.registrations()))
    }

    /// Handles a new list of the keys of a watch. Returns registrations as [`Watches::remove`] does.
    pub(super) fn handle_listing(&mut self, id: WatchId, listed: Vec<Key>) -> Vec<Registration> {
        let removed = self.active.get_mut(&id).map(|active| active.watch.handle_listing(listed));
        self.unneeded(removed.unwrap_or_default().into_iter().map(Registration::Key).collect())
    }

    fn unneeded(&self, mut registrations: Vec<Registration>) -> Vec<Registration> {
        registrations
            .retain(|registration| !self.active.values().any(|other| other.watch.needs(registration)));
        registrations
    }

    /// Handles that the store is asked to stop the notifications of a registration.
    pub(super) fn handle_stopping(&mut self, registration: Registration) {
        self.stopping.insert(registration);
    }

    /// Handles that the store has stopped the notifications of a registration, or has not answered.
    pub(super) fn handle_stopped(&mut self, registration: &Registration) {
        self.stopping.remove(registration);
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
                for active in self.active.values_mut().filter(|active| active.watch.covers(&key)) {
                    active.watch.handle_notification(&key, message);
                    is_watched = true;
                }
                if is_watched || self.stopping.iter().any(|stopping| stopping.covers(&key)) {
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
                (WatchAction::Register(Registration::Key(key)), Some(subscribed)) => {
                    subscribed.insert(key.clone());
                    active.watch.handle_unanswered(WatchAction::Register(Registration::Key(key)));
                }
                _ => active.watch.handle_subscribed(),
            },
            Err(error) => self.handle_failed(ticket, error),
        }
    }

    /// Handles an answer. Returns registrations as [`Watches::remove`] does.
    pub(super) fn handle_answer(
        &mut self,
        ticket: ActionTicket,
        result: Result<Response, Error>,
        now: Reading,
    ) -> Vec<Registration> {
        let Some(active) = self.active.get_mut(&ticket.watch) else { return Vec::new() };
        let error = match &ticket.action {
            WatchAction::Subscribe => return Vec::new(),
            WatchAction::Read(key) => match result.and_then(VersionedValue::decode) {
                Ok(found) => {
                    active.is_established = true;
                    active.watch.handle_read(key, found, now);
                    return Vec::new();
                }
                Err(error) => error,
            },
            WatchAction::Register(registration) => match (registration, registered(result)) {
                (Registration::Key(key), Ok(_)) => {
                    active.watch.handle_registered(key);
                    return Vec::new();
                }
                (Registration::Prefix(_), Ok(true)) => {
                    active.is_established = true;
                    active.watch.handle_prefix_registered(now);
                    return Vec::new();
                }
                (Registration::Prefix(prefix), Ok(false)) => {
                    active.watch.handle_prefix_refused(now);
                    // The store watches the key of this name.
                    return self.unneeded(vec![Registration::Key(prefix.pattern().clone())]);
                }
                (
                    Registration::Prefix(_),
                    Err(Error::Refused(_) | Error::Denied(_) | Error::MalformedReply { .. }),
                ) => {
                    active.watch.handle_prefix_refused(now);
                    return Vec::new();
                }
                (_, Err(error)) => error,
            },
        };
        self.handle_failed(ticket, error);
        Vec::new()
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
    pub(super) fn poll_call(&mut self, now: Reading) -> Option<WatchCall> {
        let (watch, action) =
            self.active.iter_mut().find_map(|(id, active)| Some((*id, active.watch.poll_action()?)))?;
        let is_subscribed = |key| self.subscribed.as_ref().is_none_or(|subscribed| subscribed.contains(key));
        let request = match &action {
            WatchAction::Subscribe if self.subscribed.is_some() => {
                self.active.get_mut(&watch)?.watch.handle_subscribed();
                return self.poll_call(now);
            }
            // The topics of new keys are not known.
            WatchAction::Register(Registration::Prefix(_)) if self.subscribed.is_some() => {
                self.active.get_mut(&watch)?.watch.handle_prefix_refused(now);
                return self.poll_call(now);
            }
            WatchAction::Subscribe => return Some(WatchCall::Subscribe(ActionTicket { watch, action })),
            WatchAction::Register(Registration::Key(key)) if !is_subscribed(key) => {
                return Some(WatchCall::Subscribe(ActionTicket { watch, action }));
            }
            WatchAction::Register(registration) => keynotify(registration, false),
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
            if let (Some(discovery), Some(sender)) = (active.watch.poll_discovery(), &active.discovery) {
                sender.send_replace(Some(discovery));
            }
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

/// Returns the request that begins or stops the notifications of a registration.
pub(super) fn keynotify(registration: &Registration, stop: bool) -> RawRequest {
    let (key, prefix) = match registration {
        Registration::Key(key) => (key, false),
        Registration::Prefix(prefix) => (prefix.pattern(), true),
    };
    let properties = RequestProperties { details: !stop, prefix, ..RequestProperties::default() };
    RawRequest::new(&Request::KeyNotify { key: key.clone(), stop }, properties)
}

/// Decodes the response to a KEYNOTIFY; true if it is about a prefix.
fn registered(result: Result<Response, Error>) -> Result<bool, Error> {
    const VERB: &str = "KEYNOTIFY";
    let response = result?;
    let is_prefix = response.is_prefix;
    match decode_response(VERB, response)? {
        (Reply::Done, _) => Ok(is_prefix),
        (other, _) => Err(unexpected_reply(VERB, &other)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::error::Outcome;
    use crate::clock;
    use crate::protocol::{KeyPrefix, Notification};

    fn key(name: &'static str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn a_late_notification_of_a_key_whose_watch_has_ended_is_ignored() {
        let (events, mut received) = mpsc::channel(10);
        let mut watches = Watches::default();
        watches.add(1, Watch::new([key("ended")]), (events.clone(), None), true);
        watches.add(2, Watch::new([key("other")]), (events, None), true);
        let ended = Registration::Key(key("ended"));
        assert_eq!(watches.remove(1), std::slice::from_ref(&ended));
        watches.handle_stopping(ended.clone());
        let late = Message {
            topic: topic::notify("me", &key("ended")).unwrap().into(),
            payload: Notification::Delete.encode(),
            ..Message::default()
        };
        watches.handle_message(&late, "me");
        watches.deliver();
        assert!(received.try_recv().is_err());
        // After the store's answer it is an error of the broker.
        watches.handle_stopped(&ended);
        watches.handle_message(&late, "me");
        watches.deliver();
        assert!(matches!(received.try_recv(), Ok(Ok(WatchEvent::Skipped { .. }))));
    }

    #[test]
    fn without_wildcards_the_topic_of_each_key_is_subscribed_to_once_before_its_keynotify() {
        let (events, _received) = mpsc::channel(1);
        let mut watches = Watches::default();
        watches.add(1, Watch::new([key("k")]), (events.clone(), None), false);
        watches.handle_connected(false);
        let Some(WatchCall::Subscribe(ticket)) = watches.poll_call(clock::now()) else { panic!() };
        assert_eq!(ticket.topic("me"), topic::notify("me", &key("k")).unwrap());
        assert!(watches.poll_call(clock::now()).is_none());
        watches.handle_subscribed(ticket, Ok(Qos::AtLeastOnce));
        let keynotify = Request::KeyNotify { key: key("k"), stop: false }.encode();
        let registers = |watches: &mut Watches| {
            let Some(WatchCall::Send(request, _)) = watches.poll_call(clock::now()) else { panic!() };
            request.payload == keynotify
        };
        assert!(registers(&mut watches));
        watches.add(2, Watch::new([key("k")]), (events, None), true);
        assert!(registers(&mut watches));
    }

    fn response(payload: &str, is_prefix: bool) -> Response {
        Response {
            payload: payload.to_owned().into(),
            version: None,
            has_status: true,
            denial: None,
            details: None,
            is_pending: false,
            is_limited: false,
            is_prefix,
        }
    }

    /// Returns the watches of a session whose watch of a prefix has sent its KEYNOTIFY, its ticket and how keys are found.
    fn asking() -> (Watches, ActionTicket, observe::Receiver<Option<Discovery>>) {
        let mut watches = Watches::default();
        let (sender, discovery) = observe::channel(None);
        let watch = Watch::of_prefix(KeyPrefix::new("k/").unwrap(), 10);
        watches.add(1, watch, (mpsc::channel(1).0, Some(sender)), true);
        let Some(WatchCall::Subscribe(ticket)) = watches.poll_call(clock::now()) else { panic!() };
        assert_eq!(ticket.topic("me"), topic::notify_filter("me"));
        watches.handle_subscribed(ticket, Ok(Qos::AtLeastOnce));
        let Some(WatchCall::Send(request, ticket)) = watches.poll_call(clock::now()) else { panic!() };
        assert_eq!(request.payload, Request::KeyNotify { key: key("k/*"), stop: false }.encode());
        assert!(request.properties.unwrap().prefix);
        (watches, ticket, discovery)
    }

    #[test]
    fn a_store_without_the_extension_is_asked_to_stop_the_notifications_of_the_key_that_it_watches() {
        let (mut watches, ticket, discovery) = asking();
        let stopped = watches.handle_answer(ticket, Ok(response("+OK\r\n", false)), clock::now());
        assert_eq!(stopped, [Registration::Key(key("k/*"))]);
        let stop = keynotify(&stopped[0], true);
        assert_eq!(
            (stop.payload, stop.properties),
            (Request::KeyNotify { key: key("k/*"), stop: true }.encode(), None)
        );
        watches.deliver();
        assert_eq!(*discovery.borrow(), Some(Discovery::Listed));
        watches.handle_listing(1, vec![key("k/1")]);
        assert_eq!(watches.remove(1), [Registration::Key(key("k/1"))]);
    }

    #[tokio::test]
    async fn a_store_that_refuses_a_prefix_is_polled_and_one_without_an_answer_ends_the_watch() {
        let timeout =
            Error::Timeout { target: String::new(), after: Duration::ZERO, outcome: Outcome::Unchanged };
        let refused = |text: &str| Ok(response(text, false));
        for (result, expected) in [
            (refused("-ERR the quota has been exceeded\r\n"), Some(Discovery::Listed)),
            (refused(":0\r\n"), Some(Discovery::Listed)),
            (Err(timeout), None),
        ] {
            let (mut watches, ticket, discovery) = asking();
            assert_eq!(watches.handle_answer(ticket, result, clock::now()), []);
            watches.deliver();
            assert_eq!(*discovery.borrow(), expected);
            assert_eq!(watches.active.len(), usize::from(expected.is_some()));
        }
    }

    #[test]
    fn the_notifications_of_a_prefix_go_to_all_watches_of_the_key_and_end_with_the_last_watch_of_the_prefix()
    {
        let (mut watches, ticket, discovery) = asking();
        assert_eq!(watches.handle_answer(ticket, Ok(response("+OK\r\n", true)), clock::now()), []);
        watches.deliver();
        assert_eq!(*discovery.borrow(), Some(Discovery::Notified));
        let again = Watch::of_prefix(KeyPrefix::new("k/").unwrap(), 10);
        watches.add(2, again, (mpsc::channel(1).0, None), true);
        watches.add(3, Watch::new([key("k/1")]), (mpsc::channel(1).0, None), true);
        watches.handle_listing(1, vec![key("k/1")]);
        // The store notifies of this key for two reasons.
        assert_eq!(watches.remove(3), [Registration::Key(key("k/1"))]);
        assert_eq!(watches.remove(1), []);
        let of_prefix = Registration::Prefix(KeyPrefix::new("k/").unwrap());
        assert_eq!(watches.remove(2), std::slice::from_ref(&of_prefix));
        assert!(keynotify(&of_prefix, true).properties.unwrap().prefix);
    }

    #[test]
    fn without_wildcards_a_prefix_is_polled() {
        let (mut watches, _, discovery) = asking();
        watches.handle_connected(false);
        assert!(watches.poll_call(clock::now()).is_none());
        watches.deliver();
        assert_eq!(*discovery.borrow(), Some(Discovery::Listed));
    }
}
