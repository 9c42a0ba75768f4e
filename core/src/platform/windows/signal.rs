//! Events of the console, as signals.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::signal::windows::{self, CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown};
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};

use crate::platform::types::Signal;

impl Signal {
    pub const SUSPEND: Self = Self::Other(20);
    pub const CONTINUE: Self = Self::Other(18);
    pub const WINDOW_CHANGE: Self = Self::Other(28);

    /// Does nothing: a shell sees exit codes only.
    pub fn take_effect(self) {}

    /// Sends Ctrl-Break to the process group that a child leads: no other event reaches a group.
    pub fn send_to_group_of(self, leader: &tokio::process::Child) {
        if let (Some(id), true) = (leader.id(), self.is_request()) {
            send_break(id);
        }
    }

    /// Whether the signal asks a process to end.
    pub(super) fn is_request(self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// Returns the number that the signal has on Unix, between 1 and 127.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Terminate => 15,
            Self::Other(number) => number,
        }
    }
}

/// Sends Ctrl-Break to a process group of this console.
#[expect(unsafe_code, reason = "no safe function sends an event of the console")]
pub(super) fn send_break(group: u32) {
    // SAFETY: the call has no preconditions. It fails without a console.
    let _ = unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, group) };
}

/// A stream of signals; signals in it no longer end the process by themselves.
#[derive(Debug, Default)]
pub struct Signals {
    interrupts: Option<CtrlC>,
    breaks: Option<CtrlBreak>,
    hangups: Option<(CtrlClose, CtrlLogoff, CtrlShutdown)>,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        let hangups = Some((windows::ctrl_close()?, windows::ctrl_logoff()?, windows::ctrl_shutdown()?));
        Ok(Self { hangups, ..Self::of_requests()? })
    }

    pub fn of_requests() -> io::Result<Self> {
        Ok(Self { interrupts: Some(windows::ctrl_c()?), breaks: Some(windows::ctrl_break()?), hangups: None })
    }

    pub fn except_hangup() -> io::Result<Self> {
        Self::new()
    }

    /// None of the others exists here.
    pub fn of(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let mut all = Self::none();
        for signal in signals {
            match signal {
                Signal::Interrupt => all.interrupts = Some(windows::ctrl_c()?),
                Signal::Terminate => all.breaks = Some(windows::ctrl_break()?),
                Signal::Hangup | Signal::Quit | Signal::Other(_) => {}
            }
        }
        Ok(all)
    }

    /// A reload has no signal here: files are noticed by themselves.
    pub fn of_hangup() -> io::Result<Self> {
        Ok(Self::none())
    }

    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    pub async fn sync(&self) {}

    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll(context).map_or(Poll::Pending, Poll::Ready)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Option<Signal> {
        let received = |polled: Poll<Option<()>>| matches!(polled, Poll::Ready(Some(())));
        if self.interrupts.as_mut().is_some_and(|stream| received(stream.poll_recv(context))) {
            return Some(Signal::Interrupt);
        }
        if self.breaks.as_mut().is_some_and(|stream| received(stream.poll_recv(context))) {
            return Some(Signal::Terminate);
        }
        let (close, logoff, shutdown) = self.hangups.as_mut()?;
        let is_hangup = received(close.poll_recv(context))
            || received(logoff.poll_recv(context))
            || received(shutdown.poll_recv(context));
        is_hangup.then_some(Signal::Hangup)
    }
}

/// Does nothing: a read of the console cannot be interrupted by a signal.
pub fn interrupt_this_process() {}

pub fn outlive_file_size_limit() {}

pub fn hold_hangup() {}

pub fn release_hangup() {}

#[expect(unsafe_code, reason = "no safe function ignores Ctrl-C")]
pub fn ignore_keys() {
    // SAFETY: without a handler, the call has no preconditions.
    let _ = unsafe { SetConsoleCtrlHandler(None, 1) };
}
