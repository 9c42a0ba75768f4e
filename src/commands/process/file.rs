//! Values from and to files; a file is replaced whole or not touched.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::commands::error::CommandError;
use crate::commands::session::value_within_limit;
use crate::protocol::key::VALUE_BYTES_MAX;

/// Reads a file as a value.
///
/// # Errors
/// It cannot be read, or it is larger than a value may be.
pub fn read(path: &Path) -> Result<Bytes, CommandError> {
    let limit = u64::try_from(VALUE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|error| CommandError::file("read", path, &error))?;
    value_within_limit(bytes)
}

/// Writes a value to a file: whole, or the file stays as it was.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    replace(path, bytes, None).map_err(|error| CommandError::file("write", path, &error))
}

/// The same, for nobody but the owner to read, if it is a new file.
///
/// # Errors
/// It cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let private = fs::Permissions::from_mode(0o600);
    replace(path, bytes, Some(private)).map_err(|error| CommandError::file("write", path, &error))
}

fn replace(path: &Path, bytes: &[u8], if_new: Option<fs::Permissions>) -> io::Result<()> {
    // A link stays a link: what it points to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
        // A terminal, a pipe, /dev/null: nothing to replace.
        Ok(_) => return OpenOptions::new().write(true).open(&path)?.write_all(bytes),
        Err(_) => if_new,
    };
    let beside = beside(&path)?;
    let written = write_new(&beside, bytes, permissions).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// A name in the same folder, for a rename works only within one file system.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".mqkv-{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn write_new(path: &Path, bytes: &[u8], permissions: Option<fs::Permissions>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::error::Kind;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        write(&path, b"one").unwrap();
        write(&path, b"two\0").unwrap();
        assert_eq!(read(&path).unwrap(), &b"two\0"[..]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_file_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("no/such"), b"x").unwrap_err();
        assert_eq!(error.kind, Kind::File);
        assert_eq!(read(folder.path()).unwrap_err().kind, Kind::File);
    }

    #[test]
    fn a_link_stays_a_link_and_permissions_stay() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("value"), folder.path().join("link"));
        fs::write(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&path, &link).unwrap();
        write(&link, b"two").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&path).unwrap(), b"two");
    }
}
