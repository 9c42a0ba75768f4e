//! Runtimes of the verbs: on this thread alone, or with a second thread that drives the session.

use tokio::runtime::Runtime;

use crate::commands::CommandError;
use crate::net::runtime_thread;
use crate::net::runtime_thread::RuntimeThread;

/// Runs `work` on this thread, and with `has_driver` the tasks that it spawns on a second one. Drops unfinished tasks.
///
/// # Errors
/// The system has no thread or descriptor available.
pub fn block_on<T>(has_driver: bool, work: impl Future<Output = T>) -> Result<T, CommandError> {
    if has_driver {
        let driver = start()?;
        let done = driver.handle().block_on(work);
        driver.end();
        return Ok(done);
    }
    Ok(here()?.block_on(work))
}

/// Returns a runtime for this thread.
///
/// # Errors
/// The system has no descriptor available.
pub fn here() -> Result<Runtime, CommandError> {
    runtime_thread::runtime().map_err(|error| CommandError::system("start", &error))
}

/// Starts a runtime whose tasks run on another thread.
///
/// # Errors
/// The system has no thread or descriptor available.
pub fn start() -> Result<RuntimeThread, CommandError> {
    RuntimeThread::start("session").map_err(|error| CommandError::system("start", &error))
}
