//! Turns: an order of clients, from which any can be removed.

use std::collections::BTreeMap;

/// The places of clients, each at a turn of its own. A turn that is added is the last one.
#[derive(Debug, Default)]
pub(super) struct Turns {
    places: BTreeMap<u64, usize>,
    last: u64,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn add(&mut self, place: usize) -> u64 {
        // 64 bits do not overflow: each turn takes a request.
        self.last = self.last.wrapping_add(1);
        self.places.insert(self.last, place);
        self.last
    }

    pub(super) fn remove(&mut self, turn: u64) -> Option<usize> {
        self.places.remove(&turn)
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.places.first_key_value().map(|(_, place)| *place)
    }
}
