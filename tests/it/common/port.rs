//! Ports for programs that cannot choose one, or that must listen on the same one again.

use std::mem::forget;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

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

/// As [`reserved_port`], with four digits: columns of tables are as wide as with the usual ports.
pub fn reserved_short_port() -> u16 {
    const FIRST: u16 = 2000;
    const COUNT: u16 = 8000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Other tests that run at the same time begin elsewhere.
    let begin = u16::try_from(process::id() * 61 % u32::from(COUNT)).unwrap();
    loop {
        let port = FIRST + (begin + TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        let reserved = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        // Without the option, a port that another program has only bound is not free either.
        if bind(reserved.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, port)).is_ok() {
            setsockopt(&reserved, ReuseAddr, &true).unwrap();
            forget(reserved);
            return port;
        }
    }
}
