//! Settings of a state store server, besides those of the store itself.

use std::fmt;
use std::sync::Arc;

use super::ClusterSettings;
use super::authorization::Authorizer;
use super::event::EventSink;
use super::external::ExternalSettings;
use super::identity::Identities;
use crate::broker;

/// The settings of a state store server.
#[derive(Clone)]
pub struct Settings {
    /// Listeners and limits.
    pub broker: broker::Settings,
    /// The users and tokens that clients authenticate with.
    pub identities: Arc<Identities>,
    /// The broker whose clients the store serves, beside those of the listeners; None: there is no other one.
    pub external: Option<ExternalSettings>,
    /// None: the state is of this process alone. Otherwise it is in etcd, and the persistence of the store counts for nothing.
    pub cluster: Option<ClusterSettings>,
    /// The rules; None: every client may do everything.
    pub authorizer: Option<Arc<Authorizer>>,
    pub events: EventSink,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            broker: broker::Settings::default(),
            identities: Arc::default(),
            external: None,
            cluster: None,
            authorizer: None,
            events: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("broker", &self.broker).finish_non_exhaustive()
    }
}
