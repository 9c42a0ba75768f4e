//! The handle of a watch.

use tokio::sync::{mpsc, oneshot, watch as observe};

use super::driver::Command;
use super::error::Error;
use super::watch::{Discovery, WatchEvent};
use super::watches::WatchId;
use crate::protocol::Key;

/// The keys of a watch of a prefix. It keeps the session open, as a client does.
#[derive(Debug)]
pub struct PrefixKeys {
    id: WatchId,
    commands: mpsc::Sender<Command>,
    discovery: observe::Receiver<Option<Discovery>>,
}

impl PrefixKeys {
    pub(super) fn new(watcher: &Watcher, discovery: observe::Receiver<Option<Discovery>>) -> Self {
        Self { id: watcher.id, commands: watcher.commands.clone(), discovery }
    }

    /// Waits until the watch begins on a connection, the first one or a later one, and returns how its keys are found there. Cancel
    /// safe.
    ///
    /// # Errors
    /// The watch has ended.
    pub async fn discovered(&mut self) -> Result<Discovery, Error> {
        loop {
            self.discovery.changed().await.map_err(|_| Error::Closed)?;
            if let Some(discovery) = *self.discovery.borrow_and_update() {
                return Ok(discovery);
            }
        }
    }

    /// Replaces the list of the keys: the value of a new key is reported, after the first list as a change. A key that is no longer
    /// listed is watched until it has been deleted for a while.
    ///
    /// # Errors
    /// The session has ended.
    pub async fn replace(&self, keys: Vec<Key>) -> Result<(), Error> {
        let command = Command::List { id: self.id, keys };
        self.commands.send(command).await.map_err(|_| Error::Closed)
    }
}

/// A watch that runs in the session's task. Dropping it ends it as soon as the session's task next runs.
#[derive(Debug)]
pub struct Watcher {
    id: WatchId,
    events: mpsc::Receiver<Result<WatchEvent, Error>>,
    commands: mpsc::Sender<Command>,
}

impl Watcher {
    pub(super) fn new(
        id: WatchId,
        events: mpsc::Receiver<Result<WatchEvent, Error>>,
        commands: mpsc::Sender<Command>,
    ) -> Self {
        Self { id, events, commands }
    }

    /// Returns the next event. Cancel safe.
    ///
    /// # Errors
    /// The [`Error`] that ended the watch.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        self.events.recv().await.unwrap_or(Err(Error::Closed))
    }

    /// Ends the watch, and returns when the store has confirmed it.
    pub async fn stop(mut self) {
        let (done, stopped) = oneshot::channel();
        let stop = async {
            if self.commands.send(Command::Unwatch { id: self.id, done }).await.is_ok() {
                let _ = stopped.await;
            }
        };
        // While events are pending the connection is not read, and the store's confirmation would not arrive.
        let drain = async {
            while self.events.recv().await.is_some() {}
            std::future::pending().await
        };
        tokio::select! {
            () = stop => {}
            () = drain => {}
        }
    }
}
