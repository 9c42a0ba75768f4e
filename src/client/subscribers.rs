//! The owner's subscriptions over one session: carries them to it, again after each loss, and messages to who listens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::error::Error;
use super::subscription::Heard;
use crate::clock::Reading;
use crate::protocol::message::Qos;
use crate::protocol::{Message, topic};

/// Where messages go. An error is the last.
pub(super) type Listener = mpsc::Sender<Result<Heard, Error>>;

/// Who waits for a subscription to be in force, with the lowest QoS that was granted.
pub(super) type Begun = oneshot::Sender<Result<Qos, Error>>;

/// Whose filter a SUBACK is about, and which one.
#[derive(Debug)]
pub(super) struct ListenTicket {
    listener: u64,
    filter: usize,
}

/// All subscriptions of the owner's in one session.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    begun: u64,
    active: BTreeMap<u64, Active>,
    /// Filters of those that have ended, to be taken back in this connection.
    ended: Vec<String>,
    /// Filters taken back in this connection: what still comes of them is nobody's.
    left: BTreeSet<String>,
}

#[derive(Debug)]
struct Active {
    filters: Vec<String>,
    heard: Listener,
    /// Who waits, until it was in force once.
    begun: Option<Begun>,
    /// The lowest QoS that was granted.
    granted: Qos,
    /// Heard and not yet handed over: no more than one read brings.
    waiting: VecDeque<Heard>,
    /// Filters, by their number, to be asked for in this connection.
    unasked: VecDeque<usize>,
    /// Filters asked for and not yet answered in this connection.
    unanswered: usize,
    /// Wall clock, milliseconds: since when nothing is heard.
    lost_since_ms: Option<u64>,
}

impl Active {
    fn ask_for_all(&mut self) {
        self.unasked = (0..self.filters.len()).collect();
        self.unanswered = 0;
    }

    fn is_in_force(&self) -> bool {
        self.begun.is_none() && self.lost_since_ms.is_none()
    }

    /// Tells what is left to tell, then the error; whoever reads slowly is no longer waited for by anybody.
    fn end(self, error: Error) {
        if let Some(begun) = self.begun {
            let _ = begun.send(Err(error));
            return;
        }
        tokio::spawn(async move {
            for heard in self.waiting {
                if self.heard.send(Ok(heard)).await.is_err() {
                    return;
                }
            }
            let _ = self.heard.send(Err(error)).await;
        });
    }
}

impl Subscribers {
    pub(super) fn begin(&mut self, filters: Vec<String>, heard: Listener, begun: Begun, connected: bool) {
        let mut active = Active {
            filters,
            heard,
            begun: Some(begun),
            granted: Qos::AtLeastOnce,
            waiting: VecDeque::new(),
            unasked: VecDeque::new(),
            unanswered: 0,
            lost_since_ms: None,
        };
        if connected {
            active.ask_for_all();
        }
        self.left.retain(|filter| !active.filters.contains(filter));
        self.active.insert(self.begun, active);
        self.begun = self.begun.wrapping_add(1);
    }

    pub(super) fn handle_connected(&mut self) {
        // A new connection knows of none that have ended.
        self.ended.clear();
        self.left.clear();
        self.active.values_mut().for_each(Active::ask_for_all);
    }

    pub(super) fn handle_lost(&mut self, since_ms: u64, cause: &str) {
        for active in self.active.values_mut() {
            active.unasked.clear();
            active.unanswered = 0;
            if active.is_in_force() {
                active.lost_since_ms = Some(since_ms);
                active.waiting.push_back(Heard::Lost { since_ms, cause: cause.to_owned() });
            }
        }
    }

    /// There will be no connection any more.
    pub(super) fn handle_closed(&mut self, error: &Error) {
        for active in std::mem::take(&mut self.active).into_values() {
            active.end(error.clone());
        }
    }

    /// Hands a message to those whose filters match; says whether there are any, or were in this connection.
    pub(super) fn handle_message(&mut self, message: &Message, now: Reading) -> bool {
        let mut is_heard = self.left.iter().any(|filter| topic::filter_matches(filter, &message.topic));
        let matches = |active: &&mut Active| {
            active.filters.iter().any(|filter| topic::filter_matches(filter, &message.topic))
        };
        for active in self.active.values_mut().filter(matches) {
            is_heard = true;
            // As long as another filter is not in force, this is still the gap, or before the beginning.
            if active.is_in_force() {
                let (received, received_ms) = (now.monotonic, now.wall_ms);
                active.waiting.push_back(Heard::Message { message: message.clone(), received, received_ms });
            }
        }
        is_heard
    }

    pub(super) fn handle_subscribed(
        &mut self,
        ticket: &ListenTicket,
        result: Result<Qos, Error>,
        now: Reading,
    ) {
        let Some(active) = self.active.get_mut(&ticket.listener) else { return };
        active.unanswered = active.unanswered.saturating_sub(1);
        if let Ok(granted) = result {
            active.granted = active.granted.min(granted);
        }
        match result {
            Ok(_) if active.unasked.is_empty() && active.unanswered == 0 => {
                if let Some(begun) = active.begun.take() {
                    let _ = begun.send(Ok(active.granted));
                }
                if let Some(since_ms) = active.lost_since_ms.take() {
                    active.waiting.push_back(Heard::Gap { since_ms, until_ms: now.wall_ms });
                }
            }
            Ok(_) => {}
            // It has been in force before: a broker that is slow to come back is asked again.
            Err(Error::Timeout { .. }) if active.begun.is_none() => active.unasked.push_back(ticket.filter),
            Err(error) => {
                if let Some(active) = self.active.remove(&ticket.listener) {
                    let others = active.filters.iter().enumerate().filter(|(at, _)| *at != ticket.filter);
                    self.ended.extend(others.map(|(_, filter)| filter.clone()));
                    active.end(error);
                }
            }
        }
    }

    /// The next filter to subscribe to, if any.
    pub(super) fn poll_filter(&mut self) -> Option<(String, ListenTicket)> {
        let (id, active) = self.active.iter_mut().find(|(_, active)| !active.unasked.is_empty())?;
        let number = active.unasked.pop_front()?;
        active.unanswered = active.unanswered.saturating_add(1);
        Some((active.filters.get(number)?.clone(), ListenTicket { listener: *id, filter: number }))
    }

    /// The next filter to take back from the broker, if any: of those that nobody listens to any more.
    pub(super) fn poll_left(&mut self) -> Option<String> {
        let is_abandoned = |active: &Active| active.heard.is_closed() && active.begun.is_none();
        for (_, active) in self.active.extract_if(.., |_, active| is_abandoned(active)) {
            self.ended.extend(active.filters);
        }
        while let Some(filter) = self.ended.pop() {
            let is_needed = self.active.values().any(|active| active.filters.contains(&filter));
            if !is_needed && self.left.insert(filter.clone()) {
                return Some(filter);
            }
        }
        None
    }

    /// Hands over what was heard. Returns the first channel that is full: nothing should be read before it has room.
    pub(super) fn deliver(&mut self) -> Option<Listener> {
        let mut full = None;
        for active in self.active.values_mut() {
            while !active.waiting.is_empty() {
                match active.heard.try_reserve() {
                    Ok(room) => {
                        if let Some(heard) = active.waiting.pop_front() {
                            room.send(Ok(heard));
                        }
                    }
                    // It is to be taken back from the broker before it is forgotten.
                    Err(TrySendError::Closed(())) => active.waiting.clear(),
                    Err(TrySendError::Full(())) => {
                        full = Some(active.heard.clone());
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
