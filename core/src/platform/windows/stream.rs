//! Standard streams: as files, and what the runtime does not report of them.

use std::fs::File;
use std::future::pending;
use std::io;
use std::os::windows::io::{AsHandle, AsRawHandle};
use std::time::Duration;

use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};

pub fn stdin_file() -> io::Result<File> {
    io::stdin().as_handle().try_clone_to_owned().map(File::from)
}

pub fn stdout_file() -> io::Result<File> {
    io::stdout().as_handle().try_clone_to_owned().map(File::from)
}

#[must_use]
#[expect(unsafe_code, reason = "no safe function returns the type of a handle")]
pub fn stdin_has_content() -> bool {
    // SAFETY: an invalid handle has an unknown type.
    let kind = unsafe { GetFileType(io::stdin().as_raw_handle()) };
    matches!(kind, FILE_TYPE_DISK | FILE_TYPE_PIPE)
}

#[must_use]
pub fn is_stdin_closed() -> bool {
    io::stdin().as_raw_handle().is_null()
}

#[must_use]
pub fn stdin_is_ready_within(_wait: Duration) -> bool {
    true
}

pub async fn stdout_closed() {
    pending().await
}

#[must_use]
pub fn stderr_has_room() -> bool {
    true
}
