//! `--embedded`: a broker and store inside this process, for as long as a verb runs.

use std::path::Path;
use std::sync::Arc;

use super::serve;
use crate::client::Target;
use crate::commands::CommandError;
use crate::server::{Settings, StoreServer, StoreSettings};

/// A running store inside this process, reached through memory: nobody else can connect to it.
#[derive(Debug)]
pub struct Embedded {
    server: Arc<StoreServer>,
}

impl Embedded {
    /// Starts a store: in memory, or with everything kept in a folder.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub async fn start(data: Option<&Path>) -> Result<Self, CommandError> {
        let store = StoreSettings { persistence: serve::data::keep_all(data), ..StoreSettings::default() };
        let server = StoreServer::start(Settings::default(), store).await.map_err(serve::failure)?;
        Ok(Self { server: Arc::new(server) })
    }

    /// How the client gets there.
    #[must_use]
    pub fn target(&self) -> Target {
        let server = Arc::downgrade(&self.server);
        // Whoever connects after the end finds the line dead.
        let dead = || tokio::io::duplex(1).0;
        Target::Pipe(Arc::new(move || server.upgrade().map_or_else(dead, |server| server.pipe())))
    }

    /// Stops; returns when everything that was acknowledged is kept.
    pub async fn stop(self) {
        if let Some(server) = Arc::into_inner(self.server) {
            server.shutdown().await;
        }
    }
}
