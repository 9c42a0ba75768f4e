//! Background work of the service: the commit thread and the expiry task.

use std::sync::Arc;
use std::{fmt, io, thread};

use tokio::task::JoinHandle;

use super::shared::Shared;
use super::{commit_thread, expiry_task};
use crate::server::delivery::Publisher;
use crate::server::storage::Storage;

/// The running commit thread and expiry task. Dropping it commits all waiting changes and ends both; it blocks
/// meanwhile.
pub struct BackgroundTasks {
    shared: Arc<Shared>,
    expiry_task: JoinHandle<()>,
    commit_thread: Option<thread::JoinHandle<()>>,
}

impl BackgroundTasks {
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(super) fn start(
        shared: Arc<Shared>,
        storage: Option<Storage>,
        publisher: impl Publisher + Clone + 'static,
    ) -> io::Result<Self> {
        let commit_thread = storage.map(|storage| {
            let (shared, publisher) = (Arc::clone(&shared), publisher.clone());
            // A thread, not a task: it waits for the disk most of the time.
            let thread = thread::Builder::new().name("commit".to_owned());
            thread.spawn(move || commit_thread::run(&shared, storage, &publisher))
        });
        let commit_thread = commit_thread.transpose()?;
        let for_expiry = Arc::clone(&shared);
        let expiry_task = tokio::spawn(async move { expiry_task::run(&for_expiry, &publisher).await });
        Ok(Self { shared, expiry_task, commit_thread })
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        self.expiry_task.abort();
        self.shared.lock().is_closing = true;
        self.shared.has_uncommitted.notify_all();
        if let Some(commit_thread) = self.commit_thread.take() {
            // A thread that has panicked has committed what it could.
            let _ = commit_thread.join();
        }
    }
}

impl fmt::Debug for BackgroundTasks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BackgroundTasks").finish_non_exhaustive()
    }
}
