//! Stands for `etcd` in a build without the feature `cluster`: there are no settings of a cluster, so there is none.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::delivery::Publisher;
use super::error::Error;
use super::event::EventSink;
use super::metrics::Metrics;
use super::service::{Service, StoreSettings};

/// Settings of an instance of a cluster.
#[derive(Clone, Debug)]
pub enum ClusterSettings {}

impl ClusterSettings {
    #[must_use]
    pub fn held_for(&self) -> Duration {
        match *self {}
    }

    #[must_use]
    pub fn keep_alive(&self, _: Duration) -> Duration {
        match *self {}
    }
}

/// A store as an instance of a cluster.
#[derive(Debug)]
pub enum ClusterNode {}

impl ClusterNode {
    /// # Errors
    /// None.
    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn open(
        settings: ClusterSettings,
        _: &StoreSettings,
        _: bool,
        _: EventSink,
        _: Arc<Metrics>,
    ) -> Result<(Arc<Service>, Self), Error> {
        match settings {}
    }

    pub fn start(&mut self, _: impl Publisher + Clone + 'static, _: watch::Receiver<bool>) {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn has_others(&self, _: Duration) -> bool {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn serving(&mut self) {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn lost(&mut self) {
        match *self {}
    }

    pub fn failed(&self) -> impl Future<Output = Error> + use<> {
        match *self {}
        #[expect(unreachable_code, reason = "it names the type")]
        std::future::pending()
    }

    #[expect(clippy::unused_async, reason = "the signature of the other build")]
    pub async fn resign(self, _: Duration) -> bool {
        match self {}
    }
}
