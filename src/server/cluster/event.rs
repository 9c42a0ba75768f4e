//! Events of an instance of a cluster, for the log.

use std::fmt;

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

impl ClusterEvent {
    /// Whether the event reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Reading { .. }
            | Self::SpaceAgain
            | Self::EtcdAvailable
            | Self::ClockRight
            | Self::TookOver { .. }
            | Self::Resigned { .. } => false,
            Self::Incompatible { .. }
            | Self::Corrupt { .. }
            | Self::WatchGap
            | Self::Refused { .. }
            | Self::NoSpace
            | Self::EtcdUnavailable { .. }
            | Self::LeaseExtended { .. }
            | Self::ClockAhead { .. }
            | Self::ClockOff { .. }
            | Self::LostOwnership { .. } => true,
        }
    }

    /// Whether the event reports that an ownership has begun or ended.
    #[must_use]
    pub fn is_change_of_owner(&self) -> bool {
        matches!(self, Self::TookOver { .. } | Self::LostOwnership { .. } | Self::Resigned { .. })
    }

    /// Returns the name of the kind of event in the JSON log.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Incompatible { .. } => "cluster-incompatible",
            Self::Corrupt { .. } => "cluster-corrupt",
            Self::Reading { .. } => "cluster-reading",
            Self::WatchGap => "cluster-watch-gap",
            Self::Refused { .. } => "cluster-refused",
            Self::NoSpace => "cluster-no-space",
            Self::SpaceAgain => "cluster-space-again",
            Self::EtcdUnavailable { .. } => "cluster-etcd-unavailable",
            Self::EtcdAvailable => "cluster-etcd-available",
            Self::LeaseExtended { .. } => "cluster-lease-extended",
            Self::ClockAhead { .. } => "cluster-clock-ahead",
            Self::ClockOff { .. } => "cluster-clock-off",
            Self::ClockRight => "cluster-clock-right",
            Self::TookOver { .. } => "cluster-took-over",
            Self::LostOwnership { .. } => "cluster-lost",
            Self::Resigned { .. } => "cluster-resigned",
        }
    }

    /// Returns the fields of the JSON log. Values from the network are not escaped.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Incompatible { reason } | Self::Refused { reason } | Self::EtcdUnavailable { reason } => {
                vec![("reason", reason.clone())]
            }
            Self::Corrupt { key } => vec![("key", String::from_utf8_lossy(key).into_owned())],
            Self::WatchGap | Self::NoSpace | Self::SpaceAgain | Self::EtcdAvailable | Self::ClockRight => {
                Vec::new()
            }
            Self::Reading { keys } => vec![("keys", keys.to_string())],
            Self::LeaseExtended { granted_s } => vec![("granted_s", granted_s.to_string())],
            Self::ClockAhead { ahead_ms } => vec![("ahead_ms", ahead_ms.to_string())],
            Self::ClockOff { off_ms } => vec![("off_ms", off_ms.to_string())],
            Self::TookOver { epoch } | Self::LostOwnership { epoch } | Self::Resigned { epoch } => {
                vec![("epoch", epoch.to_string())]
            }
        }
    }
}

impl fmt::Display for ClusterEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incompatible { reason } => write!(out, "incompatible state in etcd: {reason}"),
            Self::Corrupt { key } => write!(out, "invalid record in etcd: {}", key.escape_ascii()),
            Self::Reading { keys } => write!(out, "reading the state in etcd: {keys} keys so far"),
            Self::WatchGap => out.write_str("a watch of etcd has lost changes; reading the state again"),
            Self::Refused { reason } => write!(out, "etcd has refused an operation: {reason}"),
            Self::NoSpace => out.write_str(
                "etcd has reached its quota, or 90 % of it: keys can only be deleted until an operator compacts and defragments it, and \
                 disarms its alarm (etcdctl alarm disarm)",
            ),
            Self::SpaceAgain => out.write_str("etcd accepts changes again"),
            Self::EtcdUnavailable { reason } => write!(out, "etcd is unavailable, requests wait: {reason}"),
            Self::EtcdAvailable => out.write_str("etcd is available again"),
            Self::LeaseExtended { granted_s } => write!(
                out,
                "another instance takes over after {granted_s} s, not --failover: etcd grants no shorter lease"
            ),
            Self::ClockAhead { ahead_ms } => write!(
                out,
                "the clock of the cluster is {ahead_ms} ms ahead of this instance's: check the clocks of all instances"
            ),
            Self::ClockOff { off_ms } => {
                let (by_ms, side) = (off_ms.unsigned_abs(), if *off_ms > 0 { "ahead of" } else { "behind" });
                write!(
                    out,
                    "the clock of this instance is {by_ms} ms {side} the cluster's: it owns nothing until it is corrected"
                )
            }
            Self::ClockRight => out.write_str("the clock of this instance is right again"),
            Self::TookOver { epoch } => write!(out, "this instance is the owner now (epoch {epoch})"),
            Self::LostOwnership { epoch } => {
                write!(out, "this instance has lost the ownership (epoch {epoch})")
            }
            Self::Resigned { epoch } => {
                write!(out, "this instance has given the ownership up (epoch {epoch})")
            }
        }
    }
}
