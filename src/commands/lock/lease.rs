//! Holds a lock in a task: sends the requests of the lock's state machine, and passes its events on.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch as observe};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::holder_watch::{HolderStatus, HolderWatch, KeyEvent};
use super::sleep::sleep_until;
use crate::client::lock::{LeaseOptions, Lock, LockAction, LockEvent, LossReason, TryResult};
use crate::client::{Client, ConnectionStatus, DeleteOutcome, Error, Outcome, SetOptions, SetOutcome};
use crate::clock;
use crate::platform::{Signal, Signals};
use crate::protocol::{Condition, ErrorReply, Key, Value};

/// A lock to acquire and its holder.
#[derive(Clone, Debug)]
pub struct Claim {
    pub key: Key,
    /// The value of the key while the lock is held.
    pub holder: Value,
    pub options: LeaseOptions,
}

/// An event of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// An event of the state machine other than the loss.
    Lock(LockEvent),
    /// Another client holds the lock.
    Held(HolderStatus),
    /// The first attempt has no answer; more attempts follow.
    Unanswered(Error),
    /// The lock is lost. The last event.
    Lost(LockLoss),
    /// The lock cannot be acquired. The last event.
    Failed(Error),
    /// The lock cannot be waited for, because its key cannot be watched. The last event.
    WatchFailed(Error),
}

/// The loss of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockLoss {
    pub reason: LossReason,
    /// The end of the lease; it may have passed.
    pub end: Instant,
    /// The error of the last renewal.
    pub cause: Option<Error>,
}

/// The result of releasing a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    Free,
    /// The lock had another holder already.
    Lost,
    /// The lock was not held.
    NotHeld,
    /// The store has not answered; the lock becomes free when its lease ends.
    Unconfirmed(Error),
}

/// A lock that is being acquired or is held by a task, so that renewals do not depend on the user of the lock.
#[derive(Debug)]
pub struct Lease {
    events: mpsc::UnboundedReceiver<LeaseEvent>,
    stop: oneshot::Sender<Stop>,
    task: JoinHandle<Released>,
}

/// How the task ends.
#[derive(Clone, Copy, Debug)]
struct Stop {
    /// How long to wait for the store's answer; None for the timeout of any request.
    timeout: Option<Duration>,
}

impl Lease {
    /// Starts to acquire a lock.
    #[must_use]
    pub fn claim(client: Client, claim: Claim) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let mut connection = client.connection_status();
        connection.mark_unchanged();
        let task = Task {
            connection,
            // The system continues a process without a handler too; the lease is looked at later then.
            continued: Signals::of([Signal::CONTINUE]).unwrap_or_else(|_| Signals::none()),
            machine: Lock::new(claim.options, clock::boottime()),
            holder_watch: HolderWatch::new(client.clone(), claim.key.clone(), claim.options.ttl),
            attempt: None,
            is_answered: false,
            is_silence_reported: false,
            may_hold: false,
            last_error: None,
            events: sender,
            client,
            claim,
        };
        Self { events, stop, task: tokio::spawn(task.run(stopped)) }
    }

    /// Returns the next event. Cancel-safe.
    pub async fn next(&mut self) -> LeaseEvent {
        self.events.recv().await.unwrap_or(LeaseEvent::Failed(Error::Closed))
    }

    /// Releases the lock, or stops acquiring it.
    pub async fn release(self) -> Released {
        self.end(Stop { timeout: None }).await
    }

    /// Releases the lock and waits only briefly for the answer: most likely the lock is lost or was never held.
    pub async fn abandon(self) -> Released {
        const TIMEOUT: Duration = Duration::from_secs(1);
        self.end(Stop { timeout: Some(TIMEOUT) }).await
    }

    /// Leaves the lock held until its lease ends, or until it is released in the holder's name.
    pub async fn leave(self) {
        let Self { stop, task, .. } = self;
        task.abort();
        // The sender must outlive the task: a task in another thread would see its loss and release the lock.
        let _ = task.await;
        drop(stop);
    }

    async fn end(self, stop: Stop) -> Released {
        let _ = self.stop.send(stop);
        self.task.await.unwrap_or(Released::Unconfirmed(Error::Closed))
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<SetOutcome, Error>> + Send>>;

/// A SET of the lock's key whose answer is pending.
struct Attempt {
    sent: Instant,
    answer: Answer,
}

struct Task {
    client: Client,
    connection: observe::Receiver<ConnectionStatus>,
    continued: Signals,
    claim: Claim,
    machine: Lock,
    holder_watch: HolderWatch,
    attempt: Option<Attempt>,
    /// Whether the store has answered an attempt.
    is_answered: bool,
    /// Whether an attempt without an answer has been reported.
    is_silence_reported: bool,
    /// Whether the key may have this holder as its value.
    may_hold: bool,
    /// The error of the last attempt.
    last_error: Option<Error>,
    events: mpsc::UnboundedSender<LeaseEvent>,
}

impl Task {
    async fn run(mut self, mut stopped: oneshot::Receiver<Stop>) -> Released {
        loop {
            self.poll_machine();
            let due = self.machine.poll_timeout();
            tokio::select! {
                // An answer is handled before a change of the key, because it is the older of the two.
                biased;
                stop = &mut stopped => return self.end(stop.unwrap_or(Stop { timeout: None })).await,
                (sent, result) = answer(&mut self.attempt) => self.handle_answer(sent, result),
                event = self.holder_watch.next() => self.handle_key_event(event),
                // Another client may hold the lock after a stop of this process, or after a restart of the store.
                _ = self.continued.next() => self.machine.renew_now(clock::boottime()),
                Ok(()) = self.connection.changed() => {
                    if *self.connection.borrow_and_update() == ConnectionStatus::Connected {
                        self.machine.renew_now(clock::boottime());
                    }
                }
                () = sleep_until(due.unwrap_or_else(clock::boottime)), if due.is_some() => {
                    self.machine.handle_timeout(clock::boottime());
                }
            }
        }
    }

    fn poll_machine(&mut self) {
        while let Some(step) = self.machine.poll_action() {
            match step {
                LockAction::Try => self.attempt = Some(self.send()),
                LockAction::Watch => self.holder_watch.start(),
                LockAction::Unwatch => drop(tokio::spawn(self.holder_watch.stop())),
            }
        }
        while let Some(event) = self.machine.poll_event() {
            let event = match event {
                LockEvent::Lost { reason, end } => {
                    let cause = self.renewal_error().filter(|_| reason == LossReason::NotRenewed);
                    LeaseEvent::Lost(LockLoss { reason, end, cause })
                }
                LockEvent::GaveUp if !self.is_answered => {
                    LeaseEvent::Failed(self.last_error.take().unwrap_or(Error::Closed))
                }
                event => LeaseEvent::Lock(event),
            };
            self.notify(event);
        }
    }

    /// Returns why the lease was not renewed. Without a connection that is why there is none: the attempt has only timed out.
    fn renewal_error(&mut self) -> Option<Error> {
        let last = self.last_error.take();
        match &*self.connection.borrow() {
            ConnectionStatus::Lost { cause, .. } => Some(Error::Lost {
                target: self.client.connection_info().target.clone(),
                cause: cause.clone().into(),
                outcome: Outcome::Unknown,
            }),
            _ => last,
        }
    }

    fn send(&mut self) -> Attempt {
        let sent = clock::boottime();
        self.may_hold = true;
        let (client, Claim { key, holder, options, .. }) = (self.client.clone(), self.claim.clone());
        let ttl_ms = u64::try_from(options.ttl.as_millis()).ok().and_then(|ms| ms.try_into().ok());
        let condition = Some(Condition::AbsentOrEqual);
        let options = SetOptions { condition, ttl_ms, fence: None, persist: false };
        Attempt { sent, answer: Box::pin(async move { client.set(&key, &holder, options).await }) }
    }

    fn handle_answer(&mut self, sent: Instant, result: Result<SetOutcome, Error>) {
        let is_unanswered =
            matches!(result, Err(Error::Timeout { .. } | Error::NoStore { .. } | Error::Lost { .. }));
        let is_first = !self.is_answered;
        self.is_answered |= !is_unanswered;
        self.last_error = result.as_ref().err().cloned();
        let tried = match result {
            Ok(SetOutcome { applied: true, version: Some(token) }) => TryResult::Applied(token),
            Ok(SetOutcome { applied: true, version: None }) if is_first => {
                let cause = "it has no version, so there is no fencing token".to_owned();
                return self.fail(Error::MalformedReply { cause, outcome: Outcome::Unknown });
            }
            Ok(SetOutcome { applied: true, version: None }) => TryResult::Unanswered,
            Ok(SetOutcome { applied: false, .. }) => {
                self.may_hold = false;
                if let Some(status) = self.holder_watch.overdue() {
                    self.notify(LeaseEvent::Held(status));
                }
                TryResult::NotApplied
            }
            Err(error) if self.is_final(&error) && !self.machine.is_held() => return self.fail(error),
            Err(error) if is_first && is_unanswered && self.waits() => {
                if !std::mem::replace(&mut self.is_silence_reported, true) {
                    self.notify(LeaseEvent::Unanswered(error));
                }
                TryResult::Unanswered
            }
            Err(error) if is_first => return self.fail(error),
            // The key was written with a fencing token meanwhile, so another client has it.
            Err(Error::Refused(ErrorReply::FenceRequired)) => TryResult::NotApplied,
            Err(_) => TryResult::Unanswered,
        };
        self.machine.handle_try_result(sent, tried, clock::boottime());
    }

    fn handle_key_event(&mut self, event: KeyEvent) {
        match event {
            KeyEvent::Changed { exists, holder } => {
                if let Some(status) = holder {
                    self.notify(LeaseEvent::Held(status));
                }
                self.machine.handle_change(exists, clock::boottime());
            }
            KeyEvent::Failed(error) => self.notify(LeaseEvent::WatchFailed(error)),
        }
    }

    /// Returns whether more than one attempt is made.
    fn waits(&self) -> bool {
        self.claim.options.wait.is_none_or(|wait| !wait.is_zero())
    }

    /// Returns whether every later attempt would fail with the same error.
    fn is_final(&self, error: &Error) -> bool {
        match error {
            Error::PublishRefused { reason } => reason.is_authorization(),
            Error::Refused(refusal) => !matches!(
                refusal,
                ErrorReply::QuotaExceeded
                    | ErrorReply::NotPersisted
                    | ErrorReply::DiskFull
                    | ErrorReply::Unknown(_)
            ),
            Error::TooLarge { .. } | Error::Denied(_) | Error::Closed => true,
            _ => self.client.has_ended(),
        }
    }

    fn fail(&mut self, error: Error) {
        self.notify(LeaseEvent::Failed(error));
    }

    fn notify(&self, event: LeaseEvent) {
        // An owner that does not receive events is about to stop this task.
        let _ = self.events.send(event);
    }

    async fn end(mut self, stop: Stop) -> Released {
        let unwatch = self.holder_watch.stop();
        if !self.may_hold {
            let _ = timeout(stop.timeout.unwrap_or(UNWATCH_MAX), unwatch).await;
            return Released::NotHeld;
        }
        let release = async {
            // Sent after a pending attempt, so it undoes that one too.
            let ((), deleted) =
                tokio::join!(unwatch, self.client.vdel(&self.claim.key, &self.claim.holder, None));
            match deleted {
                Ok(DeleteOutcome::Deleted { .. }) => Released::Free,
                Ok(DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. }) => Released::Lost,
                Err(Error::Refused(ErrorReply::FenceRequired)) => Released::Lost,
                Err(error) => Released::Unconfirmed(error),
            }
        };
        match stop.timeout {
            None => release.await,
            Some(limit) => timeout(limit, release).await.unwrap_or(Released::Unconfirmed(Error::Closed)),
        }
    }
}

/// How long to wait for the end of a watch; the end of the session ends it too.
const UNWATCH_MAX: Duration = Duration::from_secs(1);

/// Waits for the answer to the pending attempt.
async fn answer(attempt: &mut Option<Attempt>) -> (Instant, Result<SetOutcome, Error>) {
    match attempt {
        Some(Attempt { sent, answer }) => {
            let answered = (*sent, answer.await);
            *attempt = None;
            answered
        }
        None => std::future::pending().await,
    }
}
