//! Widths of columns, so that the records on a terminal align (pure).

use super::cut::width_of;

/// The widths of the columns of `watch` and `monitor`. They grow with the records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Widths {
    pub client: Column,
    pub verb: Column,
    pub key: Column,
}

/// The width of one column.
#[derive(Clone, Copy, Debug, Default)]
pub struct Column(usize);

impl Column {
    /// Widens the column for a text of at most `max` columns: a longer one must not push all others aside.
    pub fn fit(&mut self, text: &str, max: usize) {
        self.0 = self.0.max(Some(width_of(text)).filter(|width| *width <= max).unwrap_or(0));
    }

    /// Returns a text with blanks up to the width of the column, which grows as in [`Column::fit`].
    #[must_use]
    pub fn pad(&mut self, mut text: String, max: usize) -> String {
        self.fit(&text, max);
        let missing = self.0.saturating_sub(width_of(&text));
        text.extend(std::iter::repeat_n(' ', missing));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_grows_up_to_its_maximum() {
        let mut column = Column::default();
        let mut pad = |text: &str| column.pad(text.to_owned(), 4);
        assert_eq!([pad("abc"), pad("a"), pad("abcdef"), pad("温")], ["abc", "a  ", "abcdef", "温 "]);
    }
}
