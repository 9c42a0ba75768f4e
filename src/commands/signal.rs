<<<<<<< HEAD
//! The signals that ask this process to end.

use std::io;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
=======
//! The signals that end a verb; from the first [`Signals::new`] on they no longer end the process by themselves.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// A signal that asks to come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGQUIT: Ctrl-\.
    Quit,
>>>>>>> main
    /// SIGTERM.
    Terminate,
}

<<<<<<< HEAD
/// Both signals; from here on they no longer end the process by themselves.
#[cfg(unix)]
#[derive(Debug)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal. May be dropped at any time.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }
}

/// Ctrl-C and Ctrl-Break; from here on they no longer end the process by themselves.
#[cfg(windows)]
#[derive(Debug)]
pub struct Signals {
    interrupt: tokio::signal::windows::CtrlC,
    terminate: tokio::signal::windows::CtrlBreak,
}

#[cfg(windows)]
impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c};
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()? })
    }

    /// The next signal. May be dropped at any time.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
=======
/// The signals that this process gets.
#[derive(Debug)]
pub struct Signals {
    hangup: unix::Signal,
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Takes the signals over from the system.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: unix::signal(SignalKind::hangup())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            quit: unix::signal(SignalKind::quit())?,
            terminate: unix::signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal. May be dropped at any time.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Hangup,
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.quit.recv() => Signal::Quit,
            _ = self.terminate.recv() => Signal::Terminate,
>>>>>>> main
        }
    }
}
