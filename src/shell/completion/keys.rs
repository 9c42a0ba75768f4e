//! Completion of keys of the store: a SCAN of bounded time and size, in the session of the prompt.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::client::{Client, Error};
use crate::clock;
use crate::commands::{COMPLETION_NAMES_MAX, COMPLETION_WAIT_MAX, first_keys};
use crate::protocol::ErrorReply;

/// A store that has not answered is not asked again for so long: each key press would wait anew.
const PAUSE: Duration = Duration::from_secs(5);

/// Lists keys of the store.
pub struct StoredKeys {
    client: Client,
    /// The runtime that drives the client's session.
    runtime: Handle,
    /// Whether the store has refused to list keys: then it is not asked again.
    is_refused: AtomicBool,
    /// When the store has not answered in time.
    unanswered_at: Mutex<Option<Instant>>,
}

impl StoredKeys {
    /// It must be called in the runtime that drives the client's session.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            runtime: Handle::current(),
            is_refused: AtomicBool::new(false),
            unanswered_at: Mutex::new(None),
        }
    }

    /// Returns keys with this prefix: those that arrive in time. It blocks, and must not be called in a runtime.
    #[must_use]
    pub fn list(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut unanswered_at = self.unanswered_at.lock().unwrap_or_else(PoisonError::into_inner);
        let pauses = unanswered_at.is_some_and(|at| clock::monotonic().saturating_duration_since(at) < PAUSE);
        if !pauses && !self.is_refused.load(Ordering::Relaxed) {
            let listing = async {
                timeout(
                    COMPLETION_WAIT_MAX,
                    first_keys(&self.client, prefix, COMPLETION_NAMES_MAX, &mut keys),
                )
                .await
            };
            let result = self.runtime.block_on(listing);
            // With some of its keys a large store has answered.
            *unanswered_at = (result.is_err() && keys.is_empty()).then(clock::monotonic);
            if let Ok(Err(error)) = result {
                self.is_refused.fetch_or(is_permanent(&error, prefix), Ordering::Relaxed);
            }
        }
        keys.iter().map(|key| key.as_bytes().to_vec()).collect()
    }
}

/// Returns whether the store will refuse each listing, not this one alone.
fn is_permanent(error: &Error, prefix: &[u8]) -> bool {
    match error {
        Error::Denied(_) => true,
        Error::Refused(refusal) => match refusal {
            ErrorReply::UnknownCommand | ErrorReply::NotAuthorized => true,
            // A prefix that is not UTF-8 is no pattern.
            ErrorReply::SyntaxError => std::str::from_utf8(prefix).is_ok(),
            _ => false,
        },
        _ => false,
    }
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoredKeys").field("is_refused", &self.is_refused).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_one_listing_does_not_end_completion() {
        let is_permanent = |refusal, prefix: &[u8]| is_permanent(&Error::Refused(refusal), prefix);
        assert!(is_permanent(ErrorReply::UnknownCommand, b"a"));
        assert!(is_permanent(ErrorReply::SyntaxError, b"a"));
        assert!(!is_permanent(ErrorReply::SyntaxError, b"\xFF"));
        assert!(!is_permanent(ErrorReply::QuotaExceeded, b"a"));
    }
}
