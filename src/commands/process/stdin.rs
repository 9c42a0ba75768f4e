//! Standard input: read as a value, awaited to its end.

use std::fs::{self, File, Metadata};
use std::future::pending;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::thread;

use bytes::Bytes;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::sync::oneshot;

use super::file::{READ_MAX, value_within_limit};
use crate::commands::error::{CommandError, Kind};

#[must_use]
pub fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Returns whether standard input is a file or a pipe, and not just absent (`/dev/null`).
#[must_use]
pub fn has_content() -> bool {
    let owned = io::stdin().as_fd().try_clone_to_owned();
    let kind = owned.and_then(|input| File::from(input).metadata()).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_fifo())
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

/// Rejects a standard input that was closed (`<&-`): the runtime of Rust has opened `/dev/null` in its place, for reading and
/// writing. Some parents, such as a container without `-i`, give the same. `</dev/null` is for reading alone, and is empty.
///
/// # Errors
/// [`Kind::File`].
pub fn check_open() -> Result<(), CommandError> {
    let stdin = io::stdin();
    let device = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.rdev());
    let null = device(fs::metadata("/dev/null"));
    let input = device(stdin.as_fd().try_clone_to_owned().and_then(|input| File::from(input).metadata()));
    let is_null = matches!((null, input), (Ok(null), Ok(input)) if null == input);
    let flags = fcntl(&stdin, FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    let is_for_both = flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR);
    match is_null && is_for_both {
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
