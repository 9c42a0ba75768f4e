//! A store as an instance of a cluster: its service, run with the client of etcd.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::client::{EndpointStatus, Etcd, EtcdSettings};
use super::runner::{self, Application, Command, RunnerSettings};
use super::version::has_stale_read_fix;
use crate::clock;
use crate::random;
use crate::server::cluster::operation::RangeRead;
use crate::server::cluster::{ClusterEvent, Effect, Group, InstanceSettings, Layout, Role, Status};
use crate::server::cluster_key::CLUSTER_KEY_BYTES;
use crate::server::delivery::Publisher;
use crate::server::error::{ClusterErrorKind, Error};
use crate::server::event::EventSink;
use crate::server::operations::metrics::Metrics;
use crate::server::service::{Service, StoreSettings};
use crate::store::Now;

/// How much later than its time a lease may end.
const LEASE_SLACK: Duration = Duration::from_secs(2);
/// The time that a takeover takes at most, once it begins.
const TAKEOVER: Duration = Duration::from_secs(3);
/// Between two looks at whether a name is free.
const NAME_POLL: Duration = Duration::from_millis(100);
/// The shard of an instance: all keys.
const SHARD: u32 = 0;

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
}

/// A store as an instance of a cluster. Dropping it ends it as a kill does, but for its key among the members.
pub struct ClusterNode {
    settings: ClusterSettings,
    /// The hash key of the cluster if this instance creates it.
    hash_key: [u8; CLUSTER_KEY_BYTES],
    etcd: Etcd,
    service: Arc<Service>,
    events: EventSink,
    running: Option<Running>,
}

struct Running {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Option<Status>>,
    /// Why the instance cannot take part in the cluster.
    failure: watch::Receiver<Option<String>>,
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
    ) -> Result<(Arc<Service>, Self), Error> {
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
        let service = Service::in_cluster(store, has_registrations, Arc::clone(&events), metrics);
        Ok((Arc::clone(&service), Self { settings, hash_key, etcd, service, events, running: None }))
    }

    /// Starts as a follower. Must be called once, within a tokio runtime. `reached`: whether clients reach the instance, which
    /// takes nothing over without.
    pub fn start(&mut self, publisher: impl Publisher + 'static, reached: watch::Receiver<bool>) {
        let (commands, receiver) = mpsc::channel(1);
        let hash_key = self.hash_key;
        let (sender, status) = watch::channel(None);
        let (failed, failure) = watch::channel(None);
        let ClusterSettings { name, instance, lease_s, compacts, .. } = self.settings.clone();
        let (etcd, service, events) =
            (self.etcd.clone(), Arc::clone(&self.service), Arc::clone(&self.events));
        let task = tokio::spawn(async move {
            let instance = InstanceSettings {
                layout: Layout::new(&name),
                shard: SHARD,
                instance,
                run: random::u64(),
                hash_key,
                confirms_by_commit: !has_fixed_reads(&etcd).await,
                compacts,
            };
            let settings = RunnerSettings { instance, lease_s };
            let store = Store { service, publisher, events, failed };
            runner::run(settings, etcd, &store, receiver, reached, &sender).await;
        });
        self.running = Some(Running { commands, status, failure, task });
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

    /// Returns the error that keeps the instance from the cluster for good. Cancel safe.
    pub fn failed(&self) -> impl Future<Output = Error> + use<> {
        let failure = self.running.as_ref().map(|running| running.failure.clone());
        async move {
            if let Some(mut failure) = failure
                && let Ok(reason) = failure.wait_for(Option::is_some).await
            {
                let reason = reason.clone().unwrap_or_default();
                let hint = "use the version of mqkv that has written it, or another name: --cluster NAME";
                return Error::Cluster { kind: ClusterErrorKind::Incompatible, reason, hint: Some(hint) };
            }
            std::future::pending().await
        }
    }

    async fn wait_for(&mut self, is_awaited: impl Fn(Option<Role>) -> bool) {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let role = |status: &Option<Status>| status.as_ref().map(|status| status.role);
        if running.status.wait_for(|status| is_awaited(role(status))).await.is_err() && !is_awaited(None) {
            std::future::pending().await
        }
    }

    /// Gives the store up, so that another instance takes over at once. Everything that waits for etcd should have been answered.
    /// Returns whether that was done in time.
    pub async fn resign(mut self, within: Duration) -> bool {
        let Some(Running { commands, mut task, .. }) = self.running.take() else { return true };
        let is_told = commands.send(Command::Resign).await.is_ok();
        let is_ended = timeout(within, &mut task).await.is_ok();
        task.abort();
        is_told && is_ended
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.running.iter().for_each(|running| running.task.abort());
    }
}

impl fmt::Debug for ClusterNode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClusterNode").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Checks that no other process has this name. One that was killed is a member until its lease has ended.
async fn check_name(etcd: &Etcd, settings: &ClusterSettings) -> Result<(), Error> {
    let key = Layout::new(&settings.name).member(&settings.instance);
    let read =
        RangeRead { from: key.clone(), to: [&key[..], &[0]].concat().into(), limit: 1, revision: None };
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
    failed: watch::Sender<Option<String>>,
}

impl<P: Publisher> Application for Store<P> {
    fn now(&self) -> Now {
        self.service.cluster_now()
    }

    fn handle_effect(&self, effect: Effect) {
        match self.service.handle_cluster_effect(effect, &self.publisher) {
            // It ends the process with this error.
            Some(event @ ClusterEvent::Incompatible { .. }) => {
                self.failed.send_replace(Some(event.to_string()));
            }
            Some(event) => (self.events)(event.into()),
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
