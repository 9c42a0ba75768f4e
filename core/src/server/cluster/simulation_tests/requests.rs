//! Requests of clients, and what they were answered.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::Key;
use crate::store::Version;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub client: u64,
    /// The fingerprint of the request.
    pub number: u64,
}

#[derive(Clone, Debug)]
pub enum Operation {
    Set { value: String, ttl_ms: Option<u64>, is_nx: bool, fence: Option<u64> },
    Del { fence: Option<u64> },
    VDel { value: String },
    Get,
    Register { is_registered: bool },
}

#[derive(Clone, Debug)]
pub struct Request {
    pub key: Key,
    pub operation: Operation,
    pub timestamp_ms: u64,
    pub sent_ms: u64,
    /// The revision of etcd when it was sent: all that was acknowledged before is there.
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Written { payload: Bytes, version: Option<Version>, is_duplicate: bool },
    Read { version: Option<Version>, value: Option<String> },
    Registered,
    NoSpace,
}

/// All requests, and the first answers to writes.
#[derive(Default)]
pub struct Ledger {
    pub requests: BTreeMap<RequestId, Request>,
    pub answers: BTreeMap<RequestId, Reply>,
}
