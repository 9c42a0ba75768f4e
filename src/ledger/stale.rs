//! What the disk may hold in another state after a failed commit.
//!
//! Changes are accepted again when each of these addresses has been committed as it is.

use std::collections::BTreeSet;

use super::record::Record;
use crate::exchange::row::RowId;
use crate::protocol::Key;

/// What is brought up to date together: a key with its row in the exchange, or another row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Key(Key),
    Exchange(RowId),
}

/// Addresses of which the disk may hold another state, until they are committed as they are.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Those whose records were rolled back, and all rows that depend on others: no more than the queue holds.
    rolled_back: BTreeSet<Address>,
    /// Those that have changed since: any number. While the disk fails, persistent keys change by expiry only, which no
    /// client has to wait for.
    changed: BTreeSet<Address>,
    /// Those that are being committed.
    taken: BTreeSet<Address>,
}

impl Stale {
    pub(super) fn note_rolled_back(&mut self, record: &Record) {
        self.rolled_back.extend(Address::of(record));
    }

    pub(super) fn note_changed(&mut self, record: &Record) {
        match Address::of(record) {
            Some(Address::Exchange(id)) => _ = self.rolled_back.insert(Address::Exchange(id)),
            key => self.changed.extend(key),
        }
    }

    /// Takes a portion, because the disk may be nearly full: what was rolled back, then what has changed since, each at most
    /// `max` addresses. A portion that was taken before and was not committed comes first.
    ///
    /// With an exchange, everything that was rolled back is one portion, because rows and the values that they are about
    /// agree on disk. Keys that have expired since do not depend on each other.
    pub(super) fn take(&mut self, max: usize, is_indivisible: bool) -> Vec<Address> {
        self.rolled_back.append(&mut self.taken);
        let (from, max) = match self.rolled_back.is_empty() {
            true => (&mut self.changed, max),
            false => (&mut self.rolled_back, if is_indivisible { usize::MAX } else { max }),
        };
        while self.taken.len() < max
            && let Some(address) = from.pop_first()
        {
            self.taken.insert(address);
        }
        self.taken.iter().cloned().collect()
    }

    /// Handles the commit of the portion that was taken. Returns whether there is no other one.
    pub(super) fn handle_commit(&mut self) -> bool {
        self.taken.clear();
        self.rolled_back.is_empty() && self.changed.is_empty()
    }
}

impl Address {
    fn of(record: &Record) -> Option<Self> {
        match record {
            Record::Key(record) => Some(Self::Key(record.key.clone())),
            Record::Exchange(RowId::Key(key), _) => Some(Self::Key(key.clone())),
            Record::Exchange(id, _) => Some(Self::Exchange(id.clone())),
            Record::Registration(_) | Record::Response(_) => None,
        }
    }
}
