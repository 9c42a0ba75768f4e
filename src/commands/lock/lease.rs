//! Holds a lock in the background: carries the steps of the lock's machine to the store, and its events to a verb.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::lock::{LeaseOptions, Lock, LockAction, LockEvent, LossReason, TryResult};
use crate::client::{Client, DeleteOutcome, Error, Outcome, SetOptions, SetOutcome};
use crate::commands::lock::holder_watch::{News, Waiting};
use crate::commands::lock::sleep::until;
use crate::protocol::{Condition, ErrorReply, Key, Value};

/// Who wants which lock.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The lock's key.
    pub key: Key,
    /// What the key holds while the lock is held.
    pub holder: Value,
    /// How it is to be held.
    pub terms: LeaseOptions,
    /// Reads the monotonic clock.
    pub now: fn() -> Instant,
}

/// What a verb is told of its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseEvent {
    /// What the machine says.
    Lock(LockEvent),
    /// Somebody else holds the lock, and has renewed it within the last lease; or not for so long.
    Held {
        /// What the key holds.
        holder: Value,
        /// Since when nothing has been heard of it, if for longer than a lease lasts.
        silent: Option<Duration>,
    },
    /// The lock is lost. The last event.
    Lost(Lost),
    /// The lock cannot be had. The last event.
    Failed(Error),
    /// The lock cannot be waited for: its key cannot be watched. The last event.
    Unwatched(Error),
}

/// How a lock was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Why.
    pub reason: LossReason,
    /// The lease's end; may be over.
    pub end: Instant,
    /// What the last try to renew it has met.
    pub cause: Option<Error>,
}

/// What became of giving a lock back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// It is free.
    Free,
    /// It was not ours any more.
    Lost,
    /// There was nothing to give back.
    NotHeld,
    /// No answer: it ends with its lease.
    Unconfirmed(Error),
}

/// A lock that is wanted, or held, in a task of its own: renewals do not wait for whoever uses the lock.
#[derive(Debug)]
pub struct Lease {
    events: mpsc::UnboundedReceiver<LeaseEvent>,
    stop: oneshot::Sender<Stop>,
    task: JoinHandle<Released>,
}

/// How the task is to end.
#[derive(Clone, Copy, Debug)]
struct Stop {
    /// How long to wait for the store's word; none: as long as for any request.
    patience: Option<Duration>,
}

impl Lease {
    /// Begins to want a lock.
    #[must_use]
    pub fn claim(client: Client, claim: Claim) -> Self {
        let (told, events) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let task = Task {
            machine: Lock::new(claim.terms, (claim.now)()),
            waiting: Waiting::new(client.clone(), claim.key.clone(), claim.terms.ttl),
            attempt: None,
            tried: false,
            may_hold: false,
            trouble: None,
            told,
            client,
            claim,
        };
        Self { events, stop, task: tokio::spawn(task.run(stopped)) }
    }

    /// The next event. May be dropped at any time.
    pub async fn next(&mut self) -> LeaseEvent {
        self.events.recv().await.unwrap_or(LeaseEvent::Failed(Error::Closed))
    }

    /// Gives the lock back, or the wish for it up.
    pub async fn release(self) -> Released {
        self.end(Stop { patience: None }).await
    }

    /// The same for whoever cannot wait: by then the lock is most likely lost, or was never had.
    pub async fn abandon(self) -> Released {
        const PATIENCE: Duration = Duration::from_secs(1);
        self.end(Stop { patience: Some(PATIENCE) }).await
    }

    /// Leaves the lock held, until its lease ends or somebody gives it back in the holder's name.
    pub async fn leave(self) {
        let Self { stop, task, .. } = self;
        task.abort();
        // A task that is at work in another thread would take the loss of its owner for the wish to give the lock back.
        let _ = task.await;
        drop(stop);
    }

    async fn end(self, stop: Stop) -> Released {
        let _ = self.stop.send(stop);
        self.task.await.unwrap_or(Released::Unconfirmed(Error::Closed))
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<SetOutcome, Error>> + Send>>;

/// A try that is under way.
struct Attempt {
    sent: Instant,
    answer: Answer,
}

struct Task {
    client: Client,
    claim: Claim,
    machine: Lock,
    waiting: Waiting,
    attempt: Option<Attempt>,
    /// A try has had an answer.
    tried: bool,
    /// The key may hold what we have set.
    may_hold: bool,
    /// What the last try has met in place of an answer.
    trouble: Option<Error>,
    told: mpsc::UnboundedSender<LeaseEvent>,
}

impl Task {
    async fn run(mut self, mut stopped: oneshot::Receiver<Stop>) -> Released {
        loop {
            self.carry_out();
            let due = self.machine.poll_timeout();
            tokio::select! {
                // An answer goes before a change: it is the older of the two.
                biased;
                stop = &mut stopped => return self.end(stop.unwrap_or(Stop { patience: None })).await,
                (sent, result) = answer(&mut self.attempt) => self.handle_answer(sent, result),
                news = self.waiting.next(self.claim.now) => self.handle_news(news),
                () = until(due.unwrap_or_else(self.claim.now), self.claim.now), if due.is_some() => {
                    self.machine.handle_timeout((self.claim.now)());
                }
            }
        }
    }

    fn carry_out(&mut self) {
        while let Some(step) = self.machine.poll_action() {
            match step {
                LockAction::Try => self.attempt = Some(self.send()),
                LockAction::Watch => self.waiting.begin((self.claim.now)()),
                LockAction::Unwatch => drop(tokio::spawn(self.waiting.end())),
            }
        }
        while let Some(event) = self.machine.poll_event() {
            let event = match event {
                LockEvent::Lost { reason, end } => {
                    let cause = self.trouble.take().filter(|_| reason == LossReason::NotRenewed);
                    LeaseEvent::Lost(Lost { reason, end, cause })
                }
                event => LeaseEvent::Lock(event),
            };
            self.tell(event);
        }
    }

    fn send(&mut self) -> Attempt {
        let sent = (self.claim.now)();
        self.may_hold = true;
        let (client, Claim { key, holder, terms, .. }) = (self.client.clone(), self.claim.clone());
        let ttl_ms = u64::try_from(terms.ttl.as_millis()).ok().and_then(|ms| ms.try_into().ok());
        let condition = Some(Condition::AbsentOrEqual);
        let options = SetOptions { condition, ttl_ms, fence: None, persist: false };
        Attempt { sent, answer: Box::pin(async move { client.set(&key, &holder, options).await }) }
    }

    fn handle_answer(&mut self, sent: Instant, result: Result<SetOutcome, Error>) {
        let now = (self.claim.now)();
        let first = !std::mem::replace(&mut self.tried, true);
        self.trouble = result.as_ref().err().cloned();
        let tried = match result {
            Ok(SetOutcome { applied: true, version: Some(token) }) => TryResult::Applied(token),
            Ok(SetOutcome { applied: true, version: None }) if first => {
                let cause = "it names no version, so there is no fencing token".to_owned();
                return self.fail(Error::MalformedReply { cause, outcome: Outcome::Unknown });
            }
            Ok(SetOutcome { applied: true, version: None }) => TryResult::Unanswered,
            Ok(SetOutcome { applied: false, .. }) => {
                self.may_hold = false;
                if let Some(told) = self.waiting.still_held(now) {
                    self.tell(told);
                }
                TryResult::NotApplied
            }
            Err(error) if first => return self.fail(error),
            Err(error) if self.is_final(&error) && !self.machine.is_held() => return self.fail(error),
            // A key that asks for a fencing token was written by somebody else since.
            Err(Error::Refused(ErrorReply::FenceRequired)) => TryResult::NotApplied,
            Err(_) => TryResult::Unanswered,
        };
        self.machine.handle_try_result(sent, tried, now);
    }

    fn handle_news(&mut self, news: News) {
        let now = (self.claim.now)();
        match news {
            News::Changed { exists, told } => {
                if let Some(told) = told {
                    self.tell(told);
                }
                self.machine.handle_change(exists, now);
            }
            News::Failed(error) => self.tell(LeaseEvent::Unwatched(error)),
        }
    }

    /// Whether another try would be told the same.
    fn is_final(&self, error: &Error) -> bool {
        match error {
            Error::PublishRefused { reason } => reason.is_authorization(),
            Error::Refused(refusal) => !matches!(
                refusal,
                ErrorReply::QuotaExceeded | ErrorReply::NotPersisted | ErrorReply::Unknown(_)
            ),
            Error::TooLarge { .. } | Error::Closed => true,
            _ => self.client.has_ended(),
        }
    }

    fn fail(&mut self, error: Error) {
        self.tell(LeaseEvent::Failed(error));
    }

    fn tell(&self, event: LeaseEvent) {
        // Whoever does not listen any more is about to stop this task.
        let _ = self.told.send(event);
    }

    async fn end(mut self, stop: Stop) -> Released {
        let unwatch = self.waiting.end();
        if !self.may_hold {
            let _ = timeout(stop.patience.unwrap_or(END_OF_WATCH), unwatch).await;
            return Released::NotHeld;
        }
        let release = async {
            // Goes out behind a try that is under way, and so undoes it.
            let ((), deleted) =
                tokio::join!(unwatch, self.client.vdel(&self.claim.key, &self.claim.holder, None));
            match deleted {
                Ok(DeleteOutcome::Deleted { .. }) => Released::Free,
                Ok(DeleteOutcome::Missing | DeleteOutcome::ValueDiffers { .. }) => Released::Lost,
                Err(Error::Refused(ErrorReply::FenceRequired)) => Released::Lost,
                Err(error) => Released::Unconfirmed(error),
            }
        };
        match stop.patience {
            None => release.await,
            Some(patience) => {
                timeout(patience, release).await.unwrap_or(Released::Unconfirmed(Error::Closed))
            }
        }
    }
}

/// How long the end of a watch is worth waiting for: the session's end ends it too.
const END_OF_WATCH: Duration = Duration::from_secs(1);

/// The answer to the try that is under way, if one is.
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
