//! Requests to the store, its responses, and the changes that they cause.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::timestamp::TimestampError;
use crate::protocol::{ConnectionId, EncodedValue, ErrorReply, Key, Reply, Request, Timestamp};

use super::authorization::KeyPermissions;
use super::entry::{StoredValue, Version, is_long};
use super::watchers::Watcher;

/// Both clocks in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since the Unix epoch: for versions and clock skew.
    pub wall_ms: u64,
    /// Since any fixed moment: for deadlines, which must not all pass when the machine's clock is set.
    pub monotonic_ms: u64,
}

/// A request with everything that the store needs to handle it.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    pub connection: ConnectionId,
    /// The client id of the connection; the property `__srcId` is not trusted (protocol §1).
    pub client_id: Arc<str>,
    /// Whose watches a KEYNOTIFY adds to: a user, a certificate or an address.
    pub owner: Arc<str>,
    /// The client's permissions; `None` if there are no rules.
    pub permissions: Option<Arc<KeyPermissions>>,
    pub request: Request,
    /// The property `__ts`, or why it cannot be parsed.
    pub timestamp: Option<Result<Timestamp, TimestampError>>,
    /// The property `__ft`, or why it cannot be parsed.
    pub fence: Option<Result<Timestamp, TimestampError>>,
    /// A long value of a SET, if it was copied before: see [`StoreRequest::encode_long_value`].
    pub encoded: Option<EncodedValue>,
    /// Whether the key is to be persistent (property `aio-persistence`).
    pub persist: bool,
    pub watch: WatchOptions,
    /// The error with which a SET, DEL or VDEL is refused if the client is authorized for it.
    pub refusal: Option<ErrorReply>,
}

/// What the user properties of a KEYNOTIFY ask for (docs/protocol.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// The key is the pattern of a prefix, whose keys are to be watched (property `mqkv-prefix`).
    pub is_prefix: bool,
    /// Notifications are to have time to live and fencing token (property `mqkv-details`).
    pub details: bool,
}

impl StoreRequest {
    /// Copies the long value of a SET, so that the store does not: other requests wait for it meanwhile.
    pub fn encode_long_value(&mut self) {
        if let Request::Set { value, .. } = &mut self.request
            && is_long(value)
        {
            let encoded = EncodedValue::new(value);
            *value = encoded.value();
            self.encoded = Some(encoded);
        }
    }
}

/// One change of one key, for its watchers and for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: Key,
    /// The version of the value that was written or removed.
    pub version: Version,
    /// What the key holds now; `None`: it was deleted or has expired.
    pub content: Option<StoredValue>,
    /// Whether the key is, or was, persistent.
    pub persist: bool,
    /// The connections to notify.
    pub watchers: Vec<Watcher>,
    /// The payload of the notifications, if they share it with the store: that of a long value.
    pub notification: Option<Bytes>,
    /// The time to live of what the key holds now.
    pub ttl_ms: Option<NonZeroU64>,
}

/// Response to a request, and the changes that it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreResponse {
    pub reply: Reply,
    /// The payload of the reply, if it shares it with the store: that of a long value.
    pub payload: Option<Bytes>,
    /// The property `__ts` of the response (protocol §2).
    pub version: Option<Version>,
    /// The expiry that the request came upon; it happened before the request.
    pub expired: Option<Change>,
    /// The change by the request.
    pub change: Option<Change>,
}

impl StoreResponse {
    /// Returns an error reply without any change.
    #[must_use]
    pub fn error(error: ErrorReply) -> Self {
        Reply::Error(error).into()
    }
}

impl From<Reply> for StoreResponse {
    fn from(reply: Reply) -> Self {
        Self { reply, payload: None, version: None, expired: None, change: None }
    }
}
