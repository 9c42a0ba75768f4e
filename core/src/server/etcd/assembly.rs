//! Assembly of watch responses to batches with all changes of a revision (pure).

use crate::ledger::etcd::operation::{WatchBatch, WatchEvent};

/// What a watch has received, from one response to the next.
#[derive(Debug)]
pub(super) struct Assembly {
    /// The revision up to which everything has been passed on.
    revision: u64,
    /// Changes of one revision, the rest of which is in the next response.
    incomplete: Vec<WatchEvent>,
}

impl Assembly {
    /// Of a watch from this revision on.
    pub(super) fn new(from_revision: u64) -> Self {
        Self { revision: from_revision.saturating_sub(1), incomplete: Vec::new() }
    }

    /// Takes the changes of a response. `is_fragment`: etcd has split it, so that the last revision may be incomplete.
    pub(super) fn events(&mut self, events: Vec<WatchEvent>, is_fragment: bool) -> Option<WatchBatch> {
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend(events);
        let last = all.last()?.mod_revision;
        if is_fragment {
            let complete = all.partition_point(|event| event.mod_revision < last);
            self.incomplete = all.split_off(complete);
        }
        // The revision in the header is that of etcd, which may be ahead of a watch that has to catch up.
        self.revision = all.last()?.mod_revision;
        Some(WatchBatch { revision: self.revision, events: all })
    }

    /// Takes the revision of a progress notification.
    pub(super) fn progress(&mut self, revision: u64) -> Option<WatchBatch> {
        if revision <= self.revision || !self.incomplete.is_empty() {
            return None;
        }
        self.revision = revision;
        Some(WatchBatch { revision, events: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &'static str, mod_revision: u64) -> WatchEvent {
        WatchEvent { key: key.as_bytes().into(), value: None, mod_revision }
    }

    fn keys(batch: Option<WatchBatch>) -> Option<(u64, String)> {
        let batch = batch?;
        let keys = batch.events.iter().map(|event| String::from_utf8_lossy(&event.key));
        Some((batch.revision, keys.collect::<Vec<_>>().join(" ")))
    }

    fn batch(revision: u64, keys: &str) -> Option<(u64, String)> {
        Some((revision, keys.to_owned()))
    }

    #[test]
    fn changes_of_one_revision_come_together_however_etcd_splits_them() {
        let mut assembly = Assembly::new(3);
        assert_eq!(keys(assembly.events(vec![event("a", 3), event("b", 4)], false)), batch(4, "a b"));
        assert_eq!(keys(assembly.events(vec![event("c", 5), event("d", 6)], true)), batch(5, "c"));
        assert_eq!(keys(assembly.events(vec![event("e", 6)], true)), None);
        assert_eq!(keys(assembly.events(vec![event("f", 6), event("g", 7)], true)), batch(6, "d e f"));
        assert_eq!(keys(assembly.events(vec![event("h", 7)], false)), batch(7, "g h"));
        assert_eq!(keys(assembly.events(Vec::new(), false)), None);
    }

    #[test]
    fn progress_moves_the_revision_forward_only_and_past_nothing_that_is_missing() {
        let mut assembly = Assembly::new(3);
        assert_eq!(keys(assembly.progress(2)), None);
        assert_eq!(keys(assembly.progress(9)), batch(9, ""));
        assert_eq!(keys(assembly.progress(9)), None);
        assert_eq!(keys(assembly.events(vec![event("a", 10)], true)), None);
        assert_eq!(keys(assembly.progress(12)), None);
        assert_eq!(keys(assembly.events(vec![event("b", 10)], false)), batch(10, "a b"));
        assert_eq!(keys(assembly.progress(12)), batch(12, ""));
    }
}
