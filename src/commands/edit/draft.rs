//! The file that is edited: private, removed unless it has text that would be lost.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::commands::error::{CommandError, Kind};
use crate::commands::process::file;
use crate::platform::create_new_private_directory;
use crate::protocol::{Key, Value};

/// A file in a directory of its own, where editors put their swap and backup files too. Dropping it removes both.
#[derive(Debug)]
pub struct Draft {
    folder: PathBuf,
    file: PathBuf,
    original: Value,
    is_kept: bool,
}

impl Draft {
    /// Creates `folder`, and in it a file with the value.
    pub fn create(folder: PathBuf, key: &Key, original: Value) -> Result<Self, CommandError> {
        let created = create_new_private_directory(&folder);
        created.map_err(|error| CommandError::file("create", &folder, &error))?;
        let file = folder.join(file_name(key, &original));
        let draft = Self { folder, file, original, is_kept: false };
        file::write_private(&draft.file, &draft.original)?;
        Ok(draft)
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file
    }

    #[must_use]
    pub fn original(&self) -> &Value {
        &self.original
    }

    /// Returns the content of the file.
    ///
    /// # Errors
    /// It cannot be read, or it is larger than a value may be.
    pub fn read(&self) -> Result<Bytes, CommandError> {
        if !self.file.exists() {
            return Err(CommandError::new(Kind::File, "the editor has removed the file"));
        }
        file::read(&self.file)
    }

    /// Keeps the file if it was changed, and returns a message that names it.
    pub fn keep(&mut self) -> Option<String> {
        // A file that cannot be read is kept too, but for one that the editor has removed.
        self.is_kept = match fs::read(&self.file) {
            Ok(edited) => edited != self.original,
            Err(error) => error.kind() != ErrorKind::NotFound,
        };
        self.is_kept.then(|| format!("the edited text is in {}", self.file.display()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Returns the last part of the key as a file name, by whose suffix an editor chooses its mode.
fn file_name(key: &Key, value: &[u8]) -> String {
    const LEN_MAX: usize = 100;
    let name = key.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let plain = |byte: &u8| if is_plain(byte) { char::from(*byte) } else { '_' };
    // The end of a long name is kept, because it has the suffix. A leading dot or dash has a meaning for programs.
    let start = name.len().saturating_sub(LEN_MAX);
    let name: String = name.iter().skip(start).map(plain).collect();
    let name = name.trim_start_matches(['.', '-']);
    let name = if name.is_empty() { "value" } else { name };
    let is_json = !name.contains('.') && matches!(value.trim_ascii_start().first(), Some(b'{' | b'['));
    format!("{name}{}", if is_json { ".json" } else { "" })
}

// On Windows files have the permissions of their folder.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(bytes: &[u8]) -> Key {
        Key::new(bytes.to_vec()).unwrap()
    }

    #[test]
    fn the_name_is_the_last_part_of_the_key_with_a_suffix_for_the_editor() {
        let name = |bytes: &[u8], value: &str| file_name(&key(bytes), value.as_bytes());
        assert_eq!(name(b"line1/config.yaml", "a: 1"), "config.yaml");
        assert_eq!(name(b"line1/mode", "{}"), "mode.json");
        assert_eq!(name(b"line1/mode", "21.5"), "mode");
        assert_eq!(name(b"a/", ""), "value");
        assert_eq!(name(b"../..", ""), "value");
        assert_eq!(name(b"-rf $(x)\n\xff", ""), "rf___x___");
        assert_eq!(name(&[&[b'a'; 300][..], b".json"].concat(), "").len(), 100);
    }

    #[test]
    fn only_this_user_can_read_the_file_and_it_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("edit");
        let draft = Draft::create(folder.clone(), &key(b"k"), "v".into()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(draft.path())), (0o700, 0o600));
        drop(draft);
        assert!(!folder.exists());
    }

    #[test]
    fn a_file_is_kept_only_if_it_was_changed() {
        let place = tempfile::tempdir().unwrap();
        for (edited, is_kept) in [("v", false), ("w", true)] {
            let folder = place.path().join(edited);
            let mut draft = Draft::create(folder.clone(), &key(b"k"), "v".into()).unwrap();
            fs::write(draft.path(), edited).unwrap();
            assert_eq!(draft.keep().is_some(), is_kept);
            drop(draft);
            assert_eq!(folder.exists(), is_kept);
        }
    }
}
