//! Metrics of a store that takes part in an exchange.

use super::exposition::Text;
use crate::exchange::conflict_log::CONFLICTS_MAX;
use crate::exchange::leaf::{OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX};
use crate::exchange::root::{LEAVES_MAX, TOMBSTONES_MAX};
use crate::protocol::exchange::{LeafReport, LeafState, OwnReport, OwnState, RootReport};
use crate::server::metrics::Metrics;
use crate::server::service::NodeReport;

/// The value of a metric for a leaf, if it is known.
type LeafValue = fn(&LeafReport) -> Option<u64>;

pub fn write(text: &mut Text, node: &NodeReport, metrics: &Metrics) {
    let (role, exchange, name, conflicts, dropped) = match node {
        NodeReport::Root(root) => ("root", &root.exchange, None, root.conflicts, root.dropped),
        NodeReport::Leaf(own) => ("leaf", &own.exchange, Some(own.name.as_str()), own.conflicts, own.dropped),
    };
    let info = [("exchange", exchange.as_str()), ("role", role), ("leaf", name.unwrap_or_default())];
    let info = info.get(..if name.is_some() { 3 } else { 2 }).unwrap_or_default();
    text.family("mqkv_exchange_info", "gauge", "Role of the store in its exchange; always 1.", [(info, 1)]);
    match node {
        NodeReport::Root(root) => write_root(text, root),
        NodeReport::Leaf(own) => write_own(text, own),
    }
    text.one("mqkv_exchange_conflicts", "gauge", "Stored conflicts.", conflicts);
    text.one("mqkv_exchange_conflicts_max", "gauge", "Limit of the number of conflicts.", CONFLICTS_MAX);
    text.one(
        "mqkv_exchange_conflicts_dropped_total",
        "counter",
        "Conflicts that made room for others.",
        dropped,
    );
    let conflicts: Vec<_> =
        metrics.each_conflict().map(|(reason, count)| ([("reason", reason.as_str())], count)).collect();
    text.family(
        "mqkv_exchange_conflicts_total",
        "counter",
        "Changes that lost, by the reason.",
        conflicts.iter().map(|(labels, count)| (&labels[..], count)),
    );
    let events: Vec<_> =
        metrics.each_exchange_event().map(|(name, count)| ([("event", name)], count)).collect();
    text.family(
        "mqkv_exchange_events_total",
        "counter",
        "Log events of the exchange, including suppressed ones.",
        events.iter().map(|(labels, count)| (&labels[..], count)),
    );
}

fn write_root(text: &mut Text, root: &RootReport) {
    text.one("mqkv_exchange_version", "gauge", "Version of the last change.", root.ver);
    text.one("mqkv_exchange_records", "gauge", "Keys that take part and have a value.", root.records);
    text.one(
        "mqkv_exchange_tombstones",
        "gauge",
        "Deletions that not all leaves have received.",
        root.tombstones,
    );
    text.one("mqkv_exchange_tombstones_max", "gauge", "Limit of the number of deletions.", TOMBSTONES_MAX);
    text.one("mqkv_exchange_leaves", "gauge", "Leaves of the root.", root.leaves.len());
    text.one("mqkv_exchange_leaves_max", "gauge", "Limit of the number of leaves.", LEAVES_MAX);
    let of_leaf: [(&str, &str, &str, LeafValue); 9] = [
        ("up", "gauge", "1 if the leaf is linked, otherwise 0.", |leaf| Some(u64::from(leaf.is_linked()))),
        ("synchronized", "gauge", "1 if the leaf is linked and has everything, otherwise 0.", |leaf| {
            Some(u64::from(leaf.state == LeafState::Synchronized))
        }),
        ("blocked", "gauge", "1 if the root has no room for its next change, otherwise 0.", |leaf| {
            Some(u64::from(leaf.state == LeafState::Blocked))
        }),
        ("behind", "gauge", "Versions that the leaf has not committed.", |leaf| Some(leaf.behind)),
        ("pending", "gauge", "Changes of the leaf that wait for the root's decision, if linked.", |leaf| {
            leaf.pending
        }),
        ("conflicts", "gauge", "Stored conflicts of the leaf.", |leaf| Some(leaf.conflicts)),
        ("accepted_total", "counter", "Changes of the leaf that were accepted.", |leaf| Some(leaf.accepted)),
        ("refused_total", "counter", "Changes of the leaf that were refused.", |leaf| Some(leaf.refused)),
        ("heard_seconds", "gauge", "Time since the last frame of the leaf, if known.", |leaf| {
            leaf.heard_ms.map(|ms| ms / 1_000)
        }),
    ];
    for (name, kind, help, value) in of_leaf {
        let values: Vec<_> = root
            .leaves
            .iter()
            .filter_map(|leaf| Some(([("leaf", leaf.name.as_str())], value(leaf)?)))
            .collect();
        let samples = values.iter().map(|(labels, value)| (&labels[..], value));
        text.family(&format!("mqkv_exchange_leaf_{name}"), kind, help, samples);
    }
}

fn write_own(text: &mut Text, own: &OwnReport) {
    let is_linked = matches!(own.state, OwnState::Linked | OwnState::Resync);
    text.one("mqkv_exchange_linked", "gauge", "1 if linked with the root, otherwise 0.", u8::from(is_linked));
    text.one(
        "mqkv_exchange_blocked",
        "gauge",
        "1 if a store has no room for the next change, otherwise 0.",
        u8::from(own.state == OwnState::Blocked),
    );
    text.one("mqkv_exchange_version", "gauge", "Version of the root that the leaf has.", own.received);
    text.one(
        "mqkv_exchange_outbox_entries",
        "gauge",
        "Changes that wait for the decision of the root.",
        own.outbox,
    );
    text.one(
        "mqkv_exchange_outbox_entries_max",
        "gauge",
        "Limit of the number of changes that wait.",
        OUTBOX_ENTRIES_MAX,
    );
    text.one("mqkv_exchange_outbox_bytes", "gauge", "Memory of changes that wait.", own.outbox_bytes);
    text.one(
        "mqkv_exchange_outbox_max_bytes",
        "gauge",
        "Limit of the memory of changes that wait.",
        OUTBOX_BYTES_MAX,
    );
    for (name, help, count) in [
        ("mqkv_exchange_made_total", "Changes of this leaf.", own.made),
        ("mqkv_exchange_accepted_total", "Changes of this leaf that the root has accepted.", own.accepted),
        ("mqkv_exchange_refused_total", "Changes of this leaf that the root has refused.", own.refused),
        ("mqkv_exchange_merged_total", "Changes of this leaf that a later one has replaced.", own.merged),
    ] {
        text.one(name, "counter", help, count);
    }
}
