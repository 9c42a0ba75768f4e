//! Clients of a bench: connects them, prepares the keys, runs the slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::histogram::Latencies;
use super::keys;
use super::load::{Load, Plan};
use super::report::{BenchEnd, BenchProgress, BenchSettings, Measured, Workload};
use super::slot::{self, Common, Notifications, Notified, SharedLoad, Work};
use crate::client::{Client, Error, Reconnect, Settings, Watcher};
use crate::clock;
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::Emit;
use crate::commands::session::{BULK_INFLIGHT_MAX, other_client_id};
use crate::platform::{Signal, Signals};
use crate::protocol::Key;
use crate::render::Progress;

/// The most connections that are made at the same time.
const CONNECTING_MAX: usize = 16;
/// The time between two records of the progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// How long operations in flight are awaited after a signal, and the end of the clients.
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
    client_settings: Settings,
    clients: Vec<Client>,
    /// Whether keys may exist.
    has_written: bool,
    /// Whether writes may be in flight.
    is_writing: bool,
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
    pub interruption: Option<Interruption>,
}

/// An end by a signal.
#[derive(Clone, Copy)]
pub struct Interruption {
    pub signal: Signal,
    /// Whether all operations in flight have ended.
    pub is_drained: bool,
    /// Whether there was a second signal: nothing more is awaited.
    pub is_final: bool,
}

impl Bench {
    /// Creates a bench whose clients have these settings, except that each has a client id of its own.
    ///
    /// # Errors
    /// The prefix of the keys is too long.
    pub fn new(settings: BenchSettings, client_settings: Settings) -> Result<Self, CommandError> {
        let keys = keys::keys(&settings.prefix, settings.keys as usize)?;
        let value = match settings.size {
            Some(size) => vec![b'x'; usize::try_from(size).unwrap_or(usize::MAX)].into(),
            None => HOLDER,
        };
        let inflight = settings.inflight as usize;
        let client_settings = Settings {
            inflight_max: BULK_INFLIGHT_MAX.max(inflight),
            // Operations of a second connection would count as those of the first one.
            reconnect: Reconnect::Never,
            ..client_settings
        };
        let clients = Vec::new();
        Ok(Self { settings, keys, value, client_settings, clients, has_written: false, is_writing: false })
    }

    #[must_use]
    pub fn settings(&self) -> &BenchSettings {
        &self.settings
    }

    #[must_use]
    pub fn into_settings(self) -> BenchSettings {
        self.settings
    }

    /// Returns the smallest Receive Maximum of the clients; None if none is connected.
    #[must_use]
    pub fn receive_max(&self) -> Option<u16> {
        self.clients.iter().filter_map(|client| client.connection_info().receive_max()).min()
    }

    /// Prepares and measures.
    ///
    /// # Errors
    /// A client cannot connect, the keys cannot be set or watched, or `emit` failed.
    pub async fn run(&mut self, signals: &mut Signals, emit: Emit<'_>) -> Result<Stopped, CommandError> {
        let prepared = tokio::select! {
            biased;
            signal = signals.next() => {
                let interruption = Some(Interruption { signal, is_drained: true, is_final: false });
                return Ok(Stopped { measured: None, interruption });
            }
            prepared = self.prepare(emit) => prepared,
        };
        prepared?;
        self.measure(signals, emit).await
    }

    /// Ends all sessions and deletes the keys.
    ///
    /// # Errors
    /// Keys may be left: a client cannot connect, a DEL failed, or writes may take effect later. Or `emit` failed.
    pub async fn delete_keys(&mut self, is_drained: bool, emit: Emit<'_>) -> Result<(), CommandError> {
        // A SET that the store handles after the DEL of its key would create the key again.
        let settled = if is_drained { self.settle().await } else { Err(unsettled()) };
        let mut closing: JoinSet<()> = self.clients.drain(..).map(Client::close).collect();
        // A broker that does not read ends the sessions when this process ends.
        let _ = timeout(DRAIN_MAX, async { while closing.join_next().await.is_some() {} }).await;
        if !self.has_written {
            return Ok(());
        }
        let client = Client::connect(self.client_settings.clone()).await?;
        keys::delete_all(&client, &self.keys, |count| emit_count(emit, count, "keys deleted")).await?;
        client.close().await;
        if self.is_writing { settled } else { Ok(()) }
    }

    /// Waits until the store has answered all requests, also those that no caller waits for any more.
    ///
    /// # Errors
    /// A connection is lost, or a request is not answered.
    async fn settle(&self) -> Result<(), CommandError> {
        // The requests of a session are handled in their order.
        let last = |client: &Client| {
            let (client, key) = (client.clone(), self.keys.first().cloned());
            async move { request(&client, key.as_ref()).await }
        };
        let mut settling: JoinSet<_> = self.clients.iter().map(last).collect();
        let settled = async {
            while let Some(joined) = settling.join_next().await {
                joined.map_err(panicked)??;
            }
            Ok(())
        };
        timeout(DRAIN_MAX, settled).await.unwrap_or_else(|_| Err(unsettled()))
    }

    async fn prepare(&mut self, emit: Emit<'_>) -> Result<(), CommandError> {
        self.connect(emit).await?;
        if let Some(receive_max) = self.receive_max() {
            self.settings.handle_receive_max(receive_max);
            self.keys.truncate(self.settings.keys as usize);
        }
        (self.has_written, self.is_writing) = (true, true);
        let Some(first) = self.clients.first().filter(|_| self.settings.workload.shares_keys()) else {
            return Ok(());
        };
        let options = keys::set_options(self.settings.ttl)?;
        let report = |count| emit_count(emit, count, "keys");
        keys::set_all(first, &self.keys, &self.value, &options, report).await?;
        self.is_writing = self.settings.workload != Workload::Get;
        Ok(())
    }

    async fn connect(&mut self, emit: Emit<'_>) -> Result<(), CommandError> {
        let mut connecting = JoinSet::new();
        let mut missing = self.settings.clients;
        while missing > 0 || !connecting.is_empty() {
            // The first one alone: the others would fail for the same reason.
            let connecting_max = if self.clients.is_empty() { 1 } else { CONNECTING_MAX };
            while missing > 0 && connecting.len() < connecting_max {
                missing = missing.saturating_sub(1);
                let mut settings = self.client_settings.clone();
                if !self.clients.is_empty() {
                    settings.client_id = other_client_id(&settings.client_id);
                }
                let key = self.keys.first().cloned();
                connecting.spawn(async move {
                    let client = Client::connect(settings).await?;
                    // The subscription for the responses is made with the first request: that is not to be measured.
                    request(&client, key.as_ref()).await?;
                    Ok::<_, Error>(client)
                });
            }
            emit_count(emit, self.clients.len() as u64, "clients")?;
            if let Some(joined) = connecting.join_next().await {
                self.clients.push(joined.map_err(panicked)??);
            }
        }
        Ok(())
    }

    async fn measure(&self, signals: &mut Signals, emit: Emit<'_>) -> Result<Stopped, CommandError> {
        let BenchSettings { workload, limit, warmup, rate, .. } = self.settings;
        let inflight = self.settings.inflight as usize;
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
                    Work::Watch { key, notifications, timeout: self.client_settings.request_timeout }
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
        let interruption = self.follow(&load, &mut running, signals, emit).await?;
        running.shutdown().await;
        helpers.shutdown().await;
        let load =
            Arc::into_inner(load).ok_or_else(|| CommandError::new(Kind::Bug, "the bench has not ended"))?;
        let measured = Some(load.into_load().finish(clock::monotonic()));
        Ok(Stopped { measured, interruption })
    }

    /// Emits the progress until all operations have ended.
    async fn follow(
        &self,
        load: &SharedLoad,
        running: &mut JoinSet<()>,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<Option<Interruption>, CommandError> {
        let mut interruption: Option<Interruption> = None;
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = (clock::monotonic(), 0);
        let drained = sleep(DRAIN_MAX);
        tokio::pin!(drained);
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    let is_final = interruption.is_some();
                    interruption = Some(Interruption { signal, is_drained: false, is_final });
                    if is_final {
                        break;
                    }
                    load.stop(BenchEnd::Interrupted);
                    drained.set(sleep(DRAIN_MAX));
                }
                () = &mut drained, if interruption.is_some() => break,
                joined = running.join_next() => match joined {
                    None => {
                        interruption.iter_mut().for_each(|interruption| interruption.is_drained = true);
                        break;
                    }
                    Some(joined) => joined.map_err(panicked)?,
                },
                _ = ticks.tick() => {
                    let (progress, now) = progress(load, last);
                    last = now;
                    emit(&Progress { done: progress.done, total: Some(progress.total), text: &progress })?;
                }
            }
        }
        Ok(interruption)
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

/// Sends a request that changes nothing, and waits for its answer.
async fn request(client: &Client, key: Option<&Key>) -> Result<(), Error> {
    match key {
        Some(key) => client.get(key).await.map(drop),
        None => Ok(()),
    }
}

/// Emits the progress of the preparation or of the end.
fn emit_count(emit: Emit<'_>, count: u64, unit: &str) -> Result<(), CommandError> {
    Ok(emit(&Progress { done: 0, total: None, text: &format_args!("{count} {unit}") })?)
}

fn unsettled() -> CommandError {
    CommandError::new(Kind::Timeout, "operations in flight were not answered")
}

fn panicked(error: JoinError) -> CommandError {
    CommandError::new(Kind::Bug, format!("a task of the bench has ended: {error}"))
}
