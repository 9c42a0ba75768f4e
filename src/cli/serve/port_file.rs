//! The file of `--port-file`, which exists while the listeners are open.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::commands::CommandError;
use crate::commands::process::file;

/// The file with the port of the first listener. Dropping it removes the file or, if the server has not started, puts the earlier
/// one back: that may be the file of a server that runs.
#[derive(Debug)]
pub(super) struct PortFile {
    path: PathBuf,
    /// What was written; `None` before that.
    content: Option<String>,
    earlier: Option<Vec<u8>>,
}

impl PortFile {
    /// Removes the file of an earlier server, so that a script that waits for the file does not read that one's port.
    pub(super) fn reserve(path: &Path) -> Result<Self, CommandError> {
        // A device or a pipe is none of an earlier server.
        let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
        let earlier = is_file.then(|| fs::read(path).ok()).flatten();
        if is_file {
            fs::remove_file(path).map_err(|error| CommandError::file("remove", path, &error))?;
        }
        Ok(Self { path: path.to_owned(), content: None, earlier })
    }

    /// Writes the port of the first listener. The file appears with its content, so that a reader can wait for the file.
    pub(super) fn write(&mut self, addresses: &[SocketAddr]) -> Result<(), CommandError> {
        let content = format!("{}\n", addresses.first().map_or(0, SocketAddr::port));
        file::write(&self.path, content.as_bytes())?;
        self.content = Some(content);
        Ok(())
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        match (&self.content, &self.earlier) {
            // A later server may have written the file since.
            (Some(content), _) if fs::read_to_string(&self.path).is_ok_and(|found| found == *content) => {
                let _ = fs::remove_file(&self.path);
            }
            (None, Some(earlier)) if !self.path.exists() => _ = fs::write(&self.path, earlier),
            _ => {}
        }
    }
}
