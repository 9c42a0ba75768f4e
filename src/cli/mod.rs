//! Process edge: command line, configuration, streams, signals and exit codes.

mod args;
mod broker_url;
mod completion;
mod completion_script;
mod config;
mod connection;
mod context;
mod data;
mod detached;
mod embedded;
mod environment;
mod etcd;
mod exchange;
mod exit_codes;
mod file_permissions;
pub mod generate;
mod habits;
mod help;
mod kube;
mod log;
mod options;
mod pager;
mod parse_error;
mod password;
mod progress;
mod prompt;
mod report;
mod run;
mod runtime;
mod serve;
mod session;
mod signals;
mod storage_error;
mod store;
mod trace;

/// What the fuzz targets use.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use super::config::document::{Content, put_context, remove_context, set_default};
    pub use super::config::file::File;
}

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use crate::commands::{Exit, Kind};
use crate::platform::outlive_file_size_limit;

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    outlive_file_size_limit();
    let words: Vec<_> = std::env::args_os().collect();
    // The panic message is on standard error by then; the exit code is left to set.
    catch_unwind(AssertUnwindSafe(|| run::run(&words))).unwrap_or(Exit::Failed(Kind::Bug)).into()
}
