//! Clients of a bench: connects them, prepares the keys, runs the slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::histogram::Latencies;
use super::keys;
use super::load::{Load, Plan};
use super::report::{BenchEnd, BenchProgress, BenchSettings, Measured, Workload};
use super::slot::{self, Common, Notifications, Notified, SharedLoad, Work};
use crate::client::{Client, Reconnect, Settings, Watcher};
use crate::clock;
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::{Emit, Output, Progress};
use crate::commands::process::signal::{Signal, Signals};
use crate::commands::session::Session;
use crate::protocol::Key;

/// The most connections that are made at the same time.
const CONNECTING_MAX: usize = 16;
/// The time between two records of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How long operations in flight are awaited after a signal.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Notifications that a slot buffers: those of operations that have timed out can arrive late.
const NOTIFICATIONS_MAX: usize = 16;
/// The holder of all locks.
const HOLDER: Bytes = Bytes::from_static(b"mqkv bench");

/// A bench and its clients.
pub struct Bench {
    settings: BenchSettings,
    keys: Vec<Key>,
    value: Bytes,
    clients: Vec<Client>,
    /// The time limit of a request.
    request_timeout: Duration,
}

/// The watches of a bench.
#[derive(Default)]
struct Watching {
    /// The watch of each client, and the slots that get its notifications.
    watchers: Vec<(Watcher, Notifications)>,
    /// What each slot gets.
    notifications: Vec<mpsc::Receiver<Notified>>,
}

/// How a bench ended.
pub struct Stopped {
    /// None if it ended before the measurement.
    pub measured: Option<Measured>,
    pub signal: Option<Signal>,
}

impl Bench {
    /// Creates a bench with its first client.
    ///
    /// # Errors
    /// The prefix of the keys is too long.
    pub fn new(settings: BenchSettings, client: Client) -> Result<Self, CommandError> {
        let keys = keys::keys(&settings.prefix, usize::try_from(settings.keys).unwrap_or(usize::MAX))?;
        let value = match settings.size {
            Some(size) => vec![b'x'; usize::try_from(size).unwrap_or(usize::MAX)].into(),
            None => HOLDER,
        };
        Ok(Self { settings, keys, value, clients: vec![client], request_timeout: Duration::ZERO })
    }

    #[must_use]
    pub fn settings(&self) -> &BenchSettings {
        &self.settings
    }

    #[must_use]
    pub fn into_settings(self) -> BenchSettings {
        self.settings
    }

    /// Prepares and measures.
    ///
    /// # Errors
    /// A client cannot connect, the keys cannot be set or watched, or `emit` failed.
    pub async fn run(
        &mut self,
        session: &Session,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<Stopped, CommandError> {
        let prepared = tokio::select! {
            biased;
            signal = signals.next() => return Ok(Stopped { measured: None, signal: Some(signal) }),
            prepared = self.prepare(session, emit) => prepared,
        };
        prepared?;
        self.measure(signals, emit).await
    }

    /// Deletes the keys.
    ///
    /// # Errors
    /// No client is connected, or a DEL failed.
    pub async fn delete_keys(&self) -> Result<(), CommandError> {
        let connected = self.clients.iter().find(|client| !client.has_ended());
        let lost = || CommandError::new(Kind::Unavailable, "the connection is lost");
        keys::delete_all(connected.ok_or_else(lost)?, &self.keys).await
    }

    /// Disconnects all clients but the first, which is the session's.
    pub async fn close(&mut self) {
        let mut closing: JoinSet<()> = self.clients.drain(1..).map(Client::close).collect();
        // A broker that does not read ends the sessions when this process ends.
        let _ = tokio::time::timeout(DRAIN_MAX, async { while closing.join_next().await.is_some() {} }).await;
    }

    async fn prepare(&mut self, session: &Session, emit: Emit<'_>) -> Result<(), CommandError> {
        let Some(first) = self.clients.first().cloned() else { return Ok(()) };
        self.request_timeout = session.second_settings().await?.request_timeout;
        if self.settings.workload.shares_keys() {
            let options = keys::set_options(self.settings.ttl)?;
            keys::set_all(&first, &self.keys, &self.value, &options, |count| {
                let progress = Progress { count, unit: "keys", bytes_read: 0, bytes_total: None };
                Ok(emit(Output::Progress(progress))?)
            })
            .await?;
        }
        let mut connecting = JoinSet::new();
        let mut missing = self.settings.clients.saturating_sub(1);
        let inflight = usize::try_from(self.settings.inflight).unwrap_or(usize::MAX);
        // The subscription for the responses is made with the first request: that is not to be measured.
        let probe = self.keys.first().cloned();
        let request = async |client: &Client| match &probe {
            Some(key) => client.get(key).await.map(drop),
            None => Ok(()),
        };
        request(&first).await?;
        while missing > 0 || !connecting.is_empty() {
            while missing > 0 && connecting.len() < CONNECTING_MAX {
                missing = missing.saturating_sub(1);
                let settings = session.second_settings().await?;
                let inflight_max = settings.inflight_max.max(inflight);
                let settings = Settings { inflight_max, reconnect: Reconnect::Never, ..settings };
                connecting.spawn(Client::connect(settings));
            }
            let count = u64::try_from(self.clients.len()).unwrap_or(u64::MAX);
            emit(Output::Progress(Progress { count, unit: "clients", bytes_read: 0, bytes_total: None }))?;
            if let Some(joined) = connecting.join_next().await {
                let client = joined.map_err(panicked)??;
                request(&client).await?;
                self.clients.push(client);
            }
        }
        Ok(())
    }

    async fn measure(&self, signals: &mut Signals, emit: Emit<'_>) -> Result<Stopped, CommandError> {
        let BenchSettings { workload, limit, warmup, rate, .. } = self.settings;
        let inflight = usize::try_from(self.settings.inflight).unwrap_or(usize::MAX);
        let slots = self.clients.len().saturating_mul(inflight);
        let empty = Latencies::new().map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
        let plan = Plan { limit, warmup, rate };
        let options = keys::set_options(self.settings.ttl)?;
        let common = Arc::new(Common { keys: self.keys.clone(), value: self.value.clone(), options });
        let mut watching = Watching::default();
        if workload == Workload::Watch {
            watching = self.watch(slots).await?;
        }
        let load = Load::new(plan, workload, slots, &empty, clock::monotonic());
        let load = Arc::new(SharedLoad::new(load));
        // Aborted with the end of this function.
        let mut helpers = JoinSet::new();
        for (watcher, senders) in watching.watchers {
            helpers.spawn(slot::dispatch(watcher, senders, Arc::clone(&load)));
        }
        if rate.is_some() {
            let load = Arc::clone(&load);
            helpers.spawn(async move {
                if let Err(error) = slot::pace(&load, slots).await {
                    load.stop(BenchEnd::Failed(error));
                }
            });
        }
        let mut running = JoinSet::new();
        let mut notifications = watching.notifications.into_iter();
        for (number, client) in (0..slots).zip(self.clients.iter().cycle()) {
            let key = self.keys.get(number).cloned();
            let work = match (workload, key, notifications.next()) {
                (Workload::Lock, Some(key), _) => Work::Lock { key },
                (Workload::Watch, Some(key), Some(notifications)) => {
                    Work::Watch { key, notifications, timeout: self.request_timeout }
                }
                (Workload::Set, ..) => Work::Set,
                (Workload::Get, ..) => Work::Get,
                (Workload::Mix, ..) => Work::Mix,
                (Workload::Lock | Workload::Watch, ..) => {
                    return Err(CommandError::new(Kind::Bug, "a bench without a key"));
                }
            };
            running.spawn(slot::run(number, Arc::clone(&load), Arc::clone(&common), client.clone(), work));
        }
        let signal = self.follow(&load, &mut running, signals, emit).await?;
        running.shutdown().await;
        helpers.shutdown().await;
        let load =
            Arc::into_inner(load).ok_or_else(|| CommandError::new(Kind::Bug, "the bench has not ended"))?;
        Ok(Stopped { measured: Some(load.into_load().finish(clock::monotonic())), signal })
    }

    /// Emits the progress until all operations have ended. Returns the signal that has ended them.
    async fn follow(
        &self,
        load: &SharedLoad,
        running: &mut JoinSet<()>,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<Option<Signal>, CommandError> {
        let mut ended_by: Option<Signal> = None;
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = (clock::monotonic(), 0);
        let drained = sleep(DRAIN_MAX);
        tokio::pin!(drained);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    if ended_by.replace(signal).is_some() {
                        break;
                    }
                    load.stop(BenchEnd::Interrupted);
                    drained.set(sleep(DRAIN_MAX));
                }
                () = &mut drained, if ended_by.is_some() => break,
                joined = running.join_next() => match joined {
                    None => break,
                    Some(joined) => joined.map_err(panicked)?,
                },
                _ = ticks.tick() => {
                    let (progress, now) = progress(load, last);
                    last = now;
                    emit(Output::BenchProgress(progress))?;
                }
            }
        }
        Ok(ended_by)
    }

    /// Watches the keys of all slots: each client those of the client before it.
    async fn watch(&self, slots: usize) -> Result<Watching, CommandError> {
        let clients = self.clients.len();
        let mut watching = Watching::default();
        let mut senders = vec![Notifications::new(); clients];
        for (number, key) in (0..slots).zip(&self.keys) {
            let (sender, receiver) = mpsc::channel(NOTIFICATIONS_MAX);
            watching.notifications.push(receiver);
            let watching_client = number.saturating_add(1).checked_rem(clients).unwrap_or(0);
            if let Some(senders) = senders.get_mut(watching_client) {
                senders.insert(key.clone(), sender);
            }
        }
        for (client, senders) in self.clients.iter().zip(senders) {
            let keys: Vec<_> = senders.keys().cloned().collect();
            watching.watchers.push((slot::watch(client, &keys).await?, senders));
        }
        Ok(watching)
    }
}

/// Returns the progress since the last one, which is given by its time and its number of operations, and those of this one.
fn progress(load: &SharedLoad, (last, finished_then): (Instant, u64)) -> (BenchProgress, (Instant, u64)) {
    let now = clock::monotonic();
    let load = load.lock();
    let finished = load.finished();
    let us = now.saturating_duration_since(last).as_micros();
    let new = u128::from(finished.saturating_sub(finished_then));
    let per_second = new.saturating_mul(1_000_000).checked_div(us).unwrap_or(0);
    let (done, total) = load.progress(now);
    let progress = BenchProgress {
        done,
        total,
        is_warmup: load.is_warmup(now),
        per_second: u64::try_from(per_second).unwrap_or(u64::MAX),
        p99: load.p99(),
        failed: load.failed(),
    };
    (progress, (now, finished))
}

fn panicked(error: JoinError) -> CommandError {
    CommandError::new(Kind::Bug, format!("a task of the bench has ended: {error}"))
}
