//! A session with a broker, any broker, and the store's requests as functions.

pub mod ask;
pub mod authentication;
mod backoff;
mod connection_status;
mod dial;
mod driver;
pub mod error;
pub mod lock;
pub mod packet;
pub mod probe;
mod protocol_detection;
pub mod session;
pub mod settings;
mod subscribers;
pub mod subscription;
pub mod trace;
mod transport;
pub mod watch;
mod watchers;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch as observe};

pub use ask::{Access, Ask, Response, Stamps};
pub use authentication::{Authentication, PasswordSource};
pub use connection_status::LinkState;
pub use error::{CredentialError, Error, LossCause, Outcome, ReasonCode};
pub use probe::{ConnectionProbe, ConnectionStep};

pub use protocol_detection::detect_protocol;
pub use settings::{Reconnect, Settings, Target};
pub use subscription::{Heard, Subscription};
pub use trace::Tracer;
pub use watch::{Watch, WatchEvent};

// The types of `net` in this module's errors and reports, so that its users need no import of `net`.
pub use crate::net::certificate::{Certificate, expiry_text};
pub use crate::net::tls::{TlsHandshake, TrustedRoots};
pub use crate::net::websocket::WebSocketError;
pub use crate::net::{TlsError, TlsSetupError};

use crate::clock;
use crate::protocol::key::KeyError;
use crate::protocol::request::encode_bulk_array;
use crate::protocol::{Condition, Key, Reply, Request, Timestamp, Value};

/// A connected client. Clones share one MQTT session; requests of all of them go out side by side.
#[derive(Clone, Debug)]
pub struct Client {
    commands: mpsc::Sender<driver::Command>,
    goodbyes: mpsc::Sender<driver::Goodbye>,
    link: observe::Receiver<LinkState>,
    about: Arc<About>,
}

/// What is known of the connection.
#[derive(Clone, Debug)]
pub struct About {
    /// Where the broker is, as asked for.
    pub target: String,
    /// The client id of this session.
    pub client_id: String,
    /// From the first packet to the broker's CONNACK.
    pub connect_elapsed: Duration,
    /// The version of TLS, where it is spoken: `1.2` or `1.3`.
    pub tls: Option<&'static str>,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The value.
    pub value: Value,
    /// Its version, where the store names it.
    pub version: Option<Timestamp>,
}

/// Some of the keys that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys; a page may be empty and not be the last.
    pub keys: Vec<Key>,
    /// What asks for the next page; none: this is the last one.
    pub token: Option<Bytes>,
}

/// How a value is to be set.
#[derive(Clone, Debug, Default)]
pub struct SetOptions {
    /// What must hold, if anything.
    pub condition: Option<Condition>,
    /// Milliseconds until the key expires.
    pub ttl_ms: Option<NonZeroU64>,
    /// The fencing token.
    pub fence: Option<Timestamp>,
    /// Whether the store shall keep the value on disk.
    pub persist: bool,
}

/// What became of a SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    /// Whether the value was set; if not, the condition does not hold.
    pub applied: bool,
    /// The new version, or the version of the value that stands.
    pub version: Option<Timestamp>,
}

/// What became of a DEL or VDEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The key is gone.
    Deleted {
        /// The version that was removed.
        version: Option<Timestamp>,
    },
    /// There was no such key.
    Missing,
    /// The key holds another value (VDEL only).
    ValueDiffers {
        /// The version that stands.
        version: Option<Timestamp>,
    },
}

impl Client {
    /// Connects; resolves when the broker has let the client in.
    ///
    /// # Errors
    /// [`Error`] of the connection: there is no second try here.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let begun = clock::monotonic();
        let target = settings.target.to_string();
        let client_id = settings.client_id.clone();
        let driver::Started { commands, goodbyes, link, tls } = driver::start(settings).await?;
        let connect_elapsed = clock::monotonic().saturating_duration_since(begun);
        Ok(Self {
            commands,
            goodbyes,
            link,
            about: Arc::new(About { target, client_id, connect_elapsed, tls }),
        })
    }

    /// What is known of the connection.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The state of the connection, for whoever wants to know of its changes.
    #[must_use]
    pub fn link(&self) -> observe::Receiver<LinkState> {
        self.link.clone()
    }

    /// Whether there is no connection, and will be none.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(*self.link.borrow(), LinkState::Ended(_))
    }

    /// Why nothing can be asked any more.
    fn why_closed(&self) -> Error {
        match &*self.link.borrow() {
            LinkState::Ended(error) => error.clone(),
            LinkState::Up | LinkState::Lost { .. } => Error::Closed,
        }
    }

    /// Reads a key.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn get(&self, key: &Key) -> Result<Option<Found>, Error> {
        let request = Request::Get { key: key.clone() };
        match self.request(&request, Stamps::default()).await? {
            (Reply::Value(value), version) => Ok(Some(Found { value, version })),
            (Reply::Absent, _) => Ok(None),
            (other, _) => Err(unexpected(&request, &other)),
        }
    }

    /// Sets a key.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn set(&self, key: &Key, value: &Value, options: SetOptions) -> Result<SetOutcome, Error> {
        let SetOptions { condition, ttl_ms, fence, persist } = options;
        let request = Request::Set { key: key.clone(), value: value.clone(), condition, ttl_ms };
        let (reply, version) = self.request(&request, Stamps { fence, persist, ..Stamps::default() }).await?;
        match reply {
            Reply::Done => Ok(SetOutcome { applied: true, version }),
            // Three spellings of the same no (protocol §0 row 1); a no without a condition would be a lie.
            Reply::NotApplied | Reply::Absent | Reply::Count(0) if condition.is_some() => {
                Ok(SetOutcome { applied: false, version })
            }
            other => Err(unexpected(&request, &other)),
        }
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn del(&self, key: &Key, fence: Option<Timestamp>) -> Result<DeleteOutcome, Error> {
        self.delete(&Request::Del { key: key.clone() }, fence).await
    }

    /// Deletes a key if it holds this value.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn vdel(
        &self,
        key: &Key,
        value: &Value,
        fence: Option<Timestamp>,
    ) -> Result<DeleteOutcome, Error> {
        self.delete(&Request::VDel { key: key.clone(), value: value.clone() }, fence).await
    }

    /// Lists keys that match a pattern, a page at a time; `token` is that of the page before (protocol §7).
    ///
    /// # Errors
    /// Any [`Error`] of a request; [`crate::protocol::ErrorReply::UnknownCommand`] from a broker that has no SCAN.
    pub async fn scan(&self, pattern: Bytes, token: Option<Bytes>) -> Result<Page, Error> {
        if pattern.is_empty() {
            return Err(Error::EmptyPattern);
        }
        let request = Request::Scan { pattern, token };
        match self.request(&request, Stamps::default()).await? {
            (Reply::Keys { keys, token }, _) => {
                let malformed = |error: KeyError| Error::MalformedReply {
                    cause: error.to_string(),
                    outcome: Outcome::Unchanged,
                };
                let keys = keys.into_iter().map(Key::new).collect::<Result<_, _>>().map_err(malformed)?;
                Ok(Page { keys, token })
            }
            (other, _) => Err(unexpected(&request, &other)),
        }
    }

    async fn delete(&self, request: &Request, fence: Option<Timestamp>) -> Result<DeleteOutcome, Error> {
        let (reply, version) = self.request(request, Stamps { fence, ..Stamps::default() }).await?;
        match (reply, request) {
            (Reply::Count(0), _) => Ok(DeleteOutcome::Missing),
            (Reply::Count(1), _) => Ok(DeleteOutcome::Deleted { version }),
            (Reply::NotApplied, Request::VDel { .. }) => Ok(DeleteOutcome::ValueDiffers { version }),
            (other, _) => Err(unexpected(request, &other)),
        }
    }

    /// Sends a request and decodes its reply; a refusal is an error.
    async fn request(&self, request: &Request, stamps: Stamps) -> Result<(Reply, Option<Timestamp>), Error> {
        let ask = Ask { payload: request.encode(), access: Access::of(request.verb().as_bytes()), stamps };
        interpret(request, self.ask(ask).await?)
    }

    /// Makes a request with a timestamp of its own, and returns the reply with its version as sent, however far that is
    /// ahead: between clocks that differ too much for anything else, this still tells by how much.
    ///
    /// # Errors
    /// Any [`Error`] of a request but [`Error::ClockSkew`].
    pub async fn request_at(
        &self,
        request: &Request,
        timestamp: Timestamp,
    ) -> Result<(Reply, Option<Timestamp>), Error> {
        self.request(request, Stamps { timestamp: Some(timestamp), ..Stamps::default() }).await
    }

    /// Watches keys, until [`Watcher::stop`] or the session's end.
    ///
    /// # Errors
    /// Whatever has ended the session; what goes wrong later comes as the watch's last event.
    pub async fn watch(&self, keys: impl IntoIterator<Item = Key>) -> Result<Watcher, Error> {
        let (sender, events) = mpsc::channel(WATCH_EVENTS_MAX);
        let (begun, id) = oneshot::channel();
        let command = driver::Command::Watch { watch: Watch::new(keys), events: sender, begun };
        self.commands.send(command).await.map_err(|_| self.why_closed())?;
        let id = id.await.map_err(|_| self.why_closed())?;
        Ok(Watcher { id, events, commands: self.commands.clone() })
    }

    /// Sends any words, also such that are no request we know, and returns the payload of the response as sent.
    ///
    /// # Errors
    /// Any [`Error`] of a request except [`Error::Refused`]: a refusal is a payload like any other here.
    pub async fn raw(&self, words: &[Bytes], stamps: Stamps) -> Result<Response, Error> {
        let access = Access::of(words.first().map_or(b"", |verb| verb));
        self.ask(Ask { payload: encode_bulk_array(words), access, stamps }).await
    }

    /// Sends a payload to the store and waits for the response to it.
    ///
    /// # Errors
    /// Any [`Error`] of a request that is not about the response's payload.
    pub async fn ask(&self, ask: Ask) -> Result<Response, Error> {
        let (answer, response) = oneshot::channel();
        let command = driver::Command::Ask { ask, answer };
        self.commands.send(command).await.map_err(|_| self.why_closed())?;
        response.await.map_err(|_| self.why_closed())?
    }

    /// Says goodbye to the broker, which then keeps nothing of this session. Unanswered requests fail.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.goodbyes.send(done).await.is_ok() {
            let _ = closed.await;
        }
    }
}

/// A watch that runs in the session's background; one that is dropped ends by itself, some time later.
#[derive(Debug)]
pub struct Watcher {
    id: u64,
    events: mpsc::Receiver<Result<WatchEvent, Error>>,
    commands: mpsc::Sender<driver::Command>,
}

/// How many events may wait for who watches; behind that the connection is no longer read.
const WATCH_EVENTS_MAX: usize = 1024;

impl Watcher {
    /// The next event, or why the watch has ended. May be dropped at any time.
    ///
    /// # Errors
    /// Any [`Error`] that ended the watch.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        self.events.recv().await.unwrap_or(Err(Error::Closed))
    }

    /// Ends the watch, at the store too.
    pub async fn stop(mut self) {
        let (done, stopped) = oneshot::channel();
        let stop = async {
            if self.commands.send(driver::Command::Unwatch { id: self.id, done }).await.is_ok() {
                let _ = stopped.await;
            }
        };
        // While nobody takes events the connection is not read, and the answer would not come.
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

/// What a response says; a refusal is an error.
///
/// # Errors
/// [`Error::Refused`], [`Error::MalformedReply`].
pub fn interpret(request: &Request, response: Response) -> Result<(Reply, Option<Timestamp>), Error> {
    match Reply::decode(&response.payload) {
        Ok(Reply::Error(refusal)) => Err(Error::Refused(refusal)),
        Ok(reply) => Ok((reply, response.version)),
        Err(error) => {
            let outcome = Access::of(request.verb().as_bytes()).outcome_when_unanswered();
            Err(Error::MalformedReply { cause: error.to_string(), outcome })
        }
    }
}

/// A reply that is none to this request.
#[must_use]
pub fn unexpected(request: &Request, reply: &Reply) -> Error {
    let what = match reply {
        Reply::Done => "+OK",
        Reply::Value(_) => "a value",
        Reply::Count(_) => "a count",
        Reply::NotApplied => "-1",
        Reply::Absent => "nothing",
        Reply::Keys { .. } => "a page of keys",
        Reply::Error(refusal) => return Error::Refused(refusal.clone()),
    };
    let outcome = Access::of(request.verb().as_bytes()).outcome_when_unanswered();
    Error::MalformedReply { cause: format!("{what} is no answer to {}", request.verb()), outcome }
}
