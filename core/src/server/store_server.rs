//! State store server: a broker with the state store as its application, started and stopped together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::authorization::Authorizer;
use super::delivery::{BrokerPublisher, Publisher};
use super::event::{Event, EventSink};
use super::external::{ConnectionError, External};
use super::identity::IdentityAuthenticator;
use super::metrics::Metrics;
use super::operations::{Phase, ServerMonitor, admin, sys};
use super::operations_settings::{AdminSettings, OperationsSettings};
use super::reload::{CertificatesReloader, CredentialsReloader, ExchangeReloader, RulesReloader};
use super::service::{BackgroundTasks, Persistence, Service, StoreSettings};
use super::{ClusterNode, Error, Identities, ListenerSettings, Settings};
use crate::broker::{self, AccessControl, Hooks, Server};
use crate::ledger::Seeding;
use crate::net::detached::{run_detached, start_detached};
use crate::net::tls::ServerTls;
use crate::protocol::{Reply, Request, Timestamp};
use crate::server::rate_limit::rate_limited;

/// How long a server that stops at once tries to leave its cluster.
const LEAVE_TIME: Duration = Duration::from_secs(2);
/// Between two looks at whether etcd has committed everything.
const COMMIT_POLL: Duration = Duration::from_millis(5);

/// A running state store server. Several may run in one process. Dropping it stops it: waiting changes are
/// committed, but clients are not disconnected in order.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use std::net::SocketAddr;
/// use mqkv::server::{ListenerSettings, Settings, StoreServer, StoreSettings};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let mut settings = Settings::default();
/// settings.broker.listeners = vec![ListenerSettings::plain(SocketAddr::from(([127, 0, 0, 1], 0)))];
/// let server = StoreServer::start(settings, StoreSettings::default()).await?;
/// println!("listening on {}", server.addresses()[0]);
/// server.shutdown().await;
/// # Ok::<(), mqkv::server::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct StoreServer {
    server: Server,
    service: Arc<Service>,
    background: BackgroundTasks,
    monitor: Arc<ServerMonitor>,
    admin_addresses: Vec<SocketAddr>,
    rules: Option<RulesReloader>,
    credentials: Option<CredentialsReloader>,
    certificates: Option<CertificatesReloader>,
    exchange: Option<ExchangeReloader>,
    external: Option<External>,
    cluster: Option<ClusterNode>,
    tasks: Tasks,
}

/// Tasks of the monitor, which end when this is dropped.
#[derive(Debug, Default)]
struct Tasks(Vec<JoinHandle<()>>);

impl Tasks {
    /// Ends them; their ports are free then.
    async fn end(mut self) {
        for task in std::mem::take(&mut self.0) {
            task.abort();
            // An error means that it was aborted.
            _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl StoreServer {
    /// Opens the store and starts to serve it. Events are counted and, per subject, limited in rate before
    /// they reach the sink of the settings.
    ///
    /// # Errors
    /// [`Error`]: the files of the store cannot be used, or an address cannot be bound. Nothing has been
    /// started.
    pub async fn start(settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let mut server = Self::prepare(settings, store).await?;
        server.open();
        Ok(server)
    }

    /// Opens the store and binds all addresses, but accepts no connections before [`StoreServer::open`],
    /// except through [`StoreServer::pipe`]. In a cluster, [`StoreServer::bind`] binds them.
    ///
    /// # Errors
    /// As for [`StoreServer::start`].
    pub async fn prepare(mut settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let OperationsSettings { admin, sys_interval } = store.operations.clone();
        let metrics = Arc::new(Metrics::default());
        let events = counting(settings.events, Arc::clone(&metrics));
        let held_for = settings.cluster.as_ref().map(|cluster| cluster.held_for());
        let (service, mut cluster) = match settings.cluster.take() {
            Some(cluster) => {
                let has_registrations = settings.external.is_some();
                let (events, metrics) = (Arc::clone(&events), Arc::clone(&metrics));
                let opened = ClusterNode::open(cluster, &store, has_registrations, events, metrics).await?;
                (opened.0, Some(opened.1))
            }
            None => (open_service(store, Arc::clone(&events), Arc::clone(&metrics)).await?, None),
        };
        if cluster.is_some()
            && let Some(authorizer) = &settings.authorizer
        {
            service.set_registration_rules(Arc::clone(authorizer));
        }
        let mut admin_listeners = Vec::new();
        for AdminSettings { address, names } in admin {
            admin_listeners.push(
                admin::AdminListener::bind(address, names)
                    .await
                    .map_err(|cause| Error::Admin { address, cause })?,
            );
        }
        let Settings { broker, identities, authorizer, external, .. } = settings;
        let external = external.map(|settings| {
            External::new(settings, Arc::clone(&service), authorizer.clone(), held_for, Arc::clone(&events))
        });
        let tls_configurations = tls_configurations(&broker.listeners);
        let hooks = hooks(&service, Arc::clone(&identities), authorizer.clone(), Arc::clone(&events));
        let server = match &cluster {
            // Another instance may listen there.
            Some(_) => Server::without_listeners(broker, hooks)?,
            None => Server::prepare(broker, hooks).await?,
        };
        let credentials = (identities.has_users() || identities.has_tokens()).then(|| CredentialsReloader {
            identities: Arc::clone(&identities),
            broker: server.broker().clone(),
            events: Arc::clone(&events),
        });
        let certificates =
            CertificatesReloader::new(tls_configurations, server.broker().clone(), Arc::clone(&events));
        let rules = authorizer.map(|authorizer| RulesReloader {
            authorizer,
            broker: server.broker().clone(),
            service: Arc::clone(&service),
            events: Arc::clone(&events),
        });
        let publisher = BrokerPublisher { broker: server.broker().clone(), metrics };
        let exchange = service.takes_part().then(|| ExchangeReloader {
            service: Arc::clone(&service),
            publisher: publisher.clone(),
            events,
        });
        let background = match &external {
            Some(external) => start(&service, cluster.as_mut(), external.publisher(), external.reached()),
            // Its own listeners open once it owns the store.
            None => start(&service, cluster.as_mut(), publisher, watch::Sender::new(true).subscribe()),
        };
        let background = background.map_err(Error::Thread)?;
        let monitor =
            ServerMonitor::new(server.broker().clone(), Arc::clone(&service)).with_identities(identities);
        let monitor = Arc::new(monitor);
        let admin_addresses = admin_listeners.iter().map(admin::AdminListener::address).collect();
        let has_readers = !admin_listeners.is_empty();
        let mut tasks: Vec<_> = admin_listeners
            .into_iter()
            .map(|listener| tokio::spawn(listener.serve(Arc::clone(&monitor))))
            .collect();
        if has_readers {
            tasks.push(tokio::spawn(Arc::clone(&monitor).run_sampling()));
        }
        if let Some(interval) = sys_interval {
            tasks.push(tokio::spawn(sys::publish(Arc::clone(&monitor), interval)));
        }
        tasks.extend(certificates.clone().map(|certificates| tokio::spawn(certificates.watch())));
        let tasks = Tasks(tasks);
        Ok(Self {
            server,
            service,
            background,
            monitor,
            admin_addresses,
            rules,
            credentials,
            certificates,
            exchange,
            external,
            cluster,
            tasks,
        })
    }

    /// Waits until this instance of a cluster owns the store; at once without a cluster. Cancel safe.
    pub async fn serving(&mut self) {
        if let Some(cluster) = &mut self.cluster {
            cluster.serving().await;
        }
    }

    /// Whether its cluster has another member, waiting for one at most `within`; false without a cluster.
    pub async fn has_other_instances(&self, within: Duration) -> bool {
        match &self.cluster {
            Some(cluster) => cluster.has_others(within).await,
            None => false,
        }
    }

    /// Returns the error that keeps this instance from its cluster for good. Cancel safe.
    pub fn cluster_failed(&self) -> impl Future<Output = Error> + use<> {
        let failed = self.cluster.as_ref().map(ClusterNode::failed);
        async move {
            match failed {
                Some(failed) => failed.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until this instance of a cluster does not own the store; for ever without a cluster. Cancel safe.
    pub async fn lost(&mut self) {
        match &mut self.cluster {
            Some(cluster) => cluster.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Binds all addresses in a cluster, which accept no connections before [`StoreServer::open`].
    ///
    /// # Errors
    /// [`Error::Bind`]; then none is bound.
    pub async fn bind(&mut self) -> Result<(), Error> {
        Ok(self.server.bind().await?)
    }

    /// Starts to accept connections.
    pub fn open(&mut self) {
        self.monitor.set_phase(Phase::Serving);
        self.server.open();
    }

    /// Connects with the external broker of the settings, and subscribes to its requests. After a loss it connects again, for ever.
    ///
    /// # Errors
    /// The first connection cannot be established, or the broker refuses the subscription.
    pub async fn connect(&mut self) -> Result<(), ConnectionError> {
        match &mut self.external {
            Some(external) => external.connect().await,
            None => Ok(()),
        }
    }

    /// Returns the error that has ended the connection with the external broker for good. Cancel safe.
    pub async fn external_ended(&mut self) -> ConnectionError {
        match &mut self.external {
            Some(external) => external.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the bound addresses, in the order of the settings. Port 0 has become the actual port.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// Returns the bound addresses for operators, in the order of the settings.
    #[must_use]
    pub fn admin_addresses(&self) -> &[SocketAddr] {
        &self.admin_addresses
    }

    /// Returns the reloader of the rules, if the server has rules.
    #[must_use]
    pub fn rules(&self) -> Option<&RulesReloader> {
        self.rules.as_ref()
    }

    /// Returns the reloader of users and tokens, if the server has a file of either.
    #[must_use]
    pub fn credentials(&self) -> Option<&CredentialsReloader> {
        self.credentials.as_ref()
    }

    /// Returns the reloader of the certificates, if a listener has TLS.
    #[must_use]
    pub fn certificates(&self) -> Option<&CertificatesReloader> {
        self.certificates.as_ref()
    }

    /// Returns the reloader of the exchange's file, if the store takes part in one.
    #[must_use]
    pub fn exchange(&self) -> Option<&ExchangeReloader> {
        self.exchange.as_ref()
    }

    /// Connects a client in memory and returns its end of the connection.
    #[must_use]
    pub fn pipe(&self) -> DuplexStream {
        self.server.pipe()
    }

    /// Connects a client of this process in memory. The rules do not apply to it.
    #[must_use]
    pub fn own_pipe(&self) -> DuplexStream {
        self.server.own_pipe()
    }

    /// Returns a function that handles requests of this process before [`StoreServer::open`], if the store has no disk.
    pub fn memory_store(&self) -> Option<impl Fn(Request, Option<Timestamp>) -> Reply> {
        self.service.memory_store()
    }

    /// Returns the store if it is to get the keys with which it begins. `None`: it has no disk, or had them before.
    pub fn take_seeding(&self) -> Option<Seeding> {
        self.service.seeding().take()
    }

    /// Stops gracefully: accepts no more connections, handles every message that was read, commits all
    /// changes, sends what waits for each client, and disconnects it. Gives up after the time `within`, and
    /// returns whether everything was done. A disk that hangs does not hold it up, nor the drop of the future: what is not on
    /// disk by then was not acknowledged, and a thread goes on with the commit while the process lasts.
    pub fn drain(self, within: Duration) -> impl Future<Output = bool> {
        let Self { server, service, background, monitor, tasks, mut external, cluster, .. } = self;
        let background = DroppedAside(Some(background));
        // The phase changes at once, not when the future is first polled: a health check may follow
        // immediately.
        monitor.set_phase(Phase::Draining);
        // Less than all, so that what follows has time.
        let at_most = within.mul_f32(0.9);
        async move {
            let drained = timeout(within, async {
                server.drain().await;
                if let Some(external) = &mut external {
                    external.unsubscribe(at_most).await;
                    external.idle().await;
                }
                if let Some(cluster) = cluster {
                    // One that etcd does not answer must not keep the others from being handed over.
                    let _ = timeout(within.mul_f32(0.5), wait_for_commits(&service)).await;
                    cluster.resign(at_most).await;
                }
                let committed = run_detached(move || background.drop_here()).await;
                server.finish().await;
                let is_published = match external {
                    Some(external) => external.close(at_most).await,
                    None => true,
                };
                committed.is_ok() && is_published
            });
            let is_done = drained.await.unwrap_or(false);
            server.shutdown().await;
            tasks.end().await;
            is_done
        }
    }

    /// Stops the server: disconnects every client, and commits all waiting changes.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
        if let Some(cluster) = self.cluster {
            // Otherwise it would stay a member until its lease ends, and pass for one that can take over.
            cluster.resign(LEAVE_TIME).await;
        }
        self.tasks.end().await;
        drop(self.background);
    }
}

/// Background tasks whose drop, which waits for the last commit, does not run in the task that drops this.
struct DroppedAside(Option<BackgroundTasks>);

impl DroppedAside {
    fn drop_here(mut self) {
        self.0 = None;
    }
}

impl Drop for DroppedAside {
    fn drop(&mut self) {
        if let Some(background) = self.0.take() {
            // Without a thread the drop runs here.
            let _ = start_detached(move || drop(background));
        }
    }
}

/// Waits until etcd has committed everything.
async fn wait_for_commits(service: &Service) {
    while service.is_serving() && service.is_waiting_for_commit() {
        sleep(COMMIT_POLL).await;
    }
}

/// Starts what the service does by itself, and its part in a cluster.
fn start(
    service: &Service,
    cluster: Option<&mut ClusterNode>,
    publisher: impl Publisher + Clone + 'static,
    reached: watch::Receiver<bool>,
) -> std::io::Result<BackgroundTasks> {
    let background = service.start_background_tasks(publisher.clone())?;
    if let Some(cluster) = cluster {
        cluster.start(publisher, reached);
    }
    Ok(background)
}

/// Returns the TLS configurations of the listeners, each once.
fn tls_configurations(listeners: &[ListenerSettings]) -> Vec<ServerTls> {
    let mut all: Vec<ServerTls> = listeners.iter().filter_map(|listener| listener.tls.clone()).collect();
    all.dedup_by(|one, other| one.is_shared_with(other));
    all
}

/// Opens the store. Files are read in another thread, because a disk may be slow or hang.
async fn open_service(
    store: StoreSettings,
    events: EventSink,
    metrics: Arc<Metrics>,
) -> Result<Arc<Service>, Error> {
    if store.persistence == Persistence::None {
        return Service::open(store, events, metrics).map_err(Error::Storage);
    }
    run_detached(move || Service::open(store, events, metrics))
        .await
        .map_err(Error::Thread)?
        .map_err(Error::Storage)
}

/// Returns what the broker is given by the state store server.
fn hooks(
    service: &Arc<Service>,
    identities: Arc<Identities>,
    authorizer: Option<Arc<Authorizer>>,
    events: EventSink,
) -> Hooks {
    let authenticator = IdentityAuthenticator { identities, events: Arc::clone(&events) };
    if let Some(authorizer) = &authorizer {
        authorizer.report_to(Arc::clone(&events));
    }
    Hooks {
        application: Arc::<Service>::clone(service),
        authenticator: Arc::new(authenticator),
        access_control: authorizer.map(|authorizer| authorizer as Arc<dyn AccessControl>),
        events: Arc::new(move |event: broker::Event| events(event.into())),
        counters: Arc::clone(&service.metrics().broker),
    }
}

/// Returns a sink that counts all events, and passes on a limited number per subject.
fn counting(events: EventSink, metrics: Arc<Metrics>) -> EventSink {
    let limited = rate_limited(events);
    Arc::new(move |event: Event| {
        metrics.count_event(&event);
        limited(event);
    })
}
