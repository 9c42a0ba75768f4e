//! Metrics of an instance of a cluster.

use super::exposition::Text;
use crate::server::operations::cluster_metrics::ShardState;
use crate::server::operations::metrics::Metrics;

/// Writes the metrics of an instance; nothing without a cluster.
pub fn write(text: &mut Text, metrics: &Metrics) {
    let cluster = &metrics.cluster;
    let shards = cluster.shards();
    if shards.is_empty() {
        return;
    }
    let numbers: Vec<_> = shards.iter().map(|(shard, _)| shard.to_string()).collect();
    let labels: Vec<_> = numbers.iter().map(|number| [("shard", number.as_str())]).collect();
    let mut family = |name: &str, help: &str, value: fn(&ShardState) -> u64| {
        let values = labels.iter().zip(&shards).map(|(labels, (_, state))| (&labels[..], value(state)));
        text.family(name, "gauge", help, values);
    };
    family("mqkv_cluster_owner", "1 if this instance owns the shard, otherwise 0.", |state| {
        u64::from(state.is_owner())
    });
    family("mqkv_cluster_epoch", "Number of the ownership of the shard.", |state| {
        state.status.as_ref().map_or(0, |status| status.epoch)
    });
    family("mqkv_cluster_sequence", "Last commit of the shard that this instance has.", |state| {
        state.status.as_ref().map_or(0, |status| status.seq)
    });
    family("mqkv_cluster_held_requests", "Requests that wait in case this instance takes over.", |state| {
        state.held.requests
    });
    family("mqkv_cluster_held_bytes", "Memory of these requests.", |state| state.held.bytes);
    let members = shards.iter().filter_map(|(_, state)| state.status.as_ref()).map(|status| status.members);
    text.one(
        "mqkv_cluster_members",
        "gauge",
        "Instances of the cluster, as last seen while this one followed.",
        members.max().unwrap_or(0),
    );
    let is_available = u8::from(!metrics.is_etcd_unavailable());
    text.one("mqkv_etcd_available", "gauge", "1 if etcd answers, otherwise 0.", is_available);
    for (name, help, counter) in [
        (
            "mqkv_cluster_takeovers_total",
            "How often this instance has taken a shard over.",
            &cluster.takeovers,
        ),
        (
            "mqkv_cluster_losses_total",
            "How often this instance has lost a shard to another one.",
            &cluster.losses,
        ),
        (
            "mqkv_cluster_resignations_total",
            "How often this instance has given a shard up.",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::{ClusterEvent, Role, Status};
    use crate::server::event::Event;
    use crate::server::operations::cluster_metrics::Held;

    #[test]
    fn a_store_without_a_cluster_has_no_metrics_of_one() {
        let mut text = Text::default();
        write(&mut text, &Metrics::default());
        assert_eq!(text.into_string(), "");
    }

    #[test]
    fn each_shard_has_its_owner_epoch_and_sequence() {
        let metrics = Metrics::default();
        let status = |role, seq| Status { role, owner: None, epoch: 3, seq, members: 2 };
        metrics.cluster.set_status(0, status(Role::Owner, 70));
        metrics.cluster.set_status(1, status(Role::Follower, 5));
        metrics.cluster.set_held(1, Held { requests: 2, bytes: 900 });
        let event = |event| Event::Cluster { shard: None, event };
        metrics.count_event(&event(ClusterEvent::TookOver { epoch: 3 }));
        metrics.count_event(&event(ClusterEvent::EtcdUnavailable { reason: String::new() }));
        let mut text = Text::default();
        write(&mut text, &metrics);
        let text = text.into_string();
        for line in [
            "mqkv_cluster_owner{shard=\"0\"} 1\nmqkv_cluster_owner{shard=\"1\"} 0\n",
            "mqkv_cluster_epoch{shard=\"0\"} 3\n",
            "mqkv_cluster_sequence{shard=\"1\"} 5\n",
            "mqkv_cluster_held_requests{shard=\"1\"} 2\n",
            "mqkv_cluster_held_bytes{shard=\"1\"} 900\n",
            "mqkv_cluster_members 2\n",
            "mqkv_etcd_available 0\n",
            "mqkv_cluster_takeovers_total 1\n",
            "mqkv_cluster_losses_total 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
