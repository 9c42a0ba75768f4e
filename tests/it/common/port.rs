//! Ports for programs that cannot choose one, or that must listen on the same one again.

use std::mem::forget;
use std::os::fd::AsRawFd;

use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket,
};

/// Returns a free port of 127.0.0.1 that stays reserved until the tests end: the system gives it to no other program as
/// a free one, neither for a listener nor for an outgoing connection. Programs can listen on it, for it is bound, does
/// not listen itself, and may be reused.
pub fn reserved_port() -> u16 {
    let reserved = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&reserved, ReuseAddr, &true).unwrap();
    bind(reserved.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    let address: SockaddrIn = getsockname(reserved.as_raw_fd()).unwrap();
    forget(reserved);
    address.port()
}
