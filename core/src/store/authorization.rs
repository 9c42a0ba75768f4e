//! Key permissions of one client: the authorization rules as they apply to it. Without a rule, access is
//! denied (protocol §7).

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};

pub use super::glob::InvalidPattern;
use super::glob::Pattern;

/// Keys that one client may read and write.
#[derive(Debug, Default)]
pub struct KeyPermissions {
    /// Keys for GET and KEYNOTIFY, and those that SCAN returns.
    pub read: KeySet,
    /// Keys for SET, DEL and VDEL.
    pub write: KeySet,
}

/// A set of keys, by name and by pattern.
///
/// Patterns are indexed by their literal prefix, so that a thousand patterns cost hardly more than one.
#[derive(Debug, Default)]
pub struct KeySet {
    names: HashSet<Box<[u8]>>,
    patterns: HashMap<Box<str>, Vec<Pattern>>,
    /// The lengths in bytes of the literal prefixes.
    prefix_lens: BTreeSet<usize>,
}

impl KeySet {
    pub fn add(&mut self, key: &[u8]) {
        self.names.insert(key.into());
    }

    /// Adds all keys that match a pattern in the language of SCAN.
    ///
    /// # Errors
    /// The text is no valid pattern.
    pub fn add_pattern(&mut self, text: &str) -> Result<(), InvalidPattern> {
        let pattern = Pattern::parse(text)?;
        let prefix = pattern.literal_prefix();
        self.prefix_lens.insert(prefix.len());
        self.patterns.entry(prefix.into()).or_default().push(pattern);
        Ok(())
    }

    /// Whether the set contains a key. A key that is not UTF-8 matches no pattern.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.names.contains(key) || (!self.patterns.is_empty() && self.matches_pattern(key))
    }

    /// Whether the set has each key that matches a pattern: a pattern of the set is the same one, or a prefix of it and a star.
    /// Other sets that have all are not recognized.
    pub(super) fn contains_all_of(&self, wanted: &Pattern) -> bool {
        let prefix = wanted.literal_prefix();
        self.prefix_lens.iter().any(|len| {
            let patterns = prefix.get(..*len).and_then(|prefix| self.patterns.get(prefix));
            patterns.is_some_and(|patterns| patterns.iter().any(|own| own.is_prefix() || own == wanted))
        })
    }

    fn matches_pattern(&self, key: &[u8]) -> bool {
        let Ok(key) = std::str::from_utf8(key) else { return false };
        self.prefix_lens.iter().any(|len| {
            let patterns = key.get(..*len).and_then(|prefix| self.patterns.get(prefix));
            patterns.is_some_and(|patterns| patterns.iter().any(|pattern| pattern.matches(key)))
        })
    }
}

/// Returns a pattern that matches `text` alone: a client id that is inserted into a rule must not widen it.
#[must_use]
pub fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, char| {
        match char {
            '*' | '?' | '[' => escaped.extend(['[', char, ']']),
            char => escaped.push(char),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(patterns: &[&str]) -> KeySet {
        let mut keys = KeySet::default();
        for pattern in patterns {
            keys.add_pattern(pattern).unwrap();
        }
        keys
    }

    #[test]
    fn patterns_match_whatever_their_literal_prefix() {
        let keys = keys(&["line1/*", "line?", "*/temp", "[ab]c", "line1/x/[0-9]", "höhe*"]);
        for key in ["line1/", "line1/a/b", "line7", "any/temp", "ac", "bc", "line1/x/7", "höhe7"] {
            assert!(keys.contains(key.as_bytes()), "{key}");
        }
        for key in ["line", "line77", "temp", "cc", "hohe", "h", ""] {
            assert!(!keys.contains(key.as_bytes()), "{key}");
        }
        assert!(!keys.contains(b"line1/\xFF"), "a key that is not UTF-8 matches no pattern");
    }

    #[test]
    fn a_set_has_all_keys_of_a_pattern_that_begins_with_a_prefix_of_it() {
        let keys = keys(&["line1/*", "line2/?", "x*y"]);
        let has_all = |pattern| keys.contains_all_of(&Pattern::parse(pattern).unwrap());
        assert!(["line1/*", "line1/a*", "line1/a/b", "line2/?", "x*y"].into_iter().all(has_all));
        assert!(!["*", "line*", "line2/*", "x*", "other"].into_iter().any(has_all));
    }

    proptest! {
        #[test]
        fn an_escaped_name_matches_itself_alone(name in "[a-c*?\\[\\]!-]{1,8}", other in "[a-c*?\\[\\]!-]{1,8}") {
            let set = keys(&[&escape(&name)]);
            prop_assert!(set.contains(name.as_bytes()));
            prop_assert_eq!(set.contains(other.as_bytes()), name == other);
        }
    }
}
