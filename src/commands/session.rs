//! The client session of one or many verbs, connected when first needed.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;

use super::error::{CommandError, Kind};
use super::exit::Exit;
use super::preparation::Preparation;
use super::process::context::ProcessContext;
use super::process::{stdin, stdout};
use crate::client::{Client, Error, Reconnect, Settings};
use crate::platform::Signals;
use crate::protocol::Timestamp;
use crate::random;

/// Settings that are ready when a connection is needed: an embedded store starts no sooner.
pub type SettingsFuture = Pin<Box<dyn Future<Output = Result<Settings, CommandError>>>>;

/// A fencing token that replaces the inherited one, or the reason why there is none.
pub type FenceOverride = Result<Timestamp, CommandError>;

/// The most requests in flight of a client for many: a pipeline's, and some of the verb besides.
pub const BULK_INFLIGHT_MAX: usize = 8192;

/// A client session for one verb or for many, also at the same time. Clones share it.
#[derive(Clone)]
pub struct Session {
    settings: Rc<dyn Fn() -> SettingsFuture>,
    client: Rc<OnceCell<Client>>,
    /// The settings with which `client` connected.
    connected_with: Rc<OnceCell<Settings>>,
    process: Rc<ProcessContext>,
    preparation: Preparation,
    /// Shared, because standard input has one reader only.
    input_taken: Rc<Cell<bool>>,
    fence_override: Rc<RefCell<Option<FenceOverride>>>,
    ignores_signals: bool,
    canceled: Rc<watch::Sender<bool>>,
    /// The error of verbs that write, if writing is not allowed.
    write_error: Option<Rc<CommandError>>,
    /// Whether [`Session::early_client`] waits until the broker has accepted the client.
    waits_until_accepted: bool,
    /// Whether a script runs the verbs: it must do the same at a terminal as elsewhere.
    is_script: bool,
    /// In a dry run no client is connected; the cell records whether a verb needed one.
    dry_run: Option<Rc<Cell<bool>>>,
}

impl Session {
    /// Creates a session that connects with these settings when a verb first needs it.
    #[must_use]
    pub fn new(
        settings: impl Fn() -> SettingsFuture + 'static,
        process: ProcessContext,
        preparation: Preparation,
    ) -> Self {
        Self {
            settings: Rc::new(settings),
            client: Rc::default(),
            connected_with: Rc::default(),
            process: Rc::new(process),
            preparation,
            input_taken: Rc::default(),
            fence_override: Rc::default(),
            ignores_signals: false,
            canceled: Rc::new(watch::Sender::new(false)),
            write_error: None,
            waits_until_accepted: false,
            is_script: false,
            dry_run: None,
        }
    }

    /// Runs a verb up to its first request, which is not sent: all checks of its arguments are made.
    pub async fn dry_run<'a>(
        &self,
        verb: impl AsyncFnOnce(&Self) -> Result<Exit, CommandError> + 'a,
    ) -> Result<(), CommandError> {
        let needed_client = Rc::new(Cell::new(false));
        let session = Self { dry_run: Some(needed_client.clone()), ..self.clone() };
        match verb(&session).await {
            Err(error) if !needed_client.get() => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the same session, on which verbs that write fail with `error` before they send anything.
    #[must_use]
    pub fn read_only(&self, error: CommandError) -> Self {
        Self { write_error: Some(Rc::new(error)), ..self.clone() }
    }

    /// Undoes [`Session::read_only`].
    #[must_use]
    pub fn writable(&self) -> Self {
        Self { write_error: None, ..self.clone() }
    }

    /// Checks that verbs may write.
    ///
    /// # Errors
    /// The error given to [`Session::read_only`].
    pub fn check_write(&self) -> Result<(), CommandError> {
        self.write_error.as_deref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns the same session for a verb in the background, which gets no signals.
    #[must_use]
    pub fn without_signals(&self) -> Self {
        Self { ignores_signals: true, ..self.clone() }
    }

    /// Returns the same session for several verbs: each of them that needs a connection tries to make one until one is accepted.
    #[must_use]
    pub fn of_many_verbs(&self) -> Self {
        Self { waits_until_accepted: true, ..self.clone() }
    }

    /// Returns the same session for a script, which asks no question.
    #[must_use]
    pub fn without_questions(&self) -> Self {
        Self { is_script: true, ..self.clone() }
    }

    /// Checks that a question would be seen and can be answered.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_question(&self) -> Result<(), &'static str> {
        match () {
            () if self.is_script => Err("a script asks no question"),
            () if !stdin::is_terminal() => Err("standard input is not a terminal"),
            () if !stdout::is_stderr_terminal() => Err("standard error is not a terminal"),
            () => Ok(()),
        }
    }

    /// Reads the answer to a question: a line with its line feed, or less at the end of the input. Returns None if the session
    /// is canceled.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub async fn answer(&self) -> Result<Option<Vec<u8>>, CommandError> {
        let mut canceled = self.canceled();
        tokio::select! {
            biased;
            _ = canceled.wait_for(|is_canceled| *is_canceled) => Ok(None),
            answer = stdin::terminal_line() => answer.map(Some),
        }
    }

    /// Returns the signals that ask the verb to end.
    pub fn signals(&self) -> Result<Signals, CommandError> {
        if self.ignores_signals {
            return Ok(Signals::none());
        }
        Signals::new().map_err(|error| CommandError::system("listen to signals", &error))
    }

    /// Sets the fencing token that `--fence-env` uses in place of the environment's.
    pub fn override_fence(&self, fence: Option<FenceOverride>) {
        self.fence_override.replace(fence);
    }

    /// Returns the connected client. Check the arguments first: a usage error needs no broker.
    ///
    /// # Errors
    /// The connection failed, or the session was canceled.
    pub async fn client(&self) -> Result<&Client, CommandError> {
        self.client_with(|_| {}).await
    }

    /// Returns the connected client; `adjust` changes the settings if it is not connected yet.
    pub async fn client_with(&self, adjust: impl FnOnce(&mut Settings)) -> Result<&Client, CommandError> {
        self.connect_with(adjust, true).await
    }

    /// Returns a client that connects with its first request. This saves a round trip; an error of the connection is returned by
    /// the request.
    ///
    /// # Errors
    /// The settings are invalid, or the session was canceled.
    pub async fn early_client(&self) -> Result<&Client, CommandError> {
        self.early_client_with(|_| {}).await
    }

    /// Returns a client as [`Session::early_client`] does; `adjust` changes the settings if there is no client yet.
    pub async fn early_client_with(
        &self,
        adjust: impl FnOnce(&mut Settings),
    ) -> Result<&Client, CommandError> {
        self.connect_with(adjust, self.waits_until_accepted).await
    }

    async fn connect_with(
        &self,
        adjust: impl FnOnce(&mut Settings),
        must_be_accepted: bool,
    ) -> Result<&Client, CommandError> {
        if let Some(needed_client) = &self.dry_run {
            needed_client.set(true);
            return Err(CommandError::new(Kind::Bug, "a dry run sends no request"));
        }
        let connect = async || {
            let mut settings = (self.settings)().await?;
            adjust(&mut settings);
            let client = Client::lazy(settings.clone())?;
            if must_be_accepted {
                client.accepted().await?;
            }
            // It is of this connection, not of a later one.
            drop(self.preparation.take());
            // The cell of the client lets one task connect at a time, so this one is still empty.
            let _ = self.connected_with.set(settings);
            Ok(client)
        };
        if let Some(client) = self.client.get() {
            if must_be_accepted {
                client.accepted().await?;
            }
            return Ok(client);
        }
        let mut canceled = self.canceled();
        tokio::select! {
            biased;
            _ = canceled.wait_for(|is_canceled| *is_canceled) => Err(Error::Closed.into()),
            client = self.client.get_or_try_init(connect) => client,
        }
    }

    /// Returns the connected client for many requests, which survive a loss of the connection.
    pub async fn bulk_client(&self) -> Result<&Client, CommandError> {
        let adjust = |settings: &mut Settings| {
            settings.inflight_max = BULK_INFLIGHT_MAX;
            settings.reconnect = Reconnect::WithBackoff;
        };
        self.client_with(adjust).await
    }

    /// Returns whether the client has ended: it will not connect again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.client.get().is_some_and(Client::has_ended)
    }

    /// Cancels running verbs: no connection is made any more, input is at its end, and pending requests fail with
    /// what is known of their outcome.
    pub async fn cancel(&self) {
        self.canceled.send_replace(true);
        self.clone().close().await;
    }

    /// Returns whether the session is canceled, and notifies of it.
    #[must_use]
    pub fn canceled(&self) -> watch::Receiver<bool> {
        self.canceled.subscribe()
    }

    /// Returns settings for a second connection, with a client id that does not take over this session.
    pub async fn second_settings(&self) -> Result<Settings, CommandError> {
        match self.connected_with.get() {
            None => (self.settings)().await,
            Some(settings) => {
                Ok(Settings { client_id: other_client_id(&settings.client_id), ..settings.clone() })
            }
        }
    }

    /// Returns what has been done before the last connection.
    #[must_use]
    pub fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    /// Reads standard input to its end, as a value.
    ///
    /// # Errors
    /// It cannot be read, or it is larger than a value may be.
    pub fn read_input(&self) -> Result<Bytes, CommandError> {
        self.check_input("-f FILE")?;
        stdin::check_open()?;
        stdin::read_value()
    }

    /// Reserves standard input for one reader.
    ///
    /// # Errors
    /// It is taken already.
    pub fn take_input(&self) -> Result<(), CommandError> {
        self.check_input("the name of a file in place of -")?;
        stdin::check_open()?;
        self.close_input();
        Ok(())
    }

    /// Makes standard input unavailable: a line of a batch cannot mean it.
    pub fn close_input(&self) {
        self.input_taken.set(true);
    }

    /// Returns whether standard input can still be read.
    #[must_use]
    pub fn has_input(&self) -> bool {
        !self.input_taken.get()
    }

    fn check_input(&self, alternative: &str) -> Result<(), CommandError> {
        if self.has_input() {
            return Ok(());
        }
        Err(CommandError::usage("standard input cannot be read from here").hint(alternative))
    }

    /// Returns the fencing token of [`Session::override_fence`], else the one of the environment.
    ///
    /// # Errors
    /// There is none, or it is malformed.
    pub fn inherited_fence(&self) -> Result<Timestamp, CommandError> {
        let fence = self.fence_override.borrow().clone();
        fence.unwrap_or_else(|| self.process.inherited_fence())
    }

    /// Returns the lock holder that a parent process left in the environment.
    #[must_use]
    pub fn inherited_holder(&self) -> Option<OsString> {
        self.process.lock_holder.clone()
    }

    /// Returns the user's editor, a command with options.
    #[must_use]
    pub fn editor(&self) -> &OsStr {
        &self.process.editor
    }

    /// Returns an unused file name, for a file that this process removes when it ends.
    #[must_use]
    pub fn new_private_file(&self, prefix: &str) -> PathBuf {
        self.process.new_private_file(prefix)
    }

    /// Disconnects from the broker, if there is a connection.
    pub async fn close(self) {
        // A broker that does not answer is not waited for longer: it drops the session when the connection ends.
        const WAIT_MAX: Duration = Duration::from_secs(2);
        if let Some(client) = self.client.get().cloned() {
            let _ = timeout(WAIT_MAX, client.close()).await;
        }
    }
}

/// Returns a client id that begins as this one, and does not take over its session.
#[must_use]
pub fn other_client_id(client_id: &str) -> String {
    format!("{client_id}-{:08x}", random::u64() >> 32)
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("client", &self.client).finish_non_exhaustive()
    }
}
