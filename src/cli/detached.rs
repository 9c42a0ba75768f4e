//! Blocking work on a thread of its own, which does not delay signals or the exit of the process.

use crate::commands::CommandError;
use crate::net::detached;

/// Runs work that waits for a person, a pipe or a disk. If the returned future is dropped, the work goes on without
/// anything that waits for it.
pub async fn run_detached<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CommandError> {
    detached::run_detached(work).await.map_err(|error| CommandError::system("start a thread", &error))
}
