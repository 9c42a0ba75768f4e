//! The signals that ask a process to end, as a stream; from the first [`Signals::new`] on they no longer end it by
//! themselves.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{self, SignalKind};

use super::Verdict;

/// A signal that asks a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// SIGQUIT.
    Quit,
}

impl Signal {
    const ALL: [Self; 4] = [Self::Interrupt, Self::Terminate, Self::Hangup, Self::Quit];

    /// What a verb ends with that this signal has ended.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        match self {
            Self::Interrupt => Verdict::Interrupted,
            Self::Terminate => Verdict::Terminated,
            Self::Hangup => Verdict::Child(129),
            Self::Quit => Verdict::Child(131),
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

/// The signals that come from now on; none of them ends the process any more.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Begins to listen. What the parent process wants ignored (`nohup`) stays ignored.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn new() -> io::Result<Self> {
        Self::of(&Signal::ALL)
    }

    /// Only those that keys send, to everybody at the terminal: whoever lends it to a child must outlive them.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn of_keys() -> io::Result<Self> {
        Self::of(&[Signal::Interrupt, Signal::Quit])
    }

    /// All but SIGHUP, which means something else to who asks.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn besides_hangup() -> io::Result<Self> {
        Self::of(&[Signal::Interrupt, Signal::Terminate, Signal::Quit])
    }

    fn of(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored_mask();
        let heard = signals.iter().copied().filter(|signal| !is_in(ignored, signal.kind()));
        let streams = heard.map(|signal| Ok((signal, unix::signal(signal.kind())?)));
        Ok(Self { streams: streams.collect::<io::Result<_>>()? })
    }

    /// No signals at all.
    #[must_use]
    pub fn none() -> Self {
        Self { streams: Vec::new() }
    }

    /// The next signal. May be dropped at any time.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let came = |(signal, stream): &mut (Signal, unix::Signal)| {
                matches!(stream.poll_recv(context), Poll::Ready(Some(()))).then_some(*signal)
            };
            self.streams.iter_mut().find_map(came).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The signals that this process was told to ignore, a bit each; none where the system does not tell.
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
