//! Membership: a key that exists as long as its process renews the lease.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::Error;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::client::Etcd;
use crate::clock;
use crate::ledger::etcd::operation::{Condition, EtcdError, Operation, RangeRead, Txn, TxnOutcome};

/// The lease is renewed this often within its time.
const RENEWALS: u32 = 3;
/// So many renewals in a row fail before that is reported: after the first one, another endpoint may answer.
const FAILURES_REPORTED: u32 = 2;
/// The wait after a renewal without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A member of the cluster: its key has a lease that is renewed until this is closed or dropped.
///
/// If the lease is lost, as after a pause of the process, the key is put again with another one, unless another process has it
/// meanwhile. Safety must not depend on it: a paused process does not notice that its key is gone.
pub struct Member {
    is_present: watch::Receiver<bool>,
    failure: watch::Receiver<Option<EtcdError>>,
    /// The seconds of the lease that etcd has granted.
    granted_s: watch::Receiver<Option<u32>>,
    /// Dropped to end the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A further key of a member, with the same lease, whose value changes: it is put again and again.
pub struct Announcement {
    pub key: Bytes,
    pub value: Box<dyn Fn() -> Bytes + Send + Sync>,
}

impl fmt::Debug for Announcement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Announcement").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The time between two announcements.
const ANNOUNCEMENT_PAUSE: Duration = Duration::from_secs(5);

/// What a member reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// Renewals begin to fail, with this error, or succeed again.
    Renewals(Option<EtcdError>),
    /// etcd has granted a lease of so many seconds.
    Granted { granted_s: u32 },
}

impl Member {
    /// Begins to put the key with a lease of this many whole seconds, until it succeeds. etcd may grant a longer one: at least
    /// one and a half times its election timeout.
    #[must_use]
    pub fn start(etcd: &Etcd, key: Bytes, value: Bytes, lease_s: u32) -> Self {
        Self::announcing(etcd, key, value, lease_s, None)
    }

    /// The same for a member with an announcement, which is there whenever the key is.
    #[must_use]
    pub fn announcing(
        etcd: &Etcd,
        key: Bytes,
        value: Bytes,
        lease_s: u32,
        announcement: Option<Announcement>,
    ) -> Self {
        let (sender, granted_s) = watch::channel(None);
        let mut presence = Presence {
            etcd: etcd.clone(),
            key,
            value,
            announcement,
            announced: None,
            lease_s,
            lease: None,
            granted_s: sender,
        };
        let (sender, is_present) = watch::channel(false);
        let (failures, failure) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = presence.stay(&sender, &failures) => {}
                _ = stopped => {}
            }
            presence.leave().await;
        });
        Self { is_present, failure, granted_s, stop, task }
    }

    /// Returns whether the key existed when the lease was renewed last.
    #[must_use]
    pub fn is_present(&self) -> bool {
        *self.is_present.borrow()
    }

    /// Waits until the key is there or its lease is lost, and returns whether it is there.
    pub async fn changed(&mut self) -> bool {
        if self.is_present.changed().await.is_err() {
            return false;
        }
        *self.is_present.borrow_and_update()
    }

    /// Waits for the next event. Cancel safe.
    pub async fn event(&mut self) -> MemberEvent {
        loop {
            let is_running = tokio::select! {
                changed = self.failure.changed() => match changed {
                    Ok(()) => return MemberEvent::Renewals(self.failure.borrow_and_update().clone()),
                    Err(_) => false,
                },
                changed = self.granted_s.changed() => match changed {
                    Ok(()) => match *self.granted_s.borrow_and_update() {
                        Some(granted_s) => return MemberEvent::Granted { granted_s },
                        None => true,
                    },
                    Err(_) => false,
                },
            };
            if !is_running {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns why the last renewals have failed.
    #[must_use]
    pub fn failure(&self) -> Option<EtcdError> {
        self.failure.borrow().clone()
    }

    /// Deletes the key, unless etcd does not answer: then it disappears with its lease.
    pub async fn close(self) {
        drop(self.stop);
        // A task that has failed has left the key to its lease.
        let _ = self.task.await;
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Member").field("is_present", &self.is_present()).finish_non_exhaustive()
    }
}

fn taken() -> EtcdError {
    EtcdError::Refused { reason: "another process uses the name of this instance now".to_owned() }
}

/// What the task of a [`Member`] has.
struct Presence {
    etcd: Etcd,
    key: Bytes,
    value: Bytes,
    announcement: Option<Announcement>,
    announced: Option<Instant>,
    lease_s: u32,
    /// The lease of the key, if there may be one.
    lease: Option<i64>,
    granted_s: watch::Sender<Option<u32>>,
}

impl Presence {
    async fn stay(&mut self, is_present: &watch::Sender<bool>, failure: &watch::Sender<Option<EtcdError>>) {
        let mut failures = 0_u32;
        loop {
            let pause =
                Duration::from_secs(u64::from(self.lease_s)).checked_div(RENEWALS).unwrap_or_default();
            match self.step(is_present).await {
                Ok(()) => {
                    failures = 0;
                    failure.send_if_modified(|shown| shown.take().is_some());
                    sleep(pause).await;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == FAILURES_REPORTED {
                        failure.send_replace(Some(error));
                    }
                    sleep(pause.min(RETRY_PAUSE)).await;
                }
            }
        }
    }

    /// Renews the lease or, if there is none any more, puts the key with another one.
    async fn step(&mut self, is_present: &watch::Sender<bool>) -> Result<(), EtcdError> {
        if let Some(lease) = self.lease {
            // Without an answer the lease may still be there: it is renewed at the next endpoint.
            if self.renew(lease).await? {
                return self.announce(lease).await;
            }
            self.lease = None;
            is_present.send_replace(false);
        }
        let revision = self.free_revision().await?;
        let seconds = i64::from(self.lease_s);
        let grant =
            |client: etcd_client::Client| async move { client.lease_client().grant(seconds, None).await };
        let granted = self.etcd.request(0, grant).await?;
        let lease = granted.id();
        let granted_s = u32::try_from(granted.ttl()).ok();
        self.granted_s.send_if_modified(|known| std::mem::replace(known, granted_s) != granted_s);
        let (key, value) = (self.key.clone(), self.value.clone());
        let txn = Txn {
            conditions: vec![Condition { key: key.clone(), mod_revision: revision }],
            operations: [Operation::Put { key, value, lease: Some(lease.unsigned_abs()) }]
                .into_iter()
                .chain(self.announcement_with(lease))
                .collect(),
            otherwise: Vec::new(),
        };
        match self.etcd.txn(&txn).await?.outcome {
            TxnOutcome::Applied => {}
            // Another process has just put it, or the answer to an earlier attempt is missing: the next step shows it.
            TxnOutcome::NotApplied(_) => return Err(taken()),
        }
        self.lease = Some(lease);
        is_present.send_replace(true);
        Ok(())
    }

    /// Announces again, if that is due. What has failed is tried with the next renewal.
    async fn announce(&mut self, lease: i64) -> Result<(), EtcdError> {
        let now = clock::monotonic();
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < ANNOUNCEMENT_PAUSE;
        let Some(put) = self.announcement_with(lease).filter(|_| !self.announced.is_some_and(is_fresh))
        else {
            return Ok(());
        };
        match self.etcd.txn(&Txn { operations: vec![put], ..Txn::default() }).await {
            Ok(_) => self.announced = Some(now),
            // Without space, the key stays as long as its lease.
            Err(EtcdError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn announcement_with(&self, lease: i64) -> Option<Operation> {
        let Announcement { key, value } = self.announcement.as_ref()?;
        Some(Operation::Put { key: key.clone(), value: value(), lease: Some(lease.unsigned_abs()) })
    }

    /// Returns the revision of the key; 0 if it is not there.
    ///
    /// # Errors
    /// [`EtcdError::Refused`]: the key is that of another process, which has come while this one was paused.
    async fn free_revision(&self) -> Result<u64, EtcdError> {
        let read = RangeRead::one(self.key.clone(), None);
        match self.etcd.read(&read).await?.pairs.first() {
            None => Ok(0),
            Some(pair) if pair.value == self.value => Ok(pair.mod_revision),
            Some(_) => Err(taken()),
        }
    }

    /// Returns whether the lease still exists.
    async fn renew(&self, lease: i64) -> Result<bool, EtcdError> {
        let renew = |client: etcd_client::Client| async move {
            match client.lease_client().keep_alive(lease).await {
                Ok(_) => Ok(true),
                Err(Error::LeaseKeepAliveError(_)) => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.etcd.request(0, renew).await
    }

    async fn leave(&self) {
        let Some(lease) = self.lease else { return };
        let revoke = |client: etcd_client::Client| async move { client.lease_client().revoke(lease).await };
        // If it fails, the key disappears when the lease ends.
        let _ = self.etcd.request(0, revoke).await;
    }
}
