//! The configuration file on disk: its path, reading and writing.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::file::{BYTES_MAX, File};
use super::variables::{CONFIG, Variables};
use crate::commands::process::file;
use crate::commands::{CommandError, Kind};
use crate::files::replace;
use crate::platform::{HOME, SETTINGS, create_private_directory};

/// Path of the configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    /// The option or variable that contains the path; `None` for the default path.
    pub named_by: Option<&'static str>,
}

/// Returns the path of the file; `None` if no option, variable or home directory determines one.
#[must_use]
pub fn find(typed: Option<&Path>, variables: &Variables) -> Option<Location> {
    if let Some(path) = typed {
        return Some(Location { path: path.to_owned(), named_by: Some("--config") });
    }
    if let Some(path) = variables.get(CONFIG) {
        return Some(Location { path: path.into(), named_by: Some(CONFIG) });
    }
    let home = || variables.home.as_ref().map(|home| home.join(SETTINGS.below_home));
    let folder = variables.config_home.clone().or_else(home)?;
    Some(Location { path: folder.join("mqkv").join("config.toml"), named_by: None })
}

/// Returns the path of the file, which must be known.
///
/// # Errors
/// No option, variable or home directory determines a path.
pub fn find_any(typed: Option<&Path>, variables: &Variables) -> Result<Location, CommandError> {
    find(typed, variables).ok_or_else(|| {
        let message = format!("no configuration file: {HOME} is not set");
        CommandError::new(Kind::Configuration, message).hint("--config FILE")
    })
}

impl Location {
    /// Reads the bytes of the file; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read or has more than [`BYTES_MAX`] bytes.
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

    /// Reads and parses the file; `None` if it does not exist.
    pub fn load(&self, variables: &Variables) -> Result<Option<File>, CommandError> {
        let bytes = self.read()?;
        bytes.map(|bytes| File::read(&self.path, &bytes, variables.home.as_deref())).transpose()
    }
}

impl Location {
    /// Creates the directory of the file with mode 0700, if it does not exist.
    pub fn make_folder(&self) -> Result<(), CommandError> {
        let Some(folder) = self.folder() else { return Ok(()) };
        let made = create_private_directory(folder);
        made.map_err(|error| CommandError::file("create", folder, &error))
    }

    /// Locks the file against changes by other processes until the guard is dropped.
    ///
    /// # Errors
    /// The directory cannot be created, or the file cannot be opened.
    pub fn hold(&self) -> Result<fs::File, CommandError> {
        self.make_folder()?;
        replace::lock(&self.path).map_err(|error| CommandError::file("lock", &self.path, &error))
    }

    /// Replaces the file atomically; a new one has mode 0600.
    pub fn write(&self, bytes: &[u8]) -> Result<(), CommandError> {
        file::write_private(&self.path, bytes)
    }

    fn folder(&self) -> Option<&Path> {
        self.path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // One byte more than allowed, to detect a file that is too large.
    const LIMIT: u64 = BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}
