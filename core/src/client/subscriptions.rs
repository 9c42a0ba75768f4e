//! The subscriptions of a session: subscribes after each connect, and delivers messages to their handles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::error::Error;
use crate::clock::Reading;
use crate::protocol::message::Qos;
use crate::protocol::{Message, topic};

/// An event of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionEvent {
    /// A message was received.
    Message {
        message: Message,
        received: Instant,
        /// The same on the wall clock, in milliseconds since the Unix epoch.
        received_ms: u64,
    },
    /// The connection was lost; the client tries to reconnect.
    Lost {
        /// Wall clock, milliseconds: the last time at which the connection was certainly up.
        since_ms: u64,
        cause: String,
    },
    /// The subscription is in force again. Messages between the two times may be missing.
    Gap {
        /// Wall clock, milliseconds: the last time at which the subscription was certainly in force.
        since_ms: u64,
        /// Wall clock, milliseconds: the time from which on it is in force again.
        until_ms: u64,
    },
}

/// The channel of a subscription's events. An error is the last event.
pub(super) type EventSender = mpsc::Sender<Result<SubscriptionEvent, Error>>;

/// Confirms that a subscription is in force, with the lowest granted QoS.
pub(super) type Confirmation = oneshot::Sender<Result<Qos, Error>>;

/// Identifies the subscription and filter of a SUBACK.
#[derive(Debug)]
pub(super) struct FilterTicket {
    subscription: u64,
    filter: usize,
}

/// The subscriptions of one session, through losses of its connection.
///
/// Contract: the owner reports connections, losses, messages and SUBACKs with `handle_*`. While there is a connection it sends
/// SUBSCRIBE for every filter of [`Subscriptions::poll_subscribe`] and UNSUBSCRIBE for every filter of
/// [`Subscriptions::poll_unsubscribe`]. After each of these calls it calls [`Subscriptions::deliver`], and reads no packets while
/// that returns a full channel: so each queue of pending events is bounded by one read.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    next_id: u64,
    active: BTreeMap<u64, Active>,
    /// Filters of ended subscriptions, to be unsubscribed in this connection.
    ended: Vec<String>,
    /// Filters that were unsubscribed in this connection. Messages that still arrive for them are discarded.
    unsubscribed: BTreeSet<String>,
}

#[derive(Debug)]
struct Active {
    filters: Vec<String>,
    events: EventSender,
    /// None once the subscription has been in force.
    confirmation: Option<Confirmation>,
    granted_qos: Qos,
    /// Events that are not delivered yet: no more than one read brings.
    pending: VecDeque<SubscriptionEvent>,
    /// Indexes of the filters to subscribe to in this connection.
    unsent: VecDeque<usize>,
    /// Number of SUBSCRIBE packets without a SUBACK in this connection.
    unanswered: usize,
    /// Wall clock, milliseconds: start of the current gap.
    lost_since_ms: Option<u64>,
}

impl Active {
    fn subscribe_all(&mut self) {
        self.unsent = (0..self.filters.len()).collect();
        self.unanswered = 0;
    }

    fn is_in_force(&self) -> bool {
        self.confirmation.is_none() && self.lost_since_ms.is_none()
    }

    /// Delivers the pending events and then the error, in a task of its own: a slow reader must not block the session.
    fn end(self, error: Error) {
        if let Some(confirmation) = self.confirmation {
            let _ = confirmation.send(Err(error));
            return;
        }
        tokio::spawn(async move {
            for event in self.pending {
                if self.events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            let _ = self.events.send(Err(error)).await;
        });
    }
}

impl Subscriptions {
    pub(super) fn add(
        &mut self,
        filters: Vec<String>,
        events: EventSender,
        confirmation: Confirmation,
        is_connected: bool,
    ) {
        let mut active = Active {
            filters,
            events,
            confirmation: Some(confirmation),
            granted_qos: Qos::AtLeastOnce,
            pending: VecDeque::new(),
            unsent: VecDeque::new(),
            unanswered: 0,
            lost_since_ms: None,
        };
        if is_connected {
            active.subscribe_all();
        }
        self.unsubscribed.retain(|filter| !active.filters.contains(filter));
        self.active.insert(self.next_id, active);
        self.next_id = self.next_id.wrapping_add(1);
    }

    pub(super) fn handle_connected(&mut self) {
        // The session is a clean start: the broker knows no earlier subscription.
        self.ended.clear();
        self.unsubscribed.clear();
        self.active.values_mut().for_each(Active::subscribe_all);
    }

    pub(super) fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        for active in self.active.values_mut() {
            active.unsent.clear();
            active.unanswered = 0;
            if active.is_in_force() {
                active.lost_since_ms = Some(since_ms);
                active.pending.push_back(SubscriptionEvent::Lost { since_ms, cause: cause.to_owned() });
            }
        }
    }

    /// Ends every subscription with the error of the session.
    pub(super) fn handle_closed(&mut self, error: &Error) {
        for active in std::mem::take(&mut self.active).into_values() {
            active.end(error.clone());
        }
    }

    /// Delivers a message to the subscriptions whose filters match. Returns whether it matches a filter that is, or was
    /// earlier in this connection, subscribed to.
    pub(super) fn handle_message(&mut self, message: &Message, now: Reading) -> bool {
        let mut is_expected =
            self.unsubscribed.iter().any(|filter| topic::filter_matches(filter, &message.topic));
        let matches = |active: &&mut Active| {
            active.filters.iter().any(|filter| topic::filter_matches(filter, &message.topic))
        };
        for active in self.active.values_mut().filter(matches) {
            is_expected = true;
            // Until all filters are in force the subscription has not started, or its gap has not ended.
            if active.is_in_force() {
                let (received, received_ms) = (now.monotonic, now.wall_ms);
                let message = message.clone();
                active.pending.push_back(SubscriptionEvent::Message { message, received, received_ms });
            }
        }
        is_expected
    }

    pub(super) fn handle_subscribed(
        &mut self,
        ticket: &FilterTicket,
        result: Result<Qos, Error>,
        now: Reading,
    ) {
        let Some(active) = self.active.get_mut(&ticket.subscription) else { return };
        active.unanswered = active.unanswered.saturating_sub(1);
        if let Ok(qos) = result {
            active.granted_qos = active.granted_qos.min(qos);
        }
        match result {
            Ok(_) if active.unsent.is_empty() && active.unanswered == 0 => {
                if let Some(confirmation) = active.confirmation.take() {
                    let _ = confirmation.send(Ok(active.granted_qos));
                }
                if let Some(since_ms) = active.lost_since_ms.take() {
                    active.pending.push_back(SubscriptionEvent::Gap { since_ms, until_ms: now.wall_ms });
                }
            }
            Ok(_) => {}
            // It was in force before: after a reconnect a slow broker is asked again.
            Err(Error::Timeout { .. }) if active.confirmation.is_none() => {
                active.unsent.push_back(ticket.filter);
            }
            Err(error) => {
                if let Some(active) = self.active.remove(&ticket.subscription) {
                    let others = active.filters.iter().enumerate().filter(|(at, _)| *at != ticket.filter);
                    self.ended.extend(others.map(|(_, filter)| filter.clone()));
                    active.end(error);
                }
            }
        }
    }

    /// Returns the next filter to subscribe to.
    pub(super) fn poll_subscribe(&mut self) -> Option<(String, FilterTicket)> {
        let (id, active) = self.active.iter_mut().find(|(_, active)| !active.unsent.is_empty())?;
        let index = active.unsent.pop_front()?;
        active.unanswered = active.unanswered.saturating_add(1);
        Some((active.filters.get(index)?.clone(), FilterTicket { subscription: *id, filter: index }))
    }

    /// Returns the next filter to unsubscribe: its subscriptions have ended, or their handles were dropped.
    pub(super) fn poll_unsubscribe(&mut self) -> Option<String> {
        let is_dropped = |active: &Active| active.events.is_closed() && active.confirmation.is_none();
        for (_, active) in self.active.extract_if(.., |_, active| is_dropped(active)) {
            self.ended.extend(active.filters);
        }
        while let Some(filter) = self.ended.pop() {
            let is_needed = self.active.values().any(|active| active.filters.contains(&filter));
            if !is_needed && self.unsubscribed.insert(filter.clone()) {
                return Some(filter);
            }
        }
        None
    }

    /// Delivers pending events. Returns the first channel that is full: the connection must not be read until it has room.
    pub(super) fn deliver(&mut self) -> Option<EventSender> {
        let mut full = None;
        for active in self.active.values_mut() {
            while !active.pending.is_empty() {
                match active.events.try_reserve() {
                    Ok(room) => {
                        if let Some(event) = active.pending.pop_front() {
                            room.send(Ok(event));
                        }
                    }
                    // The handle was dropped; `poll_unsubscribe` removes the subscription.
                    Err(TrySendError::Closed(())) => active.pending.clear(),
                    Err(TrySendError::Full(())) => {
                        full = Some(active.events.clone());
                        break;
                    }
                }
            }
        }
        full
    }
}

#[cfg(test)]
mod tests;
