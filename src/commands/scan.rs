//! Pages of the keys that match a pattern; the next page is requested while the last one is processed.

use std::ffi::OsString;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::error::CommandError;
use super::output::Hint;
use crate::client::{Client, Error, Outcome, Page};
use crate::protocol::{ErrorReply, Key, prefix_pattern};

/// The message of the error that the store has no SCAN.
pub const UNSUPPORTED: &str = "cannot list keys: the store of this broker does not support SCAN";

/// Pages of keys.
#[derive(Debug)]
pub struct Pages {
    received: mpsc::Receiver<Result<Page, Error>>,
    is_limited: bool,
}

impl Pages {
    /// Starts to request pages.
    #[must_use]
    pub fn request(client: &Client, pattern: Bytes) -> Self {
        let (sender, received) = mpsc::channel(1);
        let client = client.clone();
        tokio::spawn(async move {
            let mut token = None;
            let mut cycle = CycleDetector::default();
            loop {
                let page = client.scan(pattern.clone(), token.take()).await;
                let next = page.as_ref().ok().and_then(|page| page.token.clone());
                let page = match &next {
                    Some(token) if cycle.has_seen(token) => Err(repeated_token()),
                    _ => page,
                };
                let is_last = page.is_err() || next.is_none();
                if sender.send(page).await.is_err() || is_last {
                    return;
                }
                token = next;
            }
        });
        Self { received, is_limited: false }
    }

    /// Returns the next page; None at the end. Cancel-safe.
    ///
    /// # Errors
    /// The request failed. A broker without SCAN gets a message of its own.
    pub async fn next(&mut self) -> Result<Option<Vec<Key>>, CommandError> {
        let page = self.received.recv().await.transpose().map_err(scan_error)?;
        Ok(page.map(|page| {
            self.is_limited |= page.is_limited;
            page.keys
        }))
    }

    /// Returns the hint that keys were left out of the pages, if the store has reported it.
    pub fn limit_hint(&self) -> Option<Hint> {
        let text = "keys that the rules of the server do not let this client read are left out";
        self.is_limited.then(|| Hint(text.to_owned()))
    }
}

/// The time for a completion: a Tab that waits longer feels stuck.
pub const COMPLETION_WAIT_MAX: Duration = Duration::from_millis(300);
/// The most candidates of a completion.
pub const COMPLETION_NAMES_MAX: usize = 1_000;

/// Collects the first keys with this prefix, at most `keys_max`. Those that were listed before an error, or before the future was
/// dropped, are there.
pub async fn first_keys(
    client: &Client,
    prefix: &[u8],
    keys_max: usize,
    keys: &mut Vec<Key>,
) -> Result<(), Error> {
    let pattern = prefix_pattern(prefix);
    let mut token = None;
    loop {
        let page = client.scan(pattern.clone(), token.take()).await?;
        keys.extend(page.keys.into_iter().take(keys_max.saturating_sub(keys.len())));
        match page.token {
            Some(next) if keys.len() < keys_max => token = Some(next),
            _ => return Ok(()),
        }
    }
}

/// Detects that the tokens of a scan repeat, so that it would never end. It stores one token, and compares each with the one
/// whose number is the last power of two (Brent's algorithm).
#[derive(Debug, Default)]
struct CycleDetector {
    stored: Option<Bytes>,
    /// The number of tokens since `stored`.
    age: u64,
    age_max: u64,
}

impl CycleDetector {
    /// Returns whether the token equals the stored one.
    fn has_seen(&mut self, token: &Bytes) -> bool {
        if self.stored.as_ref() == Some(token) {
            return true;
        }
        self.age = self.age.saturating_add(1);
        if self.age > self.age_max {
            self.stored = Some(token.clone());
            self.age_max = self.age.saturating_mul(2);
            self.age = 0;
        }
        false
    }
}

fn repeated_token() -> Error {
    let cause = "the tokens of SCAN repeat, so the list of keys has no end".to_owned();
    Error::MalformedReply { cause, outcome: Outcome::Unchanged }
}

/// Returns the pattern, by default the one that every key matches.
///
/// # Errors
/// [`Error::EmptyPattern`].
pub fn pattern(word: Option<OsString>) -> Result<Bytes, CommandError> {
    let pattern = word.map_or(Bytes::from_static(b"*"), |word| Bytes::from(word.into_encoded_bytes()));
    if pattern.is_empty() { Err(Error::EmptyPattern.into()) } else { Ok(pattern) }
}

/// Returns whether the bytes can match others than themselves.
#[must_use]
pub fn has_wildcard(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| b"*?[".contains(byte))
}

/// Returns the hint for a pattern that matches no key, if it has no wildcard.
pub fn literal_hint(pattern: &[u8], verb: &str) -> Option<String> {
    let prefix = String::from_utf8_lossy(pattern);
    (!has_wildcard(pattern))
        .then(|| format!("a pattern matches the whole key; for a prefix: mqkv {verb} '{prefix}*'"))
}

fn scan_error(error: Error) -> CommandError {
    let is_unknown = error == Error::Refused(ErrorReply::UnknownCommand);
    let is_syntax = error == Error::Refused(ErrorReply::SyntaxError);
    let error = CommandError::from(error);
    if is_unknown {
        let hints = vec!["list the keys in a file, one per line: mqkv export --keys-from FILE".to_owned()];
        return CommandError { message: UNSUPPORTED.to_owned(), hints, ..error };
    }
    if is_syntax {
        return error.hint(
            "valid patterns are UTF-8 with * (any characters), ? (one), [ab] [0-9] [!x] (one of a set), [*] (a star)",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many tokens are accepted before a repetition is detected.
    fn accepted(tokens: impl Iterator<Item = u64>) -> usize {
        let mut cycle = CycleDetector::default();
        tokens.take_while(|token| !cycle.has_seen(&Bytes::from(token.to_string()))).count()
    }

    #[test]
    fn every_cycle_of_tokens_is_detected() {
        assert_eq!(accepted(std::iter::repeat(7)), 1);
        for start in 0..20 {
            for length in 1..20 {
                let tokens = (0..start).chain((start..start + length).cycle()).take(1_000);
                assert!(accepted(tokens) < 200, "{start} {length}");
            }
        }
    }

    #[test]
    fn tokens_that_differ_are_accepted() {
        assert_eq!(accepted(0..10_000), 10_000);
    }
}
