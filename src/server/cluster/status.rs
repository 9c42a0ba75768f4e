//! What an instance is at present.

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
    /// By how much the clock of the instance is ahead of the others', or behind them, so that it owns nothing; 0: it may.
    pub clock_off_ms: i64,
    /// The revision of etcd at which it reads the state; 0: it does not.
    pub reads_at: u64,
}
