//! Which keys a client may read and write: the rules as they come out for one client; what no rule allows is refused
//! (protocol §7).

use std::collections::BTreeSet;

use hashbrown::{HashMap, HashSet};

pub use super::glob::InvalidPattern;
use super::glob::Pattern;
use crate::protocol::{ErrorReply, Key};

/// What one client may do with keys.
#[derive(Debug, Default)]
pub struct KeyPermissions {
    /// GET, KEYNOTIFY, and to be told of a key by SCAN.
    pub read: KeySet,
    /// SET, DEL, VDEL.
    pub write: KeySet,
}

/// Keys, by name and by pattern.
///
/// A pattern is found by what it begins with, so that a thousand patterns cost hardly more than one.
#[derive(Debug, Default)]
pub struct KeySet {
    names: HashSet<Box<[u8]>>,
    patterns: HashMap<Box<str>, Vec<Pattern>>,
    /// The lengths in bytes of what patterns begin with.
    prefix_lens: BTreeSet<usize>,
}

impl KeySet {
    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        self.names.insert(key.into());
    }

    /// Adds all keys that a pattern describes, in the language of SCAN.
    ///
    /// # Errors
    /// It is none.
    pub fn add_pattern(&mut self, text: &str) -> Result<(), InvalidPattern> {
        let pattern = Pattern::parse(text)?;
        let prefix = pattern.literal_prefix();
        self.prefix_lens.insert(prefix.len());
        self.patterns.entry(prefix.into()).or_default().push(pattern);
        Ok(())
    }

    /// Whether a key is among them. No pattern describes a key that is not UTF-8.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.names.contains(key) || (!self.patterns.is_empty() && self.describes(key))
    }

    fn describes(&self, key: &[u8]) -> bool {
        let Ok(key) = std::str::from_utf8(key) else { return false };
        self.prefix_lens.iter().any(|len| {
            let patterns = key.get(..*len).and_then(|prefix| self.patterns.get(prefix));
            patterns.is_some_and(|patterns| patterns.iter().any(|pattern| pattern.matches(key)))
        })
    }
}

/// Lets a request for a key through, or refuses it. Without rights there are no rules, and everything is allowed.
pub(super) fn check(keys: Option<&KeySet>, key: &Key) -> Result<(), ErrorReply> {
    match keys {
        Some(keys) if !keys.contains(key.as_bytes()) => Err(ErrorReply::NotAuthorized),
        _ => Ok(()),
    }
}

/// A text that a pattern takes for itself, whatever characters it has: a client's name in a rule must not widen it.
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
    fn what_nothing_allows_is_refused_and_without_rules_all_is_allowed() {
        let key = |name: &str| Key::new(name.to_owned()).unwrap();
        assert_eq!(check(None, &key("k")), Ok(()));
        assert_eq!(check(Some(&KeySet::default()), &key("k")), Err(ErrorReply::NotAuthorized));
        let mut some = KeySet::default();
        some.add(b"k");
        assert_eq!(check(Some(&some), &key("k")), Ok(()));
        assert_eq!(check(Some(&some), &key("k2")), Err(ErrorReply::NotAuthorized));
    }

    #[test]
    fn patterns_of_all_beginnings_are_found() {
        let keys = keys(&["line1/*", "line?", "*/temp", "[ab]c", "line1/x/[0-9]", "höhe*"]);
        for key in ["line1/", "line1/a/b", "line7", "any/temp", "ac", "bc", "line1/x/7", "höhe7"] {
            assert!(keys.contains(key.as_bytes()), "{key}");
        }
        for key in ["line", "line77", "temp", "cc", "hohe", "h", ""] {
            assert!(!keys.contains(key.as_bytes()), "{key}");
        }
        assert!(!keys.contains(b"line1/\xFF"), "no pattern describes what is not UTF-8");
    }

    proptest! {
        #[test]
        fn an_escaped_name_stands_for_itself_alone(name in "[a-c*?\\[\\]!-]{1,8}", other in "[a-c*?\\[\\]!-]{1,8}") {
            let set = keys(&[&escape(&name)]);
            prop_assert!(set.contains(name.as_bytes()));
            prop_assert_eq!(set.contains(other.as_bytes()), name == other);
        }
    }
}
