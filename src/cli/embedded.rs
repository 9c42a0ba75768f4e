//! `--embedded`: a broker with a store inside this process, for the duration of a verb.

use std::path::Path;
use std::sync::Arc;

use super::serve;
use crate::client::Target;
use crate::commands::CommandError;
use crate::server::{Persistence, Settings, StoreServer, StoreSettings};

/// A running store inside this process. It has no listener: only this process can connect to it.
#[derive(Debug)]
pub struct Embedded {
    server: Arc<StoreServer>,
}

impl Embedded {
    /// Starts a store, in memory or with its data in a directory.
    pub async fn start(data: Option<&Path>) -> Result<Self, CommandError> {
        let persistence = data.map_or(Persistence::None, |directory| Persistence::All(directory.to_owned()));
        let store = StoreSettings { persistence, ..StoreSettings::default() };
        let server = StoreServer::start(Settings::default(), store).await.map_err(serve::failure)?;
        Ok(Self { server: Arc::new(server) })
    }

    /// Returns the target of a client of this store.
    #[must_use]
    pub fn target(&self) -> Target {
        let server = Arc::downgrade(&self.server);
        // Connections after the end are closed at once.
        let closed = || tokio::io::duplex(1).0;
        Target::Pipe(Arc::new(move || server.upgrade().map_or_else(closed, |server| server.pipe())))
    }

    /// Stops the store; returns when everything that it has acknowledged is durable.
    pub async fn stop(self) {
        if let Some(server) = Arc::into_inner(self.server) {
            server.shutdown().await;
        }
    }
}
