//! Metrics of an instance of a cluster.

use super::exposition::Text;
use crate::clock;
use crate::server::cluster::Role;
use crate::server::metrics::Metrics;
use crate::server::metrics::cluster::InstanceState;

/// Writes the metrics of an instance; nothing without a cluster.
pub fn write(text: &mut Text, metrics: &Metrics) {
    let cluster = &metrics.cluster;
    let InstanceState { status: Some(status), held, sequence_changed } = cluster.state() else { return };
    for (name, help, value) in [
        (
            "mqkv_cluster_owner",
            "1 if this instance owns the store, otherwise 0.",
            u64::from(status.role == Role::Owner),
        ),
        ("mqkv_cluster_epoch", "Number of the ownership of the store.", status.epoch),
        ("mqkv_cluster_sequence", "Last commit that this instance has.", status.seq),
        ("mqkv_cluster_held_requests", "Requests that wait in case this instance takes over.", held.requests),
        ("mqkv_cluster_held_bytes", "Memory of these requests.", held.bytes),
    ] {
        text.one(name, "gauge", help, value);
    }
    text.one(
        "mqkv_cluster_members",
        "gauge",
        "Instances of the cluster, as this one sees them.",
        status.members,
    );
    if let Some(offset_ms) = status.clock_offset_ms {
        text.one(
            "mqkv_cluster_clock_offset_seconds",
            "gauge",
            "By how much the clock is ahead of the median of the other instances (negative: behind).",
            seconds(offset_ms),
        );
    }
    text.one(
        "mqkv_cluster_following",
        "gauge",
        "1 if this instance has the state and receives all changes, or owns the store, otherwise 0.",
        u8::from(matches!(status.role, Role::Owner | Role::Follower)),
    );
    text.one(
        "mqkv_cluster_read_keys",
        "gauge",
        "Keys of etcd that this instance has read, while it reads the state; otherwise 0.",
        status.keys_read,
    );
    if let Some(changed) = sequence_changed {
        let age = clock::monotonic().saturating_duration_since(changed);
        text.one(
            "mqkv_cluster_sequence_age_seconds",
            "gauge",
            "Time since this instance has received a commit. An owner with room in etcd commits every ten seconds at least.",
            age.as_secs(),
        );
    }
    if let Some(etcd) = status.etcd {
        for (name, help, value) in [
            (
                "mqkv_etcd_database_bytes",
                "Size of etcd's file, seen by the owner.",
                Some(etcd.database_bytes),
            ),
            ("mqkv_etcd_used_bytes", "The part of it that has data.", Some(etcd.used_bytes)),
            ("mqkv_etcd_quota_bytes", "Its limit, if etcd reports it.", etcd.quota_bytes),
            ("mqkv_etcd_alarms", "Alarms that etcd reports.", Some(u64::from(etcd.alarms))),
        ] {
            if let Some(value) = value {
                text.one(name, "gauge", help, value);
            }
        }
    }
    // Prometheus' base unit; rounded to whole seconds.
    text.one(
        "mqkv_cluster_clock_off_seconds",
        "gauge",
        "By how much the clock is ahead (negative: behind), so that this instance owns nothing; otherwise 0.",
        status.clock_off_ms.div_euclid(1_000),
    );
    let is_available = u8::from(!metrics.is_etcd_unavailable());
    text.one("mqkv_etcd_available", "gauge", "1 if etcd answers, otherwise 0.", is_available);
    for (name, help, counter) in [
        (
            "mqkv_cluster_takeovers_total",
            "How often this instance has taken the store over.",
            &cluster.takeovers,
        ),
        (
            "mqkv_cluster_losses_total",
            "How often this instance has lost the store to another one.",
            &cluster.losses,
        ),
        (
            "mqkv_cluster_resignations_total",
            "How often this instance has given the store up.",
            &cluster.resignations,
        ),
        ("mqkv_cluster_rows_total", "Keys that were written or deleted in commits.", &cluster.rows),
        (
            "mqkv_cluster_confirmations_total",
            "Confirmations of the ownership for reads, without changes.",
            &cluster.confirmations,
        ),
    ] {
        text.one(name, "counter", help, counter.get());
    }
}

/// Returns milliseconds in Prometheus' base unit, with one digit.
fn seconds(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    format!("{sign}{}.{}", ms.div_euclid(1_000), ms.rem_euclid(1_000).div_euclid(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::operation::EtcdSize;
    use crate::server::cluster::{ClusterEvent, Status};
    use crate::server::metrics::cluster::Held;

    #[test]
    fn a_store_without_a_cluster_has_no_metrics_of_one() {
        let mut text = Text::default();
        write(&mut text, &Metrics::default());
        assert_eq!(text.into_string(), "");
    }

    #[test]
    fn an_instance_shows_its_role_epoch_and_sequence() {
        let metrics = Metrics::default();
        let status = |role, seq| Status {
            epoch: 3,
            seq,
            members: 2,
            clock_off_ms: -40_500,
            clock_offset_ms: Some(-40_500),
            keys_read: 70,
            etcd: Some(EtcdSize { used_bytes: 9, alarms: 1, ..EtcdSize::default() }),
            ..Status::test(role)
        };
        metrics.cluster.set_held(Held { requests: 2, bytes: 900 });
        metrics.cluster.set_status(status(Role::Follower, 5));
        metrics.count_event(&ClusterEvent::TookOver { epoch: 3 }.into());
        metrics.count_event(&ClusterEvent::EtcdUnavailable { reason: String::new() }.into());
        let shown = || {
            let mut text = Text::default();
            write(&mut text, &metrics);
            text.into_string()
        };
        let text = shown();
        for line in [
            "mqkv_cluster_owner 0\n",
            "mqkv_cluster_epoch 3\n",
            "mqkv_cluster_sequence 5\n",
            "mqkv_cluster_held_requests 2\n",
            "mqkv_cluster_held_bytes 900\n",
            "mqkv_cluster_members 2\n",
            "mqkv_etcd_available 0\n",
            "mqkv_cluster_takeovers_total 1\n",
            "mqkv_cluster_losses_total 0\n",
            "mqkv_cluster_clock_offset_seconds -40.5\n",
            "mqkv_cluster_following 1\n",
            "mqkv_cluster_read_keys 70\n",
            "mqkv_cluster_sequence_age_seconds 0\n",
            "mqkv_etcd_used_bytes 9\n",
            "mqkv_etcd_alarms 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("mqkv_etcd_quota_bytes"), "etcd does not report it");
        metrics.cluster.set_status(status(Role::Owner, 70));
        assert!(shown().contains("mqkv_cluster_owner 1\n"));
    }

    #[test]
    fn rules_dashboard_and_pages_name_metrics_that_an_instance_has() {
        let metrics = Metrics::default();
        metrics.cluster.set_status(Status {
            clock_offset_ms: Some(0),
            etcd: Some(EtcdSize { quota_bytes: Some(1), ..EtcdSize::default() }),
            ..Status::test(Role::Owner)
        });
        let mut text = Text::default();
        write(&mut text, &metrics);
        let text = text.into_string();
        let mut named = 0;
        for file in [
            include_str!("../../../../../examples/monitoring/alerts.yml"),
            include_str!("../../../../../examples/monitoring/dashboard.json"),
            include_str!("../../../../../docs/monitoring.md"),
            include_str!("../../../../../docs/scale-out.md"),
        ] {
            for name in file.split(|c: char| !c.is_ascii_lowercase() && c != '_') {
                if name.starts_with("mqkv_cluster_") || name.starts_with("mqkv_etcd_") {
                    assert!(text.contains(&format!("\n{name} ")), "{name} is not in /metrics:\n{text}");
                    named += 1;
                }
            }
        }
        assert!(named > 10, "{named}");
    }
}
