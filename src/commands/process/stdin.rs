//! Standard input: read as a value, awaited to its end.

use std::future::pending;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::file::{READ_MAX, value_within_limit};
use crate::commands::error::{CommandError, Kind};
use crate::platform;

pub use crate::platform::stdin_has_content as has_content;

#[must_use]
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Returns the file of a verb that reads lines; without one, standard input unless it is a terminal.
///
/// # Errors
/// There is no file, and standard input is a terminal.
pub fn file_or_input(file: Option<PathBuf>, usage: &str) -> Result<PathBuf, CommandError> {
    match file {
        Some(file) => Ok(file),
        None if is_terminal() => Err(CommandError::usage("FILE is missing").hint(usage)),
        None => Ok(PathBuf::from("-")),
    }
}

/// Rejects a standard input that was closed (`<&-`).
///
/// # Errors
/// [`Kind::File`].
pub fn check_open() -> Result<(), CommandError> {
    match platform::is_stdin_closed() {
        true => Err(CommandError::new(Kind::File, "cannot read standard input: it is closed")),
        false => Ok(()),
    }
}

/// Reads standard input to its end, as a value.
///
/// # Errors
/// [`Kind::File`] if it cannot be read, [`Kind::Data`] if it is larger than a value may be.
pub fn read_value() -> Result<Bytes, CommandError> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(READ_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| CommandError::new(Kind::File, format!("cannot read standard input: {error}")))?;
    value_within_limit(bytes)
}

/// Reads a line of the terminal at standard input. If the future is dropped, what is typed later is left to the next reader.
///
/// # Errors
/// It cannot be read.
pub async fn terminal_line() -> Result<Vec<u8>, CommandError> {
    /// The most bytes of a line that is typed; a terminal has a limit of its own.
    const LINE_MAX: usize = 4096;
    /// The longest time for which a dropped future leaves its thread.
    const POLL: Duration = Duration::from_millis(100);
    let (sender, line) = oneshot::channel();
    let wait_and_read = move || {
        while !sender.is_closed() {
            // The terminal has a whole line, or is at its end. Without this look it would take the line that is for the next reader.
            if !platform::stdin_is_ready_within(POLL) || sender.is_closed() {
                continue;
            }
            let mut read = vec![0; LINE_MAX];
            let result = platform::stdin_file().and_then(|mut input| input.read(&mut read)).map(|len| {
                read.truncate(len);
                read
            });
            if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                let _ = sender.send(result);
                return;
            }
        }
    };
    thread::Builder::new()
        .name("answer".to_owned())
        .spawn(wait_and_read)
        .map_err(|error| CommandError::system("start a thread", &error))?;
    match line.await {
        Ok(Ok(line)) => Ok(line),
        Ok(Err(error)) => Err(CommandError::new(Kind::File, format!("cannot read standard input: {error}"))),
        Err(_) => pending().await,
    }
}

/// Waits for the end of standard input, and discards what comes before it. Never returns if the input cannot be read.
pub async fn end_of_input() -> Result<(), CommandError> {
    let (sender, ended) = oneshot::channel();
    let read = move || {
        if io::copy(&mut io::stdin().lock(), &mut io::sink()).is_ok() {
            // The verb may have ended meanwhile.
            let _ = sender.send(());
        }
    };
    // A detached thread: a blocking task of the runtime would hold up the end of the process until the read returns.
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(read)
        .map_err(|error| CommandError::system("start a thread", &error))?;
    match ended.await {
        Ok(()) => Ok(()),
        // A read error is not an end of input.
        Err(_) => pending().await,
    }
}
