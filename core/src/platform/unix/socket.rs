//! Sockets below the runtime.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use tokio::net::{TcpListener, TcpStream};

/// A socket, which this does not keep open.
pub type Socket = RawFd;

/// Whether [`poll_socket`] sees bytes before the runtime does.
pub const CAN_POLL_SOCKETS: bool = true;

#[must_use]
pub fn socket_of(stream: &impl AsRawFd) -> Socket {
    stream.as_raw_fd()
}

/// Reads what has arrived, without waiting and without the runtime; None if nothing has.
///
/// # Errors
/// Those of the system.
pub fn poll_socket(stream: &TcpStream, room: &mut [u8]) -> io::Result<Option<usize>> {
    match recv(stream.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
        Ok(len) => Ok(Some(len)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes a socket that is about to be closed listen no longer. To close it is not enough: a process that another thread starts has a
/// copy of it until it runs its program, and a socket that listens excludes another one on its port.
pub fn stop_listening(listener: &TcpListener) {
    // After an error, the last copy ends it.
    _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}
