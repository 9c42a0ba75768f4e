//! `--authz`: authorization rules.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::detached::run_detached;
use crate::commands::{CommandError, Kind};
use crate::server::{AuthorizationError, Authorizer};

/// Loads the rules, if there is a file.
///
/// # Errors
/// The file cannot be read or is invalid.
pub async fn load(path: Option<PathBuf>) -> Result<Option<Arc<Authorizer>>, CommandError> {
    Ok(run_detached(move || path.as_deref().map(Authorizer::load).transpose()).await??)
}

impl From<AuthorizationError> for CommandError {
    fn from(error: AuthorizationError) -> Self {
        let kind = match error {
            AuthorizationError::Io { .. } => Kind::File,
            AuthorizationError::Invalid { .. } => Kind::Configuration,
        };
        Self::new(kind, error.to_string())
    }
}
