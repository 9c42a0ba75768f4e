//! Standard output and standard error: their size, and whether a write would block or its reader is gone.

use std::future::pending;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until the reader of standard output has closed it. Never returns if standard output is a file, or if the
/// system cannot report it.
#[expect(deprecated, reason = "its successor is unsafe; standard output stays the same descriptor")]
pub async fn closed() {
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

/// Returns the width of the terminal at standard output, in columns.
#[must_use]
pub fn columns() -> Option<usize> {
    columns_of(io::stdout())
}

/// Returns the height of the terminal at standard output, in rows.
#[must_use]
pub fn rows() -> Option<usize> {
    let (_, height) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(height.0)).filter(|rows| *rows > 0)
}

/// Returns the width of the terminal at standard error, in columns.
#[must_use]
pub fn stderr_columns() -> Option<usize> {
    columns_of(io::stderr())
}

#[must_use]
pub fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether a line can be written to standard error without waiting: a terminal may be stopped (Ctrl-S), and the
/// reader of a pipe may be slow.
#[must_use]
pub fn stderr_has_room() -> bool {
    let stderr = io::stderr();
    let mut waits = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    poll(&mut waits, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(stream)?;
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}
