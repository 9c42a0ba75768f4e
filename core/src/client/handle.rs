//! The client: a handle to an MQTT session whose methods are the store's requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch as observe};

use super::bulk::Bulk;
use super::connection_info::ConnectionInfo;
use super::connection_status::ConnectionStatus;
use super::driver::{self, CloseRequest, Command};
use super::error::{Error, Outcome};
use super::publication::Publication;
use super::request::{RawRequest, RequestProperties, Response, decode_response, unexpected_reply};
use super::results::{DeleteOutcome, Page, SetOptions, SetOutcome, VersionedValue};
use super::settings::Settings;
use super::subscription::Subscription;
use super::subscriptions::SubscriptionEvent;
use super::watch::{Watch, WatchEvent};
use super::watcher::{PrefixKeys, Watcher};
use super::watches::DiscoverySender;
use crate::protocol::key::KeyError;
use crate::protocol::{Key, KeyPrefix, Reply, Request, Timestamp, Value};

/// A client of a store.
///
/// Clones share one MQTT session, and their requests are sent without waiting for each other. The session ends with
/// [`Client::close`], or when the last clone and the last [`Watcher`] are dropped.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use std::sync::Arc;
///
/// use mqkv::client::{Client, SetOptions, Settings, Target};
/// use mqkv::protocol::Key;
/// use mqkv::server;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// let settings = server::Settings::default();
/// let store = Arc::new(server::StoreServer::start(settings, server::StoreSettings::default()).await?);
/// // With a broker on the network: Target::Tcp { host: "localhost".to_owned(), port: 1883 }
/// let target = Target::Pipe(Arc::new(move || store.pipe()));
/// let client = Client::connect(Settings::new(target, "example".to_owned())).await?;
///
/// let key = Key::new("line1/temp")?;
/// client.set(&key, &"21.5".into(), SetOptions::default()).await?;
/// let found = client.get(&key).await?.ok_or("the key was deleted")?;
/// assert_eq!(&found.value[..], b"21.5");
/// client.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    commands: mpsc::Sender<Command>,
    close_requests: mpsc::Sender<CloseRequest>,
    status: observe::Receiver<ConnectionStatus>,
    info: Arc<ConnectionInfo>,
    events_max: usize,
    request_timeout: Duration,
}

impl Client {
    /// Connects, and returns when the broker has accepted the client.
    ///
    /// # Errors
    /// The [`Error`] of the connection. Only [`Settings::connect_retries`] makes it try again.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let client = Self::lazy(settings)?;
        client.accepted().await?;
        Ok(client)
    }

    /// Returns a client that connects with its first request. This saves a round trip: small reads, and the subscription to their
    /// responses, are sent together with CONNECT. If the connection fails, its error is that of all requests.
    ///
    /// It must be called in a tokio runtime.
    ///
    /// # Errors
    /// None at present: those of the connection are returned by the requests and by [`Client::accepted`].
    pub fn lazy(settings: Settings) -> Result<Self, Error> {
        let (events_max, request_timeout) = (settings.events_max.max(1), settings.request_timeout);
        let driver::Handles { commands, close_requests, status, info } = driver::start(settings)?;
        Ok(Self { commands, close_requests, status, info, events_max, request_timeout })
    }

    /// Connects if no request has done so, and waits until the broker has accepted the client for the first time.
    ///
    /// # Errors
    /// The [`Error`] of the connection.
    pub async fn accepted(&self) -> Result<(), Error> {
        if self.info.is_accepted() {
            return Ok(());
        }
        self.commands.send(Command::Connect).await.map_err(|_| self.end_error())?;
        let mut status = self.status.clone();
        let is_done = |status: &ConnectionStatus| !matches!(status, ConnectionStatus::Connecting);
        match status.wait_for(is_done).await.as_deref() {
            Ok(ConnectionStatus::Ended(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            // The session was closed meanwhile.
            Err(_) => Err(Error::Closed),
        }
    }

    #[must_use]
    pub fn connection_info(&self) -> &ConnectionInfo {
        &self.info
    }

    /// Returns the status of the connection, as a channel that reports its changes.
    #[must_use]
    pub fn connection_status(&self) -> observe::Receiver<ConnectionStatus> {
        self.status.clone()
    }

    /// Returns whether the session has ended: every request fails.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(*self.status.borrow(), ConnectionStatus::Ended(_))
    }

    fn end_error(&self) -> Error {
        self.status.borrow().end_error()
    }

    /// Gets the value of a key; None if the key does not exist.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn get(&self, key: &Key) -> Result<Option<VersionedValue>, Error> {
        VersionedValue::decode(self.send(VersionedValue::request(key)).await?)
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn set(&self, key: &Key, value: &Value, options: SetOptions) -> Result<SetOutcome, Error> {
        let condition = options.condition;
        SetOutcome::decode(self.send(options.request(key, value)).await?, condition)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn del(&self, key: &Key, fence: Option<Timestamp>) -> Result<DeleteOutcome, Error> {
        DeleteOutcome::decode(self.send(DeleteOutcome::request(key, None, fence)).await?, false)
    }

    /// Deletes a key if it has this value.
    ///
    /// # Errors
    /// Any [`Error`] of a request.
    pub async fn vdel(
        &self,
        key: &Key,
        value: &Value,
        fence: Option<Timestamp>,
    ) -> Result<DeleteOutcome, Error> {
        DeleteOutcome::decode(self.send(DeleteOutcome::request(key, Some(value), fence)).await?, true)
    }

    /// Lists a page of the keys that match a pattern. `token` is the token of the previous page (protocol §7).
    ///
    /// # Errors
    /// Any [`Error`] of a request; [`crate::protocol::ErrorReply::UnknownCommand`] if the broker has no SCAN.
    pub async fn scan(&self, pattern: Bytes, token: Option<Bytes>) -> Result<Page, Error> {
        if pattern.is_empty() {
            return Err(Error::EmptyPattern);
        }
        let request = Request::Scan { pattern, token };
        let properties = RequestProperties { details: true, ..RequestProperties::default() };
        let response = self.send(RawRequest::new(&request, properties)).await?;
        let is_limited = response.is_limited;
        match decode_response(request.verb(), response)? {
            (Reply::Keys { keys, token }, _) => {
                let malformed = |error: KeyError| Error::MalformedReply {
                    cause: error.to_string(),
                    outcome: Outcome::Unchanged,
                };
                let keys = keys.into_iter().map(Key::new).collect::<Result<_, _>>().map_err(malformed)?;
                Ok(Page { keys, token, is_limited })
            }
            (other, _) => Err(unexpected_reply(request.verb(), &other)),
        }
    }

    /// Sends a request with the given timestamp instead of the session's, and returns the reply with its version,
    /// however far ahead that is. It measures the difference of clocks that are too far apart for other requests.
    ///
    /// # Errors
    /// Any [`Error`] of a request except [`Error::ClockSkew`].
    pub async fn request_at(
        &self,
        request: &Request,
        timestamp: Timestamp,
    ) -> Result<(Reply, Option<Timestamp>), Error> {
        let properties = RequestProperties { timestamp: Some(timestamp), ..RequestProperties::default() };
        self.request(request, properties).await
    }

    async fn request(
        &self,
        request: &Request,
        properties: RequestProperties,
    ) -> Result<(Reply, Option<Timestamp>), Error> {
        decode_response(request.verb(), self.send(RawRequest::new(request, properties)).await?)
    }

    /// Sends an encoded request and returns the response without decoding it.
    ///
    /// # Errors
    /// Any [`Error`] of a request except those about the response's payload.
    pub async fn send(&self, request: RawRequest) -> Result<Response, Error> {
        let (answer, response) = oneshot::channel();
        let command = Command::Send { request, answer };
        self.commands.send(command).await.map_err(|_| self.end_error())?;
        response.await.map_err(|_| self.end_error())?
    }

    /// Returns [`Settings::request_timeout`].
    #[must_use]
    pub fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Returns a handle for many requests in order. It costs less than [`Client::send`] for each.
    #[must_use]
    pub fn bulk(&self) -> Bulk {
        Bulk::new(self.commands.clone(), self.status.clone())
    }

    /// Publishes a message with QoS 1, and returns when it is queued.
    ///
    /// It is sent once, after all requests and messages before it. If the connection is lost before the broker has acknowledged
    /// it, it is not sent again. It waits while [`Settings::inflight_max`] requests and messages are pending, or as many as the
    /// broker allows are unacknowledged.
    ///
    /// # Errors
    /// The error that ended the session. Later errors are those of [`Publication::acknowledged`].
    pub async fn publish(&self, topic: String, payload: Bytes) -> Result<Publication, Error> {
        let (acknowledgement, publication) = Publication::new();
        let command = Command::Publish { topic, payload, acknowledgement };
        self.commands.send(command).await.map_err(|_| self.end_error())?;
        Ok(publication)
    }

    /// Watches keys until [`Watcher::stop`] or the end of the session.
    ///
    /// # Errors
    /// The error that ended the session. Later errors are the last event of the watch.
    pub async fn watch(&self, keys: impl IntoIterator<Item = Key>) -> Result<Watcher, Error> {
        self.start_watch(Watch::new(keys), None).await
    }

    /// Watches the keys with a prefix, as [`Client::watch`] does. The caller lists them when [`PrefixKeys::discovered`] asks for it.
    /// A store of mqkv notifies of new keys; with others, they are found by the next listing.
    ///
    /// # Errors
    /// As [`Client::watch`].
    pub async fn watch_prefix(
        &self,
        prefix: KeyPrefix,
        keys_max: usize,
    ) -> Result<(Watcher, PrefixKeys), Error> {
        let (sender, discovery) = observe::channel(None);
        let watcher = self.start_watch(Watch::of_prefix(prefix, keys_max), Some(sender)).await?;
        let keys = PrefixKeys::new(&watcher, discovery);
        Ok((watcher, keys))
    }

    async fn start_watch(&self, watch: Watch, discovery: Option<DiscoverySender>) -> Result<Watcher, Error> {
        let (sender, events) = mpsc::channel::<Result<WatchEvent, Error>>(self.events_max);
        let (confirmation, id) = oneshot::channel();
        let command = Command::Watch { watch, channels: (sender, discovery), confirmation };
        self.commands.send(command).await.map_err(|_| self.end_error())?;
        let id = id.await.map_err(|_| self.end_error())?;
        Ok(Watcher::new(id, events, self.commands.clone()))
    }

    /// Subscribes to topic filters, and returns when all are in force. Responses to the session's own requests are never
    /// reported. The filters should not overlap: a broker may send a message once for each filter that matches.
    ///
    /// # Errors
    /// [`Error::SubscribeRefused`] with the filter that the broker refused, or the error that ended the session.
    pub async fn subscribe(&self, filters: Vec<String>) -> Result<Subscription, Error> {
        let (sender, events) = mpsc::channel::<Result<SubscriptionEvent, Error>>(self.events_max);
        let (confirmation, confirmed) = oneshot::channel();
        let command = Command::Subscribe { filters, events: sender, confirmation };
        self.commands.send(command).await.map_err(|_| self.end_error())?;
        let granted_qos = confirmed.await.map_err(|_| self.end_error())??;
        Ok(Subscription::new(events, granted_qos))
    }

    /// Disconnects; the broker then deletes the session. Pending requests fail.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.close_requests.send(done).await.is_ok() {
            let _ = closed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::client::Target;

    /// Returns a client that is connected to the other end of the pipe.
    async fn connected(adjust: impl FnOnce(&mut Settings)) -> (Client, DuplexStream) {
        const CONNACK: &[u8] = &[0x20, 3, 0, 0, 0];
        let (ours, mut broker) = tokio::io::duplex(1024);
        let pipe = Mutex::new(Some(ours));
        let target = Target::Pipe(Arc::new(move || pipe.lock().unwrap().take().unwrap()));
        let mut settings = Settings::new(target, "me".to_owned());
        adjust(&mut settings);
        broker.write_all(CONNACK).await.unwrap();
        (Client::connect(settings).await.unwrap(), broker)
    }

    #[tokio::test]
    async fn closing_does_not_wait_for_ever_for_a_broker_that_does_not_read() {
        let (client, mut broker) =
            connected(|settings| settings.request_timeout = Duration::from_millis(10)).await;
        let mut publication = client.publish("topic".to_owned(), vec![0; 4096].into()).await.unwrap();
        // The CONNECT, and the first byte of the message.
        let mut header = [0; 2];
        broker.read_exact(&mut header).await.unwrap();
        broker.read_exact(&mut vec![0; usize::from(header[1]) + 1]).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), client.close()).await.unwrap();
        let error = publication.acknowledged().await.unwrap_err();
        assert!(matches!(error, Error::Lost { outcome: Outcome::Unknown, .. }), "{error:?}");
    }

    #[tokio::test]
    async fn closing_after_a_keep_alive_timeout_reports_what_is_known_of_the_outcome() {
        let (client, mut broker) = connected(|settings| settings.keep_alive = Duration::from_secs(1)).await;
        let mut publication = client.publish("topic".to_owned(), "x".into()).await.unwrap();
        let mut header = [0; 2];
        broker.read_exact(&mut header).await.unwrap();
        broker.read_exact(&mut vec![0; usize::from(header[1]) + 1]).await.unwrap();
        // It blocks the session's task too, so that this finds the timeout together with the close request.
        std::thread::sleep(Duration::from_millis(1600));
        client.close().await;
        let error = publication.acknowledged().await.unwrap_err();
        assert!(matches!(error, Error::Lost { outcome: Outcome::Unknown, .. }), "{error:?}");
    }
}
