//! A runtime that a thread of its own drives: what is spawned there goes on while whoever spawned it is held up.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// One thread and its runtime. Both end when this is dropped, and nobody waits for them.
///
/// Not tokio's runtime for many threads: that is memory and code for the work that wanders between them.
#[derive(Debug)]
pub struct Driven {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Driven {
    /// Starts the thread, under this name.
    ///
    /// # Errors
    /// The system has no thread to give, or no descriptor.
    pub fn start(name: &str) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (begun, handle) = mpsc::sync_channel(1);
        // A runtime must not be dropped where another one runs, so it lives and ends in its thread.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(begun.send(Err(error))),
            };
            if begun.send(Ok(runtime.handle().clone())).is_ok() {
                // Nobody sends anything: the other end is dropped.
                let _ = runtime.block_on(stopped);
            }
            runtime.shutdown_background();
        })?;
        let handle = handle.recv().map_err(io::Error::other)??;
        Ok(Self { handle, stop, thread })
    }

    /// For what is to be done there.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Ends it, and waits until all its tasks are dropped.
    pub fn end(self) {
        drop(self.stop);
        // It has told of its panic itself.
        let _ = self.thread.join();
    }
}

/// A runtime for one thread.
///
/// # Errors
/// The system has no descriptor to give.
pub fn runtime() -> io::Result<Runtime> {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    // The first one takes six descriptors, and it is a panic if there are three and not all of them.
    if !HAS_BEGUN.load(Ordering::Relaxed) {
        let pairs: io::Result<Vec<_>> = (0..3).map(|_| UnixStream::pair()).collect();
        drop(pairs?);
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    HAS_BEGUN.store(true, Ordering::Relaxed);
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_was_spawned_goes_on_while_this_thread_is_held_up() {
        let driven = Driven::start("driven").unwrap();
        driven.handle().block_on(async {
            let (done, awaited) = channel();
            tokio::spawn(async move { done.send(7).unwrap() });
            assert_eq!(awaited.recv().unwrap(), 7);
        });
    }

    #[test]
    fn at_the_end_no_task_is_left() {
        let driven = Driven::start("driven").unwrap();
        let (kept, dropped) = channel::<()>();
        driven.handle().spawn(async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        });
        driven.end();
        assert!(dropped.try_recv().is_err_and(|error| error == mpsc::TryRecvError::Disconnected));
    }
}
