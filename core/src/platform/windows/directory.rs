//! An open directory. While it is open, it can neither be moved nor removed, so its path stays its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{self, Path, PathBuf};

use windows_sys::Win32::Foundation::ERROR_SHARING_VIOLATION;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_SHARE_DELETE, FILE_SHARE_READ,
    FILE_SHARE_WRITE,
};

use crate::platform::types::Access;

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    _open: File,
}

impl Directory {
    pub fn lock(path: &Path) -> io::Result<Self> {
        Self::open(path)
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        if !fs::metadata(path)?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        let mut options = OpenOptions::new();
        options.read(true).share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE);
        let open = options.custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path)?;
        Ok(Self { path: path::absolute(path)?, _open: open })
    }

    pub fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    pub fn contains(&self, _name: &str, _file: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub fn open_regular(&self, name: &str, access: Access) -> io::Result<Option<File>> {
        self.open_shared(name, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE)
    }

    pub fn lock_file(&self, name: &str, access: Access) -> io::Result<Option<File>> {
        self.open_shared(name, access, FILE_SHARE_READ).map_err(|error| {
            let code = error.raw_os_error().and_then(|code| u32::try_from(code).ok());
            if code == Some(ERROR_SHARING_VIOLATION) { ErrorKind::ResourceBusy.into() } else { error }
        })
    }

    fn open_shared(&self, name: &str, access: Access, sharing: u32) -> io::Result<Option<File>> {
        let path = self.path.join(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if !metadata.is_file() => return Ok(None),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let is_created = matches!(access, Access::Create | Access::Truncate);
        options
            .read(true)
            .write(access != Access::Read)
            .create(is_created)
            .truncate(access == Access::Truncate);
        options.share_mode(sharing);
        options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path).map(Some)
    }

    pub fn names(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    pub fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    pub fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    pub fn links(_: &File) -> io::Result<u64> {
        Ok(1)
    }
}
