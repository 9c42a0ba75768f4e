//! What goes into the store, and what comes out of it.

use std::sync::Arc;

use crate::protocol::timestamp::TimestampError;
use crate::protocol::{ConnectionId, ErrorReply, Key, Reply, Request, Timestamp};

use super::authorization::KeyPermissions;
use super::entry::{StoredValue, Version};
use super::watchers::Watcher;

/// Both clocks in milliseconds. Neither goes back inside the store, whatever the machine's do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since the Unix epoch: for versions, and for what a client's clock may be ahead.
    pub wall_ms: u64,
    /// Since any fixed moment: for deadlines, which must not all pass when a machine's clock is set.
    pub monotonic_ms: u64,
}

/// A request with everything that a decision about it needs.
#[derive(Clone, Debug)]
pub struct StoreRequest {
    /// The connection it came on.
    pub connection: ConnectionId,
    /// Who sent it: the connection's client id.
    pub client_id: Arc<str>,
    /// What the client may do with keys; none: everything.
    pub permissions: Option<Arc<KeyPermissions>>,
    /// What is asked for.
    pub request: Request,
    /// The property `__ts`, as it could be read.
    pub timestamp: Option<Result<Timestamp, TimestampError>>,
    /// The property `__ft`, as it could be read.
    pub fence: Option<Result<Timestamp, TimestampError>>,
    /// The property `aio-persistence`.
    pub persist: bool,
}

/// One change of one key: for its watchers, and for the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Key,
    /// The version of the value that was written or removed.
    pub version: Version,
    /// What the key holds now; none: it is gone.
    pub content: Option<StoredValue>,
    /// Whether it concerns the disk: the key is to be kept there, or was.
    pub persist: bool,
    /// Whom to tell.
    pub watchers: Vec<Watcher>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreResponse {
    /// The answer.
    pub reply: Reply,
    /// The property `__ts` of the answer (protocol §2).
    pub version: Option<Version>,
    /// What the request found to have expired; this happened before it.
    pub expired: Option<Change>,
    /// What the request did.
    pub change: Option<Change>,
}

impl StoreResponse {
    /// An answer, and nothing happened.
    #[must_use]
    pub fn refused(refusal: ErrorReply) -> Self {
        Reply::Error(refusal).into()
    }
}

impl From<Reply> for StoreResponse {
    fn from(reply: Reply) -> Self {
        Self { reply, version: None, expired: None, change: None }
    }
}
