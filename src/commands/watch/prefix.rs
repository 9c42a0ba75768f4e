//! The keys of `watch --prefix`, listed again every few seconds.

use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{Client, WatchedKeys};
use crate::commands::error::{CommandError, Kind};
use crate::commands::scan::{Pages, prefix_pattern};
use crate::protocol::Key;

/// The maximum number of keys with the prefix.
const KEYS_MAX: usize = 10_000;

/// The time between two listings.
const INTERVAL: Duration = Duration::from_secs(3);

/// A search for the keys that begin with a prefix.
#[derive(Clone, Debug)]
pub struct PrefixSearch {
    prefix: Bytes,
}

/// Listings that are repeated in a task of their own; dropping them ends it.
#[derive(Debug)]
pub struct Listings(JoinHandle<CommandError>);

impl PrefixSearch {
    /// Creates a search.
    #[must_use]
    pub fn new(prefix: OsString) -> Self {
        Self { prefix: prefix.into_encoded_bytes().into() }
    }

    /// Lists the keys, in order.
    ///
    /// # Errors
    /// A request failed, or there are too many keys.
    pub async fn list(&self, client: &Client) -> Result<Vec<Key>, CommandError> {
        let mut pages = Pages::request(client, prefix_pattern(&self.prefix));
        let mut listed = Vec::new();
        while let Some(keys) = pages.next().await.map_err(without_listing)? {
            listed.extend(keys);
            if listed.len() > KEYS_MAX {
                let name = self.name();
                let message = format!("cannot watch {name}: more than {KEYS_MAX} keys begin with it");
                return Err(CommandError::new(Kind::Refused, message).hint("use a longer prefix"));
            }
        }
        listed.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        Ok(listed)
    }

    /// Lists the keys again and again, and watches what is found.
    #[must_use]
    pub fn repeat(self, client: Client, watched: WatchedKeys) -> Listings {
        Listings(tokio::spawn(async move {
            loop {
                sleep(INTERVAL).await;
                match self.list(&client).await {
                    Ok(keys) => {
                        if watched.replace(keys).await.is_err() {
                            // The watch reports the end of the session.
                            pending::<()>().await;
                        }
                    }
                    // The watch reports a lost connection.
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return error,
                }
            }
        }))
    }

    /// Returns the prefix for messages.
    #[must_use]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.prefix).into_owned()
    }
}

impl Listings {
    /// Waits for an error that ends the listings. Cancel-safe.
    pub async fn failed(&mut self) -> CommandError {
        match (&mut self.0).await {
            Ok(error) => error,
            Err(_) => pending().await,
        }
    }
}

impl Drop for Listings {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Replaces the hint for a store that cannot list keys.
fn without_listing(error: CommandError) -> CommandError {
    match error.kind {
        Kind::Refused => CommandError { hints: vec!["name each key: mqkv watch KEY...".to_owned()], ..error },
        _ => error,
    }
}
