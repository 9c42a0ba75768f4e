//! Files: positions, permissions, locks, metadata that shows a change.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::platform::types::Permissions;

/// Metadata that shows a change of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    /// Device and inode.
    id: (u64, u64),
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            id: id(metadata),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Device and inode.
fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns what a file has in common with no other one: device and inode. Windows: volume and index.
///
/// # Errors
/// Those of the system.
pub fn file_id(file: &File) -> io::Result<(u64, u64)> {
    Ok(id(&file.metadata()?))
}

/// Returns whether a directory is where another file system begins. Windows: never.
#[must_use]
pub fn is_mount_point(directory: &Metadata, parent: &Metadata) -> bool {
    directory.dev() != parent.dev()
}

/// Gives a file the owner and the group that another one has. Windows: does nothing, both have the owner of their folder.
///
/// # Errors
/// Those of the system; only the administrator may give a file away.
pub fn copy_owner(from: &Metadata, to: &Path) -> io::Result<()> {
    let own = fs::metadata(to)?;
    if (from.uid(), from.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    chown(to, Some(from.uid()), Some(from.gid()))
}

/// Reads some of a file's bytes at a position.
///
/// # Errors
/// Those of the system.
pub fn read_at(file: &File, at: u64, out: &mut [u8]) -> io::Result<usize> {
    file.read_at(out, at)
}

/// Reads bytes at a position of a file until `out` is full.
///
/// # Errors
/// Those of the system, and [`ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &File, at: u64, out: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(out, at)
}

/// Writes all bytes at a position of a file.
///
/// # Errors
/// Those of the system.
pub fn write_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, at)
}

/// Creates a file that does not exist, with the permissions `mode` less the umask. Windows: those of its folder.
///
/// # Errors
/// Those of the system, also if the file exists.
pub fn create_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Creates a directory for its owner only, and those above it.
///
/// # Errors
/// Those of the system; a directory that exists is none.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a directory for its owner only, which does not exist.
///
/// # Errors
/// Those of the system.
pub fn create_new_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Opens a file for reading. Does not wait for the writer of a pipe that is in its place, nor become the owner of a terminal.
///
/// # Errors
/// Those of the system.
pub fn open_nonblocking(path: &Path) -> io::Result<File> {
    // On a regular file the flags have no effect.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Gives a new file owner, group and permissions of the file that it will replace.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if this process cannot give a file away.
pub fn keep_permissions(new: &File, replaced: &Metadata) -> io::Result<()> {
    let (metadata, uid, gid) = (new.metadata()?, replaced.uid(), replaced.gid());
    if (metadata.uid(), metadata.gid()) != (uid, gid) {
        fchown(new, Some(uid), Some(gid)).map_err(|error| {
            let message =
                format!("it must keep its owner {uid} and group {gid}, which only root can do: {error}");
            io::Error::new(error.kind(), message)
        })?;
    }
    // After the owner, because a change of that takes away the bits of set-user-ID.
    new.set_permissions(fs::Permissions::from_mode(replaced.mode()))
}

/// Locks a file, which may be replaced under the lock, until the result is closed.
///
/// # Errors
/// Neither the file nor its folder can be opened. On a file system without locks there is none, and no error.
pub fn lock_file(path: &Path, folder: &Path) -> io::Result<File> {
    // The folder, until the file exists.
    let open = || match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => File::open(folder),
        other => other,
    };
    loop {
        let file = open()?;
        // The process that had the lock may have replaced or created the file.
        if file.lock().is_err() || id(&file.metadata()?) == id(&open()?.metadata()?) {
            return Ok(file);
        }
    }
}

/// Makes the content of a file durable. Windows: of one that was opened for writing; of others it is not known.
///
/// # Errors
/// Those of the system.
pub fn sync_data(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// Makes the names of new files in a directory durable.
///
/// # Errors
/// Those of the system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reserves room on the disk for the first `bytes` of a file. Does nothing on systems other than Linux.
///
/// # Errors
/// Those of the system, for example a full disk.
#[cfg(target_os = "linux")]
pub fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?)
}

#[cfg(not(target_os = "linux"))]
pub fn allocate(_: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// Lets the system forget what it has in memory of a file. Does nothing on systems other than Linux.
///
/// # Errors
/// Those of the system.
#[cfg(target_os = "linux")]
pub fn drop_cache(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(not(target_os = "linux"))]
pub fn drop_cache(_: &File) -> io::Result<()> {
    Ok(())
}

/// Whether the disk cannot read a sector. Everything else can be read nevertheless.
#[must_use]
pub fn is_hardware_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EIO as i32)
}

/// Returns who may use a file. Windows: None, because most files have the permissions of their folder, which is the user's own.
#[must_use]
pub fn permissions(metadata: &Metadata) -> Option<Permissions> {
    Some(Permissions { mode: metadata.mode() & 0o7777, owner: metadata.uid(), group: metadata.gid() })
}

/// Returns the id of the user with whose rights this process uses files.
#[must_use]
pub fn user_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Opens a file to append to it; creates it, for its owner only, if it does not exist.
///
/// # Errors
/// Those of the system.
pub fn append_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Takes away the permissions of all users but the owner.
///
/// # Errors
/// Those of the system.
pub fn make_private(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o777 == 0o600 {
        return Ok(());
    }
    file.set_permissions(fs::Permissions::from_mode(0o600))
}
