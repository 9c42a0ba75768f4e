//! Blocking work on detached threads.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs blocking work on a thread of its own and returns its result. If the returned future is dropped, the thread runs on
/// and its result is discarded.
///
/// The runtime's own blocking pool would not do: dropping a runtime waits for its blocking threads, so a disk that hangs
/// would keep the process alive, and tokio panics when the system cannot create a thread.
///
/// # Errors
/// The system cannot create a thread, or the work panicked.
pub async fn run_detached<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, result) = oneshot::channel();
    start_detached(move || drop(sender.send(work())))?;
    result.await.map_err(io::Error::other)
}

/// Starts blocking work on a thread of its own.
///
/// # Errors
/// The system cannot create a thread.
pub fn start_detached(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("detached".to_owned()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn blocked_work_does_not_block_the_runtime() {
        let (unblock, blocked) = channel();
        let work = tokio::spawn(run_detached(move || blocked.recv().unwrap()));
        // This runtime has one thread: the send below runs only if the blocked work is not on it.
        tokio::task::yield_now().await;
        unblock.send(7).unwrap();
        assert_eq!(work.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn a_panic_in_the_work_is_an_error() {
        assert!(run_detached(|| panic!("on purpose")).await.is_err());
    }
}
