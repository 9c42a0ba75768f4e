//! Keys of the store for completion: a SCAN of bounded time and size, in the session of the prompt.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::client::{Client, Error};
use crate::commands::first_keys;

/// A key press waits no longer: it would feel stuck.
const WAIT_MAX: Duration = Duration::from_millis(300);

/// No list of candidates is longer.
const KEYS_MAX: usize = 1_000;

/// Lists keys of the store.
pub struct StoredKeys {
    client: Client,
    /// The runtime that drives the client's session.
    runtime: Handle,
    /// Whether the store has refused to list keys: then it is not asked again.
    is_refused: AtomicBool,
}

impl StoredKeys {
    /// It must be called in the runtime that drives the client's session.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, runtime: Handle::current(), is_refused: AtomicBool::new(false) }
    }

    /// Returns keys with this prefix: those that arrive in time. It blocks, and must not be called in a runtime.
    #[must_use]
    pub fn list(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        if !self.is_refused.load(Ordering::Relaxed) {
            let listing =
                async { timeout(WAIT_MAX, first_keys(&self.client, prefix, KEYS_MAX, &mut keys)).await };
            // A prefix that is not UTF-8 is no pattern, which is an error of this listing alone.
            let is_refused = match self.runtime.block_on(listing) {
                Ok(Err(Error::Refused(_) | Error::Denied(_))) => std::str::from_utf8(prefix).is_ok(),
                _ => false,
            };
            self.is_refused.fetch_or(is_refused, Ordering::Relaxed);
        }
        keys.iter().map(|key| key.as_bytes().to_vec()).collect()
    }
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoredKeys").field("is_refused", &self.is_refused).finish_non_exhaustive()
    }
}
