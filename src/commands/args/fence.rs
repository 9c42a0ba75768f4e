//! The fencing token of a write (protocol §5).

use clap::Args;

use crate::commands::error::CommandError;
use crate::commands::session::Session;
use crate::protocol::Timestamp;

/// A fencing token. It is sent only on request: after the first fenced write, a key rejects writes without a token.
#[derive(Debug, Default, Args)]
pub struct FenceArgs {
    /// Send a fencing token, which `lock` prints
    #[arg(long, value_name = "TOKEN", conflicts_with = "fence_env")]
    fence: Option<Timestamp>,
    /// Send the fencing token of the environment
    ///
    /// `mqkv lock` sets it for its command; see `mqkv help locks`.
    #[arg(long)]
    fence_env: bool,
}

impl FenceArgs {
    /// Creates arguments with a known token.
    #[must_use]
    pub fn token(fence: Option<Timestamp>) -> Self {
        Self { fence, fence_env: false }
    }

    /// Returns the token to send.
    ///
    /// # Errors
    /// `--fence-env` is given and the environment has no valid token.
    pub fn resolve(self, session: &Session) -> Result<Option<Timestamp>, CommandError> {
        if self.fence_env {
            return session.inherited_fence().map(Some);
        }
        Ok(self.fence)
    }
}
