//! Standard streams: as files, and what the runtime does not report of them.

use std::fs::{self, File, Metadata};
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Returns another handle of standard input, which bypasses its buffer.
///
/// # Errors
/// Those of the system.
pub fn stdin_file() -> io::Result<File> {
    io::stdin().as_fd().try_clone_to_owned().map(File::from)
}

/// Returns another handle of standard output, which bypasses its buffer.
///
/// # Errors
/// Those of the system.
pub fn stdout_file() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// Returns whether standard input is a file or a pipe, and not just absent (`/dev/null`).
#[must_use]
pub fn stdin_has_content() -> bool {
    let kind = stdin_file().and_then(|input| input.metadata()).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_file() || kind.is_fifo())
}

/// Returns whether standard input was closed (`<&-`): the runtime of Rust has opened `/dev/null` in its place, for reading and
/// writing. Some parents, such as a container without `-i`, give the same. `</dev/null` is for reading alone, and is empty.
#[must_use]
pub fn is_stdin_closed() -> bool {
    let device = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.rdev());
    let null = device(fs::metadata("/dev/null"));
    let input = device(stdin_file().and_then(|input| input.metadata()));
    let is_null = matches!((null, input), (Ok(null), Ok(input)) if null == input);
    let flags = fcntl(io::stdin(), FcntlArg::F_GETFL).map(OFlag::from_bits_truncate);
    is_null && flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE == OFlag::O_RDWR)
}

/// Waits for input, at most for this time. Returns whether a read would not wait. Windows: waits for nothing, and returns true.
#[must_use]
pub fn stdin_is_ready_within(wait: Duration) -> bool {
    let stdin = io::stdin();
    let mut waits = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    match poll(&mut waits, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
        Ok(ready) => ready > 0,
        // The read reports any other error.
        Err(error) => error != Errno::EINTR,
    }
}

/// Waits until the reader of standard output has closed it. Never returns if standard output is a file, or if the
/// system cannot report it.
#[expect(deprecated, reason = "its successor is unsafe; standard output stays the same descriptor")]
pub async fn stdout_closed() {
    if let Ok(stdout) = AsyncFd::with_interest(io::stdout(), Interest::ERROR) {
        while let Ok(mut guard) = stdout.ready(Interest::ERROR).await {
            if guard.ready().is_error() || guard.ready().is_write_closed() {
                return;
            }
            guard.clear_ready();
        }
    }
    pending().await
}

/// Returns whether a line can be written to standard error without waiting: a terminal may be stopped (Ctrl-S), and the
/// reader of a pipe may be slow.
#[must_use]
pub fn stderr_has_room() -> bool {
    let stderr = io::stderr();
    let mut waits = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
