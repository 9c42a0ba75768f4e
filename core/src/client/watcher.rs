//! The handle of a watch.

use tokio::sync::{mpsc, oneshot};

use super::driver::Command;
use super::error::Error;
use super::watch::WatchEvent;
use super::watches::WatchId;
use crate::protocol::Key;

/// The keys of a [`Watcher`]. It keeps the session open, as a client does.
#[derive(Clone, Debug)]
pub struct WatchedKeys {
    id: WatchId,
    commands: mpsc::Sender<Command>,
}

impl WatchedKeys {
    /// Replaces the keys: the value of a new key is reported as a change. A key that is no longer listed is watched until
    /// it has been deleted for a while.
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

    /// Returns a handle that changes the watched keys.
    #[must_use]
    pub fn keys(&self) -> WatchedKeys {
        WatchedKeys { id: self.id, commands: self.commands.clone() }
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
