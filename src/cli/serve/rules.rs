//! `--authz`: the rules, and reading them again at a SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::cli::aside::aside;
use crate::commands::{CommandError, Kind};
use crate::server::{AuthorizationError, Authorizer, RulesReloader};

/// Reads the rules, if there are any.
///
/// # Errors
/// The file cannot be read or makes no sense.
pub async fn load(path: Option<PathBuf>) -> Result<Option<Arc<Authorizer>>, CommandError> {
    Ok(aside(move || path.as_deref().map(Authorizer::load).transpose()).await??)
}

/// Reads the rules again at each SIGHUP, until the task is ended.
///
/// # Errors
/// The system takes no handler.
pub fn reload_at_hangup(reloader: RulesReloader) -> Result<JoinHandle<()>, CommandError> {
    let mut hangups =
        signal(SignalKind::hangup()).map_err(|error| CommandError::system("listen to SIGHUP", &error))?;
    Ok(tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let reloader = reloader.clone();
            // A file may be on a disk that hangs.
            let _ = aside(move || reloader.reload()).await;
        }
    }))
}

impl From<AuthorizationError> for CommandError {
    fn from(error: AuthorizationError) -> Self {
        let kind = match error {
            AuthorizationError::Io { .. } => Kind::File,
            AuthorizationError::Nonsense { .. } => Kind::Configuration,
        };
        Self::new(kind, error.to_string())
    }
}
