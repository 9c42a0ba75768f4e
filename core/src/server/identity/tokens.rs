//! Service account tokens and the names of their bearers.
//!
//! Tokens are compared byte by byte: outside a Kubernetes cluster no API server can verify their signatures.

use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::error::LineError;
use super::reloaded_file::lines;
use crate::net::Secret;

/// Tokens with the names of their bearers. A bearer may have several, such as an old and a new one.
pub struct Tokens(Vec<(Arc<str>, Arc<Secret>)>);

impl Tokens {
    /// Parses lines `NAME TOKEN`.
    pub fn parse(bytes: &[u8]) -> Result<Self, LineError> {
        let mut tokens: Vec<(Arc<str>, Arc<Secret>)> = Vec::new();
        for (number, line) in lines(bytes)? {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
                return Err((number, "is not NAME TOKEN".to_owned()));
            };
            let token = Secret::new(token.as_bytes().to_vec());
            if tokens.iter().any(|(_, other)| **other == token) {
                return Err((number, "has a token that another line has".to_owned()));
            }
            tokens.push((name.into(), Arc::new(token)));
        }
        Ok(Self(tokens))
    }

    /// Returns the bearer of a token, and the token as in the file. Trailing white space is ignored: the SDKs send a file untrimmed (protocol §8).
    ///
    /// The time does not depend on the number of matching bytes, nor on the position of the matching token.
    pub fn bearer(&self, token: &Secret) -> Option<(Arc<str>, Arc<Secret>)> {
        let token = token.bytes().trim_ascii_end();
        let mut bearer = None;
        for (name, known) in &self.0 {
            if bool::from(known.bytes().ct_eq(token)) {
                bearer = Some((name, known));
            }
        }
        bearer.map(|(name, token)| (Arc::clone(name), Arc::clone(token)))
    }

    /// Whether the file has this token of this bearer.
    pub fn contains(&self, bearer: &str, token: &Secret) -> bool {
        self.0.iter().any(|(name, known)| **name == *bearer && **known == *token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_may_have_several_tokens() {
        let tokens = Tokens::parse(b"# old and new\n\n a t1\r\na\tt2\nsystem:b t3").unwrap();
        let bearer = |token: &str| tokens.bearer(&Secret::new(token.into())).map(|(name, _)| name);
        assert_eq!(bearer("t1").as_deref(), Some("a"));
        assert_eq!(bearer("t2\n").as_deref(), Some("a"));
        assert_eq!(bearer("t3").as_deref(), Some("system:b"));
        for token in ["", " ", "t", "t11", "T1", "a t1"] {
            assert_eq!(bearer(token), None, "{token:?}");
        }
        let contains = |bearer, token: &str| tokens.contains(bearer, &Secret::new(token.into()));
        assert!(contains("a", "t1") && contains("a", "t2") && !contains("a", "t3") && !contains("b", "t1"));
    }
}
