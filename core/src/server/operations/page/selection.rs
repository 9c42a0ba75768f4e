//! Selection: the first rows of a long list in some order, in memory that does not grow with the list.

use std::collections::BTreeMap;

/// What a row is ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank<B> {
    Number(u64),
    Text(B),
}

impl Rank<Vec<u8>> {
    fn borrowed(&self) -> Rank<&[u8]> {
        match self {
            Self::Number(number) => Rank::Number(*number),
            Self::Text(text) => Rank::Text(text),
        }
    }
}

impl Rank<&[u8]> {
    fn owned(self) -> Rank<Vec<u8>> {
        match self {
            Self::Number(number) => Rank::Number(number),
            Self::Text(text) => Rank::Text(text.to_vec()),
        }
    }
}

/// Whether a row is after those of the other kind, with and without a rank; its rank; its number.
type Place = (bool, Option<Rank<Vec<u8>>>, usize);

/// The first rows in some order. Rows without a rank come last, also in descending order.
#[derive(Debug)]
pub struct Selection<T> {
    rows_max: usize,
    is_descending: bool,
    rows: BTreeMap<Place, T>,
    offered: usize,
}

impl<T> Selection<T> {
    #[must_use]
    pub fn new(rows_max: usize, is_descending: bool) -> Self {
        Self { rows_max, is_descending, rows: BTreeMap::new(), offered: 0 }
    }

    /// Takes a row, if it belongs to the first ones so far.
    pub fn offer(&mut self, rank: Option<Rank<&[u8]>>, row: impl FnOnce() -> T) {
        self.offered = self.offered.saturating_add(1);
        // In descending order the map is read from its end.
        let side = rank.is_none() != self.is_descending;
        if self.rows.len() >= self.rows_max {
            let last =
                if self.is_descending { self.rows.first_key_value() } else { self.rows.last_key_value() };
            let Some(((last_side, last_rank, _), _)) = last else { return };
            let order = (side, rank).cmp(&(*last_side, last_rank.as_ref().map(Rank::borrowed)));
            if (if self.is_descending { order.reverse() } else { order }).is_ge() {
                return;
            }
            if self.is_descending {
                self.rows.pop_first()
            } else {
                self.rows.pop_last()
            };
        }
        // Of rows with the same rank the earlier one comes first.
        let number = if self.is_descending { usize::MAX.saturating_sub(self.offered) } else { self.offered };
        self.rows.insert((side, rank.map(Rank::owned), number), row());
    }

    /// Returns the number of rows that were offered.
    #[must_use]
    pub fn offered(&self) -> usize {
        self.offered
    }

    /// Returns the selected rows in their order, without the first `skip`.
    #[must_use]
    pub fn into_rows(self, skip: usize) -> Vec<T> {
        let is_descending = self.is_descending;
        let mut rows: Vec<_> = self.rows.into_values().collect();
        if is_descending {
            rows.reverse();
        }
        rows.drain(..skip.min(rows.len()));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(numbers: &[Option<u64>], rows_max: usize, is_descending: bool) -> Vec<Option<u64>> {
        let mut selection = Selection::new(rows_max, is_descending);
        for number in numbers {
            selection.offer(number.map(Rank::Number), || *number);
            assert!(selection.rows.len() <= rows_max);
        }
        assert_eq!(selection.offered(), numbers.len());
        selection.into_rows(0)
    }

    #[test]
    fn the_first_rows_are_selected_in_both_directions_and_those_without_a_rank_are_last() {
        let numbers = [Some(3), None, Some(1), Some(2), Some(5), None, Some(4)];
        assert_eq!(select(&numbers, 3, false), [Some(1), Some(2), Some(3)]);
        assert_eq!(select(&numbers, 3, true), [Some(5), Some(4), Some(3)]);
        for is_descending in [false, true] {
            assert_eq!(select(&numbers, 9, is_descending)[5..], [None, None]);
            assert_eq!(select(&[None, None, Some(1)], 1, is_descending), [Some(1)]);
        }
    }

    #[test]
    fn texts_are_ordered_by_their_bytes_and_equal_rows_by_their_place() {
        for (is_descending, expected) in [(false, [0, 2, 1]), (true, [1, 0, 2])] {
            let mut selection = Selection::new(3, is_descending);
            for (row, text) in ["a", "b", "a"].into_iter().enumerate() {
                selection.offer(Some(Rank::Text(text.as_bytes())), || row);
            }
            assert_eq!(selection.into_rows(0), expected);
        }
    }

    #[test]
    fn rows_before_the_page_are_left_out() {
        let mut selection = Selection::new(5, false);
        for number in 0..5 {
            selection.offer(Some(Rank::Number(number)), || number);
        }
        assert_eq!(selection.into_rows(3), [3, 4]);
    }
}
