//! `data copy`: copies the files of a store, also while a server uses them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::cli::detached::run_detached;
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::cli::storage_error::{of_read, of_start};
use crate::commands::process::signal::exit_of;
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::copy::{self, CopyReport};
use crate::ledger::{StorageError, StorageErrorKind};
use crate::platform::{self, Signals};
use crate::render::duration::rfc3339;
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::{Record, Rendered, Style, Widths, counted, notice};

/// The most names of other files that the text has.
const NAMES_MAX: usize = 5;

/// The result of `copy`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "copy")]
struct Copied {
    #[serde(rename = "file", serialize_with = "json::path")]
    directory: PathBuf,
    #[serde(serialize_with = "json::path")]
    copied: PathBuf,
    #[serde(rename = "file_bytes")]
    snapshot_bytes: u64,
    log_bytes: u64,
    keys: usize,
    /// The time of the last commit, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<String>,
    /// What the directory has besides the files of the store.
    others: Vec<String>,
}

/// Runs the verb.
///
/// # Errors
/// The files cannot be read, or change in each attempt; the copy exists already, or cannot be written; a signal.
pub fn run(directory: &Path, to: &Path, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    check_target(directory, to)?;
    let is_canceled = Arc::new(AtomicBool::new(false));
    let (canceled, from, copied) = (Arc::clone(&is_canceled), directory.to_owned(), to.to_owned());
    let copy = move || copy::copy(&from, &copied, &|| canceled.load(Ordering::Relaxed));
    let ended = runtime::here()?.block_on(async {
        let mut signals =
            Signals::new().map_err(|error| CommandError::system("listen to signals", &error))?;
        let mut copying = Box::pin(run_detached(copy));
        let signal = tokio::select! {
            copied = &mut copying => return copied.map(Ok),
            signal = signals.next() => signal,
        };
        is_canceled.store(true, Ordering::Relaxed);
        // What was written is removed first, unless another signal comes.
        tokio::select! {
            copied = copying => Ok(match copied? {
                Ok(report) => Ok(Ok(report)),
                Err(_) => Err(signal),
            }),
            _ = signals.next() => Ok(Err(signal)),
        }
    });
    let report = match ended? {
        Ok(copied) => copied.map_err(|error| of_copy(&error))?,
        Err(signal) => {
            signal.take_effect();
            return Ok(exit_of(signal));
        }
    };
    reporter.put(&Copied::new(directory, to, report))?;
    Ok(Exit::Yes)
}

/// Checks that the copy can get its name: that it is new or an empty directory, and not a part of the store.
fn check_target(directory: &Path, to: &Path) -> Result<(), CommandError> {
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let shown = escape(to.as_os_str().as_encoded_bytes());
    let above = fs::canonicalize(parent).map_err(|error| CommandError::file("read", parent, &error))?;
    if fs::canonicalize(directory).is_ok_and(|directory| above.starts_with(directory)) {
        return Err(CommandError::usage(format!("{shown} is inside the directory to copy")));
    }
    let irreplaceable = || {
        let error = CommandError::usage(format!("{shown} cannot be replaced by the copy"));
        error.hint(format!("name a new directory in it: {shown}/NAME"))
    };
    if to.file_name().is_none() {
        return Err(irreplaceable());
    }
    match fs::symlink_metadata(to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CommandError::file("read", to, &error)),
        Ok(metadata)
            if metadata.is_dir() && fs::read_dir(to).is_ok_and(|mut names| names.next().is_none()) =>
        {
            match fs::metadata(parent) {
                // A mount point.
                Ok(parent) if platform::is_mount_point(&metadata, &parent) => Err(irreplaceable()),
                _ => Ok(()),
            }
        }
        Ok(_) => {
            let kind = StorageErrorKind::Io(io::ErrorKind::AlreadyExists.into());
            Err(of_read(&StorageError { path: to.to_owned(), kind }))
        }
    }
}

fn of_copy(error: &StorageError) -> CommandError {
    match &error.kind {
        StorageErrorKind::Changing(_) => {
            let error = CommandError { is_passing: true, ..CommandError::new(Kind::File, error.to_string()) };
            error.hint("try again when clients write less, or copy an atomic snapshot of the file system")
        }
        kind if kind.is_lack_of_room() => of_start(error),
        _ => of_read(error),
    }
}

impl Copied {
    fn new(directory: &Path, copied: &Path, report: CopyReport) -> Self {
        let CopyReport { snapshot_bytes, log_bytes, keys, written_ms, others } = report;
        let written = rfc3339(written_ms).filter(|_| written_ms > 0);
        Self {
            directory: directory.to_owned(),
            copied: copied.to_owned(),
            snapshot_bytes,
            log_bytes,
            keys,
            written,
            others,
        }
    }
}

impl Record for Copied {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let Self { copied, snapshot_bytes, log_bytes, keys, others, .. } = self;
        let (keys, to) = (counted(keys, "key"), escape(copied.as_os_str().as_encoded_bytes()));
        let mut text =
            format!("copied {keys} to {to} (snapshot {snapshot_bytes} bytes, log {log_bytes} bytes)");
        if !others.is_empty() {
            let names: Vec<_> = others.iter().take(NAMES_MAX).map(|name| escape(name.as_bytes())).collect();
            let more = if others.len() > NAMES_MAX { ", ..." } else { "" };
            text.push_str(&format!("\nnot copied, not files of the store: {}{more}", names.join(", ")));
        }
        notice(&text, style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    #[test]
    fn the_result_names_what_was_not_copied() {
        let copied = |others: &[&str]| {
            let others = others.iter().map(|name| (*name).to_owned()).collect();
            let report = CopyReport { snapshot_bytes: 1, log_bytes: 2, keys: 3, written_ms: 0, others };
            Copied::new(Path::new("plant"), Path::new("backup/1"), report)
        };
        let text = |others| shown(&copied(others), &Style::PLAIN).1;
        let line = "copied 3 keys to backup/1 (snapshot 1 bytes, log 2 bytes)\n";
        assert_eq!(text(&[]), line);
        assert_eq!(
            text(&["recovered", "users"]),
            format!("{line}not copied, not files of the store: recovered, users\n")
        );
        assert!(text(&["a", "b", "c", "d", "e", "f"]).ends_with(": a, b, c, d, e, ...\n"));
        assert_eq!(
            shown(&copied(&["users"]), &Style::JSON).0,
            "{\"v\":1,\"op\":\"copy\",\"file\":\"plant\",\"copied\":\"backup/1\",\"file_bytes\":1,\"log_bytes\":2,\
             \"keys\":3,\"others\":[\"users\"]}\n"
        );
    }
}
