//! Events of an instance of a cluster.

use bytes::Bytes;

/// What an instance reports to the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// The state of the cluster has another format: the instance does not take part in it.
    Incompatible { reason: String },
    /// A record in etcd cannot be decoded: the instance does not serve the store until it can.
    Corrupt { key: Bytes },
    /// The instance reads the state, and has read so many keys of etcd.
    Reading { keys: u64 },
    /// The watch has lost changes: the state is read again.
    WatchGap,
    /// etcd has refused an operation for good.
    Refused { reason: String },
    /// etcd has no space, or soon none: keys can only be deleted, until an operator has made some.
    NoSpace,
    /// etcd accepts changes again.
    SpaceAgain,
    /// etcd does not answer, or refuses the instance's lease.
    EtcdUnavailable { reason: String },
    /// etcd answers again.
    EtcdAvailable,
    /// etcd grants leases of at least this time, longer than that of the settings: another instance takes over later.
    LeaseExtended { granted_s: u32 },
    /// The owner's clock, or that of an earlier owner, is ahead of this instance's: versions are, too.
    ClockAhead { ahead_ms: u64 },
    /// The instance's clock is ahead of those of the others, or behind them or the head's: it owns nothing.
    ClockOff { off_ms: i64 },
    /// The clock is right again.
    ClockRight,
    /// The instance owns the store.
    TookOver { epoch: u64 },
    /// Another instance owns the store, or may do so: this one follows.
    LostOwnership { epoch: u64 },
    /// The instance has given the store up.
    Resigned { epoch: u64 },
}
