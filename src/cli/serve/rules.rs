//! `--authz`: authorization rules.

use std::path::PathBuf;
use std::sync::Arc;

use super::args::ServeArgs;
use super::logging::EventLog;
use crate::cli::detached::run_detached;
use crate::commands::{CommandError, Kind};
use crate::server::{AuthorizationError, Authorizer};

/// Loads the rules, if there is a file.
pub async fn load(path: Option<PathBuf>) -> Result<Option<Arc<Authorizer>>, CommandError> {
    Ok(run_detached(move || path.as_deref().map(Authorizer::load).transpose()).await??)
}

/// Logs a warning if the rules name users, and no client can be one.
pub fn warn_of_users(rules: Option<&Authorizer>, args: &ServeArgs, log: &EventLog) {
    let has_users = args.users.is_some() || args.sat_tokens.is_some();
    if !has_users && rules.is_some_and(Authorizer::names_users) {
        log.warn(
            "the rules of --authz name users, but no client has a user: --users and --sat-tokens are missing",
        );
    }
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
