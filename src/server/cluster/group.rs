//! What the application commits, and what every instance receives: rows, registrations, responses to writes.

use std::sync::Arc;

use bytes::Bytes;

use crate::protocol::Key;
use crate::server::operations::metrics::Outcome;
use crate::store::{Change, StoredValue, Version};

/// What the owner's application has decided since its last group.
///
/// The requests that only read are a part of the group by its sequence number alone: they are answered when the group is
/// committed. A group without items confirms them: see [`crate::server::cluster::Instance::commit`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Each with the sequence number of its request, which rises. Items of the same number stay in one commit.
    pub items: Vec<(u64, Item)>,
    /// The last sequence number: at least those of all items.
    pub sequence: u64,
}

/// One change that a group commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Row(RowChange),
    Registration(RegistrationChange),
    Response(ResponseRecord),
}

/// A key that was written, or was deleted or has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowChange {
    pub key: Key,
    /// `None`: the key is absent now. Deadlines are on the monotonic clock of the instance that is given the change.
    pub content: Option<(Version, StoredValue)>,
}

/// A KEYNOTIFY registration that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistrationChange {
    pub key: Key,
    pub client_id: Arc<str>,
    pub is_registered: bool,
}

/// The response to a write, for another delivery of the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseRecord {
    pub client_id: Arc<str>,
    /// Must be the same in all instances: see [`crate::server::cluster::Effect::Joined`].
    pub fingerprint: u64,
    pub payload: Bytes,
    pub version: Option<Version>,
    pub outcome: Outcome,
    /// Until when it is kept, in monotonic milliseconds of the instance that is given the record.
    pub until_ms: u64,
}

impl From<&Change> for RowChange {
    fn from(change: &Change) -> Self {
        let Change { key, version, content, .. } = change;
        Self { key: key.clone(), content: content.clone().map(|stored| (*version, stored)) }
    }
}
