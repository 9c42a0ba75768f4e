//! Where the configuration file is, and its bytes.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::file::{BYTES_MAX, File};
use super::variables::{CONFIG, Variables};
use crate::commands::process::file;
use crate::commands::{CommandError, Kind};

/// Where the configuration file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Its path.
    pub path: PathBuf,
    /// What names it; none: it is where everybody's is.
    pub named_by: Option<&'static str>,
}

/// Where the file is; none: nobody says, not even by having a home.
#[must_use]
pub fn find(typed: Option<&Path>, variables: &Variables) -> Option<Location> {
    if let Some(path) = typed {
        return Some(Location { path: path.to_owned(), named_by: Some("--config") });
    }
    if let Some(path) = variables.get(CONFIG) {
        return Some(Location { path: path.into(), named_by: Some(CONFIG) });
    }
    let home = || variables.home.as_ref().map(|home| home.join(".config"));
    let folder = variables.config_home.clone().or_else(home)?;
    Some(Location { path: folder.join("mqkv").join("config.toml"), named_by: None })
}

/// The same, where there must be one.
///
/// # Errors
/// Nobody says where it is.
pub fn find_any(typed: Option<&Path>, variables: &Variables) -> Result<Location, CommandError> {
    find(typed, variables).ok_or_else(|| {
        let message = "there is no place for the configuration file: HOME is not set";
        CommandError::new(Kind::Configuration, message).hint("--config FILE")
    })
}

impl Location {
    /// The file's bytes; none: there is no file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>, CommandError> {
        match read(&self.path) {
            Ok(bytes) if bytes.len() > BYTES_MAX => {
                let message = format!("{} has more than {BYTES_MAX} bytes", self.path.display());
                Err(CommandError::new(Kind::Configuration, message))
            }
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(CommandError::file("read", &self.path, &error)),
        }
    }

    /// What the file says; none: there is no file.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn load(&self, variables: &Variables) -> Result<Option<File>, CommandError> {
        let bytes = self.read()?;
        bytes.map(|bytes| File::read(&self.path, &bytes, variables.home.as_deref())).transpose()
    }
}

impl Location {
    /// Makes the file's folder, for this user alone, if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make_folder(&self) -> Result<(), CommandError> {
        let Some(folder) = self.folder() else { return Ok(()) };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| CommandError::file("create", folder, &error))
    }

    /// Keeps other runs from changing the file until the guard is dropped.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn hold(&self) -> Result<Option<fs::File>, CommandError> {
        self.make_folder()?;
        let folder = self.folder().and_then(|folder| fs::File::open(folder).ok());
        // A file system without locks is no reason to keep somebody from changing a file.
        Ok(folder.filter(|folder| folder.lock().is_ok()))
    }

    /// Replaces the file, whole or not at all; a new one is for this user alone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, bytes: &[u8]) -> Result<(), CommandError> {
        file::write_private(&self.path, bytes)
    }

    fn folder(&self) -> Option<&Path> {
        self.path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
