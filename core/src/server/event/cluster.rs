//! Rows of the events of an instance of a cluster.

use super::row::{Row, Subject, Value, failure, note};
use crate::server::cluster::event::ClusterEvent;

pub(super) fn row(event: &ClusterEvent) -> Row<'_> {
    let row = of_cause(event);
    match event {
        // Each ownership has one of these.
        ClusterEvent::TookOver { .. }
        | ClusterEvent::LostOwnership { .. }
        | ClusterEvent::Resigned { .. } => row,
        _ => row.about(Subject::Other("the cluster")),
    }
}

fn of_cause(event: &ClusterEvent) -> Row<'_> {
    match event {
        ClusterEvent::Incompatible { reason } => failure("cluster-incompatible")
            .text("reason", reason)
            .line(move |out| write!(out, "incompatible state in etcd: {reason}")),
        ClusterEvent::Corrupt { key } => failure("cluster-corrupt")
            .text("key", String::from_utf8_lossy(key))
            .line(move |out| write!(out, "invalid record in etcd: {}", key.escape_ascii())),
        ClusterEvent::Reading { keys } => note("cluster-reading")
            .display("keys", keys)
            .line(move |out| write!(out, "reading the state in etcd: {keys} keys so far")),
        ClusterEvent::WatchGap => {
            failure("cluster-watch-gap").words("a watch of etcd has lost changes; reading the state again")
        }
        ClusterEvent::Refused { reason } => failure("cluster-refused")
            .text("reason", reason)
            .line(move |out| write!(out, "etcd has refused an operation: {reason}")),
        ClusterEvent::NoSpace => failure("cluster-no-space").words(
            "etcd has reached its quota, or 90 % of it: keys can only be deleted until an operator compacts and defragments it, \
             and disarms its alarm (etcdctl alarm disarm)",
        ),
        ClusterEvent::SpaceAgain => note("cluster-space-again").words("etcd accepts changes again"),
        ClusterEvent::EtcdUnavailable { reason } => failure("cluster-etcd-unavailable")
            .text("reason", reason)
            .line(move |out| write!(out, "etcd is unavailable, requests wait: {reason}")),
        ClusterEvent::EtcdAvailable => note("cluster-etcd-available").words("etcd is available again"),
        ClusterEvent::LeaseExtended { granted_s } => {
            failure("cluster-lease-extended").display("granted_s", granted_s).line(move |out| {
                let why = "etcd grants no shorter lease";
                write!(out, "another instance takes over after {granted_s} s, not --failover: {why}")
            })
        }
        ClusterEvent::ClockAhead { ahead_ms } => {
            failure("cluster-clock-ahead").display("ahead_ms", ahead_ms).line(move |out| {
                write!(out, "the clock of the cluster is {ahead_ms} ms ahead of this instance's: ")?;
                out.write_str("check the clocks of all instances")
            })
        }
        ClusterEvent::ClockOff { off_ms } => {
            failure("cluster-clock-off").display("off_ms", off_ms).line(move |out| {
                let (by_ms, side) = (off_ms.unsigned_abs(), if *off_ms > 0 { "ahead of" } else { "behind" });
                write!(out, "the clock of this instance is {by_ms} ms {side} the cluster's: ")?;
                out.write_str("it owns nothing until it is corrected")
            })
        }
        ClusterEvent::ClockRight => note("cluster-clock-right").words("the clock of this instance is right again"),
        ClusterEvent::TookOver { epoch } => {
            of_owner(note("cluster-took-over"), *epoch, "this instance is the owner now")
        }
        ClusterEvent::LostOwnership { epoch } => {
            of_owner(failure("cluster-lost"), *epoch, "this instance has lost the ownership")
        }
        ClusterEvent::Resigned { epoch } => {
            of_owner(note("cluster-resigned"), *epoch, "this instance has given the ownership up")
        }
    }
}

fn of_owner(row: Row<'static>, epoch: u64, what: &'static str) -> Row<'static> {
    let row = row.with("epoch", Value::Number(epoch));
    row.line(move |out| write!(out, "{what} (epoch {epoch})"))
}
