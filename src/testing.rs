//! A store inside the process of a test, for tests of applications.
//!
//! [`Store::start`] runs an MQTT broker with the state store on a free port of 127.0.0.1, on a thread of its own. It works
//! in a `#[test]` and in a test of any asynchronous runtime. The application under test connects with its own MQTT client;
//! the test prepares and checks keys with [`Store::set`] and [`Store::get`]:
//!
//! ```
//! use mqkv::testing::Store;
//!
//! # // The application: it halves the set point.
//! # fn application(port: u16) -> Result<(), Box<dyn std::error::Error>> {
//! #     use mqkv::{client::{Client, SetOptions, Settings, Target}, protocol::Key};
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! #         let target = Target::Tcp { host: "127.0.0.1".to_owned(), port };
//! #         let client = Client::connect(Settings::new(target, "application".to_owned())).await?;
//! #         let found = client.get(&Key::new("line1/setpoint")?).await?.ok_or("no set point")?;
//! #         let half = std::str::from_utf8(&found.value)?.parse::<u32>()? / 2;
//! #         client.set(&Key::new("line1/half")?, &half.to_string().into(), SetOptions::default()).await?;
//! #         Ok(())
//! #     })
//! # }
//! let store = Store::start()?;
//! store.set("line1/setpoint", "70")?;
//! application(store.port())?;
//! assert_eq!(store.get("line1/half")?.unwrap(), b"35");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each store is independent of all others, so that tests run in parallel. Dropping it stops it and frees its port.
//! It has no TLS and accepts every client; [`StoreServer`] has all settings of `mqkv serve`.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use bytes::Bytes;
use tokio::io::duplex;

use crate::client::{self, Client, DeleteOutcome, SetOptions, Target};
use crate::commands::{CommandError, seed};
use crate::net::runtime_thread::RuntimeThread;
use crate::protocol::Key;
use crate::protocol::key::KeyError;
use crate::server::{self, ListenerSettings, Persistence, Settings, StoreServer, StoreSettings};

/// The client id of [`Store::set`], [`Store::get`] and [`Store::delete`].
pub const CLIENT_ID: &str = "mqkv-testing";

/// A running store in this process. Dropping it stops it; what it has acknowledged is on disk then, if it has a folder.
///
/// The methods block until the store has answered, without a runtime of the caller. So they may be called in asynchronous
/// tests, too: the store runs on another thread, and is not delayed by the caller's.
#[derive(Debug)]
pub struct Store {
    address: SocketAddr,
    /// None: it is being dropped.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    server: StoreServer,
    client: Client,
    runtime: RuntimeThread,
}

/// Settings of a [`Store`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    port: u16,
    data: Option<PathBuf>,
    seed: Option<PathBuf>,
}

/// Error of a [`Store`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system cannot create a thread or a file descriptor.
    Thread(io::Error),
    /// The port or the folder cannot be used.
    Start(server::Error),
    /// The seed cannot be read, has an invalid line, or the store refuses a key.
    Seed(String),
    /// The key is empty or too long.
    Key(KeyError),
    /// The store refuses the request, for example because of its limits.
    Request(client::Error),
}

impl Store {
    /// Starts an empty store in memory, on a free port of 127.0.0.1. It accepts connections when this returns.
    ///
    /// # Errors
    /// [`Error::Thread`] and [`Error::Start`]: the system has no thread, file descriptor or port left.
    pub fn start() -> Result<Self, Error> {
        Self::builder().start()
    }

    /// Returns settings for a store with a seed, a folder or a fixed port.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port of the listener, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the URL of the broker, `mqtt://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mqtt://{}", self.address)
    }

    /// Sets a key, as a client would: clients that watch the key are notified.
    ///
    /// # Errors
    /// [`Error::Key`] and [`Error::Request`].
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, value) = (to_key(key)?, Bytes::copy_from_slice(value.as_ref()));
        self.request(move |client| async move { client.set(&key, &value, SetOptions::default()).await })
            .map(drop)
    }

    /// Returns the value of a key; None if the key does not exist.
    ///
    /// # Errors
    /// [`Error::Key`] and [`Error::Request`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = to_key(key)?;
        let found = self.request(move |client| async move { client.get(&key).await })?;
        Ok(found.map(|found| found.value.to_vec()))
    }

    /// Deletes a key, as a client would, and returns whether it existed.
    ///
    /// # Errors
    /// [`Error::Key`] and [`Error::Request`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = to_key(key)?;
        let outcome = self.request(move |client| async move { client.del(&key, None).await })?;
        Ok(matches!(outcome, DeleteOutcome::Deleted { .. }))
    }

    fn request<T, F>(&self, request: impl FnOnce(Client) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, client::Error>> + Send + 'static,
    {
        let Some(Running { client, runtime, .. }) = &self.running else {
            return Err(Error::Request(client::Error::Closed));
        };
        block_on(runtime, request(client.clone()))?.map_err(Error::Request)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(Running { server, client, runtime }) = self.running.take() {
            // An error here is a panic of the store: its message is printed already.
            let _ = block_on(&runtime, async move {
                client.close().await;
                server.shutdown().await;
            });
            runtime.end();
        }
    }
}

impl Builder {
    /// Listens on this port of 127.0.0.1 instead of a free one, for example that of a store that was dropped: so a test
    /// shows how an application reconnects. 0 is any free port.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// Keeps all keys in this folder, so that another store can continue with them. The folder is created if necessary.
    #[must_use]
    pub fn data(self, folder: impl Into<PathBuf>) -> Self {
        Self { data: Some(folder.into()), ..self }
    }

    /// Sets the keys of this file before the first client can connect. A folder that exists keeps its keys: only a new one gets those
    /// of the file. The file has the lines that `mqkv export` prints, with `ttl_ms` for keys that expire.
    #[must_use]
    pub fn seed(self, file: impl Into<PathBuf>) -> Self {
        Self { seed: Some(file.into()), ..self }
    }

    /// Starts the store. It accepts connections when this returns.
    ///
    /// # Errors
    /// [`Error::Thread`], [`Error::Start`] and [`Error::Seed`]; nothing has been started then.
    pub fn start(self) -> Result<Store, Error> {
        let runtime = RuntimeThread::start("mqkv-testing").map_err(Error::Thread)?;
        let (server, client) = block_on(&runtime, self.serve())??;
        // One address was bound.
        let address = server.addresses().first().copied().unwrap_or_else(|| SocketAddr::from((LOOPBACK, 0)));
        Ok(Store { address, running: Some(Running { server, client, runtime }) })
    }

    async fn serve(self) -> Result<(StoreServer, Client), Error> {
        let mut settings = Settings::default();
        settings.broker.listeners = vec![ListenerSettings::plain(SocketAddr::from((LOOPBACK, self.port)))];
        let persistence = self.data.map_or(Persistence::None, Persistence::All);
        let is_in_memory = persistence == Persistence::None;
        let store = StoreSettings { persistence, has_seed: self.seed.is_some(), ..StoreSettings::default() };
        // The whole seed is checked before anything is started.
        let seed = match self.seed {
            Some(file) => {
                let invalid = |error: CommandError| Error::Seed(error.placed_message());
                Some(seed::read(&file, seed::open(&file).map_err(invalid)?).await.map_err(invalid)?)
            }
            None => None,
        };
        let mut server = StoreServer::prepare(settings, store).await.map_err(Error::Start)?;
        let client = own_client(&server).await.map_err(Error::Request)?;
        let seeding = server.take_seeding();
        if let Some(seed) = seed.filter(|_| is_in_memory || seeding.is_some()) {
            seed::write(seed, &client).await.map_err(|error| Error::Seed(error.placed_message()))?;
        }
        if let Some(seeding) = seeding {
            seeding.finish().map_err(|error| Error::Seed(error.to_string()))?;
        }
        server.open();
        Ok((server, client))
    }
}

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Connects a client in memory.
async fn own_client(server: &StoreServer) -> Result<Client, client::Error> {
    let pipe = Mutex::new(Some(server.own_pipe()));
    // The client connects once: it does not reconnect.
    let pipe = move || {
        let pipe = pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        pipe.unwrap_or_else(|| duplex(1).0)
    };
    Client::connect(client::Settings::new(Target::Pipe(Arc::new(pipe)), CLIENT_ID.to_owned())).await
}

/// Runs a future on the thread of a store and waits for its end. Unlike that of a runtime, this wait is allowed everywhere.
fn block_on<T: Send + 'static>(
    runtime: &RuntimeThread,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let (sender, result) = mpsc::sync_channel(1);
    runtime.handle().spawn(async move { drop(sender.send(work.await)) });
    result.recv().map_err(|_| Error::Thread(io::Error::other("the thread of the store has ended")))
}

fn to_key(key: impl AsRef<[u8]>) -> Result<Key, Error> {
    Key::new(Bytes::copy_from_slice(key.as_ref())).map_err(Error::Key)
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(cause) => write!(out, "cannot run a store: {cause}"),
            Self::Start(error) => error.fmt(out),
            Self::Seed(reason) => out.write_str(reason),
            Self::Key(error) => error.fmt(out),
            Self::Request(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(cause) => Some(cause),
            Self::Start(error) => Some(error),
            Self::Seed(_) => None,
            Self::Key(error) => Some(error),
            Self::Request(error) => Some(error),
        }
    }
}
