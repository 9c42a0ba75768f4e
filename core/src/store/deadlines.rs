//! Deadlines of the keys, in order: a heap that can change and remove any deadline.

/// Place of an entry in [`super::entries::Entries`].
pub(super) type Slot = u32;

/// Children of a node of the heap: four deadlines lie within one or two cache lines.
const CHILDREN: usize = 4;

/// A deadline in monotonic milliseconds and its slot. Packed, because there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct Deadline {
    ms: u64,
    slot: Slot,
}

/// A heap of deadlines with the place of each slot, so that a lease that is renewed a thousand times leaves
/// nothing behind.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// The earliest deadline is first; none is later than its children.
    heap: Vec<Deadline>,
    /// For each slot, its place in `heap` plus one; 0 if it has no deadline.
    places: Vec<u32>,
}

impl Deadlines {
    /// Returns the earliest deadline in monotonic milliseconds, and its slot.
    pub(super) fn first(&self) -> Option<(u64, Slot)> {
        self.heap.first().map(|deadline| (deadline.ms, deadline.slot))
    }

    pub(super) fn get(&self, slot: Slot) -> Option<u64> {
        self.heap.get(self.place(slot)?).map(|deadline| deadline.ms)
    }

    /// Sets, changes or removes the deadline of a slot.
    pub(super) fn set(&mut self, slot: Slot, deadline_ms: Option<u64>) {
        match (self.place(slot), deadline_ms) {
            (Some(place), Some(ms)) => self.sift(place, Deadline { ms, slot }),
            (None, Some(ms)) => {
                self.heap.push(Deadline { ms, slot });
                self.sift(self.heap.len().saturating_sub(1), Deadline { ms, slot });
            }
            (Some(place), None) => self.remove(place, slot),
            (None, None) => {}
        }
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        let place = *self.places.get(slot as usize)?;
        place.checked_sub(1).map(|place| place as usize)
    }

    /// Fills the gap with the last deadline of the heap.
    fn remove(&mut self, place: usize, slot: Slot) {
        if let Some(known) = self.places.get_mut(slot as usize) {
            *known = 0;
        }
        if let Some(last) = self.heap.pop()
            && place < self.heap.len()
        {
            self.sift(place, last);
        }
    }

    /// Puts a deadline at a vacant place, or as far up or down from it as the order requires.
    fn sift(&mut self, mut place: usize, item: Deadline) {
        while let Some(above) = place.checked_sub(1).map(|place| place / CHILDREN)
            && let Some(parent) = self.heap.get(above).copied()
            && item < parent
        {
            self.put(place, parent);
            place = above;
        }
        while let Some((below, child)) = self.first_child(place)
            && child < item
        {
            self.put(place, child);
            place = below;
        }
        self.put(place, item);
    }

    fn first_child(&self, place: usize) -> Option<(usize, Deadline)> {
        let first = place.saturating_mul(CHILDREN).saturating_add(1);
        let children =
            (first..first.saturating_add(CHILDREN)).filter_map(|at| Some((at, *self.heap.get(at)?)));
        children.min_by_key(|(_, child)| *child)
    }

    fn put(&mut self, place: usize, item: Deadline) {
        let slot = item.slot as usize;
        if self.places.len() <= slot {
            self.places.resize(slot.saturating_add(1), 0);
        }
        if let (Some(at), Some(known)) = (self.heap.get_mut(place), self.places.get_mut(slot)) {
            *at = item;
            // The conversion cannot fail: there are no more deadlines than slots, which are counted in 32
            // bits.
            *known = u32::try_from(place.saturating_add(1)).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn deadlines_are_returned_in_order_after_any_changes(
            moves in prop::collection::vec((0..40_u32, prop::option::of(0..100_u64)), 0..300),
        ) {
            let (mut expiry, mut model) = (Deadlines::default(), BTreeMap::new());
            for (slot, deadline_ms) in moves {
                expiry.set(slot, deadline_ms);
                match deadline_ms {
                    Some(deadline_ms) => model.insert(slot, deadline_ms),
                    None => model.remove(&slot),
                };
                let ordered: BTreeSet<_> = model.iter().map(|(slot, at)| (*at, *slot)).collect();
                prop_assert_eq!(expiry.first(), ordered.first().copied());
                prop_assert_eq!(expiry.get(slot), deadline_ms);
            }
            while let Some((at, slot)) = expiry.first() {
                prop_assert_eq!(model.remove(&slot), Some(at));
                expiry.set(slot, None);
            }
            prop_assert!(model.is_empty());
        }
    }
}
