//! A subscription of the owner's own, as its owner sees it.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::driver::Command;
use super::{Client, Error};
use crate::protocol::Message;
use crate::protocol::message::Qos;

/// How many messages may wait for who listens; behind that the connection is no longer read.
const HEARD_MAX: usize = 1024;

/// What comes of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Message {
        /// The message.
        message: Message,
        /// When it came.
        received: Instant,
        /// The same on the wall clock, in milliseconds since the Unix epoch.
        received_ms: u64,
    },
    /// The connection is lost; another one is on its way.
    Lost {
        /// Wall clock, milliseconds: until then it was surely there.
        since_ms: u64,
        /// Why.
        cause: String,
    },
    /// The subscription is in force again: what came between the two times was not heard.
    Gap {
        /// Wall clock, milliseconds: the last time at which it was surely in force.
        since_ms: u64,
        /// Wall clock, milliseconds: from here on it is in force again.
        until_ms: u64,
    },
}

/// A subscription that runs in the session's background. Dropping it ends it, and the broker learns of that as soon as
/// the session has anything to do.
#[derive(Debug)]
pub struct Subscription {
    heard: mpsc::Receiver<Result<Heard, Error>>,
    granted: Qos,
}

impl Client {
    /// Subscribes to topic filters, which should not overlap: a broker may send a message once for each that matches.
    /// Resolves when all are in force; responses to the session's own requests never come here.
    ///
    /// # Errors
    /// [`Error::SubscribeRefused`] names the filter that the broker refuses; whatever ends the session.
    pub async fn subscribe(&self, filters: Vec<String>) -> Result<Subscription, Error> {
        let (sender, heard) = mpsc::channel(HEARD_MAX);
        let (begun, beginning) = oneshot::channel();
        let command = Command::Subscribe { filters, heard: sender, begun };
        self.commands.send(command).await.map_err(|_| self.why_closed())?;
        let granted = beginning.await.map_err(|_| self.why_closed())??;
        Ok(Subscription { heard, granted })
    }
}

impl Subscription {
    /// The lowest QoS that the broker has granted when it came into force; QoS 1 is what was asked for.
    #[must_use]
    pub fn granted(&self) -> Qos {
        self.granted
    }

    /// What comes next, or why there is no more. May be dropped at any time.
    ///
    /// # Errors
    /// Any [`Error`] that ended the subscription.
    pub async fn next(&mut self) -> Result<Heard, Error> {
        self.heard.recv().await.unwrap_or(Err(Error::Closed))
    }
}
