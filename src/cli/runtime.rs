//! What a verb runs in: this thread alone, or this one and another that drives the session.

use tokio::runtime::Runtime;

use crate::commands::CommandError;
use crate::net::runtime_thread;
use crate::net::runtime_thread::RuntimeThread;

/// Does all the work here, and if `has_driver`, what is spawned in a thread of its own. Tasks that are left are dropped.
///
/// # Errors
/// The system has no thread to give, or no descriptor.
pub fn block_on<T>(has_driver: bool, work: impl Future<Output = T>) -> Result<T, CommandError> {
    if has_driver {
        let driver = start()?;
        let done = driver.handle().block_on(work);
        driver.end();
        return Ok(done);
    }
    Ok(here()?.block_on(work))
}

/// What this thread alone works in.
///
/// # Errors
/// The system has no descriptor to give.
pub fn here() -> Result<Runtime, CommandError> {
    runtime_thread::runtime().map_err(|error| CommandError::system("start", &error))
}

/// Starts a thread that drives what is spawned.
///
/// # Errors
/// As above.
pub fn start() -> Result<RuntimeThread, CommandError> {
    RuntimeThread::start("session").map_err(|error| CommandError::system("start", &error))
}
