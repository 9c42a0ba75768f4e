//! Sockets below the runtime.

use std::io;
use std::os::windows::io::{AsRawSocket, RawSocket};

use tokio::net::{TcpListener, TcpStream};

pub type Socket = RawSocket;

pub const CAN_POLL_SOCKETS: bool = false;

#[must_use]
pub fn socket_of(stream: &impl AsRawSocket) -> Socket {
    stream.as_raw_socket()
}

pub fn poll_socket(_: &TcpStream, _room: &mut [u8]) -> io::Result<Option<usize>> {
    Ok(None)
}

pub fn stop_listening(_: &TcpListener) {}
