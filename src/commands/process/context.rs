//! What verbs use of this process's environment, as data.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use crate::commands::error::CommandError;
use crate::protocol::Timestamp;
use crate::random;

/// The environment variable that holds a fencing token.
pub const FENCING_TOKEN: &str = "MQKV_FENCING_TOKEN";
/// The environment variable that names a file with a fencing token, which `lock` rewrites after each renewal.
pub const FENCING_TOKEN_FILE: &str = "MQKV_FENCING_TOKEN_FILE";
/// The environment variable in which `lock` passes the lock's key to its command.
pub const LOCK_KEY: &str = "MQKV_LOCK_KEY";
/// The environment variable in which `lock` passes the holder's name to its command; `unlock` reads it.
pub const LOCK_HOLDER: &str = "MQKV_LOCK_HOLDER";

/// Values from the environment; only the process edge reads it.
#[derive(Clone, Debug, Default)]
pub struct ProcessContext {
    /// The value of [`FENCING_TOKEN`].
    pub fencing_token: Option<String>,
    /// The value of [`FENCING_TOKEN_FILE`].
    pub fencing_token_file: Option<PathBuf>,
    /// The value of [`LOCK_HOLDER`].
    pub lock_holder: Option<OsString>,
    /// The user's editor, a command with options.
    pub editor: OsString,
    /// A folder for files that this process removes when it ends.
    pub private_folder: PathBuf,
}

impl ProcessContext {
    /// Returns the fencing token that a parent process left in the environment.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::commands::Kind::Usage) if there is none or it is malformed;
    /// [`Kind::File`](crate::commands::Kind::File) if the file cannot be read.
    pub fn inherited_fence(&self) -> Result<Timestamp, CommandError> {
        // The file takes precedence: only there does a renewal put the newer token.
        let (source, text) = if let Some(path) = &self.fencing_token_file {
            let text = fs::read_to_string(path).map_err(|error| CommandError::file("read", path, &error))?;
            (FENCING_TOKEN_FILE, text)
        } else if let Some(text) = &self.fencing_token {
            (FENCING_TOKEN, text.clone())
        } else {
            let message = format!(
                "no fencing token for --fence-env: neither {FENCING_TOKEN_FILE} nor {FENCING_TOKEN} is set"
            );
            return Err(CommandError::usage(message).hint("--fence TOKEN"));
        };
        text.trim()
            .parse()
            .map_err(|error| CommandError::usage(format!("invalid fencing token in {source}: {error}")))
    }

    /// Returns an unused file name in the private folder.
    #[must_use]
    pub fn new_private_file(&self, prefix: &str) -> PathBuf {
        self.private_folder.join(format!("mqkv-{prefix}-{:016x}", random::u64()))
    }
}
