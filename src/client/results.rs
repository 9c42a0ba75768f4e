//! Options and results of the client's requests.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::protocol::{Condition, Key, Timestamp, Value};

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedValue {
    pub value: Value,
    /// None if the store sent no version.
    pub version: Option<Timestamp>,
}

/// A page of a key listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// May be empty, also in a page that is not the last.
    pub keys: Vec<Key>,
    /// The token of the next page. None: this is the last page.
    pub token: Option<Bytes>,
}

/// Options of a SET.
#[derive(Clone, Debug, Default)]
pub struct SetOptions {
    pub condition: Option<Condition>,
    /// Milliseconds until the key expires.
    pub ttl_ms: Option<NonZeroU64>,
    /// The fencing token.
    pub fence: Option<Timestamp>,
    /// Store the value on disk.
    pub persist: bool,
}

/// The result of a SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    /// Whether the value was set. False: the condition was not met.
    pub applied: bool,
    /// The new version, or the version of the unchanged value.
    pub version: Option<Timestamp>,
}

/// The result of a DEL or VDEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The key was deleted; the version is the deleted one.
    Deleted { version: Option<Timestamp> },
    /// The key did not exist.
    Missing,
    /// The key has another value and was not deleted (VDEL only); the version is the current one.
    ValueDiffers { version: Option<Timestamp> },
}
