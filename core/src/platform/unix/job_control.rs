//! Job control of the shell that runs this process (Ctrl-Z and `fg`).

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, killpg, raise, sigaction};
use nix::unistd::getpgrp;
use tokio::signal::unix::{self, SignalKind};

use super::signal::is_ignored;
use crate::platform::types::{self, JobSignal};

/// A stream of job signals; SIGTSTP no longer stops the process by itself.
#[derive(Debug)]
pub struct JobSignals {
    stops: unix::Signal,
    continues: unix::Signal,
}

impl JobSignals {
    /// Receives the signals. Returns None if the parent process ignores SIGTSTP: then it has no job control.
    pub fn new() -> io::Result<Option<Self>> {
        if is_ignored(types::Signal::SUSPEND) {
            return Ok(None);
        }
        let stop = SignalKind::from_raw(Signal::SIGTSTP as i32);
        let continues = unix::signal(SignalKind::from_raw(Signal::SIGCONT as i32))?;
        Ok(Some(Self { stops: unix::signal(stop)?, continues }))
    }

    /// Returns the next signal. Cancel-safe.
    pub async fn next(&mut self) -> JobSignal {
        tokio::select! {
            _ = self.stops.recv() => JobSignal::Stop,
            _ = self.continues.recv() => JobSignal::Continue,
        }
    }
}

/// Stops the group of this process as Ctrl-Z does, and returns when it continues: a shell sees that its job has stopped also if that is
/// `make` or a script which runs this process. Without a shell that could continue it, the system does not stop it.
pub fn stop_this_job() {
    let Ok(handler) = set(Signal::SIGTSTP, &action(SigHandler::SigIgn)) else { return };
    let _ = killpg(getpgrp(), Signal::SIGTSTP);
    let _ = set(Signal::SIGTSTP, &handler);
    stop_this_process();
}

/// Stops this process as Ctrl-Z does, and returns when it continues.
pub fn stop_this_process() {
    let Ok(handler) = set(Signal::SIGTSTP, &action(SigHandler::SigDfl)) else { return };
    // A signal to this thread takes effect before the call returns; one to the process might do so later.
    let _ = raise(Signal::SIGTSTP);
    let _ = set(Signal::SIGTSTP, &handler);
}

/// Until this is dropped, the use of the terminal in the background does not stop this process (SIGTTIN, SIGTTOU): writes
/// work, and reads fail.
#[derive(Debug)]
pub struct BackgroundStops {
    /// The actions before.
    saved: Vec<(Signal, SigAction)>,
}

impl BackgroundStops {
    /// Ignores the signals.
    #[must_use]
    pub fn ignore() -> Self {
        let ignore = |signal| Some((signal, set(signal, &action(SigHandler::SigIgn)).ok()?));
        Self { saved: [Signal::SIGTTIN, Signal::SIGTTOU].into_iter().filter_map(ignore).collect() }
    }

    /// Restores the default actions in a new process, which would inherit that they are ignored.
    pub fn restore_defaults() {
        for signal in [Signal::SIGTTIN, Signal::SIGTTOU] {
            let _ = set(signal, &action(SigHandler::SigDfl));
        }
    }
}

impl Drop for BackgroundStops {
    fn drop(&mut self) {
        for (signal, action) in &self.saved {
            let _ = set(*signal, action);
        }
    }
}

fn action(handler: SigHandler) -> SigAction {
    SigAction::new(handler, SaFlags::empty(), SigSet::empty())
}

/// Sets an action that was there before, or that is no handler. Returns the one before.
#[expect(unsafe_code, reason = "nix has no safe function that sets a signal's action")]
fn set(signal: Signal, action: &SigAction) -> nix::Result<SigAction> {
    // SAFETY: no handler is installed, except one that was installed before.
    unsafe { sigaction(signal, action) }
}
