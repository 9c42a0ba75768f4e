//! Ports with four digits.

use std::mem::forget;
use std::os::fd::AsRawFd;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use nix::sys::socket::sockopt::ReuseAddr;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, setsockopt, socket};

/// As [`reserved_port`](super::reserved_port), with four digits: columns of tables are as wide as with the usual ports.
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
