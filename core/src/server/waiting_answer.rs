//! Answers that wait for a commit: responses, notifications, and events of the exchange.

use super::delivery::{Outbound, Publisher, ReplyTo, Response};
use super::duplicate_detection::Fingerprint;
use crate::broker::{HeldAcknowledgement, Peer};
use crate::exchange::effects::Event;
use crate::protocol::Request;
use crate::store::{Change, StoreRequest};

/// What is sent or reported after a commit. If a commit of the file fails, a request is handled again.
#[derive(Debug)]
pub enum WaitingAnswer {
    /// The response to a write, and the notifications of its change. The acknowledgement is released after it.
    Write(Outbound, Option<Box<WaitingWrite>>, Option<HeldAcknowledgement>),
    /// The response to a request that reads, and may have seen a change.
    Read(ReplyTo, Response, Box<StoreRequest>),
    /// A view of more than one key. If the commit fails, an error takes its place.
    View(ReplyTo, Response),
    /// A response that is true also if the commit fails.
    Independent(ReplyTo, Response),
    /// The notifications of a change without a request: an expiry, or what another node has decided.
    Notifications(Change),
    /// What a step of the exchange reports.
    Events(Vec<Event>),
}

/// A write that can be handled again.
#[derive(Debug)]
pub struct WaitingWrite {
    pub request: StoreRequest,
    pub from: Peer,
    pub identity: WriteIdentity,
}

/// What identifies a write among those of its client, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct WriteIdentity {
    pub fingerprint: Fingerprint,
    /// The message expiry.
    pub expiry_s: Option<u32>,
}

impl WaitingWrite {
    #[must_use]
    pub fn new(request: StoreRequest, from: &Peer, identity: WriteIdentity) -> Box<Self> {
        // An acknowledgement is held back once, by the connection's task.
        let from = Peer { handle: None, ..from.clone() };
        Box::new(Self { request, from, identity })
    }
}

impl WaitingAnswer {
    /// Sends the messages of the answer. Returns its events.
    pub fn send(self, publisher: &dyn Publisher) -> Vec<Event> {
        let outbound = match self {
            Self::Write(outbound, _, acknowledgement) => {
                outbound.send(publisher);
                drop(acknowledgement);
                return Vec::new();
            }
            Self::Read(reply_to, response, _)
            | Self::View(reply_to, response)
            | Self::Independent(reply_to, response) => Outbound::from((reply_to, response)),
            Self::Notifications(change) => change.into(),
            Self::Events(events) => return events,
        };
        outbound.send(publisher);
        Vec::new()
    }

    /// Returns about how many bytes it holds besides its own size: of keys, values and responses.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Write(Outbound { response, change }, write, _) => {
                let response = response.as_ref().map_or(0, |(_, response)| response.payload_len());
                // A change shares its value with the request.
                let value = |write: &WaitingWrite| match &write.request.request {
                    Request::Set { value, .. } if change.is_none() => value.len(),
                    _ => 0,
                };
                let write = write.as_ref().map_or(0, |write| {
                    request_bytes(&write.request)
                        .saturating_add(size_of::<Peer>())
                        .saturating_add(value(write))
                });
                let change = change.as_ref().map_or(0, change_bytes);
                response.saturating_add(change).saturating_add(write)
            }
            Self::Read(_, response, request) => response.payload_len().saturating_add(request_bytes(request)),
            Self::View(_, response) | Self::Independent(_, response) => response.payload_len(),
            Self::Notifications(change) => change_bytes(change),
            Self::Events(events) => events.len().saturating_mul(size_of::<Event>()),
        }
    }
}

/// Returns the memory of a request, without a value that the change has, too.
fn request_bytes(request: &StoreRequest) -> usize {
    let text = match &request.request {
        Request::Get { key }
        | Request::KeyNotify { key, .. }
        | Request::Del { key }
        | Request::Set { key, .. } => key.as_bytes().len(),
        Request::VDel { key, value } => key.as_bytes().len().saturating_add(value.len()),
        Request::Scan { .. } => 0,
    };
    text.saturating_add(size_of::<StoreRequest>())
}

fn change_bytes(change: &Change) -> usize {
    let value = change.content.as_ref().map_or(0, |stored| stored.value.len());
    value.saturating_add(change.key.as_bytes().len())
}
