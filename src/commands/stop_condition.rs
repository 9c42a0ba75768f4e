//! How a verb ends that follows what happens until it has seen enough.

use std::time::Duration;

use super::duration;
use super::error::{CommandError, Kind};
use crate::commands::process::signal::Signal;
use crate::commands::verdict::Verdict;

/// Why such a verb ends, other than by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What was waited for is there.
    Reached,
    /// Its time is over.
    Late,
    /// Whoever read the records has left.
    Left,
    /// A signal asks for it.
    Signal(Signal),
}

impl End {
    /// What the verb ends with. `missed` says what has not come, if anything was waited for.
    ///
    /// # Errors
    /// It was waited for something, and the time is over.
    pub(super) fn verdict(
        self,
        missed: Option<String>,
        wait: Option<Duration>,
    ) -> Result<Verdict, CommandError> {
        match (self, missed, wait) {
            (Self::Signal(signal), ..) => Ok(signal.verdict()),
            (Self::Late, Some(missed), Some(wait)) => {
                let message = format!("{missed} within {}", duration::text(wait));
                Err(CommandError::new(Kind::Timeout, message))
            }
            (Self::Reached | Self::Late | Self::Left, ..) => Ok(Verdict::Yes),
        }
    }
}
