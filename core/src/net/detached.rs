//! Blocking work on detached threads.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// What is added to the nice value for work that others should not wait for. 19 would leave it too little of a busy
/// processor.
const NICE: i32 = 10;

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

/// Lets other threads have the processors first, as `nice -n 10`: for work that takes a processor for a while.
pub fn lower_priority() {
    // On Linux, a nice value is that of the calling thread. Elsewhere it would be that of the whole process.
    if cfg!(target_os = "linux") {
        // A container may forbid it: then the work is done as before.
        let _ = rustix::process::nice(NICE);
    }
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

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_lower_priority_is_that_of_the_calling_thread_alone() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let lowered = run_detached(move || {
            lower_priority();
            priority()
        });
        assert_eq!(lowered.await.unwrap(), (before + NICE).min(19));
        assert_eq!(priority(), before);
    }

    #[tokio::test]
    async fn a_panic_in_the_work_is_an_error() {
        assert!(run_detached(|| panic!("on purpose")).await.is_err());
    }
}
