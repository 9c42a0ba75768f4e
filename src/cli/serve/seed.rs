//! `serve --seed`: the store begins with the keys of an export.

use std::path::Path;
use std::sync::Arc;

use crate::cli::resolve;
use crate::client::{Client, Settings, Target};
use crate::commands::lines::records::Entry;
use crate::commands::{CommandError, Kind, seed};
use crate::server::StoreServer;

/// Reads all of a file before anything is started: one line that makes no sense, and nothing is served.
///
/// # Errors
/// The file cannot be read, or a line of it.
pub async fn read(file: Option<&Path>) -> Result<Vec<(u64, Entry)>, CommandError> {
    match file {
        None => Ok(Vec::new()),
        Some(file) if file == Path::new("-") => {
            Err(CommandError::usage("--seed reads no standard input").hint("--seed FILE"))
        }
        Some(file) => seed::read(file).await,
    }
}

/// Writes what was read into a store whose doors are closed.
///
/// # Errors
/// The store refuses a key.
pub async fn load(server: StoreServer, entries: Vec<(u64, Entry)>) -> Result<StoreServer, CommandError> {
    if entries.is_empty() {
        return Ok(server);
    }
    let server = Arc::new(server);
    let weak = Arc::downgrade(&server);
    let dead = || tokio::io::duplex(1).0;
    let target = Target::Pipe(Arc::new(move || weak.upgrade().map_or_else(dead, |server| server.own_pipe())));
    let client = Client::connect(Settings::new(target, resolve::default_client_id())).await?;
    let written = seed::write(entries, &client).await;
    client.close().await;
    match (written, Arc::into_inner(server)) {
        (Ok(()), Some(server)) => Ok(server),
        (Err(error), _) => Err(error),
        (Ok(()), None) => Err(CommandError::new(Kind::Bug, "the store is still being seeded")),
    }
}
