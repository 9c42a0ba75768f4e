//! Refusals by the rules of the store, which the store itself reports with two words (protocol §2).

use std::fmt;

use crate::protocol::Key;

/// The payload of a reply to a request that no rule allows.
const NOT_AUTHORIZED: &[u8] = b"-ERR not authorized\r\n";

/// The command whose first operand is a pattern.
const SCAN: &[u8] = b"SCAN";

/// A request that no rule of the store allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The client, by what it authenticates with.
    pub identity: String,
    /// The method of the rule that is missing; `None` if the request is not known.
    pub method: Option<Method>,
    pub key: Option<Key>,
}

/// A method of a rule for keys (protocol §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Read,
    Write,
}

impl Denial {
    /// Returns whether a response reports a denial.
    pub(super) fn is_in(response: &[u8]) -> bool {
        response == NOT_AUTHORIZED
    }

    /// Returns the denial of a request, of which `request` may be the beginning.
    pub(super) fn of(request: &[u8], identity: &str) -> Self {
        let mut words = words(request);
        let verb = words.next();
        let method = match verb {
            Some(b"GET" | b"KEYNOTIFY" | b"SCAN") => Some(Method::Read),
            Some(b"SET" | b"DEL" | b"VDEL") => Some(Method::Write),
            _ => None,
        };
        let has_key = method.is_some() && verb != Some(SCAN);
        let key = words.next().filter(|_| has_key).and_then(|key| Key::new(key.to_vec()).ok());
        Self { identity: identity.to_owned(), method, key }
    }
}

/// Returns the whole words of the beginning of a request: a key that is cut would be another key.
fn words(request: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = split_line(request).map(|(_, rest)| rest);
    std::iter::from_fn(move || {
        let (length, after) = split_line(rest.take()?)?;
        let length: usize = std::str::from_utf8(length.strip_prefix(b"$")?).ok()?.parse().ok()?;
        let (word, after) = after.split_at_checked(length)?;
        rest = after.get(2..);
        Some(word)
    })
}

fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.windows(2).position(|end| end == b"\r\n")?;
    Some((text.get(..end)?, text.get(end.checked_add(2)?..)?))
}

impl Method {
    fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "Read",
            Self::Write => "Write",
        })
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, method, key } = self;
        let what = method.map_or("use", Method::verb);
        write!(out, "not authorized: {identity} may not {what} ")?;
        match key {
            Some(key) => write!(out, "the key {}", String::from_utf8_lossy(key.as_bytes())),
            None => out.write_str("the state store"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_client_the_key_and_the_method() {
        let denial = |request: &[u8]| Denial::of(request, "user ann");
        let get = denial(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        assert_eq!(get.to_string(), "not authorized: user ann may not read the key k");
        let del = denial(b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n");
        assert_eq!(del.to_string(), "not authorized: user ann may not write the key k");
        let beginning = denial(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9999\r\nvvv");
        assert_eq!(beginning.to_string(), "not authorized: user ann may not write the key k");
        let scan = denial(b"*2\r\n$4\r\nSCAN\r\n$1\r\n*\r\n");
        assert_eq!(scan.to_string(), "not authorized: user ann may not read the state store");
        assert_eq!(denial(b"*1\r\n$1\r\nX\r\n").method, None);
        assert!(Denial::is_in(NOT_AUTHORIZED) && !Denial::is_in(b"-ERR syntax error\r\n"));
    }

    #[test]
    fn a_denial_does_not_name_the_beginning_of_a_long_key() {
        let denial = Denial::of(b"*2\r\n$3\r\nGET\r\n$999\r\nkkk", "user ann");
        assert_eq!((denial.method, denial.key), (Some(Method::Read), None));
    }
}
