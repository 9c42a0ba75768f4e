//! Handle of a service connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch as observe};
use tokio::task::JoinHandle;

use super::driver::{Command, Driver};
use super::node::ServiceNode;
use super::session::Config;
use crate::client::error::Error;
use crate::client::settings::{SessionSettings, Settings};
use crate::clock;

/// The part of the time for closing in which PUBACKs are awaited.
const PUBACKS_PART: f64 = 0.9;

/// Settings of a service connection.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The connection. Its `session` is replaced, its limits of requests and its retries have no effect, and
    /// `request_timeout` is the time limit of the SUBACKs.
    pub client: Settings,
    /// The topic filters of the service, subscribed to with QoS 1.
    pub filters: Vec<String>,
    /// How long the broker stores the session while there is no connection, in whole seconds.
    pub session_expiry: Duration,
    /// The Receive Maximum for the broker, at least 1: the most messages that it sends without a PUBACK.
    pub receive_max: u16,
}

/// An MQTT session of a service with any MQTT 5 broker. It reconnects for ever, with [`Backoff`](crate::client::Backoff). Dropping
/// it closes the connection without ending the broker's session.
#[derive(Debug)]
pub struct ServiceConnection {
    commands: mpsc::Sender<Command>,
    ended: observe::Receiver<Option<Error>>,
    /// None: it ends by itself.
    task: Option<JoinHandle<()>>,
}

impl ServiceConnection {
    /// Connects, with a new session, and subscribes.
    ///
    /// # Errors
    /// The first attempt has failed, or the broker did not grant a subscription with QoS 1.
    pub async fn start(settings: ServiceSettings, node: Arc<impl ServiceNode>) -> Result<Self, Error> {
        let ServiceSettings { client, filters, session_expiry, receive_max } = settings;
        let receive_max = receive_max.max(1);
        let config = Config {
            target: client.target.to_string(),
            filters,
            receive_max,
            answer_timeout: client.request_timeout,
        };
        let session = SessionSettings { is_clean: true, expiry: session_expiry, receive_max };
        let (commands, receiver) = mpsc::channel(1);
        let (ended_sender, ended) = observe::channel(None);
        let (start_sender, started) = oneshot::channel();
        let driver =
            Driver::new(Settings { session, ..client }, config, node, receiver, start_sender, ended_sender);
        let connection = Self { commands, ended, task: Some(tokio::spawn(driver.run())) };
        started.await.unwrap_or(Err(Error::Closed))?;
        Ok(connection)
    }

    /// Unsubscribes, hands over the messages that the broker still has, and acknowledges them. Publishing continues. Returns
    /// whether that was possible in this time, through losses of the connection.
    pub async fn unsubscribe(&mut self, within: Duration) -> bool {
        let unsubscribe = async {
            let (done, is_done) = oneshot::channel();
            self.commands.send(Command::Unsubscribe(done)).await.is_ok() && is_done.await.is_ok()
        };
        tokio::time::timeout(within, unsubscribe).await.unwrap_or(false)
    }

    /// Ignores further messages, publishes what the node still has, waits for the PUBACKs, at most `within`, and disconnects, which
    /// ends the broker's session. Returns whether every message is acknowledged. Call [`ServiceConnection::unsubscribe`] first, so
    /// that no request is lost.
    ///
    /// Without a connection it does not wait for one if there is nothing to publish. Dropping the future does not stop the end of
    /// the connection.
    pub async fn close(mut self, within: Duration) -> bool {
        let now = clock::monotonic();
        let (done, is_drained) = oneshot::channel();
        // The rest of the time is for the DISCONNECT, for a caller that waits no longer than `within` itself.
        let deadline = now.checked_add(within.mul_f64(PUBACKS_PART)).unwrap_or(now);
        if self.commands.send(Command::Close { deadline, done }).await.is_err() {
            return false;
        }
        // It ends by itself from now on.
        drop(self.task.take());
        is_drained.await.unwrap_or(false)
    }

    /// Returns the error that has ended the connection for good: another client has connected with the client id (session
    /// takeover). Other errors are reported to the node, and do not end it. Cancel safe.
    pub async fn ended(&mut self) -> Error {
        match self.ended.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            _ => Error::Closed,
        }
    }
}

impl Drop for ServiceConnection {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
