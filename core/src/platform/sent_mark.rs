//! Marks in what is sent on a TCP socket: whether the other side has acknowledged anything behind them.

use super::Socket;

/// A position in what is sent on a socket, which it does not keep open.
#[derive(Clone, Copy, Debug)]
pub struct SentMark {
    socket: Socket,
    /// The number of bytes before the mark.
    sent: u64,
}

impl SentMark {
    /// Marks the end of what has been sent on an open socket, on which nothing is sent meanwhile; None if the system does not report
    /// acknowledgements.
    #[must_use]
    pub fn at_end(socket: Socket) -> Option<Self> {
        let mut before = acknowledged(socket)?;
        loop {
            let unacknowledged = unacknowledged(socket)?;
            let after = acknowledged(socket)?;
            if before == after {
                return Some(Self { socket, sent: after.saturating_add(unacknowledged) });
            }
            // Bytes that were acknowledged in between are in both numbers, or in none. It ends: nothing more is sent meanwhile.
            before = after;
        }
    }

    /// Whether the other side has acknowledged a byte behind the mark, also if the connection is lost by now. The socket must
    /// not have been closed.
    #[must_use]
    pub fn is_passed(self) -> bool {
        acknowledged(self.socket).is_some_and(|bytes| bytes > self.sent)
    }
}

/// Returns how many bytes the other side has acknowledged.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe function reads the field of TCP_INFO")]
fn acknowledged(socket: Socket) -> Option<u64> {
    use nix::libc::{IPPROTO_TCP, TCP_INFO, c_void, getsockopt, socklen_t};
    /// The place of `tcpi_bytes_acked` in `struct tcp_info`, which the structure in libc does not have.
    const BYTES_ACKED: usize = 15;
    let mut info = [0_u64; BYTES_ACKED + 1];
    let size = socklen_t::try_from(size_of_val(&info)).ok()?;
    let mut written = size;
    // SAFETY: the pointers are valid, and the system writes `written` bytes at most.
    let result = unsafe {
        getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast::<c_void>(), &raw mut written)
    };
    // A system without the field writes fewer bytes.
    info.last().copied().filter(|_| result == 0 && written == size)
}

/// Returns the length of the send queue: the bytes that the other side has not acknowledged.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe function reads the length of the send queue")]
fn unacknowledged(socket: Socket) -> Option<u64> {
    let mut bytes: nix::libc::c_int = 0;
    // SAFETY: the request, which is SIOCOUTQ for a socket, writes one integer, and the pointer is valid.
    let result = unsafe { nix::libc::ioctl(socket, nix::libc::TIOCOUTQ, &raw mut bytes) };
    u64::try_from(bytes).ok().filter(|_| result == 0)
}

#[cfg(not(target_os = "linux"))]
fn acknowledged(_: Socket) -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn unacknowledged(_: Socket) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::*;
    use crate::a_watchdog::bounded;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, bounded(|| listener.accept()).unwrap().0)
    }

    #[test]
    fn a_mark_is_passed_once_a_byte_behind_it_is_acknowledged_and_stays_so_after_the_connection() {
        let (mut client, mut server) = pair();
        for _ in 0..2 {
            // The byte before the second mark may be acknowledged after it.
            let mark = SentMark::at_end(server.as_raw_fd()).unwrap();
            assert!(!mark.is_passed());
            server.write_all(b"x").unwrap();
            bounded(|| client.read_exact(&mut [0])).unwrap();
            client.write_all(b"y").unwrap();
            bounded(|| server.read_exact(&mut [0])).unwrap();
            assert!(mark.is_passed());
        }
        let mark = SentMark::at_end(server.as_raw_fd()).unwrap();
        server.write_all(b"x").unwrap();
        while !mark.is_passed() {}
        // The client has not read the byte, so the connection is reset.
        drop(client);
        assert!(server.read(&mut [0]).is_err());
        assert!(mark.is_passed());
    }

    #[test]
    fn bytes_to_a_client_that_has_closed_do_not_pass_a_mark() {
        let (client, mut server) = pair();
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        let mark = SentMark::at_end(server.as_raw_fd()).unwrap();
        server.write_all(b"x").unwrap();
        // The client's system answers with a reset.
        while server.take_error().unwrap().is_none() {}
        assert!(!mark.is_passed());
    }

    #[test]
    fn bytes_that_are_not_acknowledged_at_the_mark_do_not_pass_it() {
        let (mut client, mut server) = pair();
        let bytes = vec![0; 16 * 1024 * 1024];
        server.set_nonblocking(true).unwrap();
        let sent = server.write(&bytes).unwrap();
        assert!(unacknowledged(server.as_raw_fd()).unwrap() > 0, "the client's buffer is full");
        let mark = SentMark::at_end(server.as_raw_fd()).unwrap();
        bounded(|| client.read_exact(&mut vec![0; sent])).unwrap();
        while unacknowledged(server.as_raw_fd()).unwrap() > 0 {}
        assert!(!mark.is_passed());
    }

    #[test]
    fn a_mark_is_exact_while_bytes_are_acknowledged() {
        let (mut client, mut server) = pair();
        let reader = thread::spawn(move || io::copy(&mut client, &mut io::sink()));
        server.set_nonblocking(true).unwrap();
        let more_than_fits = vec![0; 4 * 1024 * 1024];
        for _ in 0..400 {
            _ = server.write(&more_than_fits);
            let mark = SentMark::at_end(server.as_raw_fd()).unwrap();
            while unacknowledged(server.as_raw_fd()).unwrap() > 0 {}
            assert_eq!(acknowledged(server.as_raw_fd()), Some(mark.sent));
        }
        drop(server);
        bounded(|| reader.join()).unwrap().unwrap();
    }
}
