//! Errors of the storage as errors of a verb, with hints.

use std::io;
use std::path::Path;

use crate::commands::{CommandError, Kind, limit_hint};
use crate::ledger::{StorageError, StorageErrorKind};
use crate::render::escape::escape;

/// Converts the error of a store that did not start.
pub fn of_start(error: &StorageError) -> CommandError {
    let hint = match &error.kind {
        StorageErrorKind::InUse => {
            "connect to the `mqkv serve` that uses it with -b mqtt://HOST:PORT, or stop that".to_owned()
        }
        StorageErrorKind::Corrupt(_) => {
            let directory = directory_of(&error.path);
            format!("{}, or recover the readable keys: mqkv data recover {directory}", restore(&directory))
        }
        StorageErrorKind::Lost => {
            let directory = directory_of(&error.path);
            format!("{}, or remove {directory} to start without keys", restore(&directory))
        }
        StorageErrorKind::NotAFile(_) | StorageErrorKind::OutOfRange(_) => {
            "move it away, or use another directory".to_owned()
        }
        StorageErrorKind::UnsupportedFormat(_) => {
            let directory = directory_of(&error.path);
            format!(
                "export the keys with the version of mqkv that wrote them, `mqkv --embedded={directory} export`, and import them \
                 into another directory"
            )
        }
        StorageErrorKind::OtherNode(_) => {
            let directory = directory_of(&error.path);
            format!(
                "serve it with --exchange and the file of that node, or make it a store of its own: mqkv serve --data \
                 {directory} --leave-exchange"
            )
        }
        StorageErrorKind::Replaced(_) => {
            "do not move the directory or remove its files while a process uses it".to_owned()
        }
        StorageErrorKind::Changing(_) => "try again when clients write less".to_owned(),
        StorageErrorKind::Missing => "use the directory that `mqkv serve --data` was given".to_owned(),
        StorageErrorKind::Io(cause) if let Some(more) = limit_hint(cause) => more.to_owned(),
        kind if kind.is_lack_of_room() => "use a disk with more space".to_owned(),
        StorageErrorKind::Io(_) | StorageErrorKind::Other(_) => "use a directory that is writable".to_owned(),
    };
    CommandError::new(Kind::File, error.to_string()).hint(hint)
}

/// Converts the error of an operation that only reads the directory: it need not be writable.
pub fn of_read(error: &StorageError) -> CommandError {
    match &error.kind {
        StorageErrorKind::InUse => {
            CommandError::new(Kind::File, error.to_string()).hint("stop the `mqkv serve` that uses it first")
        }
        StorageErrorKind::Corrupt(_) => {
            CommandError::new(Kind::File, error.to_string()).hint(restore(&directory_of(&error.path)))
        }
        StorageErrorKind::Io(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
            let path = error.path.display();
            CommandError::new(Kind::File, format!("{path} exists already; nothing was written"))
                .hint(format!("move {path} away"))
        }
        StorageErrorKind::Io(cause) if limit_hint(cause).is_none() => {
            CommandError::new(Kind::File, error.to_string())
        }
        _ => of_start(error),
    }
}

/// Returns the hint to restore a backup. All files must come from one backup: they are refused otherwise.
pub fn restore(directory: &str) -> String {
    format!("restore all files of {directory} from one backup")
}

fn directory_of(path: &Path) -> String {
    escape(path.as_os_str().as_encoded_bytes())
}
