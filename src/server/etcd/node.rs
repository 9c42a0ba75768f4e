//! A store as an instance of a cluster: its service, run with the client of etcd.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::client::{EndpointStatus, Etcd, EtcdSettings};
use super::member::{Member, MemberEvent};
use super::runner::{self, Application, Command};
use super::version::has_stale_read_fix;
use crate::clock;
use crate::random;
use crate::server::cluster::operation::RangeRead;
use crate::server::cluster::overview::SHARDS_MAX;
use crate::server::cluster::{
    ClusterEvent, Effect, Group, InstanceSettings, Layout, Meta, Role, Status, encode_run,
};
use crate::server::cluster_key::CLUSTER_KEY_BYTES;
use crate::server::delivery::Publisher;
use crate::server::error::{ClusterErrorKind, Error};
use crate::server::event::{Event, EventSink};
use crate::server::operations::metrics::Metrics;
use crate::server::service::{Service, Shards, StoreSettings};
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
    /// The number of shards, at least one, the same for all instances of the cluster; `None`: that of the cluster, or 1 if
    /// this instance creates it.
    pub shards: Option<u32>,
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

/// A store as an instance of a cluster, with a service for each shard. Dropping it ends it as a kill does, but for its key among
/// the members.
pub struct ClusterNode {
    settings: ClusterSettings,
    /// The hash key of the cluster if this instance creates it.
    hash_key: [u8; CLUSTER_KEY_BYTES],
    etcd: Etcd,
    /// Whether etcd may answer a read with a stale state.
    has_stale_reads: bool,
    shards: Shards,
    events: EventSink,
    running: Option<Running>,
}

struct Running {
    shards: Vec<RunningShard>,
    /// Why the instance cannot take part in the cluster.
    failure: watch::Receiver<Option<String>>,
    /// Ends the membership when it is dropped.
    leave: oneshot::Sender<()>,
    membership: JoinHandle<()>,
}

struct RunningShard {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Option<Status>>,
    task: JoinHandle<()>,
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
    ) -> Result<(Shards, Self), Error> {
        let etcd = Etcd::connect(&settings.etcd).await;
        let etcd = etcd.map_err(|error| Error::Cluster {
            kind: error.kind(),
            reason: error.to_string(),
            hint: error.hint(),
        })?;
        let hash_key = random::bytes().map_err(|cause| Error::Cluster {
            kind: ClusterErrorKind::Unavailable,
            reason: format!("no random numbers: {cause}"),
            hint: None,
        })?;
        check_name(&etcd, &settings).await?;
        let has_stale_reads = !has_fixed_reads(&etcd).await;
        let shards = shards_of(&etcd, &settings).await?;
        let shards = Shards::new(shards, |shard| {
            Service::in_cluster(store, shard, has_registrations, Arc::clone(&events), Arc::clone(&metrics))
        });
        let node =
            Self { settings, hash_key, etcd, has_stale_reads, shards: shards.clone(), events, running: None };
        Ok((shards, node))
    }

    /// Starts as a follower. Must be called once, within a tokio runtime. `reached`: whether clients reach the instance, which
    /// takes nothing over without.
    pub fn start(&mut self, publisher: impl Publisher + Clone + 'static, reached: watch::Receiver<bool>) {
        let ClusterSettings { name, instance, lease_s, compacts, .. } = self.settings.clone();
        let (layout, run) = (Layout::new(&name), random::u64());
        let member = Member::start(&self.etcd, layout.member(&instance), encode_run(run), lease_s);
        let (leave, left) = oneshot::channel();
        let membership = tokio::spawn(keep_membership(member, lease_s, Arc::clone(&self.events), left));
        let (failed, failure) = watch::channel(None);
        let shards = u32::try_from(self.shards.iter().len()).unwrap_or(u32::MAX);
        let start = |(service, shard): (&Arc<Service>, u32)| {
            let settings = InstanceSettings {
                layout: layout.clone(),
                shards,
                shard,
                instance: Arc::clone(&instance),
                run,
                hash_key: self.hash_key,
                confirms_by_commit: self.has_stale_reads,
                // The history is that of the whole etcd.
                compacts: compacts && shard == 0,
            };
            let store = Store {
                service: Arc::clone(service),
                publisher: publisher.clone(),
                events: Arc::clone(&self.events),
                shard: (shards > 1).then_some(shard),
                failed: failed.clone(),
            };
            let (commands, receiver) = mpsc::channel(1);
            let (sender, status) = watch::channel(None);
            let (etcd, reached) = (self.etcd.clone(), reached.clone());
            let task =
                tokio::spawn(
                    async move { runner::run(settings, etcd, &store, receiver, reached, &sender).await },
                );
            RunningShard { commands, status, task }
        };
        let shards = self.shards.iter().zip(0..).map(start).collect();
        self.running = Some(Running { shards, failure, leave, membership });
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

    /// Waits until the instance owns all shards. Cancel safe.
    pub async fn serving(&mut self) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        for shard in &mut running.shards {
            shard.wait_for(|role| role == Some(Role::Owner)).await;
        }
    }

    /// Waits until the instance does not own all shards. Cancel safe.
    pub async fn lost(&mut self) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let mut shards: Vec<_> = running
            .shards
            .iter_mut()
            .map(|shard| Box::pin(shard.wait_for(|role| role != Some(Role::Owner))))
            .collect();
        poll_fn(|cx| {
            let is_lost = shards.iter_mut().any(|shard| shard.as_mut().poll(cx).is_ready());
            if is_lost { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
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

    /// Gives all shards up, so that other instances take over at once. Everything that waits for etcd should have been answered.
    /// Returns whether that was done in time.
    pub async fn resign(mut self, within: Duration) -> bool {
        let Some(mut running) = self.running.take() else { return true };
        let resigned = timeout(within, async {
            for shard in &running.shards {
                // A task that has ended owns nothing.
                let _ = shard.commands.send(Command::Resign).await;
            }
            let mut is_done = true;
            for shard in &mut running.shards {
                is_done &= (&mut shard.task).await.is_ok();
            }
            is_done
        });
        let is_done = resigned.await.unwrap_or(false);
        running.shards.iter().for_each(|shard| shard.task.abort());
        drop(running.leave);
        timeout(within, running.membership).await.is_ok() && is_done
    }
}

impl RunningShard {
    async fn wait_for(&mut self, is_awaited: impl Fn(Option<Role>) -> bool) {
        let role = |status: &Option<Status>| status.as_ref().map(|status| status.role);
        if self.status.wait_for(|status| is_awaited(role(status))).await.is_err() && !is_awaited(None) {
            std::future::pending().await
        }
    }
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
        events(Event::Cluster { shard: None, event });
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.shards.iter().for_each(|shard| shard.task.abort());
            running.membership.abort();
        }
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClusterNode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Returns the number of shards of the cluster. One that does not exist is created with that of the settings, or 1. An invalid
/// record is reported later.
async fn shards_of(etcd: &Etcd, settings: &ClusterSettings) -> Result<u32, Error> {
    let answer = etcd.read(&RangeRead::one(Layout::new(&settings.name).meta(), None)).await;
    let found = match (answer, settings.shards) {
        (Ok(answer), _) => {
            let meta = answer.pairs.first().and_then(|pair| Meta::decode(&pair.value).ok());
            meta.map(|meta| meta.shards.clamp(1, SHARDS_MAX))
        }
        // It is compared later.
        (Err(_), Some(_)) => None,
        (Err(error), None) => {
            return Err(Error::Cluster {
                kind: ClusterErrorKind::Unavailable,
                reason: format!("cannot read the number of shards: {error}"),
                hint: Some("try again when etcd answers, or give --shards"),
            });
        }
    };
    match (found, settings.shards) {
        (Some(found), Some(wanted)) if found != wanted => {
            Err(incompatible(&format!("{found} shards instead of {wanted}")))
        }
        (found, wanted) => Ok(found.or(wanted).unwrap_or(1)),
    }
}

/// Returns the error of a state that this instance cannot take part in.
fn incompatible(reason: &str) -> Error {
    let reason = ClusterEvent::Incompatible { reason: reason.to_owned() }.to_string();
    let hint =
        "use the version of mqkv and the --shards that it was created with, or another name: --cluster NAME";
    Error::Cluster { kind: ClusterErrorKind::Incompatible, reason, hint: Some(hint) }
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
                hint: Some("each instance needs a name of its own: --instance NAME"),
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
    /// The shard, if there are several.
    shard: Option<u32>,
    failed: watch::Sender<Option<String>>,
}

impl<P: Publisher> Application for Store<P> {
    fn now(&self) -> Now {
        self.service.cluster_now()
    }

    fn handle_effect(&self, effect: Effect) {
        match self.service.handle_cluster_effect(effect, &self.publisher) {
            // It ends the process with this error.
            Some(ClusterEvent::Incompatible { reason }) => _ = self.failed.send_replace(Some(reason)),
            Some(event) => (self.events)(Event::Cluster { shard: self.shard, event }),
            None => {}
        }
    }

    fn note_status(&self, shard: u32, status: &Status) {
        self.service.metrics().cluster.set_status(shard, status.clone());
    }

    fn take_group(&self) -> Option<Group> {
        self.service.take_cluster_group()
    }

    async fn group_ready(&self) {
        self.service.group_ready().await;
    }
}
