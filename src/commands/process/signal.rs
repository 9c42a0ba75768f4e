//! Signals that ask a process to end: received as a stream, sent to processes.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigHandler, SigSet, Signal as Number, kill, killpg};
use nix::unistd::{Pid, getpid};
use tokio::signal::unix::{self, SignalKind};

use crate::commands::error::{CommandError, Kind};
use crate::commands::exit::Exit;

/// A signal that asks a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal was closed.
    Hangup,
    /// SIGQUIT.
    Quit,
}

impl Signal {
    const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::Hangup, Self::Quit];

    /// Returns how a verb ends that this signal has ended.
    #[must_use]
    pub fn exit(self) -> Exit {
        match self {
            Self::Interrupt => Exit::Failed(Kind::Interrupted),
            Self::Terminate => Exit::Failed(Kind::Terminated),
            Self::Hangup => Exit::Child(129),
            Self::Quit => Exit::Child(131),
        }
    }

    /// Returns the error of a write that this signal has ended before its answer; None for SIGHUP and SIGQUIT, which end
    /// the process without a message.
    #[must_use]
    pub fn write_error(self) -> Option<CommandError> {
        match self {
            Self::Interrupt => {
                Some(CommandError::new(Kind::Interrupted, "interrupted before the answer: SIGINT"))
            }
            Self::Terminate => {
                Some(CommandError::new(Kind::Terminated, "interrupted before the answer: SIGTERM"))
            }
            Self::Hangup | Self::Quit => None,
        }
    }

    /// Returns the signal that causes errors of this kind.
    #[must_use]
    pub fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Interrupted => Some(Self::Interrupt),
            Kind::Terminated => Some(Self::Terminate),
            _ => None,
        }
    }

    /// Ends this process by the signal's default action, so that a waiting shell sees the signal: with an exit status
    /// instead, a loop in a script would go on.
    #[expect(unsafe_code, reason = "nix has no safe function that sets a signal's action")]
    pub fn take_effect(self) {
        // SAFETY: no handler is installed, one is removed.
        let _ = unsafe { nix::sys::signal::signal(self.number(), SigHandler::SigDfl) };
        let _ = kill(getpid(), self.number());
    }

    /// Sends the signal to the process group that a child leads.
    pub fn send_to_group_of(self, leader: &tokio::process::Child) {
        // A child that has been waited for has no id any more.
        let id = leader.id().map(|id| Pid::from_raw(id.cast_signed()));
        let _ = id.map(|id| killpg(id, self.number()));
    }

    /// Returns the number of the system.
    pub(super) fn number(self) -> Number {
        match self {
            Self::Interrupt => Number::SIGINT,
            Self::Terminate => Number::SIGTERM,
            Self::Hangup => Number::SIGHUP,
            Self::Quit => Number::SIGQUIT,
        }
    }

    fn kind(self) -> SignalKind {
        match self {
            Self::Interrupt => SignalKind::interrupt(),
            Self::Terminate => SignalKind::terminate(),
            Self::Hangup => SignalKind::hangup(),
            Self::Quit => SignalKind::quit(),
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
    if !is_ignored(SignalKind::from_raw(Number::SIGXFSZ as i32)) {
        // SAFETY: the handler calls nothing.
        let _ = unsafe { nix::sys::signal::signal(Number::SIGXFSZ, SigHandler::Handler(do_nothing)) };
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
    /// Receives all signals. Signals that the parent process ignores (`nohup`) stay ignored.
    pub fn new() -> io::Result<Self> {
        Self::of(&Signal::ALL)
    }

    /// Receives SIGINT and SIGTERM. SIGHUP keeps its default action: without a terminal there is nothing to print to.
    pub fn of_requests() -> io::Result<Self> {
        Self::of(&[Signal::Interrupt, Signal::Terminate])
    }

    /// Receives all signals except SIGHUP.
    pub fn except_hangup() -> io::Result<Self> {
        Self::of(&[Signal::Interrupt, Signal::Terminate, Signal::Quit])
    }

    fn of(signals: &[Signal]) -> io::Result<Self> {
        let received = signals.iter().copied().filter(|signal| !is_ignored(signal.kind()));
        let streams = received.map(|signal| Ok((signal, unix::signal(signal.kind())?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
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
        let _ = unsafe { nix::sys::signal::signal(number, SigHandler::SigIgn) };
    }
}

/// Returns whether this process ignores a signal, as its parent has set.
pub(super) fn is_ignored(kind: SignalKind) -> bool {
    is_in(ignored_mask(), kind)
}

/// Returns the signals that this process ignores, one bit each; 0 on a system without `/proc`.
fn ignored_mask() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, kind: SignalKind) -> bool {
    let bit = u32::try_from(kind.as_raw_value()).ok().and_then(|number| number.checked_sub(1));
    bit.and_then(|bit| 1u64.checked_shl(bit)).is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_counts_signals_from_one() {
        assert!(is_in(0b1, SignalKind::hangup()));
        assert!(is_in(0b10, SignalKind::interrupt()));
        assert!(!is_in(0b10, SignalKind::terminate()));
    }
}
