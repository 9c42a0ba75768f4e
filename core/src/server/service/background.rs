//! Background work of the service: the commit thread and the expiry task.

use std::sync::Arc;
use std::{fmt, io, thread};

use tokio::task::JoinHandle;

use super::shared::{Committer, Shared};
use super::uplink_node::LeafNode;
use super::{commit_thread, exchange_task, expiry_task};
use crate::ledger::FileLedger;
use crate::server::delivery::Publisher;
use crate::server::exchange::membership::Membership;
use crate::server::exchange::uplink::Uplink;

/// The running commit thread and expiry task. Dropping it commits all waiting changes and ends both; it blocks
/// meanwhile.
pub struct BackgroundTasks {
    shared: Arc<Shared>,
    expiry_task: JoinHandle<()>,
    exchange_task: Option<JoinHandle<()>>,
    uplink: Option<Uplink>,
    commit_thread: Option<thread::JoinHandle<()>>,
}

impl BackgroundTasks {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        shared: Arc<Shared>,
        storage: Option<FileLedger>,
        membership: Option<Membership>,
        publisher: impl Publisher + Clone + 'static,
    ) -> io::Result<Self> {
        let commit_thread = storage.map(|storage| {
            *shared.committer() = Some(Committer { storage, publisher: Box::new(publisher.clone()) });
            let shared = Arc::clone(&shared);
            // A thread, not a task: it waits for the disk most of the time.
            let thread = thread::Builder::new().name("commit".to_owned());
            thread.spawn(move || commit_thread::run(&shared))
        });
        let commit_thread = commit_thread.transpose()?;
        let (mut exchange_task, mut uplink) = (None, None);
        if let Some(Membership { exchange, uplink: settings, .. }) = membership {
            let is_root = settings.is_none();
            uplink = settings.map(|settings| {
                let (shared, publisher) = (Arc::clone(&shared), publisher.clone());
                let node = LeafNode { shared, publisher, target: settings.client.target.to_string() };
                Uplink::start(settings, Arc::new(node))
            });
            let (shared, publisher) = (Arc::clone(&shared), publisher.clone());
            exchange_task = Some(tokio::spawn(async move {
                exchange_task::run(&shared, &publisher, exchange.as_str(), is_root).await;
            }));
        }
        let for_expiry = Arc::clone(&shared);
        let expiry_task = tokio::spawn(async move { expiry_task::run(&for_expiry, &publisher).await });
        Ok(Self { shared, expiry_task, exchange_task, uplink, commit_thread })
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        self.uplink = None;
        self.expiry_task.abort();
        self.exchange_task.iter().for_each(JoinHandle::abort);
        self.shared.lock().is_closing = true;
        self.shared.has_uncommitted.notify_all();
        if let Some(commit_thread) = self.commit_thread.take() {
            // A thread that has panicked has committed what it could.
            let _ = commit_thread.join();
        }
        // It has the broker, which has the service.
        *self.shared.committer() = None;
    }
}

impl fmt::Debug for BackgroundTasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BackgroundTasks").finish_non_exhaustive()
    }
}
