//! `serve --seed`: initial keys of the store.

use std::path::Path;
use std::sync::Arc;

use crate::cli::detached::run_detached;
use crate::cli::environment;
use crate::client::{Client, Settings, Target};
use crate::commands::seed::{self, Seed};
use crate::commands::{CommandError, Kind};
use crate::server::StoreServer;

/// Reads the whole file before the server starts: an invalid line prevents the start.
pub async fn read(file: Option<&Path>) -> Result<Seed, CommandError> {
    match file {
        None => Ok(Seed::Entries(Vec::new())),
        Some(file) if file == Path::new("-") => {
            Err(CommandError::usage("--seed does not read standard input").hint("--seed FILE"))
        }
        Some(file) => {
            let path = file.to_owned();
            let lines = run_detached(move || seed::open(&path)).await??;
            seed::read(file, lines).await
        }
    }
}

/// Sets the keys while the listeners are closed.
///
/// # Errors
/// The store refuses a key.
pub async fn load(server: StoreServer, seed: Seed) -> Result<StoreServer, CommandError> {
    if matches!(&seed, Seed::Entries(entries) if entries.is_empty()) {
        return Ok(server);
    }
    let seed = match server.memory_store() {
        Some(handle) => {
            seed::set(seed, handle).await?;
            None
        }
        None => Some(seed),
    };
    let Some(seed) = seed else { return Ok(server) };
    let server = Arc::new(server);
    let weak = Arc::downgrade(&server);
    let dead = || tokio::io::duplex(1).0;
    let target = Target::Pipe(Arc::new(move || weak.upgrade().map_or_else(dead, |server| server.own_pipe())));
    let client = Client::connect(Settings::new(target, environment::default_client_id())).await?;
    let written = seed::write(seed, &client).await;
    client.close().await;
    match (written, Arc::into_inner(server)) {
        (Ok(()), Some(server)) => Ok(server),
        (Err(error), _) => Err(error),
        (Ok(()), None) => Err(CommandError::new(Kind::Bug, "the connection of the seed is still open")),
    }
}
