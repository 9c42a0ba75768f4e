//! Prefixes of keys, and the patterns of the keys that begin with them.

use bytes::Bytes;

use super::key::{Key, KeyError};

/// A prefix of keys. A KEYNOTIFY has its pattern in place of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPrefix {
    prefix: Bytes,
    pattern: Key,
}

impl KeyPrefix {
    /// # Errors
    /// [`KeyError`] if the pattern is too long.
    pub fn new(prefix: impl Into<Bytes>) -> Result<Self, KeyError> {
        let prefix = prefix.into();
        let pattern = Key::new(prefix_pattern(&prefix))?;
        Ok(Self { prefix, pattern })
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the pattern that matches the keys with this prefix.
    #[must_use]
    pub fn pattern(&self) -> &Key {
        &self.pattern
    }

    /// Whether a key begins with the prefix.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        key.as_bytes().starts_with(&self.prefix)
    }
}

/// Returns the pattern that matches the keys with this prefix.
#[must_use]
pub fn prefix_pattern(prefix: &[u8]) -> Bytes {
    let mut pattern = Vec::with_capacity(prefix.len().saturating_add(1));
    for byte in prefix {
        match byte {
            b'*' | b'?' | b'[' => pattern.extend([b'[', *byte, b']']),
            byte => pattern.push(*byte),
        }
    }
    pattern.push(b'*');
    pattern.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(prefix_pattern(b"line1/"), "line1/*");
        assert_eq!(prefix_pattern(b"a*b?[c]"), "a[*]b[?][[]c]*");
    }

    #[test]
    fn a_prefix_contains_the_keys_that_begin_with_it() {
        let prefix = KeyPrefix::new("a*").unwrap();
        assert_eq!(prefix.pattern().as_bytes(), b"a[*]*");
        let contains = |key: &'static str| prefix.contains(&Key::new(key).unwrap());
        assert!(contains("a*") && contains("a*b") && !contains("ab") && !contains("a"));
        assert!(KeyPrefix::new("").unwrap().contains(&Key::new("k").unwrap()));
    }
}
