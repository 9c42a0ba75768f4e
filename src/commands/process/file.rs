//! Values read from files and written to files, which are replaced as a whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::unistd::geteuid;

use crate::commands::error::{CommandError, Kind};
use crate::protocol::key::VALUE_BYTES_MAX;

/// Enough bytes to see that an input is too large for a value.
pub(super) const READ_MAX: u64 = VALUE_BYTES_MAX as u64 + 1;

/// Returns the id of the user with whose rights this process uses files.
#[must_use]
pub fn user_id() -> u32 {
    geteuid().as_raw()
}

/// Returns the bytes as a value.
///
/// # Errors
/// [`Kind::Data`] above the limit.
pub fn value_within_limit(bytes: impl Into<Bytes>) -> Result<Bytes, CommandError> {
    let bytes = bytes.into();
    if bytes.len() > VALUE_BYTES_MAX {
        let message = format!("value too large: the limit is {VALUE_BYTES_MAX} bytes");
        return Err(CommandError::new(Kind::Data, message));
    }
    Ok(bytes)
}

/// Reads a file as a value.
///
/// # Errors
/// It cannot be read, or it is larger than a value may be.
pub fn read(path: &Path) -> Result<Bytes, CommandError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(READ_MAX).read_to_end(&mut bytes))
        .map_err(|error| CommandError::file("read", path, &error))?;
    value_within_limit(bytes)
}

/// Writes a value to a file. If it fails, the file is unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    replace(path, bytes, None).map_err(|error| CommandError::file("write", path, &error))
}

/// Writes a value to a file as [`write()`] does; a new file gets the permissions 0600.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let private = fs::Permissions::from_mode(0o600);
    replace(path, bytes, Some(private)).map_err(|error| CommandError::file("write", path, &error))
}

fn replace(path: &Path, bytes: &[u8], if_new: Option<fs::Permissions>) -> io::Result<()> {
    // A symbolic link stays: its target is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let replaced = fs::metadata(&path);
    let permissions = match &replaced {
        Ok(metadata) if metadata.is_file() => Some(metadata.permissions()),
        // A terminal, a pipe or /dev/null cannot be replaced.
        Ok(_) => return OpenOptions::new().write(true).open(&path)?.write_all(bytes),
        Err(_) => if_new,
    };
    let temporary = temporary_path(&path)?;
    let written = write_new(&temporary, bytes, permissions, replaced.ok().as_ref())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Returns a name in the same folder, because a rename works only within one file system.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".mqkv-{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

fn write_new(
    path: &Path,
    bytes: &[u8],
    permissions: Option<fs::Permissions>,
    replaced: Option<&fs::Metadata>,
) -> io::Result<()> {
    // Not readable by other users before it has its permissions.
    let mode = if permissions.is_some() { 0o600 } else { 0o666 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if let Some(replaced) = replaced {
        // So that the user of a server can still read a file that root changes. Other users than root cannot give files away.
        let _ = fchown(&file, Some(replaced.uid()), Some(replaced.gid()));
    }
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("value");
        write(&path, b"one").unwrap();
        write(&path, b"two\0").unwrap();
        assert_eq!(read(&path).unwrap(), &b"two\0"[..]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_a_file_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(&folder.path().join("no/such"), b"x").unwrap_err();
        assert_eq!(error.kind, Kind::File);
        assert_eq!(read(folder.path()).unwrap_err().kind, Kind::File);
    }

    #[test]
    fn a_symbolic_link_and_the_permissions_stay() {
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
