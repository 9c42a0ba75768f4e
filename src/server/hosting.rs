//! The state store served: the service behind a broker, started and stopped together.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::DuplexStream;

use super::authorization::Authorizer;
use super::event::Event;
use super::moderation::moderated;
use super::service::{Running, Service, StoreSettings};
use super::settings::EventSink;
use super::{Error, Server, Settings};

/// A running state store behind a broker of its own; several may run in one process.
#[derive(Debug)]
pub struct StoreServer {
    server: Server,
    running: Running,
    reloader: Option<RulesReloader>,
}

/// Reads the rules of a running server again; clones do the same.
#[derive(Clone)]
pub struct RulesReloader {
    authorizer: Arc<Authorizer>,
    service: Arc<Service>,
    events: EventSink,
}

impl RulesReloader {
    /// Reads the rules again and says what came of it. Nobody is disconnected; requests, messages and subscriptions are
    /// judged by the new rules from now on, and who may no longer read a key is no longer told of it. A subscription
    /// that was made stays. May block.
    pub fn reload(&self) {
        let outcome = self.authorizer.reload().map(|()| self.authorizer.len());
        if outcome.is_ok() {
            self.service.revoke();
        }
        (self.events)(Event::Rules { outcome: outcome.map_err(|error| error.to_string()) });
    }
}

impl fmt::Debug for RulesReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RulesReloader").field("authorizer", &self.authorizer).finish_non_exhaustive()
    }
}

impl StoreServer {
    /// Opens the store and starts to serve it; its events go where the broker's do, and none of them in a flood.
    ///
    /// # Errors
    /// [`Error`] if the disk cannot be used or an address cannot be listened on; then nothing was started.
    pub async fn start(settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let settings = Settings { events: moderated(settings.events), ..settings };
        let service = Service::open(store, Arc::clone(&settings.events)).map_err(Error::Journal)?;
        let reloader = settings.authorizer.clone().map(|authorizer| RulesReloader {
            authorizer,
            service: Arc::clone(&service),
            events: Arc::clone(&settings.events),
        });
        let server = Server::start(settings, Arc::<Service>::clone(&service)).await?;
        let running = service.run(server.broker().clone()).map_err(Error::Thread)?;
        Ok(Self { server, running, reloader })
    }

    /// The addresses listened on, in the order of the settings, with the ports that port 0 became.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// What reads the rules again, if there are any.
    #[must_use]
    pub fn reloader(&self) -> Option<&RulesReloader> {
        self.reloader.as_ref()
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
