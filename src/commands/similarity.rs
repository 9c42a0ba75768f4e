//! Suggestions for mistyped names.

use strsim::damerau_levenshtein;

/// Returns the name that a mistyped one resembles most: with at most two edits, or as its beginning.
#[must_use]
pub fn closest(typed: &str, names: impl Iterator<Item = String>) -> Option<String> {
    /// More edits than one in this many characters make another word.
    const PART: usize = 3;
    let measured = names.filter_map(|name| {
        let slips = damerau_levenshtein(&typed.to_lowercase(), &name.to_lowercase());
        let is_begun = typed.len() >= PART && name.starts_with(typed);
        let is_near = slips.saturating_mul(PART) <= typed.chars().count() && slips <= 2;
        (is_begun || is_near).then_some((slips, name))
    });
    measured.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_recognized_and_other_words_are_not() {
        let names = || ["read_only", "broker", "password_file", "port"].map(str::to_owned).into_iter();
        assert_eq!(closest("read_onyl", names()).as_deref(), Some("read_only"));
        assert_eq!(closest("brocker", names()).as_deref(), Some("broker"));
        assert_eq!(closest("password", names()).as_deref(), Some("password_file"));
        assert_eq!(closest("prot", names()).as_deref(), Some("port"));
        assert_eq!(closest("proxy", names()), None);
        assert_eq!(closest("", names()), None);
    }
}
