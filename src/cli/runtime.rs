//! Runtimes of the verbs: on this thread alone, or with a second thread that drives the session.

use tokio::runtime::Runtime;

use crate::commands::CommandError;
use crate::net::runtime_thread;
use crate::net::runtime_thread::RuntimeThread;

/// Runs `work` on this thread, and with `has_driver` the tasks that it spawns on a second one. Drops unfinished tasks.
pub fn block_on<T>(has_driver: bool, work: impl Future<Output = T>) -> Result<T, CommandError> {
    if has_driver {
        let driver = start()?;
        let done = driver.handle().block_on(work);
        driver.end();
        return Ok(done);
    }
    let runtime = here()?;
    let done = runtime.block_on(work);
    // Dropping it would wait for a name lookup that has timed out here and hangs in the system's resolver.
    runtime.shutdown_background();
    Ok(done)
}

/// Returns a runtime for this thread.
pub fn here() -> Result<Runtime, CommandError> {
    runtime_thread::runtime().map_err(|error| CommandError::system("start", &error))
}

/// Starts a runtime whose tasks run on another thread.
pub fn start() -> Result<RuntimeThread, CommandError> {
    RuntimeThread::start("session").map_err(|error| CommandError::system("start", &error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::a_watchdog::bounded;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "name lookups use the same threads")]
    fn a_lookup_that_hangs_does_not_hold_up_the_end() {
        let (release, held) = mpsc::channel::<()>();
        let ended = thread::spawn(move || {
            block_on(false, async { drop(tokio::task::spawn_blocking(move || held.recv())) }).unwrap();
        });
        bounded(|| ended.join()).unwrap();
        release.send(()).unwrap();
    }
}
