//! Work that may hang, kept away from the threads that serve others and from the end of the process.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Does what waits for people, pipes, disks or long reckonings in a thread of its own; nobody waits for it when it is not
/// wanted any more. None of a runtime's own threads for that: its end waits for them, and it panics where the system has
/// none to give.
///
/// # Errors
/// The system has no thread to give, or the work panicked.
pub async fn do_aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name("aside".to_owned()).spawn(move || drop(done.send(work())))?;
    result.await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn work_that_hangs_holds_up_nobody_else() {
        let (go, gone) = channel();
        let work = tokio::spawn(do_aside(move || gone.recv().unwrap()));
        // On the only thread of this runtime, while the work waits for it.
        tokio::task::yield_now().await;
        go.send(7).unwrap();
        assert_eq!(work.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn work_that_panics_is_an_error() {
        assert!(do_aside(|| panic!("on purpose")).await.is_err());
    }
}
