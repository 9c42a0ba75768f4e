//! The uplink of a leaf: a task that keeps a connection with the root and passes frames both ways.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch as observe};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{
    self, Backoff, Client, ConnectionProbe, ConnectionStatus, ConnectionStep, Publication, ReasonCode,
    Reconnect, Subscription, SubscriptionEvent,
};
use crate::clock;
use crate::exchange::names::Name;
use crate::protocol::exchange::topic;
use crate::random;
use crate::server::event::exchange::UplinkEvent;

/// The longest delay before the second attempt to connect. It doubles with each attempt.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// The most frames that are read ahead of the node. A frame can be as large as a packet.
const FRAMES_AHEAD_MAX: usize = 8;
/// The most published frames without a PUBACK. More than the window of the exchange, which limits them first.
const UNACKNOWLEDGED_MAX: usize = 32;
/// The most texts of failures that are remembered, so as not to be reported again.
const FAILURES_MAX: usize = 16;

/// The leaf at the end of an uplink.
///
/// Contract: the uplink's task makes all calls, one at a time. After [`UplinkNode::handle_connected`] it offers the received
/// frames in order and polls for frames to send, until the link ends, which is one call of [`UplinkNode::handle_lost`]. A node
/// that has something new (a frame to send, the end of the link, room for a frame) signals [`UplinkNode::changed`]. Every call
/// returns quickly.
pub trait UplinkNode: Send + Sync + 'static {
    /// A connection with the root is established, and subscribed to the leaf's topic. The root accepts frames of this many
    /// bytes.
    fn handle_connected(&self, frame_bytes_max: usize);

    /// Handles a frame of the root.
    fn handle_frame(&self, payload: &Bytes) -> FrameOutcome;

    /// The connection is lost, or closed after [`UplinkNode::has_ended`].
    fn handle_lost(&self);

    /// Returns the next frame to send. It is sent once; if the connection is lost, it may not have arrived.
    fn poll_frame(&self) -> Option<Bytes>;

    /// Returns whether the node has ended the link. The uplink then closes the connection, and makes another one.
    fn has_ended(&self) -> bool;

    /// Signaled with `notify_one`, which is not lost while the task is busy.
    fn changed(&self) -> &Notify;

    /// Signaled with `notify_waiters` to end the delay before the next attempt to connect: an operator asks for it.
    fn retry(&self) -> &Notify;

    /// Handles that an attempt to connect has failed or a connection was lost, also if that is not reported again.
    fn handle_unreachable(&self, cause: String);

    fn report(&self, event: UplinkEvent);
}

/// The outcome of [`UplinkNode::handle_frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOutcome {
    Handled,
    /// The node has no room now. The frame is offered again after each [`UplinkNode::changed`]. Meanwhile the connection is not
    /// read further than a few frames.
    Busy,
}

/// Settings of an uplink.
#[derive(Clone, Debug)]
pub struct UplinkSettings {
    pub exchange: Name,
    pub leaf: Name,
    /// The random number of this process. It makes the client id unique.
    pub run: u64,
    /// The connection. Client id, reconnect and limits are replaced.
    pub client: client::Settings,
}

/// The running uplink of a leaf. Dropping it closes the connection; the node is then not called any more.
#[derive(Debug)]
pub struct Uplink {
    task: JoinHandle<()>,
}

impl Uplink {
    /// Starts the task in the current runtime. It connects, for ever, until this is dropped.
    #[must_use]
    pub fn start(settings: UplinkSettings, node: Arc<impl UplinkNode>) -> Self {
        Self::start_with(settings, node, Backoff::new(DELAY_MIN, DELAY_MAX))
    }

    fn start_with(settings: UplinkSettings, node: Arc<impl UplinkNode>, backoff: Backoff) -> Self {
        let UplinkSettings { exchange, leaf, run, client } = settings;
        let client = client::Settings {
            client_id: format!("mqkv-exchange-{leaf}-{run:016x}"),
            reconnect: Reconnect::Never,
            connect_retries: 0,
            // A smaller window would deadlock: PUBACKs are not read while the node has no room for frames.
            inflight_max: UNACKNOWLEDGED_MAX.saturating_add(1),
            events_max: FRAMES_AHEAD_MAX,
            ..client
        };
        let task = Task {
            up: topic::up(exchange.as_str(), leaf.as_str()),
            down: topic::down(exchange.as_str(), leaf.as_str()),
            exchange,
            client,
            node,
            backoff,
            is_established: false,
            reports: Reports::default(),
        };
        Self { task: tokio::spawn(task.run()) }
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reason why a connection could not be used, or not any more.
#[derive(Debug)]
enum LinkError {
    Client(client::Error),
    /// The root refused a frame.
    FrameRefused {
        topic: String,
        reason: ReasonCode,
    },
    /// The broker is no root of the exchange: a message to its topic had no recipient.
    NoRoot {
        exchange: Name,
        target: String,
    },
}

impl From<client::Error> for LinkError {
    fn from(error: client::Error) -> Self {
        Self::Client(error)
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(out),
            Self::FrameRefused { topic, reason } => {
                write!(out, "the broker refused the message to {topic}: {reason}")
            }
            Self::NoRoot { exchange, target } => {
                write!(out, "no root of the exchange {exchange} at {target}: no subscriber to its topic")
            }
        }
    }
}

/// What was reported, so that it is not reported again.
#[derive(Debug, Default)]
struct Reports {
    is_connected: bool,
    failures: BTreeSet<String>,
}

impl Reports {
    fn handle_connected(&mut self) -> Option<UplinkEvent> {
        self.failures.clear();
        (!std::mem::replace(&mut self.is_connected, true)).then_some(UplinkEvent::Connected)
    }

    fn handle_error(&mut self, error: &LinkError, is_established: bool) -> Option<UplinkEvent> {
        let text = error.to_string();
        if is_established && matches!(error, LinkError::Client(client::Error::Lost { .. })) {
            self.is_connected = false;
            return Some(UplinkEvent::Lost { cause: text });
        }
        if self.failures.len() >= FAILURES_MAX {
            self.failures.clear();
        }
        let is_new = self.failures.insert(text.clone());
        self.is_connected &= !is_new;
        is_new.then_some(UplinkEvent::Failed { error: text })
    }
}

struct Task<N> {
    exchange: Name,
    up: String,
    down: String,
    client: client::Settings,
    node: Arc<N>,
    backoff: Backoff,
    /// Whether the root has accepted a frame of the current connection.
    is_established: bool,
    reports: Reports,
}

impl<N: UplinkNode> Task<N> {
    async fn run(mut self) {
        loop {
            self.is_established = false;
            if let Err(error) = self.run_connection().await {
                self.node.handle_unreachable(error.to_string());
                let event = self.reports.handle_error(&error, self.is_established);
                self.report(event);
            }
            tokio::select! {
                () = sleep(self.backoff.handle_lost(clock::monotonic(), random::u64())) => {}
                () = self.node.retry().notified() => {}
            }
        }
    }

    fn report(&self, event: Option<UplinkEvent>) {
        if let Some(event) = event {
            self.node.report(event);
        }
    }

    /// Connects, and passes frames until the node ends the link.
    async fn run_connection(&mut self) -> Result<(), LinkError> {
        self.client.reload_tls().await?;
        let (probe, mut steps) = ConnectionProbe::new();
        let client = Client::connect(client::Settings { probe, ..self.client.clone() }).await?;
        // The broker checks the permission here; the root sends its frames without regard to subscriptions.
        let mut subscription = client.subscribe(vec![self.down.clone()]).await?;
        self.backoff.handle_connected(clock::monotonic());
        let packet_bytes_max =
            std::iter::from_fn(|| steps.try_recv().ok()).find_map(|step| match step.step {
                ConnectionStep::Accepted(properties) => properties.packet_bytes_max,
                _ => None,
            });
        self.node.handle_connected(self.frame_bytes_max(packet_bytes_max));
        let result = self.pass_frames(&client, &mut subscription).await;
        self.node.handle_lost();
        client.close().await;
        result
    }

    /// Returns the most bytes of a frame in a packet of this size.
    fn frame_bytes_max(&self, packet_bytes_max: Option<u32>) -> usize {
        /// The parts of a PUBLISH beside topic and payload: header, length of the topic, packet id, length of the properties.
        const OVERHEAD_BYTES: usize = 5 + 2 + 2 + 1;
        let packet_bytes_max = packet_bytes_max.and_then(|bytes| usize::try_from(bytes).ok());
        packet_bytes_max
            .map_or(usize::MAX, |bytes| bytes.saturating_sub(self.up.len()).saturating_sub(OVERHEAD_BYTES))
    }

    async fn pass_frames(
        &mut self,
        client: &Client,
        subscription: &mut Subscription,
    ) -> Result<(), LinkError> {
        let mut status = client.connection_status();
        let mut unacknowledged = VecDeque::new();
        let mut unhandled: Option<Bytes> = None;
        while !self.node.has_ended() {
            unhandled = unhandled.filter(|payload| self.node.handle_frame(payload) == FrameOutcome::Busy);
            while unacknowledged.len() < UNACKNOWLEDGED_MAX
                && let Some(payload) = self.node.poll_frame()
            {
                unacknowledged.push_back(client.publish(self.up.clone(), payload).await?);
            }
            tokio::select! {
                () = self.node.changed().notified() => {}
                // Detects a loss also while the node has no room for frames.
                error = ended(&mut status) => return Err(error.into()),
                event = subscription.next(), if unhandled.is_none() => unhandled = payload(event?),
                acknowledged = acknowledged(&mut unacknowledged), if !unacknowledged.is_empty() => {
                    self.handle_puback(acknowledged)?;
                }
            }
        }
        Ok(())
    }

    fn handle_puback(&mut self, acknowledged: Result<ReasonCode, client::Error>) -> Result<(), LinkError> {
        match acknowledged {
            Ok(reason) if reason.code == ReasonCode::NO_MATCHING_SUBSCRIBERS => {
                let (exchange, target) = (self.exchange.clone(), self.client.target.to_string());
                Err(LinkError::NoRoot { exchange, target })
            }
            Ok(_) => {
                self.is_established = true;
                let event = self.reports.handle_connected();
                self.report(event);
                Ok(())
            }
            Err(client::Error::PublishRefused { reason }) => {
                Err(LinkError::FrameRefused { topic: self.up.clone(), reason })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for the PUBACK of the first of these; a broker acknowledges in the order of the messages. Cancel safe.
async fn acknowledged(unacknowledged: &mut VecDeque<Publication>) -> Result<ReasonCode, client::Error> {
    let Some(first) = unacknowledged.front_mut() else { return std::future::pending().await };
    let result = first.acknowledged().await;
    unacknowledged.pop_front();
    result
}

/// Returns the error that ends the connection. Cancel safe.
async fn ended(status: &mut observe::Receiver<ConnectionStatus>) -> client::Error {
    match status.wait_for(|status| matches!(status, ConnectionStatus::Ended(_))).await.as_deref() {
        Ok(ConnectionStatus::Ended(error)) => error.clone(),
        _ => client::Error::Closed,
    }
}

/// Returns the payload of a message. Losses end the subscription, because the client does not reconnect.
fn payload(event: SubscriptionEvent) -> Option<Bytes> {
    match event {
        SubscriptionEvent::Message { message, .. } => Some(message.payload),
        SubscriptionEvent::Lost { .. } | SubscriptionEvent::Gap { .. } => None,
    }
}

#[cfg(test)]
mod tests;
