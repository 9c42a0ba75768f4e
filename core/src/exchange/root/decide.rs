//! Decides proposals (S7 to S9).

use super::super::frame::{Proposal, Reason, SILENCE_MS};
use super::super::row::{Conflict, DecisionKind, LostContent, RecordKind};
use super::{
    Cause, ChangeId, DECISIONS_MAX, Decision, Effects, LeafRow, Name, Record, Root, Row, RowId, Values,
};

impl Root {
    /// Decides one change of a leaf's stream. A change that was decided before is ignored.
    pub(super) fn propose(
        &mut self,
        name: &Name,
        proposal: Proposal,
        now_ms: u64,
        values: &dyn Values,
        effects: &mut Effects,
    ) -> Result<(), Cause> {
        let Some(leaf) = self.leaves.get(name) else { return Err(Cause::UnknownLeaf) };
        if proposal.seq <= leaf.row.applied {
            return Ok(());
        }
        if leaf.decisions.len() >= DECISIONS_MAX {
            return Err(Cause::Window);
        }
        let row = leaf.row.clone();
        let change_id = proposal.change_id(name);
        let kind = match self.check(name, &proposal, change_id, values) {
            Checked::Accept => {
                let (key, content) = (proposal.key.clone(), proposal.content.content().cloned());
                if content.as_ref().is_some_and(|content| !values.has_room(&key, content)) {
                    return Err(Cause::Blocked);
                }
                let kind = RecordKind::of(content.as_ref());
                let ver = self.write(key.clone(), change_id, Some(name.clone()), kind, effects);
                effects.value(key, content);
                DecisionKind::Accepted { ver }
            }
            Checked::Known { ver } => DecisionKind::Accepted { ver },
            Checked::Refuse(reason) => {
                let conflict = self.conflict(name, &proposal, change_id, reason, now_ms);
                let is_known =
                    proposal.flags.is_restored && self.conflicts.has_restored(&proposal.key, &conflict.lost);
                if !is_known {
                    self.append_conflict(conflict, effects);
                }
                DecisionKind::Refused(reason)
            }
        };
        let is_accepted = matches!(kind, DecisionKind::Accepted { .. });
        let is_refused = !is_accepted && !proposal.flags.is_restored;
        let row = LeafRow {
            applied: proposal.seq,
            change_id,
            accepted: row.accepted.saturating_add(is_accepted.into()),
            refused: row.refused.saturating_add(is_refused.into()),
            ..row
        };
        self.put_leaf(name, row, effects);
        let decision = Decision { key: proposal.key, at: self.row.ver, kind };
        let id = RowId::Decision(name.clone(), proposal.seq);
        effects.row(id, None, Some(Row::Decision(decision.clone())));
        if let Some(leaf) = self.leaves.get_mut(name) {
            leaf.decisions.insert(proposal.seq, decision);
        }
        Ok(())
    }

    fn append_conflict(&mut self, conflict: Conflict, effects: &mut Effects) {
        let before = self.node();
        self.row.last_conflict = self.row.last_conflict.saturating_add(1);
        let dropped = self.conflicts.append(self.row.last_conflict, conflict, effects);
        self.row.dropped_conflicts = self.row.dropped_conflicts.saturating_add(dropped);
        self.put_node(before, effects);
    }

    fn check(&self, name: &Name, proposal: &Proposal, change_id: ChangeId, values: &dyn Values) -> Checked {
        let Proposal { key, base, flags, .. } = proposal;
        if flags.is_restored && self.rules.concerns(key, name) {
            return Checked::Refuse(Reason::Restored);
        }
        if !self.rules.may_change(key, name) {
            return Checked::Refuse(Reason::Forbidden);
        }
        match self.records.get(key) {
            _ if flags.is_lost => Checked::Refuse(self.winner(key)),
            Some(record) if record.change_id == change_id => Checked::Known { ver: record.ver },
            // The base is what the root holds: a compare-and-swap in the order of commits.
            Some(record) if record.change_id == *base => Checked::Accept,
            Some(record)
                if flags.is_base_absent
                    && !flags.is_again
                    && self.is_forgotten(name, key, record, values) =>
            {
                Checked::Accept
            }
            // A change that may have been decided before may have been accepted, deleted and purged since.
            None if (*base == ChangeId::NIL || flags.is_base_absent) && !flags.is_again => Checked::Accept,
            _ => Checked::Refuse(self.winner(key)),
        }
    }

    /// Whether a leaf that shows no value may have forgotten the record: it drops the note of a value that has expired
    /// there once the purge has passed its version. A value expires first at the leaf that has made it, but no earlier than
    /// by the time that its change may have been on the way.
    fn is_forgotten(&self, name: &Name, key: &super::Key, record: &Record, values: &dyn Values) -> bool {
        let left_ms = || values.content(key).and_then(|content| content.ttl_ms);
        let is_expired = match record.kind {
            RecordKind::Lasting => false,
            RecordKind::Expiring => {
                record.owner.as_ref() == Some(name) && left_ms().is_none_or(|left_ms| left_ms <= SILENCE_MS)
            }
            RecordKind::Tombstone => true,
        };
        is_expired && record.ver <= self.row.purged
    }

    fn winner(&self, key: &super::Key) -> Reason {
        match self.records.get(key) {
            Some(Record { owner: None, .. }) => Reason::RootWins,
            Some(Record { owner: Some(_), .. }) => Reason::FirstLeafWins,
            None => Reason::UnknownBase,
        }
    }

    fn conflict(
        &self,
        name: &Name,
        proposal: &Proposal,
        change_id: ChangeId,
        reason: Reason,
        now_ms: u64,
    ) -> Conflict {
        let record = self.records.get(&proposal.key);
        Conflict {
            key: proposal.key.clone(),
            leaf: name.clone(),
            change_id,
            reason,
            lost: LostContent::of_proposed(&proposal.content),
            winner: record.map_or(0, |record| record.ver),
            owner: record.and_then(|record| record.owner.clone()),
            at_ms: now_ms,
        }
    }
}

enum Checked {
    Accept,
    /// It was accepted before, as this version.
    Known {
        ver: u64,
    },
    Refuse(Reason),
}
