//! The task of a session: connects the state machines with the socket, the clock and the handles.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch as observe};
use tokio::time::{sleep_until, timeout};

use super::answers::{AnswerGroup, AnswerSender};
use super::authentication::TokenWatcher;
use super::backoff::Backoff;
use super::connection_info::ConnectionInfo;
use super::connection_state::{ConnectionLoss, ConnectionState, Progress};
use super::connection_status::ConnectionStatus;
use super::error::{Error, LossCause, Outcome};
use super::groups::Groups;
use super::probe::ConnectionStep;
use super::publication::Acknowledgement;
use super::request::RawRequest;
use super::session::{Config, Event, Session};
use super::settings::{Reconnect, Settings};
use super::subscriptions::{self, Confirmation, Subscriptions};
use super::ticket::{Answer, Ticket};
use super::trace::{self, TraceEvent};
use super::transport::handshake::Handshake;
use super::watch::{Registration, Watch};
use super::watches::{self, WatchCall, WatchId, Watches};
use crate::clock::{self, Reading};
use crate::net::secret::Secret;
use crate::protocol::{Key, Timestamp, topic};
use crate::random;

/// A command from a handle to the session's task.
#[derive(Debug)]
pub(super) enum Command {
    /// Connects, if that has not been started.
    Connect,
    Send {
        request: RawRequest,
        answer: Answer,
    },
    /// Requests that are numbered from `first`.
    SendAll {
        requests: Vec<RawRequest>,
        first: u64,
        answers: AnswerSender,
    },
    Publish {
        topic: String,
        payload: Bytes,
        acknowledgement: Acknowledgement,
    },
    Watch {
        watch: Watch,
        channels: watches::Channels,
        confirmation: oneshot::Sender<WatchId>,
    },
    Unwatch {
        id: WatchId,
        done: oneshot::Sender<()>,
    },
    /// The keys with the prefix of a watch, as they are now.
    List {
        id: WatchId,
        keys: Vec<Key>,
    },
    Subscribe {
        filters: Vec<String>,
        events: subscriptions::EventSender,
        confirmation: Confirmation,
    },
}

/// A request to close the session, answered when DISCONNECT has been sent.
pub(super) type CloseRequest = oneshot::Sender<()>;

/// The channels of a session's task.
pub(super) struct Handles {
    pub(super) commands: mpsc::Sender<Command>,
    /// A channel of its own: a close request does not wait behind commands for which there is no room.
    pub(super) close_requests: mpsc::Sender<CloseRequest>,
    pub(super) status: observe::Receiver<ConnectionStatus>,
    pub(super) info: Arc<ConnectionInfo>,
}

/// Starts the session's task, which connects with the first command. It ends when it is closed, when the last handle is dropped,
/// or with the error of the connection.
pub(super) fn start(settings: Settings) -> Result<Handles, Error> {
    let token = match settings.reconnect {
        Reconnect::Never => None,
        Reconnect::WithBackoff => TokenWatcher::new(
            &settings.authentication,
            &settings.secret_reader,
            settings.token_check_interval,
        ),
    };
    let info = Arc::new(ConnectionInfo::new(settings.target.to_string(), settings.client_id.clone()));
    let session = Session::new(config(&settings)?);
    let (sender, commands) = mpsc::channel(settings.inflight_max.max(1));
    let (close_sender, close_requests) = mpsc::channel(1);
    let (status_sender, status) = observe::channel(ConnectionStatus::Connecting);
    let settings = Arc::new(settings);
    let driver = Driver {
        connection: ConnectionState::Idle,
        started: clock::monotonic(),
        retries_left: settings.connect_retries,
        is_cautious: settings.is_cautious || settings.authentication.has_method(),
        notify_filter: topic::notify_filter(&settings.client_id),
        settings,
        session,
        watches: Watches::default(),
        last_watch_id: 0,
        subscriptions: Subscriptions::default(),
        groups: Groups::default(),
        answers: AnswerGroup::default(),
        token,
        backoff: Backoff::default(),
        info: Arc::clone(&info),
        status: status_sender,
        commands,
        close_requests,
    };
    tokio::spawn(driver.run());
    Ok(Handles { commands: sender, close_requests: close_sender, status, info })
}

fn config(settings: &Settings) -> Result<Config, Error> {
    let prefix = random::u64();
    let node = format!("{:016x}{prefix:016x}", random::u64());
    Ok(Config {
        target: settings.target.to_string(),
        client_id: settings.client_id.clone(),
        identity: settings.credentials().unwrap_or_else(|| format!("client id {}", settings.client_id)),
        request_timeout: settings.request_timeout,
        inflight_max: settings.inflight_max,
        prefix,
        // The node consists of hex digits, so it is valid: the error cannot occur.
        clock: Timestamp::zero(node).map_err(|_| Error::Closed)?,
    })
}

struct Driver {
    settings: Arc<Settings>,
    /// The filter of the notifications for this client.
    notify_filter: String,
    session: Session<Ticket>,
    watches: Watches,
    last_watch_id: WatchId,
    subscriptions: Subscriptions,
    /// Requests for which the session has had no room.
    groups: Groups,
    /// Results that are sent when no more are known.
    answers: AnswerGroup,
    connection: ConnectionState,
    /// The start of the first attempt to connect.
    started: Instant,
    /// Retries of the first connection.
    retries_left: u32,
    /// Whether nothing is sent between CONNECT and CONNACK.
    is_cautious: bool,
    /// Reports changes of the token file, if the session reconnects and authenticates with a token.
    token: Option<TokenWatcher>,
    backoff: Backoff,
    info: Arc<ConnectionInfo>,
    status: observe::Sender<ConnectionStatus>,
    commands: mpsc::Receiver<Command>,
    close_requests: mpsc::Receiver<CloseRequest>,
}

/// A full event channel. The connection is not read until it has room.
enum Congested {
    Watch(watches::EventSender),
    Subscription(subscriptions::EventSender),
}

impl Driver {
    async fn run(mut self) {
        loop {
            let (close_request, loss) = match self.run_until_lost().await {
                Ok(close_request) => (Some(close_request), None),
                Err(loss) => (None, Some(loss)),
            };
            if let Some(close_request) = close_request {
                self.close().await;
                let _ = close_request.map(|done| done.send(()));
                return;
            }
            if let Some(error) = loss.and_then(|loss| self.handle_lost(loss)) {
                return self.fail_all(&error).await;
            }
        }
    }

    /// Returns the close request, or None if the last handle was dropped.
    async fn run_until_lost(&mut self) -> Result<Option<CloseRequest>, ConnectionLoss> {
        // The timer is only moved to an earlier time. Firing early is harmless, and moving it with every request would
        // cost more than a call that finds nothing due.
        let mut armed: Option<Instant> = None;
        let timer = sleep_until(clock::monotonic().into());
        tokio::pin!(timer);
        loop {
            self.handle_commands_before_groups();
            let congested = self.serve()?;
            let due = self.session.poll_timeout();
            if let Some(due) = due.filter(|due| armed.is_none_or(|armed| *due < armed)) {
                timer.as_mut().reset(due.into());
                armed = Some(due);
            }
            tokio::select! {
                progress = self.connection.progress(congested.is_none()) => self.handle_progress(progress?)?,
                command = self.commands.recv(), if self.session.has_room() => {
                    if self.handle_commands(command).is_break() {
                        return Ok(None);
                    }
                    if matches!(self.connection, ConnectionState::Idle) {
                        self.started = clock::monotonic();
                        self.connection = ConnectionState::opening(&self.settings);
                    }
                }
                Some(close_request) = self.close_requests.recv() => return Ok(Some(close_request)),
                () = room(congested.as_ref()), if congested.is_some() => {}
                () = &mut timer, if armed.is_some() => armed = None,
                token = next_token(&mut self.token), if self.token.is_some() => {
                    self.trace(|| TraceEvent::NewToken);
                    self.session.authenticate(token, clock::now());
                }
            }
        }
    }

    /// Handles a command and all that are queued behind it, so that their packets go out in one write. Breaks if all
    /// handles were dropped.
    fn handle_commands(&mut self, mut command: Option<Command>) -> ControlFlow<()> {
        let now = clock::now();
        loop {
            match command {
                Some(Command::Send { request, answer }) => {
                    self.session.send(request, Ticket::Request(answer), now)
                }
                Some(Command::SendAll { requests, first, answers }) => {
                    self.groups.add(requests, first, answers);
                }
                Some(Command::Publish { topic, payload, acknowledgement }) => {
                    self.session.publish(topic, payload, Ticket::Message(acknowledgement));
                }
                Some(Command::Watch { watch, channels, confirmation }) => {
                    self.watch(watch, channels, confirmation)
                }
                Some(Command::Unwatch { id, done }) => self.unwatch(id, Some(done), now),
                Some(Command::List { id, keys }) => {
                    let removed = self.watches.handle_listing(id, keys);
                    self.stop(removed, None, now);
                }
                Some(Command::Subscribe { filters, events, confirmation }) => {
                    self.subscriptions.add(filters, events, confirmation, self.is_connected());
                }
                Some(Command::Connect) => {}
                None => return ControlFlow::Break(()),
            }
            if !self.session.has_room() {
                return ControlFlow::Continue(());
            }
            command = match self.commands.try_recv() {
                Ok(next) => Some(next),
                Err(mpsc::error::TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
            };
        }
    }

    /// Handles queued commands if the room of the session would go to groups otherwise.
    fn handle_commands_before_groups(&mut self) {
        if !self.groups.is_empty()
            && self.session.has_room()
            && let Ok(command) = self.commands.try_recv()
        {
            // If all handles were dropped, the channel returns that again.
            let _ = self.handle_commands(Some(command));
        }
    }

    /// Passes requests of groups to the session, as many as it has room for.
    fn send_groups(&mut self, now: Reading) {
        let Self { groups, session, .. } = self;
        while session.has_room() && groups.send_next(|request, ticket| session.send(request, ticket, now)) {}
    }

    fn trace(&self, traced: impl FnOnce() -> TraceEvent) {
        trace::emit(self.settings.tracer.as_ref(), traced);
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection, ConnectionState::Connected(_))
    }

    fn watch(&mut self, watch: Watch, channels: watches::Channels, confirmation: oneshot::Sender<WatchId>) {
        self.last_watch_id = self.last_watch_id.wrapping_add(1);
        let id = self.last_watch_id;
        self.watches.add(id, watch, channels, self.is_connected());
        let _ = confirmation.send(id);
    }

    fn unwatch(&mut self, id: WatchId, done: Option<oneshot::Sender<()>>, now: Reading) {
        let removed = self.watches.remove(id);
        self.stop(removed, done, now);
    }

    fn stop(&mut self, removed: Vec<Registration>, mut done: Option<oneshot::Sender<()>>, now: Reading) {
        // The store forgets a client's notifications with its connection.
        if !self.is_connected() {
            return;
        }
        let last = removed.len().saturating_sub(1);
        for (at, registration) in removed.into_iter().enumerate() {
            let request = watches::keynotify(&registration, true);
            // Responses arrive in the order of the requests, so the last one confirms all.
            let confirms = if at == last { done.take() } else { None };
            self.watches.handle_stopping(registration.clone());
            self.session.send(request, Ticket::Unwatch(registration, confirms), now);
        }
    }

    /// Runs the state machines until none has anything to do. Returns a full event channel, if there is one.
    fn serve(&mut self) -> Result<Option<Congested>, ConnectionLoss> {
        let now = clock::now();
        let is_alive = self.session.handle_timeout(now);
        self.deliver(now);
        is_alive.map_err(|timeout| {
            let silence = now.monotonic.saturating_duration_since(timeout.since);
            ConnectionLoss::new(format!("no packet from the broker for {} s", silence.as_secs()))
        })?;
        for id in self.watches.dropped() {
            self.unwatch(id, None, now);
        }
        while self.session.has_room()
            && let Some(call) = self.watches.poll_call(now)
        {
            match call {
                WatchCall::Send(request, ticket) => self.session.send(request, Ticket::Watch(ticket), now),
                WatchCall::Subscribe(step) => {
                    self.session.subscribe(step.topic(&self.settings.client_id), Ticket::Watch(step), now);
                }
            }
        }
        self.send_groups(now);
        if self.is_connected() {
            while let Some(filter) = self.subscriptions.poll_unsubscribe() {
                // Watches need this filter.
                if filter != self.notify_filter {
                    self.session.unsubscribe(filter);
                }
            }
        }
        while let Some((filter, ticket)) = self.subscriptions.poll_subscribe() {
            self.session.subscribe(filter, Ticket::Subscription(ticket), now);
        }
        if let ConnectionState::Connected(connection) = &mut self.connection {
            // While the broker does not read, requests stay in the session, which bounds their number and time.
            while connection.has_room() {
                self.session.cancel_next(Ticket::is_abandoned);
                let Some(outgoing) = self.session.poll_outgoing(now) else { break };
                if let Err(error) = connection.queue(outgoing) {
                    self.session.handle_too_large(error.packet_id, error.size, error.max, now);
                }
            }
        }
        self.deliver(now);
        let (watch, subscription) = (self.watches.deliver(), self.subscriptions.deliver());
        let congested = watch.map(Congested::Watch).or(subscription.map(Congested::Subscription));
        if congested.is_some() {
            self.session.handle_reading_paused(now);
        }
        Ok(congested)
    }

    fn deliver(&mut self, now: Reading) {
        while let Some(event) = self.session.poll_event() {
            match event {
                // An error means that the caller has dropped its future.
                Event::Answer { ticket: Ticket::Request(answer), result } => drop(answer.send(result)),
                Event::Answer { ticket: Ticket::Bulk(receiver, number), result } => {
                    self.answers.add(receiver, number, result, self.session.receive_max());
                }
                Event::Published { ticket: Ticket::Message(acknowledgement), result } => {
                    drop(acknowledgement.send(result));
                }
                Event::Answer { ticket: Ticket::Watch(ticket), result } => {
                    let unneeded = self.watches.handle_answer(ticket, result, now);
                    self.stop(unneeded, None, now);
                }
                Event::Subscribed { ticket: Ticket::Watch(ticket), result } => {
                    self.watches.handle_subscribed(ticket, result);
                }
                Event::Subscribed { ticket: Ticket::Subscription(ticket), result } => {
                    self.subscriptions.handle_subscribed(&ticket, result, now);
                }
                Event::EarlyPacketsDropped => self.handle_early_packets_refused(None),
                Event::Authenticated { is_confirmed: true } => {}
                Event::Authenticated { is_confirmed: false } => self.trace(|| TraceEvent::TokenUnanswered),
                Event::Answer { ticket: Ticket::Unwatch(of, _), .. } => self.watches.handle_stopped(&of),
                Event::Answer { .. } | Event::Subscribed { .. } | Event::Published { .. } => {}
                Event::Message(message) => {
                    // Watches report messages that nothing subscribed to, so they do not see those of subscriptions.
                    let is_expected = self.subscriptions.handle_message(&message, now);
                    let is_notification = || topic::filter_matches(&self.notify_filter, &message.topic);
                    if !is_expected || is_notification() {
                        self.watches.handle_message(&message, &self.settings.client_id);
                    }
                }
            }
        }
        self.answers.send(self.session.receive_max());
    }

    fn handle_progress(&mut self, progress: Progress) -> Result<(), ConnectionLoss> {
        match progress {
            Progress::Transferred => self.handle_packets()?,
            Progress::BackoffEnded => self.connection = ConnectionState::reopening(&self.settings),
            Progress::Opened(handshake) => self.handle_opened(handshake),
            Progress::Accepted(mut connection, limits) => {
                let now = clock::now();
                self.backoff.handle_connected(now.monotonic);
                if let Some(token) = &mut self.token {
                    token.handle_connected(connection.take_token());
                }
                let elapsed = now.monotonic.saturating_duration_since(self.started);
                self.info.handle_accepted(elapsed, connection.tls_version(), limits.receive_max);
                self.watches.handle_connected(connection.has_wildcards());
                self.connection = ConnectionState::Connected(connection);
                self.session.handle_connected(limits, now);
                self.status.send_replace(ConnectionStatus::Connected);
                self.subscriptions.handle_connected();
                // The answers to early packets may have arrived with the CONNACK.
                self.handle_packets()?;
            }
        }
        Ok(())
    }

    /// Sends the packets that need not wait for CONNACK.
    fn handle_opened(&mut self, mut handshake: Handshake) {
        // Also the requests that are still in the channel.
        if self.session.has_room()
            && let Ok(command) = self.commands.try_recv()
        {
            // If all handles were dropped, the channel returns that again.
            let _ = self.handle_commands(Some(command));
        }
        let now = clock::now();
        self.session.cancel(Ticket::is_abandoned);
        self.send_groups(now);
        while !self.is_cautious
            && let Some(outgoing) = self.session.poll_early(now)
        {
            if let Err(error) = handshake.queue(outgoing) {
                self.session.handle_too_large(error.packet_id, error.size, error.max, now);
            }
        }
        self.connection = ConnectionState::accepting(handshake, &self.settings);
    }

    /// Waits for the CONNACK from now on. `cause` is the cause of the loss; None if the broker has only not answered.
    fn handle_early_packets_refused(&mut self, cause: Option<&LossCause>) {
        self.is_cautious = true;
        self.trace(|| TraceEvent::EarlyPacketsRefused);
        let cause = || cause.map(ToString::to_string);
        self.settings.probe.observe(|| ConnectionStep::EarlyPacketsRefused { cause: cause() });
    }

    fn handle_packets(&mut self) -> Result<(), ConnectionLoss> {
        let ConnectionState::Connected(connection) = &mut self.connection else { return Ok(()) };
        let now = clock::now();
        let requester = self.session.requester();
        let topic = &requester.response_topic;
        while let Some(incoming) = connection.next_packet_after_responses(topic, |response| {
            self.session.handle_received_response(response, now);
        })? {
            self.session.handle_incoming(incoming, now);
        }
        Ok(())
    }

    /// Returns the error that ends the session, or None if it connects again.
    fn handle_lost(&mut self, loss: ConnectionLoss) -> Option<Error> {
        let since_ms = self.session.last_packet_ms();
        // Packets that were read before the loss are valid.
        self.deliver(clock::now());
        let are_early_packets_refused =
            self.session.has_unacknowledged_early_packets() && loss.may_be_due_to_early_packets();
        let ConnectionLoss { cause, error } = loss;
        self.session.handle_lost(&cause);
        if let Some(token) = &mut self.token {
            token.handle_lost();
        }
        // Watches start over with the next connection, and the store forgets notifications with the lost one.
        self.session.cancel(|ticket| matches!(ticket, Ticket::Watch(_) | Ticket::Unwatch(..)));
        let is_first = !self.info.is_accepted();
        let end = if are_early_packets_refused {
            None
        } else if is_first {
            error.filter(|error| self.retries_left == 0 || !error.is_transient())
        } else {
            error.filter(Error::is_fatal).or_else(|| {
                // Two clients with one client id that both reconnect would disconnect each other for ever.
                let is_final = self.settings.reconnect == Reconnect::Never || cause.is_takeover();
                is_final.then(|| self.session.lost_error(&cause, Outcome::Unchanged))
            })
        };
        match &end {
            None => {
                let now = clock::monotonic();
                let delay = if are_early_packets_refused {
                    self.handle_early_packets_refused(Some(&cause));
                    Duration::ZERO
                } else {
                    self.retries_left = self.retries_left.saturating_sub(1);
                    self.backoff.handle_lost(now, random::u64())
                };
                let cause = cause.to_string();
                if !is_first {
                    self.watches.handle_lost(since_ms, &cause);
                    self.subscriptions.handle_lost(since_ms, &cause);
                    self.status.send_modify(|status| status.set_lost(now, &cause));
                }
                self.trace(|| TraceEvent::Lost { cause, again_in: Some(delay) });
                self.connection = ConnectionState::Backoff(now.checked_add(delay).unwrap_or(now));
            }
            Some(error) => {
                self.trace(|| TraceEvent::Lost { cause: cause.to_string(), again_in: None });
                // Before the failures below: a caller that sees one finds the final status.
                self.status.send_replace(ConnectionStatus::Ended(error.clone()));
                self.session.handle_closed(|_| error.clone());
                self.watches.handle_closed(error);
                self.subscriptions.handle_closed(error);
            }
        }
        self.deliver(clock::now());
        end
    }

    /// Fails all commands that are still queued, after the end of the session.
    async fn fail_all(mut self, error: &Error) {
        self.close_requests.close();
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Send { answer, .. } => drop(answer.send(Err(error.clone()))),
                // The owner of the requests sees that the channel is closed.
                Command::SendAll { .. } => {}
                Command::Publish { acknowledgement, .. } => drop(acknowledgement.send(Err(error.clone()))),
                Command::Watch { channels: (events, _), .. } => drop(events.try_send(Err(error.clone()))),
                Command::Subscribe { confirmation, .. } => drop(confirmation.send(Err(error.clone()))),
                Command::Unwatch { done, .. } => drop(done.send(())),
                Command::List { .. } | Command::Connect => {}
            }
        }
    }

    async fn close(&mut self) {
        // Their owner sees that the channel is closed.
        self.groups.clear();
        let target = self.settings.target.to_string();
        self.session.handle_closed(|outcome| match outcome {
            Outcome::Unchanged => Error::Closed,
            // It was sent, and its response will not be read.
            Outcome::Unknown => {
                let cause = "the session was closed".to_owned().into();
                Error::Lost { target: target.clone(), cause, outcome }
            }
        });
        self.watches.handle_closed(&Error::Closed);
        self.subscriptions.handle_closed(&Error::Closed);
        let _ = self.serve();
        // The replacement is never used.
        let state = std::mem::replace(&mut self.connection, ConnectionState::Backoff(clock::monotonic()));
        if let ConnectionState::Connected(connection) = state {
            // A broker that does not read must not keep the task for ever.
            let _ = timeout(self.settings.request_timeout, connection.close()).await;
        }
    }
}

/// Returns the next new token, or never if the session watches no token file.
async fn next_token(token: &mut Option<TokenWatcher>) -> Secret {
    match token {
        Some(token) => token.next().await,
        None => std::future::pending().await,
    }
}

/// Returns when the channel has room or is closed.
async fn room(congested: Option<&Congested>) {
    match congested {
        Some(Congested::Watch(events)) => drop(events.reserve().await),
        Some(Congested::Subscription(events)) => drop(events.reserve().await),
        None => std::future::pending().await,
    }
}
