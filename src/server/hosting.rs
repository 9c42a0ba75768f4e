//! The state store served: the service behind a broker, started and stopped together.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::DuplexStream;

use super::moderation::moderated;
use super::service::{Running, Service, StoreSettings};
use super::{Error, Server, Settings};

/// A running state store behind a broker of its own; several may run in one process.
#[derive(Debug)]
pub struct StoreServer {
    server: Server,
    running: Running,
}

impl StoreServer {
    /// Opens the store and starts to serve it; its events go where the broker's do, and none of them in a flood.
    ///
    /// # Errors
    /// [`Error`] if the disk cannot be used or an address cannot be listened on; then nothing was started.
    pub async fn start(settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let settings = Settings { events: moderated(settings.events), ..settings };
        let service = Service::open(store, Arc::clone(&settings.events)).map_err(Error::Journal)?;
        let server = Server::start(settings, Arc::<Service>::clone(&service)).await?;
        let running = service.run(server.broker().clone()).map_err(Error::Thread)?;
        Ok(Self { server, running })
    }

    /// The addresses listened on, in the order of the settings, with the ports that port 0 became.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Connects a client in memory: the client's end of the connection.
    #[must_use]
    pub fn pipe(&self) -> DuplexStream {
        self.server.pipe()
    }

    /// Stops: every client gets a DISCONNECT, and everything that was acknowledged is on the disk.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
        drop(self.running);
    }
}
