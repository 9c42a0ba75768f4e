//! A store as an instance of a cluster: its service, run with the client of etcd.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::client::{EndpointStatus, Etcd, EtcdSettings};
use super::member::{Announcement, Member, MemberEvent};
use super::runner::{self, Application, Command};
use super::version::has_stale_read_fix;
use crate::clock;
use crate::ledger::Group;
use crate::ledger::etcd::CLUSTER_KEY_BYTES;
use crate::ledger::etcd::commit::padding;
use crate::ledger::etcd::operation::{Condition, Operation, RangeRead, Txn};
use crate::ledger::etcd::{Layout, MemberState, encode_run};
use crate::random;
use crate::server::cluster::{ClusterEvent, Effect, InstanceSettings, Role, Status};
use crate::server::delivery::Publisher;
use crate::server::error::{ClusterErrorKind, Error};
use crate::server::event::{Event, EventSink};
use crate::server::metrics::Metrics;
use crate::server::service::{Service, StoreSettings};
use crate::store::Now;

/// How much later than its time a lease may end.
const LEASE_SLACK: Duration = Duration::from_secs(2);
/// The time that a takeover takes at most, once it begins.
const TAKEOVER: Duration = Duration::from_secs(3);
/// Between two looks at whether a name is free.
const NAME_POLL: Duration = Duration::from_millis(100);

/// Settings of an instance of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    pub etcd: EtcdSettings,
    /// The name of the cluster, whose keys in etcd are below `/mqkv/NAME/`.
    pub name: String,
    /// The name of the instance, which no other one of the cluster has.
    pub instance: Arc<str>,
    /// After so many seconds without a sign of life of the owner, another instance takes over. etcd may take longer.
    pub lease_s: u32,
    /// Whether the history of etcd is discarded every five minutes.
    pub compacts: bool,
}

impl ClusterSettings {
    /// Returns how long an instance of a service client holds the requests that the owner may not answer.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        Duration::from_secs(self.lease_s.into()).saturating_add(TAKEOVER)
    }

    /// Returns the keep-alive of the connection with the broker: an owner whose connection is silently lost is replaced about as
    /// soon as one that is killed. Zero, for none, stays.
    #[must_use]
    pub fn keep_alive(&self, configured: Duration) -> Duration {
        configured.min(Duration::from_secs(self.lease_s.into()))
    }
}

/// A store as an instance of a cluster. Dropping it ends it as a kill does, but for its key among
/// the members.
pub struct ClusterNode {
    settings: ClusterSettings,
    /// The hash key of the cluster if this instance creates it.
    hash_key: [u8; CLUSTER_KEY_BYTES],
    etcd: Etcd,
    /// Whether etcd may answer a read with a stale state.
    has_stale_reads: bool,
    service: Arc<Service>,
    events: EventSink,
    running: Option<Running>,
}

struct Running {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Option<Status>>,
    task: JoinHandle<()>,
    /// Why the instance cannot take part in the cluster.
    failure: watch::Receiver<Option<String>>,
    /// Ends the membership when it is dropped.
    leave: oneshot::Sender<()>,
    membership: JoinHandle<()>,
}

impl ClusterNode {
    /// Connects with etcd. `has_registrations`: as for [`Service::in_cluster`].
    ///
    /// # Errors
    /// [`Error::Cluster`]: the settings are invalid, or no endpoint of etcd can be used.
    pub async fn open(
        settings: ClusterSettings,
        store: &StoreSettings,
        has_registrations: bool,
        events: EventSink,
        metrics: Arc<Metrics>,
    ) -> Result<(Arc<Service>, Self), Error> {
        let etcd = Etcd::connect(&settings.etcd).await;
        let etcd = etcd.map_err(|error| Error::Cluster {
            kind: error.kind(),
            reason: error.to_string(),
            hint: error.hint().map(str::to_owned),
        })?;
        let hash_key = random::bytes().map_err(|cause| Error::Cluster {
            kind: ClusterErrorKind::Unavailable,
            reason: format!("no random numbers: {cause}"),
            hint: None,
        })?;
        check_access(&etcd, &settings).await?;
        check_name(&etcd, &settings).await?;
        let has_stale_reads = !has_fixed_reads(&etcd).await;
        let service = Service::in_cluster(store, has_registrations, Arc::clone(&events), metrics);
        let node = Self {
            settings,
            hash_key,
            etcd,
            has_stale_reads,
            service: Arc::clone(&service),
            events,
            running: None,
        };
        Ok((service, node))
    }

    /// Starts as a follower. Must be called once, within a tokio runtime. `reached`: whether clients reach the instance, which
    /// takes nothing over without.
    pub fn start(&mut self, publisher: impl Publisher + Clone + 'static, reached: watch::Receiver<bool>) {
        let ClusterSettings { name, instance, lease_s, compacts, .. } = self.settings.clone();
        let (layout, run) = (Layout::new(&name), random::u64());
        let announced = Arc::new(Announced::default());
        let announcement =
            Announcement { key: layout.clock(&instance), value: announcement(Arc::clone(&announced)) };
        let (key, value) = (layout.member(&instance), encode_run(run));
        let member = Member::announcing(&self.etcd, key, value, lease_s, Some(announcement));
        let (leave, left) = oneshot::channel();
        let membership = tokio::spawn(keep_membership(member, lease_s, Arc::clone(&self.events), left));
        let (failed, failure) = watch::channel(None);
        let settings = InstanceSettings {
            layout,
            instance,
            run,
            hash_key: self.hash_key,
            confirms_by_commit: self.has_stale_reads,
            compacts,
        };
        let (service, events) = (Arc::clone(&self.service), Arc::clone(&self.events));
        let store = Store { service, publisher, events, failed, announced };
        let (commands, receiver) = mpsc::channel(1);
        let (sender, status) = watch::channel(None);
        let etcd = self.etcd.clone();
        let task = tokio::spawn(async move {
            runner::run(settings, etcd, &store, receiver, reached, &sender).await;
        });
        self.running = Some(Running { commands, status, task, failure, leave, membership });
    }

    /// Returns whether the cluster has another member, waiting for one at most `within`; true if etcd does not answer.
    pub async fn has_others(&self, within: Duration) -> bool {
        let layout = Layout::new(&self.settings.name);
        let (from, to) = layout.members();
        let (read, own) =
            (RangeRead { from, to, limit: 2, revision: None }, layout.member(&self.settings.instance));
        let begun = clock::monotonic();
        loop {
            let members = self.etcd.read(&read).await;
            if members.is_ok_and(|members| members.pairs.iter().all(|pair| pair.key == own)) {
                if clock::monotonic().saturating_duration_since(begun) >= within {
                    return false;
                }
            } else {
                return true;
            }
            sleep(NAME_POLL).await;
        }
    }

    /// Waits until the instance owns the store. Cancel safe.
    pub async fn serving(&mut self) {
        self.wait_for(|role| role == Some(Role::Owner)).await;
    }

    /// Waits until the instance does not own the store. Cancel safe.
    pub async fn lost(&mut self) {
        self.wait_for(|role| role != Some(Role::Owner)).await;
    }

    async fn wait_for(&mut self, is_awaited: impl Fn(Option<Role>) -> bool) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let role = |status: &Option<Status>| status.as_ref().map(|status| status.role);
        if running.status.wait_for(|status| is_awaited(role(status))).await.is_err() && !is_awaited(None) {
            std::future::pending().await
        }
    }

    /// Returns the error that keeps the instance from the cluster for good. Cancel safe.
    pub fn failed(&self) -> impl Future<Output = Error> + use<> {
        let failure = self.running.as_ref().map(|running| running.failure.clone());
        async move {
            if let Some(mut failure) = failure
                && let Ok(reason) = failure.wait_for(Option::is_some).await
            {
                return incompatible(reason.as_deref().unwrap_or_default());
            }
            std::future::pending().await
        }
    }

    /// Gives the store up, so that another instance takes over at once. Everything that waits for etcd should have been answered.
    /// Returns whether that was done in time.
    pub async fn resign(mut self, within: Duration) -> bool {
        let Some(mut running) = self.running.take() else { return true };
        // A task that has ended owns nothing.
        let _ = running.commands.try_send(Command::Resign);
        let is_done = timeout(within, &mut running.task).await.is_ok_and(|ended| ended.is_ok());
        running.task.abort();
        drop(running.leave);
        timeout(within, running.membership).await.is_ok() && is_done
    }
}

/// What an instance announces besides the clock of the machine.
#[derive(Debug, Default)]
struct Announced {
    off_ms: AtomicI64,
    reads_at: AtomicU64,
}

fn announcement(announced: Arc<Announced>) -> Box<dyn Fn() -> Bytes + Send + Sync> {
    Box::new(move || {
        let off_ms = announced.off_ms.load(Ordering::Relaxed);
        let reads_at = announced.reads_at.load(Ordering::Relaxed);
        MemberState { wall_ms: clock::wall_ms(), off_ms, reads_at }.encode()
    })
}

/// Keeps the key among the members until `left` ends, and reports when etcd does not answer, and when it does again.
async fn keep_membership(
    mut member: Member,
    lease_s: u32,
    events: EventSink,
    mut left: oneshot::Receiver<()>,
) {
    loop {
        let event = tokio::select! {
            event = member.event() => match event {
                MemberEvent::Renewals(Some(error)) => ClusterEvent::EtcdUnavailable { reason: error.to_string() },
                MemberEvent::Renewals(None) => ClusterEvent::EtcdAvailable,
                MemberEvent::Granted { granted_s } if granted_s > lease_s => {
                    ClusterEvent::LeaseExtended { granted_s }
                }
                MemberEvent::Granted { .. } => continue,
            },
            _ = &mut left => return member.close().await,
        };
        events(event.into());
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.task.abort();
            running.membership.abort();
        }
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClusterNode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns the error of a state that this instance cannot take part in.
fn incompatible(reason: &str) -> Error {
    let reason = Event::from(ClusterEvent::Incompatible { reason: reason.to_owned() }).to_string();
    let hint = "use the version of mqkv that has written it, or another name: --cluster NAME";
    Error::Cluster { kind: ClusterErrorKind::Incompatible, reason, hint: Some(hint.to_owned()) }
}

/// Checks that etcd allows this instance to read and write the keys of the cluster, by a change under a condition that never holds.
async fn check_access(etcd: &Etcd, settings: &ClusterSettings) -> Result<(), Error> {
    let layout = Layout::new(&settings.name);
    let key = layout.meta();
    let never = Condition { key: key.clone(), mod_revision: i64::MAX.cast_unsigned() };
    let put = Operation::Put { key: key.clone(), value: Bytes::new(), lease: None };
    let mut txn = Txn { conditions: vec![never], operations: vec![put], otherwise: vec![key] };
    let mut checked = etcd.txn(&txn).await;
    if checked.is_ok() {
        // As large as a commit may be.
        txn.otherwise.extend(padding(&layout));
        checked = etcd.txn(&txn).await;
    }
    let (kind, hint, error) = match checked {
        Err(error) if error.is_denied() => (ClusterErrorKind::Authentication, layout.grant_command(), error),
        Err(error) if error.is_about_size() => {
            let options =
                "etcd needs --max-request-bytes=1572864 and --max-txn-ops=128 or more: its defaults";
            (ClusterErrorKind::Unavailable, options.to_owned(), error)
        }
        // Whatever else fails may be over soon: the instance asks again.
        _ => return Ok(()),
    };
    let reason = format!("cannot use the cluster {}: {error}", settings.name);
    Err(Error::Cluster { kind, reason, hint: Some(hint) })
}

/// Checks that no other process has this name. One that was killed is a member until its lease has ended.
async fn check_name(etcd: &Etcd, settings: &ClusterSettings) -> Result<(), Error> {
    let read = RangeRead::one(Layout::new(&settings.name).member(&settings.instance), None);
    let wait = Duration::from_secs(u64::from(settings.lease_s)).saturating_add(LEASE_SLACK);
    let begun = clock::monotonic();
    loop {
        // Without an answer, nothing is known, and the instance waits for etcd anyway.
        let is_used = etcd.read(&read).await.is_ok_and(|answer| !answer.pairs.is_empty());
        if !is_used {
            return Ok(());
        }
        if clock::monotonic().saturating_duration_since(begun) >= wait {
            let reason =
                format!("the instance {} of the cluster {} is running", settings.instance, settings.name);
            return Err(Error::Cluster {
                kind: ClusterErrorKind::Unavailable,
                reason,
                hint: Some("each instance needs a name of its own: --instance NAME".to_owned()),
            });
        }
        sleep(NAME_POLL).await;
    }
}

/// Whether every endpoint of etcd answers, and none gives stale reads.
async fn has_fixed_reads(etcd: &Etcd) -> bool {
    let status = etcd.status().await;
    let is_fixed = |status: &Result<EndpointStatus, _>| {
        status.as_ref().is_ok_and(|status| has_stale_read_fix(&status.version))
    };
    status.iter().all(|(_, status)| is_fixed(status))
}

/// The service, as the application of an instance.
struct Store<P> {
    service: Arc<Service>,
    publisher: P,
    events: EventSink,
    failed: watch::Sender<Option<String>>,
    announced: Arc<Announced>,
}

impl<P: Publisher> Application for Store<P> {
    fn now(&self) -> Now {
        self.service.cluster_now()
    }

    fn machine_wall_ms(&self) -> u64 {
        clock::wall_ms()
    }

    fn handle_effect(&self, effect: Effect) {
        match self.service.handle_cluster_effect(effect, &self.publisher) {
            // It ends the process with this error.
            Some(ClusterEvent::Incompatible { reason }) => _ = self.failed.send_replace(Some(reason)),
            Some(event) => (self.events)(event.into()),
            None => {}
        }
    }

    fn note_status(&self, status: &Status) {
        self.announced.off_ms.store(status.clock_off_ms, Ordering::Relaxed);
        self.announced.reads_at.store(status.reads_at, Ordering::Relaxed);
        self.service.metrics().cluster.set_status(status.clone());
    }

    fn take_group(&self) -> Option<Group> {
        self.service.take_cluster_group()
    }

    async fn group_ready(&self) {
        self.service.group_ready().await;
    }
}
