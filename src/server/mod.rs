//! The store behind an embedded broker.

pub mod authorization;
mod commit_queue;
pub mod delivery;
mod duplicate_detection;
pub mod engine;
pub mod error;
pub mod event;
pub mod identity;
pub mod operations;
mod rate_limit;
pub mod service;
pub mod settings;
pub mod storage;
mod store_server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

pub use self::authorization::{AuthorizationError, Authorizer};
pub use self::error::Error;
pub use self::event::Event;
pub use self::identity::{Identities, IdentityError, IdentityFiles, Principal, UsersFile};
pub use self::operations::{AdminSettings, OperationsSettings};
pub use self::service::{Persistence, StoreSettings};
pub use self::settings::{ListenerSettings, Settings, WebSocketSettings};
use crate::broker::authentication::Entrance;
use crate::broker::listener::Door;
use crate::broker::workers::Workers;
use crate::broker::{Application, Broker, expiry_task};
pub use crate::net::tls::{ClientCertificate, ServerTls, ServerTlsFiles};
pub use crate::server::storage::{StorageError, StorageErrorKind, offline};
pub use crate::server::store_server::{CertificatesReloader, RulesReloader, StoreServer};
pub use crate::store::Limits;

/// How much an in-memory connection holds in each direction, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// How long connections may take to end at a shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server; several may run in one process. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Server {
    broker: Broker,
    door: Door,
    addresses: Vec<SocketAddr>,
    closing: watch::Sender<bool>,
    room: Arc<Semaphore>,
    connections_max: u32,
    /// Doors that are not open yet.
    closed: Vec<(TcpListener, Arc<ListenerSettings>)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts to serve `application` at the doors of the settings.
    ///
    /// # Errors
    ///
    /// When the settings contradict each other or an address cannot be listened on; then nothing was started.
    pub async fn start(settings: Settings, application: Arc<dyn Application>) -> Result<Self, Error> {
        let mut server = Self::prepare(settings, application).await?;
        server.open();
        Ok(server)
    }

    /// The same, but the doors are closed: whoever comes waits.
    ///
    /// # Errors
    ///
    /// As for [`Server::start`].
    pub async fn prepare(settings: Settings, application: Arc<dyn Application>) -> Result<Self, Error> {
        settings.check().map_err(Error::Settings)?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for listener in &settings.listeners {
            let address = listener.address;
            let bind = |cause| Error::Bind { address, cause };
            let socket = TcpListener::bind(address).await.map_err(bind)?;
            addresses.push(socket.local_addr().map_err(bind)?);
            listeners.push((socket, Arc::new(listener.clone())));
        }
        let workers = Workers::start(settings.threads).map_err(Error::Thread)?;
        let (closing, is_closing) = watch::channel(false);
        let connections_max = settings.connections_max;
        let room =
            Arc::new(Semaphore::new(usize::try_from(connections_max).unwrap_or(Semaphore::MAX_PERMITS)));
        let broker = Broker::new(settings, application);
        let door = Door::new(broker.clone(), is_closing.clone(), Arc::clone(&room), workers);
        let tasks = vec![tokio::spawn(expiry_task::sweep(broker.clone(), is_closing))];
        Ok(Self { broker, door, addresses, closing, room, connections_max, closed: listeners, tasks })
    }

    /// Opens the doors.
    pub fn open(&mut self) {
        for (socket, listener) in std::mem::take(&mut self.closed) {
            let door = self.door.clone();
            self.tasks.push(tokio::spawn(async move { door.listen(socket, listener).await }));
        }
    }

    /// The addresses listened on, in the order of the settings, with the ports that port 0 became.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Connects a client in memory: the client's end of the connection.
    #[must_use]
    pub fn pipe(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        self.door.admit(ours, Entrance::anonymous("memory"));
        theirs
    }

    /// The same for this process itself: the rules are not for it.
    #[must_use]
    pub fn own_pipe(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let entrance = Entrance { is_above_rules: true, ..Entrance::anonymous("memory") };
        self.door.admit(ours, entrance);
        theirs
    }

    /// The broker, to publish and to disconnect with.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Lets nobody else in and takes no other message; returns when all that were read have been handled.
    pub(crate) async fn drain(&self) {
        self.closing.send_replace(true);
        self.broker.drain().await;
    }

    /// Ends the connections of a drained server: each once it has been sent what there is for it.
    pub(crate) async fn finish(&self) {
        self.broker.finish();
        // An error means that there is no room any more, and so nobody in it.
        let _ = self.room.acquire_many(self.connections_max).await;
    }

    /// Stops: every client gets a DISCONNECT, and every connection has ended when this returns.
    pub async fn shutdown(mut self) {
        self.stop();
        for task in std::mem::take(&mut self.tasks) {
            // A task that failed has ended too.
            let _ = task.await;
        }
        let all = self.room.acquire_many(self.connections_max);
        // What does not end in time is left to itself, and keeps its thread.
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
