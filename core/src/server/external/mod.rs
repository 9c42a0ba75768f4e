//! The state store as a client of an external broker: requests arrive by a subscription, responses and notifications are published.

mod clients;
mod held_requests;
mod node;
mod outbox;
pub mod requests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::node::Node;
pub(super) use self::outbox::ExternalPublisher;
use self::requests::RequestFilter;
use super::authorization::Authorizer;
use super::event::EventSink;
use super::service::Service;
pub use crate::client::Error as ConnectionError;
use crate::client::{self, ServiceConnection, ServiceSettings};

/// How long the broker keeps the session after a lost connection. Requests that wait for longer have timed out.
const SESSION_EXPIRY: Duration = Duration::from_secs(30);

/// The most requests that the broker sends before it waits for an acknowledgement.
const RECEIVE_MAX: u16 = 1_024;

/// Between two looks at whether all requests are handled.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// Settings of the connection with an external broker.
#[derive(Clone, Debug)]
pub struct ExternalSettings {
    /// The connection with the broker.
    pub client: client::Settings,
    pub requests: RequestFilter,
}

/// The store's side of an external broker.
#[derive(Debug)]
pub(super) struct External {
    settings: ExternalSettings,
    node: Arc<Node>,
    connection: Option<ServiceConnection>,
    /// Handle the requests that were held, once this instance of a cluster is the owner.
    releasing: Option<Releasing>,
}

#[derive(Debug)]
struct Releasing(JoinHandle<()>);

impl Drop for Releasing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl External {
    /// Returns the side of a store that is not connected yet. The rules need a topic that names the client. In a cluster,
    /// requests are held for `held_for` while another instance answers.
    pub(super) fn new(
        settings: ExternalSettings,
        service: Arc<Service>,
        authorizer: Option<Arc<Authorizer>>,
        held_for: Option<Duration>,
        events: EventSink,
    ) -> Self {
        let (requests, target) = (settings.requests.clone(), settings.client.target.to_string());
        let node = Arc::new(Node::new(service, requests, authorizer, held_for, events, target));
        Self { settings, node, connection: None, releasing: None }
    }

    /// Returns whether the store is connected with the broker, now and from now on.
    pub(super) fn reached(&self) -> watch::Receiver<bool> {
        self.node.reached()
    }

    /// Returns the publisher of the service.
    pub(super) fn publisher(&self) -> ExternalPublisher {
        self.node.publisher()
    }

    /// Connects and subscribes to the requests. After a loss it connects again, for ever.
    ///
    /// # Errors
    /// The first connection cannot be established, or the broker refuses the subscription.
    pub(super) async fn connect(&mut self) -> Result<(), ConnectionError> {
        let ExternalSettings { client, requests, .. } = self.settings.clone();
        let filters = vec![requests.filter().to_owned()];
        let settings =
            ServiceSettings { client, filters, session_expiry: SESSION_EXPIRY, receive_max: RECEIVE_MAX };
        let node = Arc::clone(&self.node);
        self.releasing = Some(Releasing(tokio::spawn(async move { node.run_releases().await })));
        self.connection = Some(ServiceConnection::start(settings, Arc::clone(&self.node)).await?);
        Ok(())
    }

    /// Returns the error that has ended the connection for good. Cancel safe.
    pub(super) async fn ended(&mut self) -> ConnectionError {
        match &mut self.connection {
            Some(connection) => connection.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Stops receiving requests, and handles those that the broker has sent.
    pub(super) async fn unsubscribe(&mut self, within: Duration) {
        if let Some(connection) = &mut self.connection {
            connection.unsubscribe(within).await;
        }
    }

    /// Waits until the requests that are acknowledged to the broker are handled, but not until they are answered. Cancel safe.
    pub(super) async fn idle(&self) {
        while self.node.is_busy() {
            sleep(BUSY_POLL).await;
        }
    }

    /// Publishes what waits, and disconnects. Returns whether the broker has acknowledged everything.
    pub(super) async fn close(self, within: Duration) -> bool {
        match self.connection {
            Some(connection) => connection.close(within).await,
            None => true,
        }
    }
}
