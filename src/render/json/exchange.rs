//! Records of `exchange` as JSON objects.

use super::object::{Object, op, put, put_bytes, put_some};
use crate::commands::duration::rfc3339;
use crate::commands::encoding::to_hex;
use crate::commands::output::ExchangeRecord;
use crate::protocol::exchange::{
    ConflictReport, KeyReport, LeafReport, Lost, Origin, OwnReport, RootReport, RuleReport,
};

pub(super) fn object(record: &ExchangeRecord) -> Object {
    match record {
        ExchangeRecord::Root { report, .. } => root(report, !record.is_no()),
        ExchangeRecord::Leaf(report) => own(report),
        ExchangeRecord::NoLeaf { name } => {
            let mut object = op("exchange-status");
            put(&mut object, "leaf", name.as_str());
            put(&mut object, "found", false);
            object
        }
        ExchangeRecord::Key { key, report } => {
            let mut object = op("exchange-key");
            put_bytes(&mut object, "key", "key_encoding", key.as_bytes());
            put_key(&mut object, report);
            object
        }
        ExchangeRecord::Conflict { conflict, .. } => conflict_object(conflict),
        ExchangeRecord::NoConflict { id } => {
            let mut object = op("exchange-conflict");
            put(&mut object, "id", *id);
            put(&mut object, "found", false);
            object
        }
        ExchangeRecord::Value { id, value } => {
            let mut object = op("exchange-value");
            put(&mut object, "id", *id);
            put(&mut object, "deletion", *value == Err(Lost::Deletion));
            match value {
                Ok(value) => put_bytes(&mut object, "value", "encoding", value),
                Err(lost) => put_without_value(&mut object, lost),
            }
            object
        }
        ExchangeRecord::Cleared { count } => {
            let mut object = op("exchange-clear");
            put(&mut object, "cleared", *count);
            object
        }
        ExchangeRecord::LeafAdded { name, is_known } => {
            let mut object = op("exchange-add-leaf");
            put(&mut object, "leaf", name.as_str());
            put(&mut object, "known", *is_known);
            object
        }
        ExchangeRecord::LeafDropped { name, is_known } => {
            let mut object = op("exchange-drop-leaf");
            put(&mut object, "leaf", name.as_str());
            put(&mut object, "found", *is_known);
            object
        }
        ExchangeRecord::Resync { name, count, is_new_root } => {
            let mut object = op("exchange-resync");
            put_some(&mut object, "leaf", name.as_deref());
            put(&mut object, "leaves", count.unwrap_or(0));
            put_some(&mut object, "new_root", is_new_root.then_some(true));
            object
        }
        ExchangeRecord::Reconnect { is_needed } => {
            let mut object = op("exchange-reconnect");
            put(&mut object, "connected", !is_needed);
            object
        }
    }
}

fn root(report: &RootReport, is_synchronised: bool) -> Object {
    let mut object = op("exchange-status");
    put(&mut object, "role", "root");
    put(&mut object, "exchange", report.exchange.as_str());
    put(&mut object, "synchronised", is_synchronised);
    put(&mut object, "ver", report.ver);
    put(&mut object, "records", report.records);
    put(&mut object, "tombstones", report.tombstones);
    put(&mut object, "conflicts", report.conflicts);
    put(&mut object, "conflicts_dropped", report.dropped);
    put(&mut object, "leaves", report.leaves.iter().map(leaf_object).collect::<Vec<_>>());
    object
}

fn leaf_object(leaf: &LeafReport) -> Object {
    let mut object = Object::new();
    put(&mut object, "leaf", leaf.name.as_str());
    put(&mut object, "state", leaf.state.as_str());
    put(&mut object, "behind", leaf.behind);
    put_some(&mut object, "unjudged", leaf.unjudged);
    put(&mut object, "conflicts", leaf.conflicts);
    put_some(&mut object, "heard_ms", leaf.heard_ms);
    put(&mut object, "accepted", leaf.accepted);
    put(&mut object, "refused", leaf.refused);
    object
}

fn own(report: &OwnReport) -> Object {
    let mut object = op("exchange-status");
    put(&mut object, "role", "leaf");
    put(&mut object, "exchange", report.exchange.as_str());
    put(&mut object, "leaf", report.name.as_str());
    put(&mut object, "state", report.state.as_str());
    put(&mut object, "synchronised", report.is_synchronised);
    put(&mut object, "cursor", report.cursor);
    put(&mut object, "outbox", report.outbox);
    put(&mut object, "outbox_bytes", report.outbox_bytes);
    put(&mut object, "made", report.made);
    put(&mut object, "accepted", report.accepted);
    put(&mut object, "refused", report.refused);
    put(&mut object, "merged", report.merged);
    put(&mut object, "conflicts", report.conflicts);
    put(&mut object, "conflicts_dropped", report.dropped);
    put_some(&mut object, "ended", report.ended.as_deref());
    object
}

fn put_key(object: &mut Object, report: &KeyReport) {
    put(object, "state", report.state.as_str());
    if let Some(RuleReport { number, keys, is_for_leaves, leaves }) = &report.rule {
        put(object, "rule", *number);
        put(object, "rule_keys", keys.as_slice());
        put(object, "change", if *is_for_leaves { "leaves" } else { "root" });
        put_some(object, "leaves", leaves.as_deref());
    }
    put_some(object, "ver", Some(report.ver).filter(|ver| *ver > 0));
    put_some(object, "change_id", report.change_id.map(|change_id| to_hex(&change_id)));
    put_origin(object, "by", &report.owner);
    put_some(object, "pending", report.pending.map(|change_id| to_hex(&change_id)));
}

fn put_origin(object: &mut Object, name: &str, origin: &Origin) {
    match origin {
        Origin::Unknown => {}
        // No leaf has an empty name, and one may be called root.
        Origin::Root => put(object, name, None::<String>),
        Origin::Leaf(leaf) => put(object, name, leaf.as_str()),
    }
}

fn conflict_object(conflict: &ConflictReport) -> Object {
    let mut object = op("exchange-conflict");
    put(&mut object, "id", conflict.id);
    put_some(&mut object, "time", rfc3339(conflict.at_ms));
    put_bytes(&mut object, "key", "key_encoding", conflict.key.as_bytes());
    put(&mut object, "leaf", conflict.leaf.as_str());
    put(&mut object, "reason", conflict.reason.as_str());
    put(&mut object, "lost", content(&conflict.lost));
    put_some(&mut object, "winner", Some(conflict.winner).filter(|ver| *ver > 0));
    put_origin(&mut object, "by", &conflict.owner);
    put_some(&mut object, "won", conflict.won.as_ref().map(content));
    object
}

/// Returns a content; a value that is cut has its `start` instead of `value`.
fn content(content: &Lost) -> Object {
    let mut object = Object::new();
    match content {
        Lost::Deletion => put(&mut object, "deletion", true),
        Lost::Value { start, size } => {
            put(&mut object, "size", *size);
            let is_whole = u64::try_from(start.len()).is_ok_and(|len| len == *size);
            // One that is hidden has neither.
            if is_whole || !start.is_empty() {
                put_bytes(&mut object, if is_whole { "value" } else { "start" }, "encoding", start);
            }
        }
        Lost::Expired | Lost::Unsent => put_without_value(&mut object, content),
    }
    object
}

fn put_without_value(object: &mut Object, content: &Lost) {
    match content {
        Lost::Expired => put(object, "expired", true),
        Lost::Unsent => put(object, "unsent", true),
        Lost::Deletion | Lost::Value { .. } => {}
    }
}
