//! What a verb runs in: this thread alone, or this one and another that drives the session.

use std::io;

use tokio::runtime::Builder;

use crate::client::driven::Driven;
use crate::commands::{CommandError, Kind};

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
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| cannot_start(&error))?;
    Ok(runtime.block_on(work))
}

/// Starts a thread that drives what is spawned.
///
/// # Errors
/// As above.
pub fn start() -> Result<Driven, CommandError> {
    Driven::start("session").map_err(|error| cannot_start(&error))
}

fn cannot_start(error: &io::Error) -> CommandError {
    CommandError::new(Kind::Bug, format!("cannot start: {error}"))
}
