//! What a verb runs with: one MQTT session, connected when first needed, and the few things that only the
//! process edge can give.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

use super::error::{CommandError, Kind};
use crate::client::{Client, Error, Settings};
use crate::commands::process::signal::Signals;
use crate::protocol::Timestamp;
use crate::protocol::key::VALUE_BYTES_MAX;

/// Settings that are ready when a connection is needed: an embedded store starts no sooner.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Settings, CommandError>>>>;

/// Resolves when something has happened.
pub type Waiting = Pin<Box<dyn Future<Output = ()>>>;

/// Resolves when something has ended, or fails where that cannot be learnt.
pub type Ending = Pin<Box<dyn Future<Output = Result<(), CommandError>>>>;

/// What only the process edge can give.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Reads at most so many bytes of standard input.
    pub read_input: fn(usize) -> io::Result<Vec<u8>>,
    /// Opens standard input, to be read bit by bit.
    pub open_input: fn() -> Box<dyn io::Read>,
    /// Whether standard input is a terminal.
    pub input_is_terminal: fn() -> bool,
    /// Waits for the end of standard input; what comes before is read and forgotten.
    pub end_of_input: fn() -> Ending,
    /// Reads the fencing token that a parent process left in the environment.
    pub inherited_fence: fn() -> Result<Timestamp, CommandError>,
    /// Reads the lock's holder that a parent process left in the environment.
    pub inherited_holder: fn() -> Option<OsString>,
    /// A folder for files that end with this process.
    pub private_folder: fn() -> PathBuf,
    /// Reads the monotonic clock.
    pub now: fn() -> Instant,
    /// Reads a clock that goes on while the machine sleeps.
    pub lease_now: fn() -> Instant,
    /// Reads the wall clock, in milliseconds since the Unix epoch.
    pub wall_ms: fn() -> u64,
    /// Gives a random number.
    pub chance: fn() -> u64,
    /// Waits until nobody reads standard output any more, as far as that can be learnt.
    pub output_closed: fn() -> Waiting,
    /// Measures the terminal that standard output is, in columns.
    pub columns: fn() -> Option<usize>,
}

/// One MQTT session for one verb or for many, also for many at once. Clones share it.
#[derive(Clone)]
pub struct Session {
    settings: Rc<dyn Fn() -> Connecting>,
    client: Rc<OnceCell<Client>>,
    /// With which the client is connected.
    connected_with: Rc<OnceCell<Settings>>,
    surroundings: Surroundings,
    input_taken: Rc<Cell<bool>>,
    offered_fence: Rc<RefCell<Option<Offer>>>,
    is_deaf: bool,
    ending: Rc<watch::Sender<bool>>,
    /// What a verb is told that would write.
    guard: Option<Rc<CommandError>>,
}

/// A fencing token in place of the environment's, or why there is none.
pub type Offer = Result<Timestamp, CommandError>;

impl Session {
    /// A session that connects with these settings when a verb first needs it.
    #[must_use]
    pub fn new(settings: impl Fn() -> Connecting + 'static, surroundings: Surroundings) -> Self {
        Self {
            settings: Rc::new(settings),
            client: Rc::default(),
            connected_with: Rc::default(),
            surroundings,
            input_taken: Rc::default(),
            offered_fence: Rc::default(),
            is_deaf: false,
            ending: Rc::new(watch::Sender::new(false)),
            guard: None,
        }
    }

    /// The same session for whoever must not write: what would write ends with this error before anything is sent.
    #[must_use]
    pub fn guarded(&self, guard: CommandError) -> Self {
        Self { guard: Some(Rc::new(guard)), ..self.clone() }
    }

    /// The same session for whoever writes all the same.
    #[must_use]
    pub fn unguarded(&self) -> Self {
        Self { guard: None, ..self.clone() }
    }

    /// Lets those pass that write, if they may.
    ///
    /// # Errors
    /// Why nothing is to be written.
    pub fn check_write(&self) -> Result<(), CommandError> {
        self.guard.as_deref().map_or(Ok(()), |guard| Err(guard.clone()))
    }

    /// The same session for a verb that runs in the background: no signal is for it.
    #[must_use]
    pub fn deaf(&self) -> Self {
        Self { is_deaf: true, ..self.clone() }
    }

    /// The signals that ask the verb to end.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn signals(&self) -> Result<Signals, CommandError> {
        if self.is_deaf {
            return Ok(Signals::none());
        }
        Signals::new().map_err(|error| CommandError::system("listen to signals", &error))
    }

    /// Offers a fencing token in place of the environment's.
    pub fn offer_fence(&self, offer: Option<Offer>) {
        self.offered_fence.replace(offer);
    }

    /// The connected client. Check the arguments before: whoever mistypes need not wait for a broker.
    ///
    /// # Errors
    /// Whatever keeps the client from connecting.
    pub async fn client(&self) -> Result<&Client, CommandError> {
        self.client_that(|_| {}).await
    }

    /// The connected client, connected with these changes to its settings if it is not yet.
    ///
    /// # Errors
    /// Whatever keeps the client from connecting.
    pub async fn client_that(&self, adjust: impl FnOnce(&mut Settings)) -> Result<&Client, CommandError> {
        let connect = async || {
            let mut settings = (self.settings)().await?;
            adjust(&mut settings);
            let client = Client::connect(settings.clone()).await?;
            // Nobody else connects meanwhile.
            let _ = self.connected_with.set(settings);
            Ok(client)
        };
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut ending = self.ending();
        tokio::select! {
            biased;
            _ = ending.wait_for(|is_ending| *is_ending) => Err(Error::Closed.into()),
            client = self.client.get_or_try_init(connect) => client,
        }
    }

    /// Whether there was a connection, and there will be none again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.client.get().is_some_and(Client::has_ended)
    }

    /// Ends the session under whatever runs: nothing connects any more, input has come to its end, and the requests
    /// under way fail with what is known of them.
    pub async fn end(&self) {
        self.ending.send_replace(true);
        self.clone().close().await;
    }

    /// Whether the session is being ended.
    #[must_use]
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.ending.subscribe()
    }

    /// Settings for a connection beside the session's, with a client id that does not take it over.
    ///
    /// # Errors
    /// What is wrong with them.
    pub async fn settings_aside(&self) -> Result<Settings, CommandError> {
        match self.connected_with.get() {
            None => (self.settings)().await,
            Some(settings) => {
                let client_id = format!("{}-{:08x}", settings.client_id, self.chance() >> 32);
                Ok(Settings { client_id, ..settings.clone() })
            }
        }
    }

    /// Everything on standard input, as a value.
    ///
    /// # Errors
    /// It cannot be read, or it is larger than a value may be.
    pub fn read_input(&self) -> Result<Bytes, CommandError> {
        self.refuse_taken_input("-f FILE")?;
        let bytes = (self.surroundings.read_input)(VALUE_BYTES_MAX.saturating_add(1))
            .map_err(|error| CommandError::new(Kind::File, format!("cannot read standard input: {error}")))?;
        value_within_limit(bytes)
    }

    /// Standard input for one reader, who reads it bit by bit; nobody else gets it any more.
    ///
    /// # Errors
    /// It is taken.
    pub fn take_input(&self) -> Result<fn() -> Box<dyn io::Read>, CommandError> {
        self.refuse_taken_input("the name of a file in place of -")?;
        self.close_input();
        Ok(self.surroundings.open_input)
    }

    /// Nobody gets standard input any more: it is not what a line of many can mean.
    pub fn close_input(&self) {
        self.input_taken.set(true);
    }

    /// Whether standard input can still be read.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.input_taken.get()
    }

    fn refuse_taken_input(&self, instead: &str) -> Result<(), CommandError> {
        if self.has_input() {
            return Ok(());
        }
        Err(CommandError::usage("standard input cannot be read from here").hint(instead))
    }

    /// Whether somebody would have to type what is read from standard input.
    #[must_use]
    pub fn input_is_terminal(&self) -> bool {
        (self.surroundings.input_is_terminal)()
    }

    /// The fencing token that is offered, or else that a parent process left in the environment.
    ///
    /// # Errors
    /// There is none, or it is none.
    pub fn inherited_fence(&self) -> Result<Timestamp, CommandError> {
        let offer = self.offered_fence.borrow().clone();
        offer.unwrap_or_else(self.surroundings.inherited_fence)
    }

    /// Waits for the end of standard input.
    ///
    /// # Errors
    /// The system has no thread to wait in.
    pub async fn end_of_input(&self) -> Result<(), CommandError> {
        (self.surroundings.end_of_input)().await
    }

    /// The lock's holder that a parent process left in the environment, if any.
    #[must_use]
    pub fn inherited_holder(&self) -> Option<OsString> {
        (self.surroundings.inherited_holder)()
    }

    /// A name for a file that ends with this process, in nobody's way.
    #[must_use]
    pub fn new_private_file(&self, what: &str) -> PathBuf {
        (self.surroundings.private_folder)().join(format!("mqkv-{what}-{:016x}", self.chance()))
    }

    /// What reads the monotonic clock.
    #[must_use]
    pub fn clock(&self) -> fn() -> Instant {
        self.surroundings.now
    }

    /// What reads the clock of leases, which go on while the machine sleeps.
    #[must_use]
    pub fn lease_clock(&self) -> fn() -> Instant {
        self.surroundings.lease_now
    }

    /// The monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        (self.surroundings.now)()
    }

    /// The wall clock, in milliseconds since the Unix epoch.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        (self.surroundings.wall_ms)()
    }

    /// A random number.
    #[must_use]
    pub fn chance(&self) -> u64 {
        (self.surroundings.chance)()
    }

    /// Resolves when nobody reads standard output any more, as far as that can be learnt.
    #[must_use]
    pub fn output_closed(&self) -> Waiting {
        (self.surroundings.output_closed)()
    }

    /// How wide the terminal is that standard output is, if it is one; it may change at any time.
    #[must_use]
    pub fn columns(&self) -> Option<usize> {
        (self.surroundings.columns)()
    }

    /// Says goodbye to the broker, if anybody spoke to it.
    pub async fn close(self) {
        /// A broker that does not listen is not waited for: it forgets us as soon as it misses us.
        const WAIT_MAX: Duration = Duration::from_secs(2);
        if let Some(client) = self.client.get().cloned() {
            let _ = timeout(WAIT_MAX, client.close()).await;
        }
    }
}

/// Takes bytes as a value, unless they are too many.
///
/// # Errors
/// [`Kind::Data`] above the limit.
pub fn value_within_limit(bytes: Vec<u8>) -> Result<Bytes, CommandError> {
    if bytes.len() > VALUE_BYTES_MAX {
        let message = format!("the value has more than {VALUE_BYTES_MAX} bytes, the limit");
        return Err(CommandError::new(Kind::Data, message));
    }
    Ok(bytes.into())
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("client", &self.client).finish_non_exhaustive()
    }
}
