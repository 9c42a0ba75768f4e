//! The task of a service connection: connects the session with the socket, the clock and the service.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch as observe};
use tokio::time::{sleep_until, timeout_at};

use super::node::{ServiceConnected, ServiceNode};
use super::session::{Config, Event, Session};
use crate::client::authentication::TokenWatcher;
use crate::client::backoff::Backoff;
use crate::client::connection_state::{ConnectionLoss, ConnectionState, Progress};
use crate::client::error::{Error, LossCause, Outcome, ReasonCode};
use crate::client::packet::{ConnectionLimits, MalformedMessage};
use crate::client::settings::Settings;
use crate::client::trace::{self, TraceEvent};
use crate::client::transport::{Connection, Received};
use crate::clock;
use crate::net::secret::Secret;
use crate::random;

/// A command from the handle to the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Answered when nothing is subscribed to and all messages are handled.
    Unsubscribe(oneshot::Sender<()>),
    /// Answered at the end of the connection, with whether every message is acknowledged.
    Close { deadline: Instant, done: oneshot::Sender<bool> },
}

/// A close request that waits for PUBACKs.
struct Closing {
    deadline: Instant,
    done: oneshot::Sender<bool>,
}

pub(super) struct Driver<N> {
    settings: Settings,
    session: Session,
    node: Arc<N>,
    connection: ConnectionState,
    /// The properties of the current connection, or the last one.
    accepted: ServiceConnected,
    token: Option<TokenWatcher>,
    backoff: Backoff,
    commands: mpsc::Receiver<Command>,
    /// Waits for the first connection.
    start: Option<oneshot::Sender<Result<(), Error>>>,
    unsubscribing: Option<oneshot::Sender<()>>,
    closing: Option<Closing>,
    ended: observe::Sender<Option<Error>>,
    /// Whether the broker's session was begun by a connection that was not used.
    is_new_session: bool,
    /// Whether a packet of this connection could not be read.
    is_unreadable: bool,
    /// Connections in a row that were lost for that.
    unreadable_losses: u8,
}

/// The number of connections in a row with a packet that cannot be read after which the next one starts a new session: the
/// broker may send this packet again as long as it has the session.
const UNREADABLE_LOSSES_MAX: u8 = 2;

/// The end of [`Driver::run_until_lost`] other than by an error: whether every message is acknowledged.
type IsDrained = bool;

impl<N: ServiceNode> Driver<N> {
    pub(super) fn new(
        settings: Settings,
        config: Config,
        node: Arc<N>,
        commands: mpsc::Receiver<Command>,
        start: oneshot::Sender<Result<(), Error>>,
        ended: observe::Sender<Option<Error>>,
    ) -> Self {
        Self {
            token: TokenWatcher::new(
                &settings.authentication,
                &settings.secret_reader,
                settings.token_check_interval,
            ),
            connection: ConnectionState::connecting(settings.clone()),
            settings,
            session: Session::new(config),
            node,
            accepted: ServiceConnected { is_resumed: false, receive_max: 0, packet_bytes_max: None },
            backoff: Backoff::default(),
            commands,
            start: Some(start),
            unsubscribing: None,
            closing: None,
            ended,
            is_new_session: false,
            is_unreadable: false,
            unreadable_losses: 0,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.run_until_lost().await {
                Ok(is_drained) => return self.close(is_drained).await,
                Err(error) => {
                    if self.handle_lost(error).is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn run_until_lost(&mut self) -> Result<IsDrained, Error> {
        // The timer is only moved to an earlier time: firing early is harmless, and moving it with every packet is not cheap.
        let mut armed: Option<Instant> = None;
        let timer = sleep_until(clock::monotonic().into());
        tokio::pin!(timer);
        loop {
            let is_drained = self.serve()?;
            let deadline = self.closing.as_ref().map(|closing| closing.deadline);
            if let Some(deadline) = deadline
                && (is_drained || deadline <= clock::monotonic())
            {
                return Ok(is_drained);
            }
            let due = self.session.poll_timeout().into_iter().chain(deadline).min();
            if let Some(due) = due.filter(|due| armed.is_none_or(|armed| *due < armed)) {
                timer.as_mut().reset(due.into());
                armed = Some(due);
            }
            tokio::select! {
                progress = self.connection.progress(self.session.wants_input()) => {
                    self.handle_progress(progress.map_err(|loss| attempt_error(&self.settings, loss))?);
                }
                () = self.node.changed().notified() => {}
                Some(command) = self.commands.recv() => self.handle_command(command),
                () = &mut timer, if armed.is_some() => armed = None,
                token = next_token(&mut self.token), if self.token.is_some() => {
                    self.trace(|| TraceEvent::NewToken);
                    self.session.authenticate(token, clock::monotonic());
                }
            }
        }
    }

    /// Handles all packets that have been read, and queues all that can be sent. Returns whether nothing is left to publish.
    fn serve(&mut self) -> Result<IsDrained, Error> {
        let now = clock::monotonic();
        self.session.handle_timeout(now)?;
        loop {
            let is_paused = self.handle_packets(now)?;
            let is_drained = self.queue_packets(now);
            // What was queued may have made room: in the node for messages, in the session for packets. Nothing else would
            // continue with those that have been read.
            let has_delivered = self.deliver();
            let goes_on = has_delivered || (is_paused && self.session.wants_input());
            if !goes_on {
                if is_paused {
                    self.session.handle_reading_paused(now);
                }
                return Ok(is_drained);
            }
        }
    }

    /// Handles the packets that have been read. Returns whether the session wants no more although there may be some.
    fn handle_packets(&mut self, now: Instant) -> Result<bool, Error> {
        self.deliver();
        while let ConnectionState::Connected(connection) = &mut self.connection {
            if !self.session.wants_input() {
                return Ok(true);
            }
            let received = connection.next_packet_or_malformed().map_err(|cause| {
                self.is_unreadable = matches!(cause, LossCause::Other(_));
                lost(&self.settings, cause)
            })?;
            match received {
                None => break,
                Some(Received::Packet(incoming)) => self.session.handle_incoming(incoming, now)?,
                Some(Received::Malformed(message)) => self.session.handle_malformed(message, now),
            }
            self.deliver();
        }
        Ok(false)
    }

    /// Queues the packets to send. Returns whether nothing is left to publish.
    fn queue_packets(&mut self, now: Instant) -> IsDrained {
        let ConnectionState::Connected(connection) = &mut self.connection else {
            return self.closing.is_some() && !self.has_message_to_publish();
        };
        // While the broker does not read, messages stay in the node.
        while connection.has_room() {
            if let Some(outgoing) = self.session.poll_outgoing(now) {
                // Only a SUBSCRIBE, UNSUBSCRIBE or AUTH can be too large. Its answer is then missing.
                let _ = connection.queue(outgoing);
            } else if let Some(publish) = self.session.poll_publish(now) {
                let queued =
                    connection.queue_message(publish.packet_id, publish.message, publish.is_duplicate);
                if let Err(error) = queued {
                    self.session.handle_too_large(error.packet_id, error.size, error.max);
                }
            } else if self.session.wants_message()
                && let Some((message, tag)) = self.node.poll_message()
            {
                self.session.publish(message, tag);
            } else {
                return self.session.wants_message() && self.session.is_idle();
            }
        }
        false
    }

    /// Returns whether a message must be published before the end of the session, without a connection.
    fn has_message_to_publish(&mut self) -> bool {
        // Into an empty session, a message may be added at any time.
        if self.session.is_idle()
            && let Some((message, tag)) = self.node.poll_message()
        {
            self.session.publish(message, tag);
        }
        !self.session.is_idle()
    }

    /// Passes events and messages to the node, as far as it has room. Returns whether there was a message.
    fn deliver(&mut self) -> bool {
        let mut has_delivered = false;
        loop {
            while let Some(event) = self.session.poll_event() {
                match event {
                    Event::Ready => {
                        self.node.handle_connected(&self.accepted);
                        // An error means that the caller has dropped its future.
                        let _ = self.start.take().map(|start| start.send(Ok(())));
                    }
                    Event::Malformed(MalformedMessage { topic, text, .. }) => {
                        self.node.handle_malformed(topic, text);
                    }
                    Event::Published { tag, result } => self.node.handle_published(tag, result),
                    Event::Unsubscribed => drop(self.unsubscribing.take().map(|done| done.send(()))),
                    Event::Authenticated { is_confirmed: true } => {}
                    Event::Authenticated { is_confirmed: false } => {
                        self.trace(|| TraceEvent::TokenUnanswered)
                    }
                }
            }
            if !self.session.has_message() || !self.node.has_room() {
                return has_delivered;
            }
            if let Some(message) = self.session.poll_message() {
                self.node.handle_message(message);
            }
            has_delivered = true;
        }
    }

    fn handle_progress(&mut self, progress: Progress) {
        match progress {
            Progress::Transferred => {}
            Progress::BackoffEnded => {
                self.connection = ConnectionState::connecting(self.settings.clone());
            }
            Progress::Accepted(connection, limits) => self.handle_accepted(connection, limits),
            // Not a step of these attempts.
            Progress::Opened(_) => {}
        }
    }

    fn handle_accepted(&mut self, mut connection: Connection, limits: ConnectionLimits) {
        let now = clock::monotonic();
        self.backoff.handle_connected(now);
        if std::mem::take(&mut self.settings.session.is_clean) {
            // Mosquitto 2.0.11 loses a session at its restart if the last CONNECT of it had Clean Start.
            self.is_new_session = true;
            self.connection = ConnectionState::connecting(self.settings.clone());
            return;
        }
        let is_resumed = !std::mem::take(&mut self.is_new_session) && connection.is_resumed();
        if let Some(token) = &mut self.token {
            token.handle_connected(connection.take_token());
        }
        self.accepted = ServiceConnected {
            is_resumed,
            receive_max: limits.receive_max,
            packet_bytes_max: connection.packet_bytes_max(),
        };
        self.session.handle_connected(limits, is_resumed, now);
        self.connection = ConnectionState::Connected(connection);
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Unsubscribe(done) => {
                self.unsubscribing = Some(done);
                self.session.leave();
            }
            Command::Close { deadline, done } => {
                self.closing = Some(Closing { deadline, done });
                self.session.close();
            }
        }
    }

    /// # Errors
    /// The connection has ended for good.
    fn handle_lost(&mut self, error: Error) -> Result<(), ()> {
        let now = clock::monotonic();
        self.prepare_session(&error);
        if let Some(token) = &mut self.token {
            token.handle_lost();
        }
        if let Some(start) = self.start.take() {
            self.trace(|| TraceEvent::Lost { cause: error.to_string(), again_in: None });
            let _ = start.send(Err(error));
            return Err(());
        }
        self.node.handle_lost(&error);
        // Two clients with one client id that both reconnect would disconnect each other for ever.
        if matches!(&error, Error::Lost { cause, .. } if cause.is_takeover()) {
            self.trace(|| TraceEvent::Lost { cause: error.to_string(), again_in: None });
            self.ended.send_replace(Some(error));
            return Err(());
        }
        let delay = self.backoff.handle_lost(now, random::u64());
        self.trace(|| TraceEvent::Lost { cause: error.to_string(), again_in: Some(delay) });
        self.connection = ConnectionState::Backoff(now.checked_add(delay).unwrap_or(now));
        Ok(())
    }

    /// Ends the session's connection, and avoids that the next one is lost for the same reason.
    fn prepare_session(&mut self, error: &Error) {
        let is_unreadable = std::mem::take(&mut self.is_unreadable);
        // Failed attempts in between do not count.
        if matches!(self.connection, ConnectionState::Connected(_)) {
            self.unreadable_losses = if is_unreadable { self.unreadable_losses.saturating_add(1) } else { 0 };
        }
        if self.unreadable_losses >= UNREADABLE_LOSSES_MAX {
            self.unreadable_losses = 0;
            self.settings.session.is_clean = true;
        }
        if self.session.is_blocked() {
            // The broker then sends fewer messages before the packets that are needed.
            let receive_max = &mut self.settings.session.receive_max;
            *receive_max = receive_max.div_euclid(2).max(1);
        }
        let refusal = match error {
            Error::Lost { cause, .. } if !is_unreadable && may_be_refusal(cause) => Some(cause.clone()),
            _ => None,
        };
        self.session.handle_lost(refusal);
    }

    async fn close(self, is_drained: IsDrained) {
        let Some(Closing { deadline, done }) = self.closing else { return };
        if let ConnectionState::Connected(connection) = self.connection {
            // A broker that does not read must not keep the task for ever.
            let _ = timeout_at(deadline.into(), connection.close()).await;
        }
        let _ = done.send(is_drained);
    }

    fn trace(&self, traced: impl FnOnce() -> TraceEvent) {
        trace::emit(self.settings.tracer.as_ref(), traced);
    }
}

/// Returns the error of a failed attempt or a lost connection.
fn attempt_error(settings: &Settings, loss: ConnectionLoss) -> Error {
    let ConnectionLoss { cause, error } = loss;
    error.unwrap_or_else(|| lost(settings, cause))
}

fn lost(settings: &Settings, cause: LossCause) -> Error {
    Error::Lost { target: settings.target.to_string(), cause, outcome: Outcome::Unchanged }
}

/// Returns whether a published message may be the reason of a loss: brokers end the connection of a client that may not publish
/// to a topic, with or without DISCONNECT.
fn may_be_refusal(cause: &LossCause) -> bool {
    match cause {
        // Others are about the broker, the session or the network.
        LossCause::Disconnect(ReasonCode { code, .. }) => {
            matches!(code, 0x80..=0x83 | 0x87 | 0x90 | 0x93..=0x97 | 0x99..=0x9B)
        }
        LossCause::Other(_) => true,
    }
}

/// Returns the next new token, or never if the session watches no token file.
async fn next_token(token: &mut Option<TokenWatcher>) -> Secret {
    match token {
        Some(token) => token.next().await,
        None => std::future::pending().await,
    }
}
