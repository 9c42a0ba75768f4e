//! Messages of the owner, and the MQTT message of a request (pure).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::client::error::Outcome;
use crate::client::request::{Access, RawRequest};
use crate::protocol::message::{self, Message, Qos};
use crate::protocol::{Timestamp, topic};

/// The messages of the owner that the broker has not acknowledged, by number.
#[derive(Debug)]
pub(super) struct Messages<T>(BTreeMap<u64, Unacknowledged<T>>);

#[derive(Debug)]
struct Unacknowledged<T> {
    /// None once it is sent.
    message: Option<Message>,
    ticket: T,
}

impl<T> Messages<T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn add(&mut self, id: u64, topic: String, payload: Bytes, ticket: T) {
        let message = Message { topic, payload, qos: Qos::AtLeastOnce, ..Message::default() };
        self.0.insert(id, Unacknowledged { message: Some(message), ticket });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(id, _)| *id)
    }

    /// Returns a message to send, the first time that it is called for it.
    pub(super) fn take(&mut self, id: u64) -> Option<Message> {
        self.0.get_mut(&id)?.message.take()
    }

    /// Removes a message. Without a PUBACK its outcome is the returned one.
    pub(super) fn remove(&mut self, id: u64) -> Option<(T, Outcome)> {
        let Unacknowledged { message, ticket } = self.0.remove(&id)?;
        Some((ticket, if message.is_some() { Outcome::Unchanged } else { Outcome::Unknown }))
    }
}

/// The parts of a request's message that do not come from the request.
pub(super) struct Envelope<'a> {
    pub(super) client_id: &'a str,
    pub(super) response_topic: &'a str,
    pub(super) correlation: Bytes,
    /// The timestamp of a request without one of its own.
    pub(super) clock: &'a Timestamp,
    /// The time until the deadline.
    pub(super) left: Duration,
}

/// Returns the message of a request (protocol §1). A write is sent once, so its payload is taken.
pub(super) fn request_message(request: &mut RawRequest, envelope: Envelope<'_>) -> Message {
    let Envelope { client_id, response_topic, correlation, clock, left } = envelope;
    let expiry_s = left.as_millis().div_ceil(1000).max(1);
    let mut user_properties = vec![
        (message::SOURCE.into(), client_id.to_owned().into()),
        (message::TIMESTAMP.into(), request.properties.timestamp.as_ref().unwrap_or(clock).to_text().into()),
        (message::PROTOCOL_VERSION.into(), message::PROTOCOL_VERSION_1.into()),
        (message::PARTITION.into(), client_id.to_owned().into()),
        (message::HIGH_PRIORITY.into(), "".into()),
    ];
    if let Some(fence) = &request.properties.fence {
        user_properties.push((message::FENCE.into(), fence.to_text().into()));
    }
    if request.properties.persist {
        user_properties.push((message::PERSIST.into(), "true".into()));
    }
    Message {
        topic: request.properties.topic.unwrap_or(topic::REQUEST).to_owned(),
        payload: match request.access {
            Access::Read => request.payload.clone(),
            Access::Write => std::mem::take(&mut request.payload),
        },
        qos: Qos::AtLeastOnce,
        response_topic: Some(response_topic.to_owned()),
        correlation: Some(correlation),
        content_type: Some(message::CONTENT_TYPE.into()),
        expiry_s: u32::try_from(expiry_s).ok(),
        user_properties,
        ..Message::default()
    }
}

/// Returns the correlation data of a request: 16 bytes, like the UUIDs of the SDKs. The second half is its number.
pub(super) fn correlation(prefix: u64, id: u64) -> Bytes {
    let data = u128::from(prefix).wrapping_shl(64) | u128::from(id);
    Bytes::copy_from_slice(&data.to_be_bytes())
}
