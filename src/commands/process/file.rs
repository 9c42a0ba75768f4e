//! Values read from files and written to files, which are replaced as a whole.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::commands::error::{CommandError, Kind};
use crate::files::replace::replace;
use crate::protocol::key::VALUE_BYTES_MAX;
use bytes::Bytes;

/// Enough bytes to see that an input is too large for a value.
pub(super) const READ_MAX: u64 = VALUE_BYTES_MAX as u64 + 1;

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

/// Writes a value to a file, as [`replace()`] does.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    replace(path, bytes, 0o666).map_err(|error| CommandError::file("write", path, &error))
}

/// Writes a value to a file, as [`replace()`] does; a new file gets the permissions 0600.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    replace(path, bytes, 0o600).map_err(|error| CommandError::file("write", path, &error))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
}
