//! `serve --exchange` and `--leave-exchange`: the store's part in an exchange.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::logging::EventLog;
use crate::cli::connection::{Connection, Endpoint, Login};
use crate::cli::detached::run_detached;
use crate::cli::exchange::file::{ExchangeFile, FileRole};
use crate::cli::exchange::read;
use crate::cli::report::Reporter;
use crate::cli::storage_error::of_start;
use crate::client::{self, Target};
use crate::clock;
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::offline;
use crate::net::ClientTls;
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, notice};
use crate::server::ExchangeReloader;
use crate::server::exchange::settings::{ExchangeSettings, Role, RootFile};

/// The store's part in an exchange.
#[derive(Debug, Args)]
pub struct ExchangeOptions {
    /// Take part in an exchange as FILE defines
    ///
    /// FILE is in TOML; see `mqkv help exchange`. Keys that take part are always persistent.
    #[arg(long, value_name = "FILE", requires = "data", conflicts_with = "etcd")]
    pub exchange: Option<PathBuf>,
    /// Remove the data of an exchange from DIR, and exit
    ///
    /// The store keeps all its keys and is one of its own again: serve it without --exchange.
    #[arg(long, hide_short_help = true, requires = "data", conflicts_with_all = ["exchange", "exec", "seed", "etcd"])]
    pub leave_exchange: bool,
}

impl ExchangeOptions {
    /// Returns the settings of the node, and the file that has them, if the store takes part in an exchange.
    pub async fn settings(
        &self,
        log: &EventLog,
    ) -> Result<Option<(ExchangeSettings, NodeFile)>, CommandError> {
        let Some(path) = self.exchange.clone() else { return Ok(None) };
        let file = NodeFile { path: path.clone(), started: run_detached(move || read(&path)).await?? };
        let ExchangeFile { exchange, node, role } = file.started.clone();
        let role = match role {
            FileRole::Root { rules, admit, .. } => Role::Root { rules, admit },
            FileRole::Leaf { connection, join } => {
                Role::Leaf { uplink: Box::new(uplink(*connection, log).await?), join }
            }
        };
        Ok(Some((ExchangeSettings { exchange, node, role }, file)))
    }
}

/// The file of a running node.
#[derive(Clone, Debug)]
pub struct NodeFile {
    path: PathBuf,
    /// Its content at the start.
    started: ExchangeFile,
}

impl NodeFile {
    #[must_use]
    pub fn is_root(&self) -> bool {
        matches!(self.started.role, FileRole::Root { .. })
    }

    /// Reads the file again. At a root, its rules and the patterns of the leaves that may join by themselves take effect; at a
    /// leaf, nothing does before a start. May block.
    pub fn reload(&self, exchange: &ExchangeReloader) {
        let all = |CommandError { message, causes, .. }: CommandError| {
            std::iter::once(message).chain(causes).collect::<Vec<_>>().join("; ")
        };
        let file = read(&self.path).map_err(all);
        if matches!(self.started.role, FileRole::Leaf { .. }) {
            exchange.reload_leaf(file.map(|file| file != self.started));
            return;
        }
        exchange.reload(file.and_then(|ExchangeFile { exchange, node, role }| match role {
            FileRole::Root { rules, admit, .. } => Ok(RootFile { exchange, node, rules, admit }),
            FileRole::Leaf { .. } => Err(format!("{} is the file of a leaf", self.path.display())),
        }));
    }
}

/// Returns the settings of the connection with the root.
async fn uplink(connection: Connection, log: &EventLog) -> Result<client::Settings, CommandError> {
    connection.secret_files().for_each(|file| log.warn_of_secret(file));
    let Endpoint::Network { host, port, tls, web_socket, kube: None } = connection.endpoint.clone() else {
        return Err(CommandError::new(Kind::Bug, "the root of an exchange is on the network"));
    };
    if tls.as_ref().is_some_and(|tls| tls.insecure) {
        log.warn("insecure: the certificate of the root is not verified, an attacker can read and change everything");
    }
    let tls = run_detached(move || tls.as_ref().map(ClientTls::load).transpose()).await??;
    let Login::Known(authentication) = connection.login.clone() else {
        return Err(CommandError::new(Kind::Bug, "the password of an uplink is in a file"));
    };
    let target = Target::Tcp { host, port };
    Ok(client::Settings { web_socket, ..connection.settings(target, tls, authentication) })
}

/// Describes the node for the ready line.
pub fn describe(ExchangeSettings { exchange, node, role }: &ExchangeSettings) -> String {
    match role {
        Role::Root { .. } => format!("root of the exchange {exchange}"),
        Role::Leaf { uplink, .. } => {
            format!("leaf {node} of the exchange {exchange}, root at {}", uplink.target)
        }
    }
}

/// The result of `--leave-exchange`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "leave-exchange")]
struct ExchangeLeft {
    #[serde(skip)]
    directory: PathBuf,
    /// The number of rows of the exchange that were removed.
    rows: usize,
}

/// Removes the data of an exchange from a directory.
///
/// # Errors
/// The directory contains no store, is in use, or cannot be written.
pub fn leave(directory: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    let rows = offline::leave_exchange(directory, clock::wall_ms()).map_err(|error| of_start(&error))?;
    reporter.put(&ExchangeLeft { directory: directory.to_owned(), rows })?;
    Ok(Exit::Yes)
}

impl Record for ExchangeLeft {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let directory = escape(self.directory.as_os_str().as_encoded_bytes());
        let result = match self.rows {
            0 => "takes part in no exchange; nothing was changed",
            _ => "is a store of its own again; its keys are unchanged",
        };
        notice(&format!("{directory} {result}"), style)
    }
}
