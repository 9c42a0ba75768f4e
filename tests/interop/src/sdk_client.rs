//! The SDK's client of the state store, with an MQTT session.

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

/// Far longer than any step of a test takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How far the SDK's clock may run ahead: a day, so that a test can make it wrong.
const DRIFT_MAX: Duration = Duration::from_secs(86_400);

/// Awaits a future. Panics after half a minute.
pub async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, what).await.expect("timed out")
}

/// Returns a timestamp with the current time.
pub fn now() -> HybridLogicalClock {
    HybridLogicalClock::new()
}

/// Returns the version with a timestamp that is later by `by`.
pub fn later(version: &HybridLogicalClock, by: Duration) -> HybridLogicalClock {
    let timestamp = version.timestamp.checked_add(by).unwrap_or(SystemTime::UNIX_EPOCH);
    HybridLogicalClock { timestamp, ..version.clone() }
}

/// Compares two versions; the SDK does not export its order.
pub fn order(one: &HybridLogicalClock, other: &HybridLogicalClock) -> Ordering {
    let parts = |version: &HybridLogicalClock| (version.timestamp, version.counter, version.node_id.clone());
    parts(one).cmp(&parts(other))
}

/// Returns the settings for the broker at this port.
pub fn settings(port: u16, client_id: &str) -> MqttConnectionSettingsBuilder {
    MqttConnectionSettingsBuilder::default()
        .client_id(client_id)
        .hostname("127.0.0.1")
        .tcp_port(port)
        .use_tls(false)
}

/// Tries once to connect with these settings, which must fail. Returns the error.
pub async fn connection_error(settings: MqttConnectionSettingsBuilder) -> SessionErrorKind {
    let once = ExponentialBackoffWithJitter { max_reconnect_attempts: Some(1), ..Default::default() };
    let options = SessionOptionsBuilder::default()
        .connection_settings(settings.build().unwrap())
        .reconnect_policy(Box::new(once))
        .build()
        .unwrap();
    within(Session::new(options).unwrap().run()).await.unwrap_err().kind()
}

/// A session of the SDK with a client of the state store.
pub struct SdkClient {
    client_id: String,
    /// The client of the state store.
    pub store: Arc<Client>,
    /// The session, for messages of the test.
    pub mqtt: SessionManagedClient,
    /// The context with the clock.
    pub context: ApplicationContext,
    exit: SessionExitHandle,
    running: JoinHandle<Result<(), SessionError>>,
}

impl SdkClient {
    /// Connects to the broker at this port. Must be called within a runtime.
    pub fn connect(port: u16, client_id: &str) -> Self {
        Self::connect_with(client_id, settings(port, client_id))
    }

    /// Connects with these settings, which have the same client id.
    pub fn connect_with(client_id: &str, settings: MqttConnectionSettingsBuilder) -> Self {
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

    /// Shuts the client down and ends the session, which must still be running.
    pub async fn disconnect(self) {
        within(self.store.shutdown()).await.unwrap();
        self.exit.try_exit().unwrap();
        within(self.running).await.unwrap().unwrap();
    }

    /// Returns a lease whose holder is the client id.
    pub fn lease(&self, name: &str) -> lease::Client {
        lease::Client::new(Arc::clone(&self.store), name.into(), self.client_id.clone().into()).unwrap()
    }

    /// Returns a lock whose holder is the client id.
    pub fn lock(&self, name: &str) -> lock::Client {
        lock::Client::new(Arc::clone(&self.store), name.into(), self.client_id.clone().into()).unwrap()
    }

    /// Sends SET with options and a fencing token.
    pub async fn set_with(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
        fence: Option<HybridLogicalClock>,
        options: SetOptions,
    ) -> Result<Response<bool>, Error> {
        self.store.set(key.into(), value.into(), TIMEOUT, fence, options).await
    }

    /// Sends a SET that must be applied; returns the version.
    pub async fn set(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> HybridLogicalClock {
        let response = self.set_with(key, value, None, SetOptions::default()).await.unwrap();
        assert!(response.response, "not applied");
        response.version.unwrap()
    }

    /// Sends a SET with a condition; the response is whether it was applied.
    pub async fn set_if(&self, key: &str, value: &str, set_condition: SetCondition) -> Response<bool> {
        let options = SetOptions { set_condition, ..SetOptions::default() };
        self.set_with(key, value, None, options).await.unwrap()
    }

    /// Sends a SET with a time to live; returns the version.
    pub async fn set_for(&self, key: &str, value: &str, expires: Duration) -> HybridLogicalClock {
        let options = SetOptions { expires: Some(expires), ..SetOptions::default() };
        let response = self.set_with(key, value, None, options).await.unwrap();
        assert!(response.response, "not applied");
        response.version.unwrap()
    }

    /// Sends GET; returns the value and the version.
    pub async fn get_with_version(&self, key: impl Into<Vec<u8>>) -> Response<Option<Vec<u8>>> {
        self.store.get(key.into(), TIMEOUT).await.unwrap()
    }

    /// Sends GET; returns the value.
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Option<Vec<u8>> {
        self.get_with_version(key).await.response
    }

    /// Sends DEL.
    pub async fn del(&self, key: impl Into<Vec<u8>>) -> Response<i64> {
        self.store.del(key.into(), None, TIMEOUT).await.unwrap()
    }

    /// Sends VDEL.
    pub async fn vdel(&self, key: &str, value: &str) -> Response<i64> {
        self.store.vdel(key.into(), value.into(), None, TIMEOUT).await.unwrap()
    }

    /// Sends KEYNOTIFY.
    pub async fn observe(&self, key: impl Into<Vec<u8>>) -> KeyObservation {
        self.store.observe(key.into(), TIMEOUT).await.unwrap().response
    }

    /// Sends KEYNOTIFY STOP; returns whether the key was watched.
    pub async fn unobserve(&self, key: impl Into<Vec<u8>>) -> bool {
        self.store.unobserve(key.into(), TIMEOUT).await.unwrap().response
    }

    /// Lists the keys that match, sorted, and the number of pages.
    pub async fn keys(&self, pattern: &str) -> (Vec<String>, usize) {
        let mut pager = self.store.list_keys(pattern.into(), TIMEOUT).unwrap();
        let (mut keys, mut pages) = (Vec::new(), 0);
        while let Some(page) = within(pager.next()).await.unwrap() {
            keys.extend(page.into_iter().map(|key| String::from_utf8(key).unwrap()));
            pages += 1;
        }
        keys.sort_unstable();
        (keys, pages)
    }

    /// Reads the SDK's clock.
    pub fn clock(&self) -> HybridLogicalClock {
        self.context.application_hlc.read()
    }

    /// Waits for the next notification.
    pub async fn notification(observation: &mut KeyObservation) -> KeyNotification {
        within(observation.recv_notification()).await.expect("the observation has ended").0
    }
}
