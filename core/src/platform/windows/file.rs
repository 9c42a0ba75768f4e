//! Files: positions, permissions, locks, metadata that shows a change.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::windows::fs::{FileExt, MetadataExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;

use windows_sys::Win32::Foundation::{ERROR_CRC, ERROR_IO_DEVICE, ERROR_SECTOR_NOT_FOUND};
use windows_sys::Win32::Storage::FileSystem::{BY_HANDLE_FILE_INFORMATION, GetFileInformationByHandle};

use crate::platform::types::Permissions;

/// Metadata that shows a change of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    len: u64,
    created: u64,
    modified: u64,
}

impl FileStamp {
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), created: metadata.creation_time(), modified: metadata.last_write_time() }
    }
}

#[expect(unsafe_code, reason = "no safe function returns the index of a file")]
pub fn file_id(file: &File) -> io::Result<(u64, u64)> {
    let mut information = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is valid, and the pointer to a value of the type.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut information) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let index = u64::from(information.nFileIndexHigh) << 32 | u64::from(information.nFileIndexLow);
    Ok((information.dwVolumeSerialNumber.into(), index))
}

#[must_use]
pub fn is_mount_point(_directory: &Metadata, _parent: &Metadata) -> bool {
    false
}

pub fn copy_owner(_from: &Metadata, _to: &Path) -> io::Result<()> {
    Ok(())
}

pub fn read_at(file: &File, at: u64, out: &mut [u8]) -> io::Result<usize> {
    file.seek_read(out, at)
}

pub fn read_exact_at(file: &File, mut at: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        let len = file.seek_read(out, at)?;
        out = out.get_mut(len..).filter(|_| len > 0).ok_or(ErrorKind::UnexpectedEof)?;
        at = at.saturating_add(len as u64);
    }
    Ok(())
}

pub fn write_at(file: &File, mut at: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = file.seek_write(bytes, at)?;
        let rest = bytes.get(written..).filter(|_| written > 0);
        bytes = rest.ok_or(ErrorKind::WriteZero)?;
        at = at.saturating_add(written as u64);
    }
    Ok(())
}

pub fn create_file(path: &Path, _mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

pub fn open_nonblocking(path: &Path) -> io::Result<File> {
    File::open(path)
}

pub fn keep_permissions(new: &File, replaced: &Metadata) -> io::Result<()> {
    new.set_permissions(replaced.permissions())
}

/// Locks a file beside the one of this path: a lock is on the content here, and would keep this process from reading it, too.
pub fn lock_file(path: &Path, _folder: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(name)?;
    // On a file system without locks there is none, and no error.
    let _ = file.lock();
    Ok(file)
}

pub fn sync_data(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

pub fn allocate(_: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

pub fn drop_cache(_: &File) -> io::Result<()> {
    Ok(())
}

#[must_use]
pub fn is_hardware_error(error: &io::Error) -> bool {
    let code = error.raw_os_error().and_then(|code| u32::try_from(code).ok());
    matches!(code, Some(ERROR_CRC | ERROR_IO_DEVICE | ERROR_SECTOR_NOT_FOUND))
}

#[must_use]
pub fn permissions(_: &Metadata) -> Option<Permissions> {
    None
}

#[must_use]
pub fn user_id() -> u32 {
    0
}

pub fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

pub fn make_private(_: &File) -> io::Result<()> {
    Ok(())
}

pub fn create_new_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().create(path)
}
