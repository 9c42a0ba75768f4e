//! `serve --seed`: initial keys of the store.

use std::path::Path;
use std::sync::Arc;

use crate::cli::detached::run_detached;
use crate::cli::environment;
use crate::cli::serve::logging::EventLog;
use crate::cli::storage_error;
use crate::client::{Client, Settings, Target};
use crate::commands::seed::{self, Seed};
use crate::commands::{CommandError, Kind};
use crate::server::StoreServer;

/// Reads the whole file before the server starts: an invalid line prevents the start.
pub async fn read(file: &Path) -> Result<Seed, CommandError> {
    if file == Path::new("-") {
        return Err(CommandError::usage("--seed does not read standard input").hint("--seed FILE"));
    }
    let path = file.to_owned();
    let lines = run_detached(move || seed::open(&path)).await??;
    seed::read(file, lines).await
}

/// Sets the keys of a new store while the listeners are closed.
///
/// # Errors
/// The store refuses a key. The folder cannot be changed.
pub async fn load(server: StoreServer, seed: Seed, log: &EventLog) -> Result<StoreServer, CommandError> {
    let seed = match server.memory_store() {
        Some(handle) => {
            seed::set(seed, handle).await?;
            None
        }
        None => Some(seed),
    };
    let Some(seed) = seed else { return Ok(server) };
    let Some(seeding) = server.take_seeding() else {
        log.warn("--seed sets no key: the store exists already");
        return Ok(server);
    };
    let server = Arc::new(server);
    let weak = Arc::downgrade(&server);
    let dead = || tokio::io::duplex(1).0;
    let target = Target::Pipe(Arc::new(move || weak.upgrade().map_or_else(dead, |server| server.own_pipe())));
    let client = Client::connect(Settings::new(target, environment::default_client_id())).await?;
    let written = seed::write(seed, &client).await;
    client.close().await;
    written.map_err(|error| error.hint("the next start with --seed sets all keys of the file again"))?;
    seeding.finish().map_err(|error| storage_error::of_start(&error))?;
    Arc::into_inner(server)
        .ok_or_else(|| CommandError::new(Kind::Bug, "the connection of the seed is still open"))
}
