//! Drives a session over its connection: the one task in which socket, clock and state machine meet.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::ask::{Ask, Response};
use super::error::{Error, Outcome};
use super::session::{Config, Event, Granted, Session};
use super::settings::{Reconnect, Settings};
use super::transport::{Connection, explain};
use crate::clock;
use crate::protocol::Timestamp;

/// What a [`super::Client`] asks of the task.
#[derive(Debug)]
pub(super) enum Command {
    /// Ask the store.
    Ask { ask: Ask, answer: Answer },
    /// Say goodbye.
    Close { done: oneshot::Sender<()> },
}

type Answer = oneshot::Sender<Result<Response, Error>>;
type Dialing = Pin<Box<dyn Future<Output = Result<(Connection, Granted), Error>> + Send>>;

/// Connects, and starts the task that serves the session until the last sender is gone.
pub(super) async fn start(settings: Settings) -> Result<mpsc::Sender<Command>, Error> {
    let (connection, granted) = Connection::open(&settings).await?;
    let mut session = Session::new(config(&settings)?);
    session.handle_connected(granted, clock::now());
    let (sender, commands) = mpsc::channel(settings.inflight_max.max(1));
    let link = Link::Up(connection);
    tokio::spawn(Driver { settings, session, link, failures: 0, commands }.run());
    Ok(sender)
}

fn config(settings: &Settings) -> Result<Config, Error> {
    let no_randomness = |_| Error::Connect {
        target: settings.target.to_string(),
        cause: "this system gives no random numbers".to_owned(),
    };
    let prefix = getrandom::u64().map_err(no_randomness)?;
    let node = format!("{:016x}{prefix:016x}", getrandom::u64().map_err(no_randomness)?);
    let clock = Timestamp::zero(node).map_err(|_| Error::Closed)?;
    Ok(Config {
        target: settings.target.to_string(),
        client_id: settings.client_id.clone(),
        request_timeout: settings.request_timeout,
        inflight_max: settings.inflight_max,
        prefix,
        clock,
    })
}

struct Driver {
    settings: Settings,
    session: Session<Answer>,
    link: Link,
    /// Failed attempts since the connection was last up.
    failures: u32,
    commands: mpsc::Receiver<Command>,
}

/// The connection, or the way to the next one.
enum Link {
    Up(Connection),
    Waiting(Instant),
    Dialing(Dialing),
}

enum Turn {
    Moved,
    Lost(String),
    Due,
    Dialed(Result<(Connection, Granted), Error>),
}

impl Link {
    /// Waits until something happens. May be dropped at any time.
    async fn turn(&mut self) -> Turn {
        match self {
            Self::Up(connection) => match connection.turn().await {
                Ok(()) => Turn::Moved,
                Err(error) => Turn::Lost(explain(&error)),
            },
            Self::Waiting(at) => {
                sleep_until((*at).into()).await;
                Turn::Due
            }
            Self::Dialing(dialing) => Turn::Dialed(dialing.await),
        }
    }
}

impl Driver {
    async fn run(mut self) {
        // Armed for the earliest time at which the session may want to be called: early is harmless, and a timer
        // that need not move with every request is cheaper.
        let mut armed: Option<Instant> = None;
        let alarm = sleep_until(clock::monotonic().into());
        tokio::pin!(alarm);
        loop {
            if let Err(cause) = self.serve() {
                match self.handle_lost(&cause) {
                    Reconnect::Never => return self.drain(&cause).await,
                    Reconnect::WithBackoff => continue,
                }
            }
            let due = self.session.poll_timeout();
            if let Some(due) = due.filter(|due| armed.is_none_or(|armed| *due < armed)) {
                alarm.as_mut().reset(due.into());
                armed = Some(due);
            }
            tokio::select! {
                turn = self.link.turn() => {
                    if let Err(cause) = self.handle_turn(turn)
                        && self.handle_lost(&cause) == Reconnect::Never
                    {
                        return self.drain(&cause).await;
                    }
                }
                command = self.commands.recv(), if self.session.has_room() => {
                    if let Some(goodbye) = self.accept(command) {
                        self.close().await;
                        let _ = goodbye.map(|done| done.send(()));
                        return;
                    }
                }
                () = &mut alarm, if armed.is_some() => armed = None,
            }
        }
    }

    /// Takes a command, and whatever else has been asked meanwhile: it all goes out in one write.
    ///
    /// Returns who wants to know of the end, if the end is asked for.
    fn accept(&mut self, command: Option<Command>) -> Option<Option<oneshot::Sender<()>>> {
        let now = clock::now();
        let mut command = command;
        loop {
            match command {
                Some(Command::Ask { ask, answer }) => self.session.ask(ask, answer, now),
                Some(Command::Close { done }) => return Some(Some(done)),
                None => return Some(None),
            }
            if !self.session.has_room() {
                return None;
            }
            command = match self.commands.try_recv() {
                Ok(next) => Some(next),
                Err(mpsc::error::TryRecvError::Empty) => return None,
                Err(mpsc::error::TryRecvError::Disconnected) => None,
            };
        }
    }

    /// Lets the session do what is due: send, and answer.
    fn serve(&mut self) -> Result<(), String> {
        let now = clock::now();
        self.session.handle_timeout(now).map_err(str::to_owned)?;
        if let Link::Up(connection) = &mut self.link {
            while let Some(outgoing) = self.session.poll_outgoing(now) {
                if let Err(large) = connection.queue(outgoing) {
                    self.session.handle_too_large(large.packet_id, large.size, large.max);
                }
            }
        }
        self.deliver();
        Ok(())
    }

    fn deliver(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                // Whoever asked may have gone; the answer is then nobody's.
                Event::Answer { ticket, result } => drop(ticket.send(result)),
                Event::Message(_) => {}
            }
        }
    }

    fn handle_turn(&mut self, turn: Turn) -> Result<(), String> {
        match turn {
            Turn::Moved => {
                let Link::Up(connection) = &mut self.link else {
                    return Ok(());
                };
                let now = clock::now();
                while let Some(incoming) = connection.next_packet()? {
                    self.session.handle_incoming(incoming, now);
                }
                Ok(())
            }
            Turn::Lost(cause) => Err(cause),
            Turn::Due => {
                let settings = self.settings.clone();
                self.link = Link::Dialing(Box::pin(async move { Connection::open(&settings).await }));
                Ok(())
            }
            Turn::Dialed(Ok((connection, granted))) => {
                self.failures = 0;
                self.link = Link::Up(connection);
                self.session.handle_connected(granted, clock::now());
                Ok(())
            }
            Turn::Dialed(Err(error)) => Err(error.to_string()),
        }
    }

    fn handle_lost(&mut self, cause: &str) -> Reconnect {
        self.session.handle_lost(cause);
        if self.settings.reconnect == Reconnect::Never {
            let target = self.settings.target.to_string();
            let cause = cause.to_owned();
            let lost = |outcome| Error::Lost { target: target.clone(), cause: cause.clone(), outcome };
            self.session.handle_closed(lost);
        }
        self.deliver();
        let delay = backoff(self.failures, getrandom::u32().unwrap_or(0));
        self.failures = self.failures.saturating_add(1);
        let now = clock::monotonic();
        self.link = Link::Waiting(now.checked_add(delay).unwrap_or(now));
        self.settings.reconnect
    }

    /// The connection is gone for good: whoever asks learns it.
    async fn drain(mut self, cause: &str) {
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Ask { answer, .. } => {
                    let _ = answer.send(Err(self.session.lost(cause, Outcome::Unchanged)));
                }
                Command::Close { done } => drop(done.send(())),
            }
        }
    }

    async fn close(mut self) {
        self.session.handle_closed(|_| Error::Closed);
        let _ = self.serve();
        if let Link::Up(connection) = self.link {
            connection.close().await;
        }
    }
}

/// Twice the last delay each time, half of it by chance, so that many clients do not come back at once.
fn backoff(failures: u32, chance: u32) -> Duration {
    let delay = Reconnect::DELAY_MIN.saturating_mul(1u32.checked_shl(failures.min(16)).unwrap_or(u32::MAX));
    let half = delay.min(Reconnect::DELAY_MAX).div_f64(2.0);
    half.saturating_add(half.mul_f64(f64::from(chance) / f64::from(u32::MAX)))
}
