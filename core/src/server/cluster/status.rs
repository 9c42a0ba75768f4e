//! What an instance is at present.

use crate::ledger::etcd::operation::EtcdSize;

/// What an instance is at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has not read the state.
    Loading,
    Follower,
    Owner,
    /// It has given the store up.
    Closed,
    /// The state in etcd has another format.
    Incompatible,
}

/// The role of an instance, and what it knows of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub role: Role,
    /// The instance that the head names.
    pub owner: Option<String>,
    pub epoch: u64,
    pub seq: u64,
    /// The number of members.
    pub members: usize,
    /// Whether clients reach the instance: behind a broker, whether it is connected.
    pub is_reached: bool,
    /// By how much the clock of the instance is ahead of the others', or behind them, so that it owns nothing; 0: it may.
    pub clock_off_ms: i64,
    /// By how much the clock is ahead of the median of the others', or behind it, in steps of 100 ms; `None` without others.
    pub clock_offset_ms: Option<i64>,
    /// The revision of etcd at which it reads the state; 0: it does not.
    pub reads_at: u64,
    /// The number of keys of etcd that it has read, while it reads the state; otherwise 0.
    pub keys_read: u64,
    /// As the owner has seen it last; `None` at another instance.
    pub etcd: Option<EtcdSize>,
}

#[cfg(test)]
impl Status {
    /// Returns the status of an instance that clients reach, whose clock is right, and that knows nothing else.
    pub fn test(role: Role) -> Self {
        Self {
            role,
            owner: None,
            epoch: 0,
            seq: 0,
            members: 0,
            is_reached: true,
            clock_off_ms: 0,
            clock_offset_ms: None,
            reads_at: 0,
            keys_read: 0,
            etcd: None,
        }
    }
}
