//! Drives a session over its connection: the one task in which socket, clock and state machines meet.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot, watch as observe};
use tokio::time::{sleep, sleep_until};

use super::ask::{Ask, Response, Stamps};
use super::authentication::{SecretFiles, TokenWatch};
use super::backoff::{self, Backoff};
use super::dial::explain;
use super::error::{Error, LossCause, Outcome};
use super::packet::Granted;
use super::session::{Config, Event, Session};
use super::settings::{Reconnect, Settings};
use super::trace::{self, Traced};
use super::transport::Connection;
use super::watch::Watch;
use super::watchers::{Events, StepTicket, WatchId, Watchers, Work};
use crate::client::connection_status::LinkState;
use crate::client::subscribers::{Begun, ListenTicket, Listener, Subscribers};
use crate::clock::{self, Reading};
use crate::net::TlsError;
use crate::net::secret::Secret;
use crate::net::websocket::WebSocketError;
use crate::protocol::{Key, Request, Timestamp, topic};
use crate::random;

/// What a [`super::Client`] asks of the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask the store.
    Ask { ask: Ask, answer: Answer },
    /// Begin a watch.
    Watch { watch: Watch, events: Events, begun: oneshot::Sender<WatchId> },
    /// End a watch.
    Unwatch { id: WatchId, done: oneshot::Sender<()> },
    /// Begin a subscription of the owner's own.
    Subscribe { filters: Vec<String>, heard: Listener, begun: Begun },
}

/// Asks for the end of the session; told when that is said.
pub(super) type Goodbye = oneshot::Sender<()>;

type Answer = oneshot::Sender<Result<Response, Error>>;
type Dialing = Pin<Box<dyn Future<Output = Result<(Connection, Granted), Error>> + Send>>;

/// Who waits for an answer of the session's.
#[derive(Debug)]
enum Ticket {
    Asked(Answer),
    Watch(StepTicket),
    Listen(ListenTicket),
    /// The end of a watch; the last of its keys carries who waits for it.
    Stopped(#[expect(dead_code, reason = "dropping it tells")] Option<oneshot::Sender<()>>),
}

/// What a client has of its task.
pub(super) struct Started {
    /// Where it asks.
    pub(super) commands: mpsc::Sender<Command>,
    /// Where it says goodbye, whatever waits to be asked.
    pub(super) goodbyes: mpsc::Sender<Goodbye>,
    /// Whether there is a connection.
    pub(super) link: observe::Receiver<LinkState>,
    /// The version of TLS on the first connection, if any.
    pub(super) tls: Option<&'static str>,
}

/// Connects, and starts the task that serves the session until the last sender is gone.
pub(super) async fn start(settings: Settings) -> Result<Started, Error> {
    let files = SecretFiles::new();
    let (mut connection, granted) = open_first(&settings, &files).await?;
    let mut token = match settings.reconnect {
        Reconnect::Never => None,
        Reconnect::WithBackoff => TokenWatch::of(&settings.authentication, &files, settings.token_look_every),
    };
    if let Some(token) = &mut token {
        token.handle_link(connection.take_token());
    }
    let tls = connection.tls_version();
    let mut session = Session::new(config(&settings)?);
    session.handle_connected(granted, clock::now());
    let (sender, commands) = mpsc::channel(settings.inflight_max.max(1));
    let (goodbyes, said) = mpsc::channel(1);
    let (told, link) = observe::channel(LinkState::Up);
    let driver = Driver {
        settings,
        session,
        watchers: Watchers::default(),
        watches_begun: 0,
        listeners: Subscribers::default(),
        link: Link::Up(connection),
        files,
        token,
        backoff: Backoff::default(),
        told,
        commands,
        goodbyes: said,
    };
    tokio::spawn(driver.run());
    Ok(Started { commands: sender, goodbyes, link, tls })
}

/// Connects for the first time: again only as often as asked for.
async fn open_first(settings: &Settings, files: &SecretFiles) -> Result<(Connection, Granted), Error> {
    let mut failures = 0;
    loop {
        match Connection::open(settings, files).await {
            Err(error) if failures < settings.connect_retries && may_pass(&error) => {
                let delay = backoff::delay(failures, random::u64());
                let again_in = Some(delay);
                trace::tell(settings.tracer.as_ref(), || Traced::Lost { cause: error.to_string(), again_in });
                sleep(delay).await;
                failures = failures.saturating_add(1);
            }
            Err(error) => {
                let cause = error.to_string();
                trace::tell(settings.tracer.as_ref(), || Traced::Lost { cause, again_in: None });
                return Err(error);
            }
            opened => return opened,
        }
    }
}

fn config(settings: &Settings) -> Result<Config, Error> {
    let prefix = random::u64();
    let node = format!("{:016x}{prefix:016x}", random::u64());
    Ok(Config {
        target: settings.target.to_string(),
        client_id: settings.client_id.clone(),
        request_timeout: settings.request_timeout,
        inflight_max: settings.inflight_max,
        prefix,
        // Hex digits are a node.
        clock: Timestamp::zero(node).map_err(|_| Error::Closed)?,
    })
}

struct Driver {
    settings: Settings,
    session: Session<Ticket>,
    watchers: Watchers,
    watches_begun: WatchId,
    listeners: Subscribers,
    link: Link,
    files: SecretFiles,
    /// Newer tokens, where the session lasts for long and has one.
    token: Option<TokenWatch>,
    backoff: Backoff,
    /// Who wants to know the state of the connection.
    told: observe::Sender<LinkState>,
    commands: mpsc::Receiver<Command>,
    goodbyes: mpsc::Receiver<Goodbye>,
}

/// The connection, or the way to the next one.
enum Link {
    Up(Connection),
    Waiting(Instant),
    Dialing(Dialing),
}

enum Turn {
    Moved,
    Due,
    Dialed(Result<(Connection, Granted), Error>),
}

/// Who must read before anything more is read from the broker.
enum Congested {
    Watch(Events),
    Listener(Listener),
}

/// The connection is gone.
struct Loss {
    cause: LossCause,
    /// Wall clock, milliseconds: until then it was surely there.
    since_ms: u64,
    /// There is no use in another try.
    fatal: Option<Error>,
}

impl Loss {
    fn now(cause: impl Into<LossCause>) -> Self {
        Self { cause: cause.into(), since_ms: clock::wall_ms(), fatal: None }
    }
}

impl Link {
    /// Waits until something happens. May be dropped at any time.
    async fn turn(&mut self, read: bool) -> Result<Turn, Loss> {
        match self {
            Self::Up(connection) => match connection.turn(read).await {
                Ok(()) => Ok(Turn::Moved),
                Err(error) => Err(Loss::now(explain(&error))),
            },
            Self::Waiting(at) => {
                sleep_until((*at).into()).await;
                Ok(Turn::Due)
            }
            Self::Dialing(dialing) => Ok(Turn::Dialed(dialing.await)),
        }
    }
}

impl Driver {
    async fn run(mut self) {
        loop {
            let (goodbye, loss) = match self.run_until_lost().await {
                Ok(goodbye) => (Some(goodbye), None),
                Err(loss) => (None, Some(loss)),
            };
            if let Some(goodbye) = goodbye {
                self.close().await;
                let _ = goodbye.map(|done| done.send(()));
                return;
            }
            if let Some(error) = loss.and_then(|loss| self.handle_lost(loss)) {
                return self.refuse_all(&error).await;
            }
        }
    }

    /// Returns who wants to know when the goodbye has been said, if anybody does.
    async fn run_until_lost(&mut self) -> Result<Option<Goodbye>, Loss> {
        // Armed for the earliest time at which the session may want to be called: early is harmless, and a timer
        // that need not move with every request is cheaper.
        let mut armed: Option<Instant> = None;
        let alarm = sleep_until(clock::monotonic().into());
        tokio::pin!(alarm);
        loop {
            let congested = self.serve()?;
            let due = self.session.poll_timeout();
            if let Some(due) = due.filter(|due| armed.is_none_or(|armed| *due < armed)) {
                alarm.as_mut().reset(due.into());
                armed = Some(due);
            }
            tokio::select! {
                turn = self.link.turn(congested.is_none()) => self.handle_turn(turn?)?,
                command = self.commands.recv(), if self.session.has_room() => {
                    if self.accept(command).is_break() {
                        return Ok(None);
                    }
                }
                Some(goodbye) = self.goodbyes.recv() => return Ok(Some(goodbye)),
                () = room_in(congested.as_ref()), if congested.is_some() => {}
                () = &mut alarm, if armed.is_some() => armed = None,
                token = newer(&mut self.token), if self.token.is_some() => {
                    self.tell(|| Traced::NewToken);
                    self.session.authenticate(token, clock::now());
                }
            }
        }
    }

    /// Takes a command, and whatever else has been asked meanwhile: it all goes out in one write. Breaks off where nobody
    /// is left who could ask.
    fn accept(&mut self, mut command: Option<Command>) -> ControlFlow<()> {
        let now = clock::now();
        loop {
            match command {
                Some(Command::Ask { ask, answer }) => self.session.ask(ask, Ticket::Asked(answer), now),
                Some(Command::Watch { watch, events, begun }) => self.watch(watch, events, begun),
                Some(Command::Unwatch { id, done }) => self.unwatch(id, Some(done), now),
                Some(Command::Subscribe { filters, heard, begun }) => {
                    self.listeners.begin(filters, heard, begun, matches!(self.link, Link::Up(_)));
                }
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

    fn tell(&self, traced: impl FnOnce() -> Traced) {
        trace::tell(self.settings.tracer.as_ref(), traced);
    }

    fn watch(&mut self, watch: Watch, events: Events, begun: oneshot::Sender<WatchId>) {
        self.watches_begun = self.watches_begun.wrapping_add(1);
        let id = self.watches_begun;
        self.watchers.begin(id, watch, events, matches!(self.link, Link::Up(_)));
        let _ = begun.send(id);
    }

    fn unwatch(&mut self, id: WatchId, done: Option<oneshot::Sender<()>>, now: Reading) {
        let keys = self.watchers.end(id);
        // Without a connection the store has forgotten us already.
        if matches!(self.link, Link::Up(_)) {
            self.stop(keys, done, now);
        }
    }

    fn stop(&mut self, keys: Vec<Key>, mut done: Option<oneshot::Sender<()>>, now: Reading) {
        let last = keys.len().saturating_sub(1);
        for (at, key) in keys.into_iter().enumerate() {
            let payload = Request::KeyNotify { key, stop: true }.encode();
            let ask = Ask { payload, access: super::Access::Read, stamps: Stamps::default() };
            // Answers come in the order of the requests, so the last one stands for all.
            let waits = if at == last { done.take() } else { None };
            self.session.ask(ask, Ticket::Stopped(waits), now);
        }
    }

    /// Lets session and watches do what is due. Returns the channel that must have room before more is read.
    fn serve(&mut self) -> Result<Option<Congested>, Loss> {
        let now = clock::now();
        self.session.handle_timeout(now).map_err(|silent| {
            let silence = now.monotonic.saturating_duration_since(silent.since);
            let silence_ms = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
            let cause = format!("the broker has been silent for {} s", silence.as_secs());
            Loss { cause: cause.into(), since_ms: now.wall_ms.saturating_sub(silence_ms), fatal: None }
        })?;
        self.deliver(now);
        for id in self.watchers.abandoned() {
            self.unwatch(id, None, now);
        }
        while self.session.has_room()
            && let Some(work) = self.watchers.poll_work()
        {
            match work {
                Work::Ask(ask, ticket) => self.session.ask(ask, Ticket::Watch(ticket), now),
                Work::Subscribe(ticket) => {
                    let filter = topic::notify_filter(&self.settings.client_id);
                    self.session.subscribe(filter, Ticket::Watch(ticket), now);
                }
            }
        }
        if matches!(self.link, Link::Up(_)) {
            let own = topic::notify_filter(&self.settings.client_id);
            while let Some(filter) = self.listeners.poll_left() {
                // A watch may live by it.
                if filter != own {
                    self.session.unsubscribe(filter);
                }
            }
        }
        while let Some((filter, ticket)) = self.listeners.poll_filter() {
            self.session.subscribe(filter, Ticket::Listen(ticket), now);
        }
        if let Link::Up(connection) = &mut self.link {
            // What a broker does not take stays in the session, where it is bounded and falls with its deadline.
            while connection.has_room()
                && let Some(outgoing) = self.session.poll_outgoing(now)
            {
                if let Err(large) = connection.queue(outgoing) {
                    self.session.handle_too_large(large.packet_id, large.size, large.max);
                }
            }
        }
        self.deliver(now);
        let (watch, listener) = (self.watchers.deliver(), self.listeners.deliver());
        let congested = watch.map(Congested::Watch).or(listener.map(Congested::Listener));
        if congested.is_some() {
            self.session.excuse_silence(now);
        }
        Ok(congested)
    }

    fn deliver(&mut self, now: Reading) {
        while let Some(event) = self.session.poll_event() {
            match event {
                // Whoever asked may have gone; the answer is then nobody's.
                Event::Answer { ticket: Ticket::Asked(answer), result } => drop(answer.send(result)),
                Event::Answer { ticket: Ticket::Watch(ticket), result } => {
                    self.watchers.handle_answer(ticket, result, now);
                }
                Event::Subscribed { ticket: Ticket::Watch(ticket), result } => {
                    self.watchers.handle_subscribed(ticket, result);
                }
                Event::Subscribed { ticket: Ticket::Listen(ticket), result } => {
                    self.listeners.handle_subscribed(&ticket, result, now);
                }
                Event::Authenticated { is_confirmed: true } => {}
                Event::Authenticated { is_confirmed: false } => self.tell(|| Traced::TokenUnanswered),
                Event::Answer { ticket: Ticket::Stopped(_) | Ticket::Listen(_), .. }
                | Event::Subscribed { .. } => {}
                Event::Message(message) => {
                    // What only a listener asked for is nothing that a watch would have to wonder about.
                    let is_heard = self.listeners.handle_message(&message, now);
                    let client_id = &self.settings.client_id;
                    let is_own = || topic::filter_matches(&topic::notify_filter(client_id), &message.topic);
                    if !is_heard || is_own() {
                        self.watchers.handle_message(&message, client_id);
                    }
                }
            }
        }
    }

    fn handle_turn(&mut self, turn: Turn) -> Result<(), Loss> {
        match turn {
            Turn::Moved => {
                let Link::Up(connection) = &mut self.link else { return Ok(()) };
                let now = clock::now();
                while let Some(incoming) = connection.next_packet().map_err(Loss::now)? {
                    self.session.handle_incoming(incoming, now);
                }
            }
            Turn::Due => {
                let (settings, files) = (self.settings.clone(), self.files.clone());
                self.link = Link::Dialing(Box::pin(async move { Connection::open(&settings, &files).await }));
            }
            Turn::Dialed(Ok((mut connection, granted))) => {
                self.backoff.handle_up(clock::monotonic());
                if let Some(token) = &mut self.token {
                    token.handle_link(connection.take_token());
                }
                self.link = Link::Up(connection);
                self.session.handle_connected(granted, clock::now());
                self.watchers.handle_connected();
                self.told.send_replace(LinkState::Up);
                self.listeners.handle_connected();
            }
            Turn::Dialed(Err(error)) => {
                let cause = error.to_string();
                let fatal = is_fatal(&error);
                return Err(Loss { fatal: fatal.then_some(error), ..Loss::now(cause) });
            }
        }
        Ok(())
    }

    /// Returns the error with which everything ends, if there is to be no other connection.
    fn handle_lost(&mut self, loss: Loss) -> Option<Error> {
        let Loss { cause, since_ms, fatal } = loss;
        // What came before the end, in the same read, came in time.
        self.deliver(clock::now());
        self.session.handle_lost(&cause);
        if let Some(token) = &mut self.token {
            token.handle_link(None);
        }
        // Watches begin again with the next connection, and the store has forgotten those that were to be stopped.
        self.session.withdraw(|ticket| matches!(ticket, Ticket::Watch(_) | Ticket::Stopped(_)));
        let end = fatal.or_else(|| {
            // Whoever has taken the session over would be thrown out in turn, and so on for ever.
            let never = self.settings.reconnect == Reconnect::Never || cause.is_takeover();
            never.then(|| self.session.lost(&cause, Outcome::Unchanged))
        });
        match &end {
            None => {
                let cause = cause.to_string();
                self.watchers.handle_lost(since_ms, &cause);
                self.listeners.handle_lost(since_ms, &cause);
                let now = clock::monotonic();
                let delay = self.backoff.handle_lost(now, random::u64());
                let again_in = Some(delay);
                self.tell(|| Traced::Lost { cause: cause.clone(), again_in });
                self.told.send_modify(|link| link.lost(now, &cause));
                self.link = Link::Waiting(now.checked_add(delay).unwrap_or(now));
            }
            Some(error) => {
                self.tell(|| Traced::Lost { cause: cause.to_string(), again_in: None });
                // Whoever is told of the end finds it there.
                self.told.send_replace(LinkState::Ended(error.clone()));
                self.session.handle_closed(|_| error.clone());
                self.watchers.handle_closed(error);
                self.listeners.handle_closed(error);
            }
        }
        self.deliver(clock::now());
        end
    }

    /// The connection is gone for good: whoever asks learns it.
    async fn refuse_all(mut self, error: &Error) {
        self.goodbyes.close();
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Ask { answer, .. } => drop(answer.send(Err(error.clone()))),
                Command::Watch { events, .. } => drop(events.try_send(Err(error.clone()))),
                Command::Subscribe { begun, .. } => drop(begun.send(Err(error.clone()))),
                Command::Unwatch { done, .. } => drop(done.send(())),
            }
        }
    }

    async fn close(&mut self) {
        let target = self.settings.target.to_string();
        self.session.handle_closed(|outcome| match outcome {
            Outcome::Unchanged => Error::Closed,
            // It was sent, and nobody waits for its answer any more.
            Outcome::Unknown => {
                let cause = "the session was closed".to_owned().into();
                Error::Lost { target: target.clone(), cause, outcome }
            }
        });
        self.watchers.handle_closed(&Error::Closed);
        self.listeners.handle_closed(&Error::Closed);
        let _ = self.serve();
        // The link that is left in its place is never used.
        let link = std::mem::replace(&mut self.link, Link::Waiting(clock::monotonic()));
        if let Link::Up(connection) = link {
            connection.close().await;
        }
    }
}

/// The next newer token, of a session that looks for one.
async fn newer(token: &mut Option<TokenWatch>) -> Secret {
    match token {
        Some(token) => token.next().await,
        None => std::future::pending().await,
    }
}

/// Resolves when the channel has room, or nobody takes from it any more.
async fn room_in(congested: Option<&Congested>) {
    match congested {
        Some(Congested::Watch(events)) => drop(events.reserve().await),
        Some(Congested::Listener(heard)) => drop(heard.reserve().await),
        None => std::future::pending().await,
    }
}

/// Whether the broker would not let the client in another time either.
fn is_fatal(error: &Error) -> bool {
    match error {
        Error::Rejected { reason, .. } => reason.is_authorization(),
        Error::WebSocket { cause, .. } => matches!(cause, WebSocketError::Status(401 | 403)),
        Error::Tls { cause, .. } => {
            matches!(cause, TlsError::ClientCertificateRequired | TlsError::ClientCertificateRejected(_))
        }
        _ => false,
    }
}

/// Whether another try for a first connection may help: a file, a certificate, a name are as they are.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Resolve { .. } | Error::Connect { .. } | Error::NoConnack { .. } => true,
        Error::Tls { cause, .. } => matches!(cause, TlsError::Interrupted(_) | TlsError::TimedOut(_)),
        Error::WebSocket { cause, .. } => {
            matches!(
                cause,
                WebSocketError::Interrupted(_) | WebSocketError::TimedOut(_) | WebSocketError::Status(500..)
            )
        }
        Error::Rejected { reason, .. } => reason.is_passing(),
        _ => false,
    }
}
