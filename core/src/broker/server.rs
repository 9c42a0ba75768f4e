//! A broker with its listeners: start, drain, shutdown.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::authentication::ConnectionInfo;
use super::expiry_task;
use super::handle::{Broker, Hooks};
use super::settings::{ListenerSettings, Settings};
use crate::broker::wire::listener::Acceptor;
use crate::broker::wire::workers::Workers;
use crate::net::ListeningSocket;

/// The buffer of an in-memory connection in each direction, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// The time limit for the connections to close at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a broker did not start.
#[derive(Debug)]
pub enum StartError {
    /// The settings contradict each other.
    Settings(&'static str),
    /// A listener could not be bound to its address.
    Bind {
        /// The address in the settings.
        address: SocketAddr,
        cause: io::Error,
    },
    /// A thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(what) => write!(f, "invalid settings: {what}"),
            Self::Bind { address, cause } => write!(f, "cannot listen on {address}: {cause}"),
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Settings(_) => None,
            Self::Bind { cause, .. } | Self::Thread(cause) => Some(cause),
        }
    }
}

/// A running broker; several may run in one process. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Server {
    broker: Broker,
    acceptor: Acceptor,
    addresses: Vec<SocketAddr>,
    closing: watch::Sender<bool>,
    /// One permit per connection; all are free again once all connections have closed.
    permits: Arc<Semaphore>,
    connections_max: u32,
    /// Listeners that are bound, but do not accept connections yet.
    unopened: Vec<(ListeningSocket, Arc<ListenerSettings>)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a broker that accepts connections.
    ///
    /// # Errors
    ///
    /// [`StartError`]; then nothing was started.
    pub async fn start(settings: Settings, hooks: Hooks) -> Result<Self, StartError> {
        let mut server = Self::prepare(settings, hooks).await?;
        server.open();
        Ok(server)
    }

    /// Starts a broker that does not accept connections until [`Server::open`]: clients that connect wait.
    ///
    /// # Errors
    ///
    /// [`StartError`]; then nothing was started.
    pub async fn prepare(settings: Settings, hooks: Hooks) -> Result<Self, StartError> {
        let mut server = Self::without_listeners(settings, hooks)?;
        server.bind().await?;
        Ok(server)
    }

    /// Starts a broker that listens to no address until [`Server::bind`]: clients that connect are refused.
    ///
    /// # Errors
    ///
    /// [`StartError`]; then nothing was started.
    pub fn without_listeners(settings: Settings, hooks: Hooks) -> Result<Self, StartError> {
        settings.check().map_err(StartError::Settings)?;
        let workers = Workers::start(settings.threads).map_err(StartError::Thread)?;
        let (closing, is_closing) = watch::channel(false);
        let connections_max = settings.connections_max;
        let permits =
            Arc::new(Semaphore::new(usize::try_from(connections_max).unwrap_or(Semaphore::MAX_PERMITS)));
        let broker = Broker::new(settings, hooks);
        let acceptor = Acceptor::new(broker.clone(), is_closing.clone(), Arc::clone(&permits), workers);
        let tasks = vec![tokio::spawn(expiry_task::run(broker.clone(), is_closing))];
        let (addresses, unopened) = (Vec::new(), Vec::new());
        Ok(Self { broker, acceptor, addresses, closing, permits, connections_max, unopened, tasks })
    }

    /// Binds all listeners. They accept no connections before [`Server::open`].
    ///
    /// # Errors
    ///
    /// [`StartError::Bind`]; then none is bound.
    pub async fn bind(&mut self) -> Result<(), StartError> {
        let (mut addresses, mut unopened) = (Vec::new(), Vec::new());
        for listener in &self.broker.settings().listeners {
            let address = listener.address;
            let bind = |cause| StartError::Bind { address, cause };
            let socket = ListeningSocket::bind(address).await.map_err(bind)?;
            addresses.push(socket.address().map_err(bind)?);
            unopened.push((socket, Arc::new(listener.clone())));
        }
        (self.addresses, self.unopened) = (addresses, unopened);
        Ok(())
    }

    /// Starts to accept connections.
    pub fn open(&mut self) {
        for (socket, listener) in std::mem::take(&mut self.unopened) {
            let acceptor = self.acceptor.clone();
            self.tasks.push(tokio::spawn(async move { acceptor.listen(socket, listener).await }));
        }
    }

    /// Returns the addresses of the listeners, in the order of the settings, with the ports that replaced port 0.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connects a client in memory and returns the client's end.
    #[must_use]
    pub fn pipe(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        self.acceptor.accept(server, ConnectionInfo::anonymous("memory"));
        client
    }

    /// Connects a client of this process itself, which needs no permissions, and returns the client's end.
    #[must_use]
    pub fn own_pipe(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let info = ConnectionInfo { bypasses_permissions: true, ..ConnectionInfo::anonymous("memory") };
        self.acceptor.accept(server, info);
        client
    }

    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Stops accepting connections and messages; returns when all packets that were read have been handled.
    pub async fn drain(&self) {
        self.closing.send_replace(true);
        self.broker.drain().await;
    }

    /// Closes the connections of a drained broker, each after its last message; returns when all have closed.
    pub async fn finish(&self) {
        self.broker.finish();
        // The semaphore is never closed, so this is no error.
        let _ = self.permits.acquire_many(self.connections_max).await;
    }

    /// Stops the broker: every client gets a DISCONNECT, and every connection has closed when this returns.
    pub async fn shutdown(mut self) {
        self.stop();
        for task in std::mem::take(&mut self.tasks) {
            // A task that has panicked has ended too.
            let _ = task.await;
        }
        let all = self.permits.acquire_many(self.connections_max);
        // A connection that does not close in time keeps its thread.
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.map(drop);
    }

    fn stop(&self) {
        self.closing.send_replace(true);
        self.broker.close();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
