//! Single-threaded tokio runtimes, and threads that drive one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use crate::platform;

/// A thread that drives a single-threaded runtime: tasks spawned on it run while the thread that spawned them is blocked.
///
/// Dropping it stops the runtime without waiting for its tasks; [`RuntimeThread::end`] waits.
#[derive(Debug)]
pub struct RuntimeThread {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl RuntimeThread {
    /// Starts a thread of this name with a runtime.
    ///
    /// # Errors
    /// The system cannot create a thread or a file descriptor.
    pub fn start(name: &str) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (started, handle) = mpsc::sync_channel(1);
        // Tokio panics when a runtime is dropped inside another runtime, so it is created and dropped on its own thread.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            if started.send(Ok(runtime.handle().clone())).is_ok() {
                // Nothing is ever sent: the receiver completes when `stop` is dropped.
                let _ = runtime.block_on(stopped);
            }
            runtime.shutdown_background();
        })?;
        let handle = handle.recv().map_err(io::Error::other)??;
        Ok(Self { handle, stop, thread })
    }

    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the runtime and waits until all its tasks are dropped.
    pub fn end(self) {
        drop(self.stop);
        // If the thread panicked, the panic hook has printed the message already.
        let _ = self.thread.join();
    }
}

/// Creates a runtime that the calling thread drives.
///
/// # Errors
/// The system cannot create a file descriptor.
pub fn runtime() -> io::Result<Runtime> {
    static HAS_STARTED: AtomicBool = AtomicBool::new(false);
    // Turns a panic of tokio into an error.
    if !HAS_STARTED.load(Ordering::Relaxed) {
        platform::reserve_runtime_descriptors()?;
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    HAS_STARTED.store(true, Ordering::Relaxed);
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::a_watchdog::bounded;

    #[test]
    fn spawned_tasks_run_while_the_spawning_thread_is_blocked() {
        let thread = RuntimeThread::start("test").unwrap();
        thread.handle().block_on(async {
            let (done, awaited) = channel();
            tokio::spawn(async move { done.send(7).unwrap() });
            assert_eq!(bounded(|| awaited.recv()).unwrap(), 7);
        });
    }

    #[test]
    fn end_drops_all_tasks() {
        let thread = RuntimeThread::start("test").unwrap();
        let (held, dropped) = channel::<()>();
        thread.handle().spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        thread.end();
        assert!(dropped.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Disconnected));
    }
}
