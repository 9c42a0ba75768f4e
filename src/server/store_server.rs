//! The state store served: the service behind a broker, started and stopped together.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::authenticator::IdentityAuthenticator;
use super::authorization::Authorizer;
use super::delivery::BrokerOutlet;
use super::event::Event;
use super::event::EventSink;
use super::operations::metrics::Metrics;
use super::operations::{AdminSettings, OperationsSettings, Phase, ServerMonitor, admin, sys};
use super::service::{Persistence, Running, Service, StoreSettings};
use super::{Error, Identities, ListenerSettings, Settings};
use crate::broker::{self, AccessControl, Broker, Hooks, Server};
use crate::clock;
use crate::net::detached::run_detached;
use crate::net::tls::ServerTls;
use crate::server::rate_limit::rate_limited;

/// A running state store behind a broker of its own; several may run in one process.
#[derive(Debug)]
pub struct StoreServer {
    server: Server,
    running: Running,
    operations: Arc<ServerMonitor>,
    admin_addresses: Vec<SocketAddr>,
    rules: Option<RulesReloader>,
    certificates: Option<CertificatesReloader>,
    tasks: Tasks,
}

/// What is only there to be looked at; ends when this is dropped.
#[derive(Debug, Default)]
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Reads the rules of a running server again; clones do the same.
#[derive(Clone)]
pub struct RulesReloader {
    authorizer: Arc<Authorizer>,
    broker: Broker,
    service: Arc<Service>,
    events: EventSink,
}

impl RulesReloader {
    /// Reads the rules again and says what came of it. Nobody is disconnected; requests and messages are judged by the
    /// new rules from now on. Who may no longer read a key is no longer told of it, and a subscription that is no longer
    /// allowed brings nothing until it is allowed again. May block.
    pub fn reload(&self) {
        let outcome = self.authorizer.reload().map(|()| self.authorizer.len());
        if outcome.is_ok() {
            self.broker.reauthorize_all();
            self.service.revoke();
        }
        (self.events)(Event::Rules { outcome: outcome.map_err(|error| error.to_string()) });
    }
}

impl fmt::Debug for RulesReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RulesReloader").field("authorizer", &self.authorizer).finish_non_exhaustive()
    }
}

/// Reads the certificates, the keys and the CAs of clients again, for all doors of a running server; clones do the same.
#[derive(Clone)]
pub struct CertificatesReloader {
    doors: Vec<ServerTls>,
    events: EventSink,
}

impl CertificatesReloader {
    /// None where no door has TLS.
    fn new(listeners: &[ListenerSettings], events: EventSink) -> Option<Self> {
        let mut doors: Vec<ServerTls> =
            listeners.iter().filter_map(|listener| listener.tls.clone()).collect();
        doors.dedup_by(|one, other| one.is_shared_with(other));
        (!doors.is_empty()).then_some(Self { doors, events })
    }

    /// Reads the files again and says what came of it. Nobody is disconnected; whoever shakes hands from now on sees the
    /// new certificate and is judged by the new CAs. One mistake, and all doors stay as they are. May block.
    pub fn reload(&self) {
        if let Err(error) = ServerTls::reload(&self.doors) {
            return (self.events)(Event::Certificates { outcome: Err(error.with_hint()) });
        }
        let now_s = clock::wall_ms() / 1000;
        let days_left = self.doors.iter().filter_map(|door| door.days_left(now_s)).min();
        (self.events)(Event::Certificates { outcome: Ok(days_left) });
        self.tell_of_time(now_s);
    }

    fn tell_of_time(&self, now_s: u64) {
        let mut reasons: Vec<_> = self.doors.iter().filter_map(|door| door.validity_error(now_s)).collect();
        reasons.dedup();
        for reason in reasons {
            (self.events)(Event::OutOfTime { reason });
        }
    }
}

impl fmt::Debug for CertificatesReloader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CertificatesReloader").field("doors", &self.doors).finish_non_exhaustive()
    }
}

impl StoreServer {
    /// Opens the store and starts to serve it; its events go where the broker's do, and none of them in a flood.
    ///
    /// # Errors
    /// [`Error`] if the disk cannot be used or an address cannot be listened on; then nothing was started.
    pub async fn start(settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let mut server = Self::prepare(settings, store).await?;
        server.open();
        Ok(server)
    }

    /// The same, but with closed doors: until [`StoreServer::open`], clients come in through [`StoreServer::pipe`] only.
    ///
    /// # Errors
    /// As for [`StoreServer::start`].
    pub async fn prepare(settings: Settings, store: StoreSettings) -> Result<Self, Error> {
        let OperationsSettings { admin, sys_interval } = store.operations.clone();
        let metrics = Arc::new(Metrics::default());
        let events = counting(settings.events, Arc::clone(&metrics));
        let service = opened(store, Arc::clone(&events), Arc::clone(&metrics)).await?;
        let mut doors = Vec::new();
        for AdminSettings { address, names } in admin {
            doors.push(
                admin::AdminListener::bind(address, names)
                    .await
                    .map_err(|cause| Error::Admin { address, cause })?,
            );
        }
        let Settings { broker, identities, authorizer, .. } = settings;
        let certificates = CertificatesReloader::new(&broker.listeners, Arc::clone(&events));
        let hooks = hooks(&service, identities, authorizer.clone(), Arc::clone(&events));
        let server = Server::prepare(broker, hooks).await?;
        if let Some(certificates) = &certificates {
            certificates.tell_of_time(clock::wall_ms() / 1000);
        }
        let rules = authorizer.map(|authorizer| RulesReloader {
            authorizer,
            broker: server.broker().clone(),
            service: Arc::clone(&service),
            events,
        });
        let running =
            service.run(BrokerOutlet { broker: server.broker().clone(), metrics }).map_err(Error::Thread)?;
        let operations = Arc::new(ServerMonitor::new(server.broker().clone(), service));
        let admin_addresses = doors.iter().map(admin::AdminListener::address).collect();
        let has_readers = !doors.is_empty();
        let mut tasks: Vec<_> =
            doors.into_iter().map(|door| tokio::spawn(door.serve(Arc::clone(&operations)))).collect();
        if has_readers {
            tasks.push(tokio::spawn(Arc::clone(&operations).run_sampling()));
        }
        if let Some(interval) = sys_interval {
            tasks.push(tokio::spawn(sys::publish(Arc::clone(&operations), interval)));
        }
        let tasks = Tasks(tasks);
        Ok(Self { server, running, operations, admin_addresses, rules, certificates, tasks })
    }

    /// Lets clients in.
    pub fn open(&mut self) {
        self.operations.set_phase(Phase::Serving);
        self.server.open();
    }

    /// The addresses listened on, in the order of the settings, with the ports that port 0 became.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        self.server.addresses()
    }

    /// The addresses for operators, in the order of the settings, with the ports that port 0 became.
    #[must_use]
    pub fn admin_addresses(&self) -> &[SocketAddr] {
        &self.admin_addresses
    }

    /// What reads the rules again, if there are any.
    #[must_use]
    pub fn rules(&self) -> Option<&RulesReloader> {
        self.rules.as_ref()
    }

    /// What reads the files of TLS again, if a door has it.
    #[must_use]
    pub fn certificates(&self) -> Option<&CertificatesReloader> {
        self.certificates.as_ref()
    }

    /// Connects a client in memory: the client's end of the connection.
    #[must_use]
    pub fn pipe(&self) -> DuplexStream {
        self.server.pipe()
    }

    /// The same for this process itself: the rules are not for it.
    #[must_use]
    pub fn own_pipe(&self) -> DuplexStream {
        self.server.own_pipe()
    }

    /// Stops in good order: nobody else comes in, every message that was read is handled and answered, the disk has
    /// what must be on it, and every client has got what was for it, and a DISCONNECT. What is not done `within` that
    /// time is left undone; false if there was any.
    pub fn drain(self, within: Duration) -> impl Future<Output = bool> {
        let Self { server, running, operations, tasks, .. } = self;
        // At once, and not when somebody first waits: who is told that it drains may look.
        operations.set_phase(Phase::Draining);
        async move {
            let drained = timeout(within, async {
                server.drain().await;
                // Ends with the last commit. Whoever waits for it waits for the disk, so not here.
                let saved = run_detached(move || drop(running)).await;
                server.finish().await;
                saved.is_ok()
            });
            let is_done = drained.await.unwrap_or(false);
            server.shutdown().await;
            drop(tasks);
            is_done
        }
    }

    /// Stops: every client gets a DISCONNECT, and everything that was acknowledged is on the disk.
    pub async fn shutdown(self) {
        self.server.shutdown().await;
        drop(self.running);
    }
}

/// Opens the store; on a disk, which may be slow or hang, without holding up whoever else runs in this thread.
async fn opened(
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
