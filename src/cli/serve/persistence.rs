//! `serve --data` and `--persist`: which keys are persistent, and where.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use crate::render::escape::escape;
use crate::server::Persistence;

/// Persistence of the store.
#[derive(Debug, Args)]
pub struct PersistenceArgs {
    /// Store the data in DIR [default: in memory]
    ///
    /// Disk space is reserved (file `reserve`), so that keys can be deleted when the disk is full: as much as a snapshot of the
    /// keys takes, and up to 4M more.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
    /// Keys that are persistent [default: all]
    #[arg(long, value_name = "WHAT", requires = "data")]
    persist: Option<Persist>,
}

/// Persistent keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Persist {
    /// Every key
    All,
    /// Keys set with `mqkv set --persist`, until they are deleted or expire
    Custom,
}

impl PersistenceArgs {
    /// Returns the setting of the store.
    pub fn persistence(&self) -> Persistence {
        match (&self.data, self.persist) {
            (Some(directory), Some(Persist::Custom)) => Persistence::Custom(directory.clone()),
            (Some(directory), None | Some(Persist::All)) => Persistence::All(directory.clone()),
            (None, _) => Persistence::None,
        }
    }

    /// Describes the persistence for the ready line.
    pub fn describe(&self) -> String {
        let Some(directory) = &self.data else {
            return "in memory".to_owned();
        };
        let directory = escape(directory.as_os_str().as_encoded_bytes());
        match self.persist {
            Some(Persist::Custom) => format!("persistent on request in {directory}"),
            None | Some(Persist::All) => format!("persistent in {directory}"),
        }
    }
}
