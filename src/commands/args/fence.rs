//! How a fencing token is given on the command line (protocol §5).

use clap::Args;

use crate::commands::error::CommandError;
use crate::commands::session::Session;
use crate::protocol::Timestamp;

/// The variable that holds a fencing token.
pub const FENCING_TOKEN: &str = "MQKV_FENCING_TOKEN";
/// The variable that names a file with a fencing token; the file may be newer than [`FENCING_TOKEN`].
pub const FENCING_TOKEN_FILE: &str = "MQKV_FENCING_TOKEN_FILE";

/// A fencing token, if any: it is never attached unasked, for the first fenced write makes a key refuse
/// unfenced ones.
#[derive(Debug, Default, Args)]
pub struct FenceArgs {
    /// Attach a fencing token: a version, as a lock hands it out
    #[arg(long, value_name = "TOKEN", conflicts_with = "fence_env")]
    fence: Option<Timestamp>,
    /// Attach the fencing token that is in the environment (see `mqkv help environment`)
    #[arg(long)]
    fence_env: bool,
}

impl FenceArgs {
    /// A token that is known.
    #[must_use]
    pub fn token(fence: Option<Timestamp>) -> Self {
        Self { fence, fence_env: false }
    }

    /// The token, if one is asked for.
    ///
    /// # Errors
    /// The environment has none, or it is none.
    pub fn settle(self, session: &Session) -> Result<Option<Timestamp>, CommandError> {
        if self.fence_env {
            return session.inherited_fence().map(Some);
        }
        Ok(self.fence)
    }
}
