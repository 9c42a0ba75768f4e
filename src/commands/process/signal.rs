//! What a signal means for a verb.

use crate::commands::error::{CommandError, Kind};
use crate::commands::exit::Exit;
use crate::platform::Signal;

/// Returns how a verb ends that a signal has ended.
#[must_use]
pub fn exit_of(signal: Signal) -> Exit {
    match signal {
        Signal::Interrupt => Exit::Failed(Kind::Interrupted),
        Signal::Terminate => Exit::Failed(Kind::Terminated),
        signal => {
            let code = signal.number().checked_add(128).and_then(|code| u8::try_from(code).ok());
            // The numbers are below 128.
            Exit::Child(code.unwrap_or(u8::MAX))
        }
    }
}

/// Returns the error of a write that a signal has ended before its answer; None for signals that end the process without a
/// message.
#[must_use]
pub fn write_error_of(signal: Signal) -> Option<CommandError> {
    match signal {
        Signal::Interrupt => {
            Some(CommandError::new(Kind::Interrupted, "interrupted before the answer: SIGINT"))
        }
        Signal::Terminate => {
            Some(CommandError::new(Kind::Terminated, "interrupted before the answer: SIGTERM"))
        }
        Signal::Hangup | Signal::Quit | Signal::Other(_) => None,
    }
}

/// Returns the signal that causes errors of this kind.
#[must_use]
pub fn signal_of(kind: Kind) -> Option<Signal> {
    match kind {
        Kind::Interrupted => Some(Signal::Interrupt),
        Kind::Terminated => Some(Signal::Terminate),
        _ => None,
    }
}
