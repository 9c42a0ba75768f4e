//! The file that tells a command, and whatever it starts, the newest fencing token.

use std::fs;
use std::path::{Path, PathBuf};

use crate::commands::error::CommandError;
use crate::commands::file;
use crate::protocol::Timestamp;

/// A file with a fencing token; removed when dropped.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// Writes the first token.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: PathBuf, token: &Timestamp) -> Result<Self, CommandError> {
        write(&path, token)?;
        Ok(Self { path })
    }

    /// Puts a newer token in the place of the last: a reader sees one or the other.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn replace(&self, token: &Timestamp) -> Result<(), CommandError> {
        write(&self.path, token)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // A terminal or a pipe is no file of ours.
        if fs::metadata(&self.path).is_ok_and(|metadata| metadata.is_file()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a token that stays.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, token: &Timestamp) -> Result<(), CommandError> {
    file::write_private(path, format!("{token}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_replaced_whole_private_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::create(path.clone(), &Timestamp::of_store(1, 0)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::File::open(&path).unwrap();
        file.replace(&Timestamp::of_store(2, 0)).unwrap();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "000000000000002:00000:StateStore\n");
        assert_eq!(
            std::io::read_to_string(before).unwrap(),
            "000000000000001:00000:StateStore\n",
            "who has the old file open reads on in it"
        );
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
