//! Wake queues: another thread wakes many connections of one thread with one system call.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// A connection that can wait in a wake queue.
pub trait Queued: Debug + Send + Sync {
    /// Wakes the task, which has left the queue.
    fn leave_wake_queue(&self);
}

thread_local! {
    static CURRENT: OnceCell<Arc<WakeQueue>> = const { OnceCell::new() };
}

/// Connections of one thread that other threads have woken.
///
/// Each wake of a task from another thread is a system call. While a thread is busy or about to run, the queue collects
/// all others.
#[derive(Debug, Default)]
pub struct WakeQueue {
    woken: Mutex<Vec<Arc<dyn Queued>>>,
    is_filled: Notify,
}

impl WakeQueue {
    /// Returns the queue of the current thread, if it has one.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with(|current| current.get().cloned())
    }

    /// Whether this is the queue of the current thread.
    #[must_use]
    pub fn is_current(&self) -> bool {
        CURRENT.with(|current| current.get().is_some_and(|current| std::ptr::eq(&raw const **current, self)))
    }

    /// Makes this the queue of the current thread, and wakes the connections in it until the future is dropped. Must be
    /// called once per thread.
    pub async fn run(self: Arc<Self>) {
        CURRENT.with(|current| _ = current.set(Arc::clone(&self)));
        loop {
            self.is_filled.notified().await;
            let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            woken.iter().for_each(|connection| connection.leave_wake_queue());
        }
    }

    /// Wakes a connection of another thread.
    pub fn push(&self, connection: Arc<dyn Queued>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        woken.push(connection);
        if woken.len() == 1 {
            drop(woken);
            self.is_filled.notify_one();
        }
    }

    /// Returns the number of connections that have not been woken yet.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.woken.lock().unwrap().len()
    }
}
