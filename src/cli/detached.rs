//! Work that may hang, kept away from the signals and from the end of the process.

use crate::commands::CommandError;
use crate::net::detached::run_detached;

/// Does what waits for people, pipes or disks, in a thread of its own: signals are heard meanwhile, and nobody waits for it
/// when it is not wanted any more.
///
/// # Errors
/// The system starts no other thread.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, CommandError> {
    run_detached(work).await.map_err(|error| CommandError::system("start a thread", &error))
}
