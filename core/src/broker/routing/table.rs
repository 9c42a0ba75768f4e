//! Hash table that grows and shrinks in bounded steps.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};

/// The most entries that a table has without parts: a hash table of 4,096 places.
const WHOLE_MAX: usize = 3_584;
/// The number of parts of a large table. It is no power of two, so that a million entries, or a hundred thousand, do not
/// fill all parts to just above the size at which they grow.
const PARTS: u64 = 300;

/// A hash table by text, whose entries beyond [`WHOLE_MAX`] are in parts that grow and shrink one by one.
///
/// Other connections wait for the registry's lock meanwhile: with a single table, the filter at which 115,000 were hashed
/// again took 16 ms, and the one at whose removal the table shrank took 43 ms.
#[derive(Debug)]
pub struct Table<V> {
    whole: HashMap<Box<str>, V>,
    parts: Option<Box<Parts<V>>>,
}

#[derive(Debug)]
struct Parts<V> {
    maps: Box<[HashMap<Box<str>, V>]>,
    len: usize,
    hasher: DefaultHashBuilder,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { whole: HashMap::new(), parts: None }
    }
}

impl<V> Default for Parts<V> {
    fn default() -> Self {
        let maps = (0..PARTS).map(|_| HashMap::new()).collect();
        Self { maps, len: 0, hasher: DefaultHashBuilder::default() }
    }
}

impl<V> Parts<V> {
    fn index(&self, key: &str) -> usize {
        usize::try_from(self.hasher.hash_one(key) % PARTS).unwrap_or_default()
    }
}

impl<V> Table<V> {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&V> {
        self.whole.get(key).or_else(|| {
            let parts = self.parts.as_ref()?;
            parts.maps.get(parts.index(key))?.get(key)
        })
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        if let Some(value) = self.whole.get_mut(key) {
            return Some(value);
        }
        let parts = self.parts.as_mut()?;
        let index = parts.index(key);
        parts.maps.get_mut(index)?.get_mut(key)
    }

    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Inserts a value, or replaces the one of the key.
    pub fn insert(&mut self, key: &str, value: V) {
        match self.get_mut(key) {
            Some(known) => *known = value,
            None => self.add(key, value),
        }
    }

    fn add(&mut self, key: &str, value: V) {
        if self.whole.len() < WHOLE_MAX {
            self.whole.insert(key.into(), value);
            return;
        }
        let parts = self.parts.get_or_insert_default();
        let index = parts.index(key);
        if let Some(map) = parts.maps.get_mut(index) {
            map.insert(key.into(), value);
            parts.len = parts.len.saturating_add(1);
        }
    }

    /// Returns the value of a key, which is inserted if there is none.
    pub fn get_or_insert_with(&mut self, key: &str, new: impl FnOnce() -> V) -> Option<&mut V> {
        if !self.contains_key(key) {
            self.add(key, new());
        }
        self.get_mut(key)
    }

    /// Removes a key. The memory of the table is not much larger than its content afterwards.
    pub fn remove(&mut self, key: &str) -> Option<V> {
        if let Some(removed) = remove(&mut self.whole, key) {
            return Some(removed);
        }
        let parts = self.parts.as_mut()?;
        let index = parts.index(key);
        let removed = remove(parts.maps.get_mut(index)?, key)?;
        parts.len = parts.len.saturating_sub(1);
        if parts.len == 0 {
            self.parts = None;
        }
        Some(removed)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.parts.is_none()
    }

    /// Returns any value.
    #[must_use]
    pub fn any(&self) -> Option<&V> {
        let parts = self.parts.iter().flat_map(|parts| &parts.maps);
        self.whole.values().chain(parts.flat_map(HashMap::values)).next()
    }
}

fn remove<V>(map: &mut HashMap<Box<str>, V>, key: &str) -> Option<V> {
    let removed = map.remove(key)?;
    if map.len() < map.capacity() / 4 {
        map.shrink_to(map.len().saturating_mul(2));
    }
    Some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 120_000;

    fn places<V>(table: &Table<V>) -> impl Iterator<Item = usize> {
        let parts = table.parts.iter().flat_map(|parts| &parts.maps);
        [&table.whole].into_iter().chain(parts).map(HashMap::capacity)
    }

    #[test]
    fn no_insertion_or_removal_moves_more_than_a_few_thousand_entries() {
        let mut table = Table::default();
        for number in 0..COUNT {
            table.insert(&number.to_string(), number);
            if number % 1_000 == 0 {
                assert!(places(&table).all(|places| places <= WHOLE_MAX), "{number}");
            }
        }
        assert!(table.contains_key("0") && !table.contains_key("-1"));
        for number in 0..COUNT {
            assert_eq!(table.get(&number.to_string()), Some(&number));
            assert_eq!(table.remove(&number.to_string()), Some(number));
            assert_eq!(table.remove(&number.to_string()), None);
            assert_eq!(table.any().is_some(), number + 1 < COUNT);
        }
        assert!(table.is_empty() && places(&table).sum::<usize>() == 0);
    }

    #[test]
    fn a_key_has_one_value_wherever_it_is() {
        let mut table = Table::default();
        for round in 0..3 {
            for number in 0..2 * WHOLE_MAX {
                table.insert(&number.to_string(), round);
            }
            // There is room in the first part again.
            assert_eq!(table.remove("0"), Some(round));
            assert_eq!(table.get_or_insert_with("0", || 7), Some(&mut 7));
            assert_eq!(table.get_or_insert_with("0", || 8), Some(&mut 7));
        }
        for number in 1..2 * WHOLE_MAX {
            assert_eq!(table.remove(&number.to_string()), Some(2));
        }
        assert_eq!(table.remove("0"), Some(7));
        assert!(table.is_empty());
    }
}
