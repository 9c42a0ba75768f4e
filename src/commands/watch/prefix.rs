//! The keys of `watch --prefix`: listed once if the store notifies of new ones, otherwise every few seconds.

use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::record::Watching;
use crate::client::{Client, Discovery, Error, PrefixKeys, Watcher};
use crate::commands::error::{CommandError, Kind};
use crate::commands::scan::Pages;
use crate::protocol::{Key, KeyPrefix};

/// The maximum number of keys with the prefix.
const KEYS_MAX: usize = 10_000;

/// The time between two listings.
const INTERVAL: Duration = Duration::from_secs(3);

/// A search for the keys that begin with a prefix.
#[derive(Clone, Debug)]
pub struct PrefixSearch {
    prefix: KeyPrefix,
}

/// Listings in a task of their own; dropping them ends it.
#[derive(Debug)]
pub struct Listings {
    task: JoinHandle<CommandError>,
    reports: mpsc::Receiver<Watching>,
}

impl PrefixSearch {
    /// Creates a search.
    ///
    /// # Errors
    /// The prefix is too long.
    pub fn new(prefix: OsString) -> Result<Self, CommandError> {
        let prefix = KeyPrefix::new(prefix.into_encoded_bytes());
        let invalid = |error| CommandError::usage(format!("invalid --prefix: {error}"));
        Ok(Self { prefix: prefix.map_err(invalid)? })
    }

    /// Begins to watch the keys, and to list them whenever that is needed.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn watch(self, client: &Client) -> Result<(Watcher, Listings), Error> {
        let (watcher, keys) = client.watch_prefix(self.prefix.clone(), KEYS_MAX).await?;
        let (sender, reports) = mpsc::channel(1);
        let task = tokio::spawn(self.run(client.clone(), keys, sender));
        Ok((watcher, Listings { task, reports }))
    }

    /// Lists the keys until an error ends the watch.
    async fn run(
        self,
        client: Client,
        mut keys: PrefixKeys,
        reports: mpsc::Sender<Watching>,
    ) -> CommandError {
        let mut discovery = next_discovery(&mut keys).await;
        let mut reported = None;
        loop {
            if discovery == Discovery::TooMany {
                return self.too_many();
            }
            let listed = match self.list(&client).await {
                // The watch reports a lost connection.
                Err(error) if reported.is_some() && error.is_retryable() => None,
                Err(error) => return error,
                Ok(listed) => Some(listed),
            };
            let has_listed = listed.is_some();
            if let Some(listed) = listed {
                let is_repeated = discovery == Discovery::Listed;
                // The interval that was reported does not hold any more.
                if reported.is_none() || (is_repeated && reported != Some(discovery)) {
                    // Without a receiver the watch has ended.
                    let _ = reports.send(self.watching(&listed, is_repeated)).await;
                }
                reported = Some(discovery);
                // The watch reports the end of the session.
                let _ = keys.replace(listed).await;
            }
            let is_done = has_listed && discovery == Discovery::Notified;
            tokio::select! {
                next = next_discovery(&mut keys) => discovery = next,
                () = sleep(INTERVAL), if !is_done => {}
            }
        }
    }

    /// Lists the keys, in order.
    async fn list(&self, client: &Client) -> Result<Vec<Key>, CommandError> {
        let mut pages = Pages::request(client, self.prefix.pattern().to_bytes());
        let mut listed = Vec::new();
        while let Some(keys) = pages.next().await.map_err(without_listing)? {
            listed.extend(keys);
            if listed.len() > KEYS_MAX {
                return Err(self.too_many());
            }
        }
        listed.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        Ok(listed)
    }

    fn too_many(&self) -> CommandError {
        let message = format!("cannot watch {}: more than {KEYS_MAX} keys begin with it", self.name());
        CommandError::new(Kind::Refused, message).hint("use a longer prefix")
    }

    fn watching(&self, listed: &[Key], is_repeated: bool) -> Watching {
        let interval = is_repeated.then_some(INTERVAL);
        Watching { keys: listed.to_vec(), prefix: Some(self.name()), interval }
    }

    /// Returns the prefix for messages.
    fn name(&self) -> String {
        String::from_utf8_lossy(self.prefix.as_bytes()).into_owned()
    }
}

impl Listings {
    /// Waits for what is to be reported, or for an error that ends the listings. Cancel-safe.
    pub async fn next(&mut self) -> Result<Watching, CommandError> {
        tokio::select! {
            biased;
            Some(report) = self.reports.recv() => Ok(report),
            ended = &mut self.task => match ended {
                Ok(error) => Err(error),
                Err(_) => pending().await,
            },
        }
    }
}

impl Drop for Listings {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for the next connection of the watch, which reports itself the end of the session.
async fn next_discovery(keys: &mut PrefixKeys) -> Discovery {
    match keys.discovered().await {
        Ok(discovery) => discovery,
        Err(_) => pending().await,
    }
}

/// Replaces the hint for a store that cannot list keys.
fn without_listing(error: CommandError) -> CommandError {
    match error.kind {
        Kind::Refused => CommandError { hints: vec!["name each key: mqkv watch KEY...".to_owned()], ..error },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;
    use crate::commands::watch::WatchArgs;

    #[test]
    fn the_help_has_the_interval() {
        let mut command = WatchArgs::augment_args(clap::Command::new("watch"));
        let interval = format!("new keys within {} s", INTERVAL.as_secs());
        for help in [command.render_help(), command.render_long_help()] {
            assert!(help.to_string().contains(&interval), "{help}");
        }
    }
}
