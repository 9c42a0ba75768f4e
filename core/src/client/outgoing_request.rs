//! The MQTT message of a request (pure).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::request::{Access, RawRequest, RequestProperties};
use crate::protocol::message::{self, Message, Qos};
use crate::protocol::{Timestamp, UserProperties, topic};

/// The most bytes of a write that are kept after it was sent.
const KEPT_BYTES_MAX: usize = 512;

/// What the requests of a session have in common.
#[derive(Debug, PartialEq, Eq)]
pub struct Requester {
    pub client_id: String,
    pub response_topic: String,
    /// A timestamp of the session's node.
    pub clock: Timestamp,
}

/// A request to send. Its message is [`OutgoingRequest::message`], but is seldom needed as such: the requests of a session
/// differ in few bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingRequest {
    pub requester: Arc<Requester>,
    pub payload: Bytes,
    pub correlation: [u8; 16],
    /// The time until the deadline, in seconds.
    pub expiry_s: Option<u32>,
    /// Milliseconds and counter of the session's clock.
    pub clock: (u64, u32),
    /// None: those of most requests.
    pub properties: Option<Arc<RequestProperties>>,
}

impl OutgoingRequest {
    /// Returns a request with the time until its deadline. A write is sent once, so that only the beginning of its payload is kept,
    /// which names the key in an error.
    pub(super) fn new(
        requester: &Arc<Requester>,
        request: &mut RawRequest,
        correlation: [u8; 16],
        clock: &Timestamp,
        left: Duration,
    ) -> Self {
        let RawRequest { payload, access, properties } = request;
        Self {
            requester: Arc::clone(requester),
            payload: match access {
                Access::Read => payload.clone(),
                Access::Write if payload.len() <= KEPT_BYTES_MAX => payload.clone(),
                Access::Write => {
                    let kept = Bytes::copy_from_slice(payload.get(..KEPT_BYTES_MAX).unwrap_or_default());
                    std::mem::replace(payload, kept)
                }
            },
            correlation,
            expiry_s: expiry_s(left),
            clock: (clock.ms, clock.counter),
            properties: properties.clone(),
        }
    }

    /// Returns the session's clock, which is the timestamp of a request without one of its own.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        let mut timestamp = self.requester.clock.clone();
        (timestamp.ms, timestamp.counter) = self.clock;
        timestamp
    }

    /// Returns the message (protocol §1).
    #[must_use]
    pub fn message(&self) -> Message {
        let Requester { client_id, response_topic, .. } = &*self.requester;
        let properties = self.properties.as_deref();
        let own = properties.and_then(|properties| properties.timestamp.as_ref());
        let mut user_properties = UserProperties::default();
        user_properties.push(message::SOURCE, client_id);
        user_properties.push_timestamp(message::TIMESTAMP, own.unwrap_or(&self.timestamp()));
        user_properties.push(message::PROTOCOL_VERSION, message::PROTOCOL_VERSION_1);
        user_properties.push(message::PARTITION, client_id);
        user_properties.push(message::HIGH_PRIORITY, "");
        if let Some(fence) = properties.and_then(|properties| properties.fence.as_ref()) {
            user_properties.push_timestamp(message::FENCE, fence);
        }
        if let Some(RequestProperties { persist, details, prefix, .. }) = properties {
            let flags =
                [(*persist, message::PERSIST), (*details, message::DETAILS), (*prefix, message::PREFIX)];
            let asked = flags.into_iter().filter(|(is_asked, _)| *is_asked);
            asked.for_each(|(_, name)| user_properties.push(name, "true"));
        }
        Message {
            topic: properties
                .and_then(|properties| properties.topic)
                .map_or(topic::REQUEST.into(), |topic| topic.to_owned().into()),
            payload: self.payload.clone(),
            qos: Qos::AtLeastOnce,
            response_topic: Some(response_topic.clone()),
            correlation: Some(Bytes::copy_from_slice(&self.correlation)),
            content_type: Some(message::CONTENT_TYPE.into()),
            expiry_s: self.expiry_s,
            user_properties,
            ..Message::default()
        }
    }
}

/// Returns the correlation data of a request: 16 bytes, like the UUIDs of the SDKs. The second half is its number.
pub(super) fn correlation(prefix: u64, id: u64) -> [u8; 16] {
    (u128::from(prefix).wrapping_shl(64) | u128::from(id)).to_be_bytes()
}

/// Returns a duration as a message expiry interval: at least one second, and the next one if there are milliseconds left.
fn expiry_s(left: Duration) -> Option<u32> {
    let seconds = left.as_secs().saturating_add(u64::from(left.subsec_millis() > 0));
    u32::try_from(seconds.max(1)).ok()
}
