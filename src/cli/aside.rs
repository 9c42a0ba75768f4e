//! Work that may hang, kept away from the signals and from the end of the process.

use std::thread;

use tokio::sync::oneshot;

use crate::commands::{CommandError, Kind};

/// Does what waits for people, pipes or disks, in a thread of its own: signals are heard meanwhile, and nobody waits for it
/// when it is not wanted any more.
///
/// # Errors
/// The system starts no other thread.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CommandError> {
    let (done, result) = oneshot::channel();
    let thread = thread::Builder::new().name("aside".to_owned()).spawn(move || drop(done.send(work())));
    let failed = |error: String| CommandError::new(Kind::Bug, format!("cannot start a thread: {error}"));
    thread.map_err(|error| failed(error.to_string()))?;
    result.await.map_err(|error| failed(error.to_string()))
}
