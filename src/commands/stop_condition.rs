//! How a verb ends that follows events until a condition is met.

use std::time::Duration;

use super::duration;
use super::error::{CommandError, Kind};
use super::exit::Exit;
use crate::commands::process::signal::exit_of;
use crate::platform::Signal;

/// Why such a verb ends, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// The condition is met.
    Reached,
    /// The time given by `--wait` is over.
    TimedOut,
    /// The reader of the records has closed the output.
    OutputClosed,
    /// A command has failed with this status.
    CommandFailed(u8),
    /// A signal asks the verb to end.
    Signal(Signal),
}

impl StopReason {
    /// Returns how the verb ends; `missed` describes the condition that was not met, if there is one.
    ///
    /// # Errors
    /// [`Kind::Timeout`] if the time was over before the condition was met.
    pub(super) fn exit(self, missed: Option<String>, wait: Option<Duration>) -> Result<Exit, CommandError> {
        match (self, missed, wait) {
            (Self::Signal(signal), ..) => Ok(exit_of(signal)),
            (Self::CommandFailed(code), ..) => Ok(Exit::Child(code)),
            (Self::TimedOut, Some(missed), Some(wait)) => {
                let message = format!("timed out after {}: {missed}", duration::text(wait));
                Err(CommandError::new(Kind::Timeout, message))
            }
            (Self::Reached | Self::TimedOut | Self::OutputClosed, ..) => Ok(Exit::Yes),
        }
    }
}
