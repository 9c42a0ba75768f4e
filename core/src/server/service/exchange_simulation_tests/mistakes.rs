//! Mistakes that the checks must find: most are frames that differ from those that the node has sent, as if it had a
//! defect.

use bytes::Bytes;

use super::node::{NAMES, name};
use super::world::World;
use crate::exchange::Exchange;
use crate::exchange::frame::{Changes, Item, LinkFrame, Proposal};
use crate::exchange::names::ChangeId;
use crate::exchange::row::{FOREVER, Note, Row, RowId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    SendsBeforeCommit,
    KeepsRowsOfFailedCommits,
    CommitsRowsBeforeValues,
    IgnoresSyncs,
    /// The root accepts changes whatever they are based on.
    IgnoresBases,
    /// The root accepts no change that has a base.
    RefusesBases,
    /// A leaf sends two changes in the wrong order.
    SwapsChanges,
    /// The root leaves records out.
    SkipsRecords,
    /// The root sends no digests.
    SendsNoDigests,
    /// The root sends digests of other records.
    SendsWrongDigests,
    /// A leaf does not offer what it has to a new root.
    DiscardsOwnKeys,
}

impl World {
    /// Returns a frame of a leaf as it arrives at the root.
    pub fn mistaken_up(&self, at: usize, payload: Bytes) -> Bytes {
        let change = match self.mistake {
            Some(Mistake::IgnoresBases) => rebase,
            Some(Mistake::RefusesBases) => debase,
            Some(Mistake::SwapsChanges) => swap,
            _ => return payload,
        };
        let Ok(LinkFrame::Changes(mut changes)) = LinkFrame::decode(&payload) else { return payload };
        change(self, at, &mut changes);
        LinkFrame::Changes(changes).encode()
    }

    /// Returns a frame of the root as it arrives at a leaf.
    pub fn mistaken_down(&self, payload: Bytes) -> Bytes {
        let Ok(LinkFrame::Records(mut records)) = LinkFrame::decode(&payload) else { return payload };
        match self.mistake {
            Some(Mistake::SkipsRecords) => {
                let first = records.items.iter().position(|item| matches!(item, Item::Record(_)));
                first.map(|first| records.items.remove(first));
            }
            Some(Mistake::SendsNoDigests) => records.digest = None,
            Some(Mistake::SendsWrongDigests) => records.digest = records.digest.map(|digest| digest ^ 1),
            _ => return payload,
        }
        LinkFrame::Records(records).encode()
    }

    /// Changes what a leaf has of a record, as a failing memory would. Returns whether there was a record.
    pub fn damage(&mut self, at: usize) -> bool {
        let process = self.process(at);
        let lasting = |key: &&crate::protocol::Key| {
            process.concerns(key)
                && process.leaf(|leaf| leaf.note(key).is_some_and(|note| note.until == FOREVER))
        };
        let Some(key) = self.keys.iter().find(lasting) else { return false };
        process.with_exchange(|exchange| {
            let Exchange::Leaf(leaf) = &*exchange else { panic!() };
            let note = *leaf.note(key).unwrap();
            let note = Note { change_id: ChangeId::from_bytes(&[1; 16]).unwrap(), ..note };
            exchange.restore(RowId::Key(key.clone()), Some(Row::Note(note)));
        });
        true
    }
}

/// Gives changes the base that the root accepts.
fn rebase(world: &World, _: usize, changes: &mut Changes) {
    for item in changes.items.iter_mut().filter(|item| !item.flags.is_lost) {
        let record = world.process(0).root(|root| root.record(&item.key).cloned());
        item.base = record.map_or(item.base, |record| record.change_id);
    }
}

/// Gives changes a base that no record ever had.
fn debase(_: &World, _: usize, changes: &mut Changes) {
    for item in &mut changes.items {
        item.base = ChangeId::from_bytes(&[1; 16]).unwrap();
        item.flags.is_base_absent = false;
    }
}

/// Exchanges the first two new changes, but for their numbers.
fn swap(world: &World, at: usize, changes: &mut Changes) {
    let id = RowId::Leaf(name(NAMES[at]));
    let Some(Row::Leaf(row)) = world.process(0).with_exchange(|exchange| exchange.row(&id)) else { return };
    let mut new = changes.items.iter_mut().filter(|item| item.seq > row.applied);
    let (Some(first), Some(second)) = (new.next(), new.next()) else { return };
    std::mem::swap(first, second);
    let Proposal { seq, .. } = first;
    std::mem::swap(seq, &mut second.seq);
}
