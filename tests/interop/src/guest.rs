//! A client of the SDK's with a session of its own.

use std::cmp::Ordering;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use azure_iot_operations_mqtt::aio::connection_settings::MqttConnectionSettingsBuilder;
use azure_iot_operations_mqtt::error::{SessionError, SessionErrorKind};
use azure_iot_operations_mqtt::session::reconnect_policy::ExponentialBackoffWithJitter;
use azure_iot_operations_mqtt::session::{
    Session, SessionExitHandle, SessionManagedClient, SessionOptionsBuilder,
};
use azure_iot_operations_protocol::application::{
    ApplicationContext, ApplicationContextBuilder, ApplicationHybridLogicalClock,
};
use azure_iot_operations_protocol::common::hybrid_logical_clock::HybridLogicalClock;
use azure_iot_operations_services::leased_lock::{lease, lock};
use azure_iot_operations_services::state_store::{
    Client, ClientOptionsBuilder, Error, KeyNotification, KeyObservation, Response, SetCondition, SetOptions,
};
use tokio::task::JoinHandle;

/// Far more than anything takes: whoever waits longer waits in vain.
const PATIENCE: Duration = Duration::from_secs(30);
/// How far the SDK's clock may be led astray: a day.
const DRIFT_MAX: Duration = Duration::from_secs(86_400);

/// Waits for something that must come.
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("waited in vain")
}

/// A version of this moment.
pub fn now() -> HybridLogicalClock {
    HybridLogicalClock::new()
}

/// The version, later by so much.
pub fn later(version: &HybridLogicalClock, by: Duration) -> HybridLogicalClock {
    let timestamp = version.timestamp.checked_add(by).unwrap_or(SystemTime::UNIX_EPOCH);
    HybridLogicalClock { timestamp, ..version.clone() }
}

/// How two versions are ordered; the SDK keeps that to itself.
pub fn order(one: &HybridLogicalClock, other: &HybridLogicalClock) -> Ordering {
    let parts = |version: &HybridLogicalClock| (version.timestamp, version.counter, version.node_id.clone());
    parts(one).cmp(&parts(other))
}

/// The settings for the broker at this port.
pub fn settings(port: u16, client_id: &str) -> MqttConnectionSettingsBuilder {
    MqttConnectionSettingsBuilder::default()
        .client_id(client_id)
        .hostname("127.0.0.1")
        .tcp_port(port)
        .use_tls(false)
}

/// Tries once to come with these settings, and says how it ended.
pub async fn come_in_vain(settings: MqttConnectionSettingsBuilder) -> SessionErrorKind {
    let once = ExponentialBackoffWithJitter { max_reconnect_attempts: Some(1), ..Default::default() };
    let options = SessionOptionsBuilder::default()
        .connection_settings(settings.build().unwrap())
        .reconnect_policy(Box::new(once))
        .build()
        .unwrap();
    within(Session::new(options).unwrap().run()).await.unwrap_err().kind()
}

/// A session of the SDK's and its clients of the store.
pub struct Guest {
    client_id: String,
    /// The client of the store.
    pub store: Arc<Client>,
    /// The session, for what is not the store's.
    pub mqtt: SessionManagedClient,
    /// The clock of all clients here.
    pub context: ApplicationContext,
    exit: SessionExitHandle,
    running: JoinHandle<Result<(), SessionError>>,
}

impl Guest {
    /// Comes to the broker at this port. Must be called within a runtime.
    pub fn join(port: u16, client_id: &str) -> Self {
        Self::join_as(client_id, settings(port, client_id))
    }

    /// Comes with these settings, which have the same client id.
    pub fn join_as(client_id: &str, settings: MqttConnectionSettingsBuilder) -> Self {
        let settings = settings.build().unwrap();
        let options = SessionOptionsBuilder::default().connection_settings(settings).build().unwrap();
        let session = Session::new(options).unwrap();
        let clock = Arc::new(ApplicationHybridLogicalClock::new(DRIFT_MAX));
        let context = ApplicationContextBuilder::default().application_hlc(clock).build().unwrap();
        let mqtt = session.create_managed_client();
        let store = Client::new(
            context.clone(),
            mqtt.clone(),
            session.create_session_monitor(),
            ClientOptionsBuilder::default().build().unwrap(),
        );
        let exit = session.create_exit_handle();
        let running = tokio::spawn(session.run());
        let store = Arc::new(store.unwrap());
        Self { client_id: client_id.to_owned(), store, mqtt, context, exit, running }
    }

    /// Leaves, as a program with manners does; the session must have lived until now.
    pub async fn leave(self) {
        within(self.store.shutdown()).await.unwrap();
        self.exit.try_exit().unwrap();
        within(self.running).await.unwrap().unwrap();
    }

    /// A lease that is held in the name of the client id.
    pub fn lease(&self, name: &str) -> lease::Client {
        lease::Client::new(Arc::clone(&self.store), name.into(), self.client_id.clone().into()).unwrap()
    }

    /// A lock that is held in the name of the client id.
    pub fn lock(&self, name: &str) -> lock::Client {
        lock::Client::new(Arc::clone(&self.store), name.into(), self.client_id.clone().into()).unwrap()
    }

    /// SET with options and a fencing token.
    pub async fn set_with(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        fence: Option<HybridLogicalClock>,
        options: SetOptions,
    ) -> Result<Response<bool>, Error> {
        self.store.set(key.into(), value.into(), PATIENCE, fence, options).await
    }

    /// SET that must be applied; returns the version.
    pub async fn set(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> HybridLogicalClock {
        let answer = self.set_with(key, value, None, SetOptions::default()).await.unwrap();
        assert!(answer.response, "not applied");
        answer.version.unwrap()
    }

    /// SET with a condition; returns whether it was applied.
    pub async fn set_if(&self, key: &str, value: &str, set_condition: SetCondition) -> Response<bool> {
        let options = SetOptions { set_condition, ..SetOptions::default() };
        self.set_with(key, value, None, options).await.unwrap()
    }

    /// SET of a key that lives so long; returns the version.
    pub async fn set_for(&self, key: &str, value: &str, expires: Duration) -> HybridLogicalClock {
        let options = SetOptions { expires: Some(expires), ..SetOptions::default() };
        let answer = self.set_with(key, value, None, options).await.unwrap();
        assert!(answer.response, "not applied");
        answer.version.unwrap()
    }

    /// GET, with the version.
    pub async fn get_with_version(&self, key: impl Into<Vec<u8>>) -> Response<Option<Vec<u8>>> {
        self.store.get(key.into(), PATIENCE).await.unwrap()
    }

    /// GET.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Option<Vec<u8>> {
        self.get_with_version(key).await.response
    }

    /// DEL.
    pub async fn del(&self, key: impl Into<Vec<u8>>) -> Response<i64> {
        self.store.del(key.into(), None, PATIENCE).await.unwrap()
    }

    /// VDEL.
    pub async fn vdel(&self, key: &str, value: &str) -> Response<i64> {
        self.store.vdel(key.into(), value.into(), None, PATIENCE).await.unwrap()
    }

    /// KEYNOTIFY.
    pub async fn observe(&self, key: impl Into<Vec<u8>>) -> KeyObservation {
        self.store.observe(key.into(), PATIENCE).await.unwrap().response
    }

    /// KEYNOTIFY STOP; whether the store knew of it.
    pub async fn unobserve(&self, key: impl Into<Vec<u8>>) -> bool {
        self.store.unobserve(key.into(), PATIENCE).await.unwrap().response
    }

    /// All keys that match, page after page, sorted; and how many pages there were.
    pub async fn keys(&self, pattern: &str) -> (Vec<String>, usize) {
        let mut pager = self.store.list_keys(pattern.into(), PATIENCE).unwrap();
        let (mut keys, mut pages) = (Vec::new(), 0);
        while let Some(page) = within(pager.next()).await.unwrap() {
            keys.extend(page.into_iter().map(|key| String::from_utf8(key).unwrap()));
            pages += 1;
        }
        keys.sort_unstable();
        (keys, pages)
    }

    /// What the SDK's clock says now.
    pub fn clock(&self) -> HybridLogicalClock {
        self.context.application_hlc.read()
    }

    /// The next notification; it must come.
    pub async fn notification(observation: &mut KeyObservation) -> KeyNotification {
        within(observation.recv_notification()).await.expect("the observation has ended").0
    }
}
