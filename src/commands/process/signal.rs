//! The signals that ask a process to end, as a stream; from the first [`Signals::new`] on they no longer end it by
//! themselves.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{self, SignalKind};

use super::child::{die_of, nudge_this_process};
use crate::commands::{CommandError, Kind, Verdict};

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

    /// What a write fails with that this signal has ended before its answer came; none: nobody is left to be told.
    #[must_use]
    pub fn failure(self) -> Option<CommandError> {
        match self {
            Self::Interrupt => Some(CommandError::new(Kind::Interrupted, "SIGINT came before the answer")),
            Self::Terminate => Some(CommandError::new(Kind::Terminated, "SIGTERM came before the answer")),
            Self::Hangup | Self::Quit => None,
        }
    }

    /// The signal that such a failure is about.
    #[must_use]
    pub fn behind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Interrupted => Some(Self::Interrupt),
            Kind::Terminated => Some(Self::Terminate),
            _ => None,
        }
    }

    /// Ends this process as the signal would have done if nobody had listened: a shell that waits for it is to see that
    /// it was the signal, or a loop in a script goes on.
    pub fn take_effect(self) {
        die_of(self);
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

    /// Only those with which somebody asks for the end: a terminal that is gone takes its readers along.
    ///
    /// # Errors
    /// The system takes no handler.
    pub fn of_requests() -> io::Result<Self> {
        Self::of(&[Signal::Interrupt, Signal::Terminate])
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

    /// Waits until all that have come by now can be heard: a signal takes its way through a thread that may be late.
    pub async fn settle(&self) {
        // They are handed on together, in the order of their numbers, and this one has a greater number than the others.
        if let Ok(mut mark) = unix::signal(SignalKind::child()) {
            nudge_this_process();
            mark.recv().await;
        }
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
