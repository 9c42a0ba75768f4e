//! `--embedded`: a broker and store inside this process, for as long as a verb runs.

use std::path::Path;

use crate::client::Target;
use crate::commands::{CommandError, Kind};

/// A running store inside this process.
#[derive(Debug)]
pub struct Embedded {
    target: Target,
}

impl Embedded {
    /// Starts a store: in memory, or with everything kept in a folder.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub async fn start(_data: Option<&Path>) -> Result<Self, CommandError> {
        Err(CommandError::new(Kind::Unavailable, "this build has no store inside"))
    }

    /// How the client gets there.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target.clone()
    }

    /// Stops; returns when everything that was acknowledged is kept.
    pub async fn stop(self) {}
}
