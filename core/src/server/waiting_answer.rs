//! Answers that wait for a commit: responses, notifications, and events of the exchange.

use super::delivery::{Outbound, Publisher, ReplyTo, Response};
use super::duplicate_detection::Fingerprint;
use crate::broker::HeldAcknowledgement;
use crate::exchange::effects::Event;
use crate::store::Change;

/// What is sent or reported after a commit.
#[derive(Debug)]
pub enum WaitingAnswer {
    /// The response to a write, and the notifications of its change. The acknowledgement is released after it.
    Write(Outbound, Option<HeldAcknowledgement>),
    /// The response to a request that changes no key.
    Read(ReplyTo, Response),
    /// The notifications of a change without a request: an expiry, or what another node has decided.
    Notifications(Change),
    /// What a step of the exchange reports.
    Events(Vec<Event>),
}

/// What identifies a write among those of its client, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct WriteIdentity {
    pub fingerprint: Fingerprint,
    /// The message expiry.
    pub expiry_s: Option<u32>,
}

impl WaitingAnswer {
    /// Sends the messages of the answer. Returns its events.
    pub fn send(self, publisher: &dyn Publisher) -> Vec<Event> {
        match self {
            Self::Write(outbound, acknowledgement) => {
                outbound.send(publisher);
                drop(acknowledgement);
            }
            Self::Read(reply_to, response) => Outbound::from((reply_to, response)).send(publisher),
            Self::Notifications(change) => Outbound::from(change).send(publisher),
            Self::Events(events) => return events,
        }
        Vec::new()
    }

    /// Returns about how many bytes it holds besides its own size: of keys, values and responses.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Write(Outbound { response, change }, _) => {
                let response = response.as_ref().map_or(0, |(_, response)| response.payload_len());
                response.saturating_add(change.as_ref().map_or(0, change_bytes))
            }
            Self::Read(_, response) => response.payload_len(),
            Self::Notifications(change) => change_bytes(change),
            Self::Events(events) => events.len().saturating_mul(size_of::<Event>()),
        }
    }
}

fn change_bytes(change: &Change) -> usize {
    let value = change.content.as_ref().map_or(0, |stored| stored.value.len());
    value.saturating_add(change.key.as_bytes().len())
}
