//! Signals of a process: received as a stream, sent to processes.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, SigSet, Signal as Number, kill, signal};
use nix::unistd::{Pid, getpid};
use tokio::signal::unix::{self, SignalKind};

use crate::platform::types::Signal;

impl Signal {
    /// SIGTSTP: Ctrl-Z.
    pub const SUSPEND: Self = Self::Other(Number::SIGTSTP as i32);
    /// SIGCONT.
    pub const CONTINUE: Self = Self::Other(Number::SIGCONT as i32);
    /// SIGWINCH: the terminal has another size.
    pub const WINDOW_CHANGE: Self = Self::Other(Number::SIGWINCH as i32);

    /// Returns the signals that end a process without a handler. Not among them are SIGKILL, which has none, those of faults,
    /// SIGPIPE, which the runtime ignores, and SIGXFSZ: a write beyond the limit fails with an error.
    fn all() -> impl Iterator<Item = Self> {
        use Number::{SIGALRM, SIGIO, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU};
        let requests = [Self::Interrupt, Self::Terminate, Self::Hangup, Self::Quit];
        let others =
            [SIGALRM, SIGIO, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU].map(|number| number as i32);
        #[cfg(target_os = "linux")]
        let of_system = (libc::SIGRTMIN()..=libc::SIGRTMAX()).chain([libc::SIGPWR, libc::SIGSTKFLT]);
        #[cfg(not(target_os = "linux"))]
        let of_system = std::iter::empty();
        requests.into_iter().chain(others.into_iter().chain(of_system).map(Self::Other))
    }

    /// Ends this process by the signal's default action, so that a waiting shell sees the signal: with an exit status
    /// instead, a loop in a script would go on.
    #[expect(unsafe_code, reason = "nix has no function for real-time signals")]
    pub fn take_effect(self) {
        // SAFETY: no handler is installed, one is removed.
        unsafe { libc::signal(self.number(), libc::SIG_DFL) };
        // SAFETY: the call has no preconditions.
        let _ = unsafe { libc::kill(libc::getpid(), self.number()) };
    }

    /// Sends the signal to the process group that a child leads.
    pub fn send_to_group_of(self, leader: &tokio::process::Child) {
        // A child that has been waited for has no id any more.
        let id = leader.id().map(|id| Pid::from_raw(id.cast_signed()));
        let _ = id.map(|id| self.send_to_group(id));
    }

    /// Sends the signal to a process group.
    #[expect(unsafe_code, reason = "nix has no function for real-time signals")]
    pub(super) fn send_to_group(self, group: Pid) -> Result<(), Errno> {
        // SAFETY: the call has no preconditions.
        Errno::result(unsafe { libc::killpg(group.as_raw(), self.number()) }).map(drop)
    }

    /// Returns the number of the signal, between 1 and 127.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Interrupt => Number::SIGINT as i32,
            Self::Terminate => Number::SIGTERM as i32,
            Self::Hangup => Number::SIGHUP as i32,
            Self::Quit => Number::SIGQUIT as i32,
            Self::Other(number) => number,
        }
    }
}

/// Sends SIGINT to this process, which interrupts a read of the terminal in another thread.
pub fn interrupt_this_process() {
    let _ = kill(getpid(), Number::SIGINT);
}

/// Makes a write above the limit on the size of files (`ulimit -f`) fail as on a full disk; the signal would end the process.
/// By a handler, because the programs that this process starts would inherit that it is ignored.
#[expect(unsafe_code, reason = "nix has no safe function that sets a signal's action")]
pub fn outlive_file_size_limit() {
    extern "C" fn do_nothing(_: i32) {}
    if !is_ignored(Signal::Other(Number::SIGXFSZ as i32)) {
        // SAFETY: the handler calls nothing.
        let _ = unsafe { signal(Number::SIGXFSZ, SigHandler::Handler(do_nothing)) };
    }
}

/// Makes a SIGHUP wait until [`release_hangup`], also in threads that are started before. A server does this before it reads
/// anything, so that a SIGHUP finds the handler: without one it would end the process.
pub fn hold_hangup() {
    let _ = SigSet::from(Number::SIGHUP).thread_block();
}

/// Ends [`hold_hangup`] for this thread and those that it starts. A SIGHUP that waits takes effect at once.
pub fn release_hangup() {
    let _ = SigSet::from(Number::SIGHUP).thread_unblock();
}

/// A stream of signals; signals in it no longer end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Receives all signals that end a process, faults excepted. Signals that the parent process ignores (`nohup`) stay
    /// ignored.
    pub fn new() -> io::Result<Self> {
        Self::of(Signal::all())
    }

    /// Receives SIGINT and SIGTERM. SIGHUP keeps its default action: without a terminal there is nothing to print to.
    pub fn of_requests() -> io::Result<Self> {
        Self::of([Signal::Interrupt, Signal::Terminate])
    }

    /// Receives all signals that end a process except SIGHUP.
    pub fn except_hangup() -> io::Result<Self> {
        Self::of(Signal::all().filter(|signal| *signal != Signal::Hangup))
    }

    /// Receives these signals, except those that the parent process ignores.
    pub fn of(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let ignored = ignored_mask();
        let received = signals.into_iter().filter(|signal| !is_in(ignored, signal.number()));
        let streams =
            received.map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.number()))?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
    }

    /// Receives SIGHUP, also if the parent process ignores it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of_hangup() -> io::Result<Self> {
        Ok(Self { streams: vec![(Signal::Hangup, unix::signal(SignalKind::hangup())?)] })
    }

    /// Receives no signals.
    #[must_use]
    pub fn none() -> Self {
        Self { streams: Vec::new() }
    }

    /// Waits until [`Signals::next`] can return all signals that were sent before: the runtime passes signals on in
    /// another thread, which may be late.
    pub async fn sync(&self) {
        // The runtime passes pending signals on together, in the order of their numbers; SIGCHLD has a greater number
        // than the others, so it arrives last.
        if let Ok(mut marker) = unix::signal(SignalKind::child()) {
            let _ = kill(getpid(), Number::SIGCHLD);
            marker.recv().await;
        }
    }

    /// Returns the next signal. Cancel-safe.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let received = |(signal, stream): &mut (Signal, unix::Signal)| {
                matches!(stream.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            };
            self.streams.iter_mut().find_map(received).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Ignores SIGINT and SIGQUIT, the keys of the terminal, from now on.
#[expect(unsafe_code, reason = "nix has no safe function that sets a signal's action")]
pub fn ignore_keys() {
    for number in [Number::SIGINT, Number::SIGQUIT] {
        // SAFETY: no handler is installed.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
}

/// Returns whether this process ignores a signal, as its parent has set.
pub(super) fn is_ignored(signal: Signal) -> bool {
    is_in(ignored_mask(), signal.number())
}

/// Returns the signals that this process ignores, one bit each; 0 on a system without `/proc`.
fn ignored_mask() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, number: i32) -> bool {
    let bit = u32::try_from(number).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| 1u64.checked_shl(bit)).is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_counts_signals_from_one() {
        assert!(is_in(0b1, libc::SIGHUP));
        assert!(is_in(0b10, libc::SIGINT));
        assert!(!is_in(0b10, libc::SIGTERM));
    }
}
