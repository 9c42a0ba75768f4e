//! The slots of a bench: each performs one operation at a time on a client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout_at;

use super::load::{Load, Next, Operation};
use super::report::{BenchEnd, Failure};
use crate::client::{Client, DeleteOutcome, Error, SetOptions, WatchEvent, Watcher};
use crate::clock;
use crate::commands::error::{CommandError, Kind};
use crate::platform::Timer;
use crate::protocol::{Condition, Key, Timestamp, Value};

/// The load, shared by all slots.
#[derive(Debug)]
pub struct SharedLoad {
    load: Mutex<Load>,
    /// Notified when an operation is due, and when none will be any more.
    due: Notify,
}

/// The notification of a SET, and when it was received.
pub type Notified = (Option<Timestamp>, Instant);

/// The slots that get the notifications of keys.
pub type Notifications = HashMap<Key, mpsc::Sender<Notified>>;

/// The operations of one slot.
#[derive(Debug)]
pub enum Work {
    Set,
    Get,
    Mix,
    Lock { key: Key },
    Watch { key: Key, notifications: mpsc::Receiver<Notified>, timeout: Duration },
}

/// What all slots use.
#[derive(Debug)]
pub struct Common {
    /// Keys that all slots share.
    pub keys: Vec<Key>,
    pub value: Value,
    pub options: SetOptions,
}

/// The latencies of the parts of an operation, and when it ended.
struct Answered {
    at: Instant,
    parts: [(usize, Duration); 2],
    count: usize,
}

impl Answered {
    fn new(at: Instant) -> Self {
        Self { at, parts: [(0, Duration::ZERO); 2], count: 0 }
    }

    /// Adds the latency of a part, by its index among the latencies of the workload.
    fn part(mut self, index: usize, latency: Duration) -> Self {
        if let Some(part) = self.parts.get_mut(self.count) {
            *part = (index, latency);
            self.count = self.count.saturating_add(1);
        }
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error.into())
    }
}

impl SharedLoad {
    #[must_use]
    pub fn new(load: Load) -> Self {
        Self { load: Mutex::new(load), due: Notify::new() }
    }

    /// Returns the load. It is consistent whenever it is not locked.
    pub fn lock(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self, end: BenchEnd) {
        self.lock().stop(end, clock::monotonic());
        self.due.notify_waiters();
    }

    /// Returns what was measured.
    #[must_use]
    pub fn into_load(self) -> Load {
        self.load.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next operation of a slot; None if there is none any more.
    async fn next(&self, slot: usize) -> Option<Operation> {
        let next = || self.lock().next(slot, clock::monotonic());
        loop {
            match next() {
                Next::Send(operation) => return Some(operation),
                Next::Done => return None,
                Next::Wait => {}
            }
            let due = self.due.notified();
            tokio::pin!(due);
            // From here on no notification is missed.
            due.as_mut().enable();
            match next() {
                Next::Send(operation) => return Some(operation),
                Next::Done => return None,
                Next::Wait => due.await,
            }
        }
    }

    fn handle_end(&self, slot: usize, result: Result<Answered, Failure>) {
        let mut load = self.lock();
        match result {
            Ok(Answered { at, parts, count }) => {
                load.handle_answer(slot, at, parts.get(..count).unwrap_or_default());
            }
            Err(failure) => load.handle_failure(slot, clock::monotonic(), failure),
        }
        if load.is_stopped() {
            drop(load);
            self.due.notify_waiters();
        }
    }
}

/// Wakes slots when operations are due; returns when none is any more.
pub async fn pace(load: &SharedLoad, slots: usize) -> Result<(), CommandError> {
    let failed = |error| CommandError::system("set a timer", &error);
    let timer = Timer::new().map_err(failed)?;
    loop {
        let now = clock::monotonic();
        let (count, next) = load.lock().poll_due(now);
        // A slot that is busy asks for the next operation by itself.
        let count = usize::try_from(count).map_or(slots, |count| count.min(slots));
        (0..count).for_each(|_| load.due.notify_one());
        let Some(next) = next else { break };
        timer.sleep(next.saturating_duration_since(clock::monotonic())).await.map_err(failed)?;
    }
    load.due.notify_waiters();
    Ok(())
}

/// Performs operations until there are none any more.
pub async fn run(slot: usize, load: Arc<SharedLoad>, common: Arc<Common>, client: Client, mut work: Work) {
    while let Some(operation) = load.next(slot).await {
        let result = work.perform(&operation, &common, &client).await;
        load.handle_end(slot, result);
    }
}

impl Work {
    async fn perform(
        &mut self,
        operation: &Operation,
        common: &Common,
        client: &Client,
    ) -> Result<Answered, Failure> {
        let since = |at: Instant| at.saturating_duration_since(operation.due);
        match self {
            Self::Set => set(operation.number, common, client).await.map(Answered::new),
            Self::Get => get(operation.number, common, client).await.map(Answered::new),
            Self::Mix => {
                // Every key is both read and written.
                let (number, is_set) = (operation.number / 2, operation.number % 2 == 1);
                let at = if is_set {
                    set(number, common, client).await?
                } else {
                    get(number, common, client).await?
                };
                Ok(Answered::new(at).part(if is_set { 2 } else { 1 }, since(at)))
            }
            Self::Lock { key } => {
                let condition = Some(Condition::AbsentOrEqual);
                let options = SetOptions { condition, ..common.options.clone() };
                if !client.set(key, &common.value, options).await?.applied {
                    return Err(Failure::No("the lock is held by another holder"));
                }
                let acquired = clock::monotonic();
                match client.vdel(key, &common.value, None).await? {
                    DeleteOutcome::Deleted { .. } => {}
                    DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. } => {
                        return Err(Failure::No("the lock was lost before its release"));
                    }
                }
                let released = clock::monotonic();
                let release = released.saturating_duration_since(acquired);
                Ok(Answered::new(released).part(1, since(acquired)).part(2, release))
            }
            Self::Watch { key, notifications, timeout } => {
                // Those of operations that have timed out.
                while notifications.try_recv().is_ok() {}
                let sent = clock::monotonic();
                let version = client.set(key, &common.value, common.options.clone()).await?.version;
                let set = since(clock::monotonic());
                let until = sent.checked_add(*timeout).unwrap_or(sent);
                let notified = notified(notifications, version, until).await.ok_or_else(|| {
                    let message = format!("no notification of a SET within {timeout:?}");
                    Failure::Error(CommandError::new(Kind::Timeout, message))
                })?;
                Ok(Answered::new(notified).part(1, set))
            }
        }
    }
}

async fn set(number: u64, common: &Common, client: &Client) -> Result<Instant, Failure> {
    let key = key(number, common)?;
    client.set(key, &common.value, common.options.clone()).await?;
    Ok(clock::monotonic())
}

async fn get(number: u64, common: &Common, client: &Client) -> Result<Instant, Failure> {
    let key = key(number, common)?;
    client.get(key).await?.ok_or(Failure::No("a key was deleted or has expired"))?;
    Ok(clock::monotonic())
}

fn key(number: u64, common: &Common) -> Result<&Key, Failure> {
    let index = number.checked_rem(common.keys.len() as u64).map(|index| index as usize);
    let no_keys = || Failure::Error(CommandError::new(Kind::Bug, "a bench without keys"));
    index.and_then(|index| common.keys.get(index)).ok_or_else(no_keys)
}

/// Waits for the notification of this version, or of a later one; None if there is none in time.
async fn notified(
    notifications: &mut mpsc::Receiver<Notified>,
    version: Option<Timestamp>,
    until: Instant,
) -> Option<Instant> {
    loop {
        let (notified, at) = timeout_at(until.into(), notifications.recv()).await.ok()??;
        if version.is_none() || notified.is_none() || notified >= version {
            return Some(at);
        }
    }
}

/// Watches keys, and returns when all are watched.
///
/// # Errors
/// A key cannot be watched.
pub async fn watch(client: &Client, keys: &[Key]) -> Result<Watcher, CommandError> {
    let mut watcher = client.watch(keys.iter().cloned()).await?;
    let mut missing = keys.len();
    while missing > 0 {
        let event = watcher.next().await.map_err(CommandError::of_watch)?;
        missing = missing.saturating_sub(usize::from(matches!(event, WatchEvent::Current { .. })));
    }
    Ok(watcher)
}

/// Passes on the notifications of a watch, until the watch ends.
pub async fn dispatch(mut watcher: Watcher, slots: Notifications, load: Arc<SharedLoad>) {
    loop {
        match watcher.next().await {
            Ok(WatchEvent::Set { key, version, .. }) => {
                // A slot without room has not received the notifications of operations that have timed out.
                let _ = slots.get(&key).map(|slot| slot.try_send((version, clock::monotonic())));
            }
            Ok(_) => {}
            Err(error) => return load.stop(BenchEnd::Failed(CommandError::of_watch(error))),
        }
    }
}
