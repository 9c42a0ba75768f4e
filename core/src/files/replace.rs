//! Writing a file as a whole: a reader sees the old or the new content.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::{platform, random};

/// The most symbolic links that are followed, as in Linux.
const LINKS_MAX: usize = 40;

/// Replaces the content of a file, or creates it with `mode`, less the umask. If it fails, the file is unchanged.
///
/// Owner, group and permissions stay: another user may read the file, such as the one of a server. Symbolic links stay, too; their
/// target is replaced or created. A terminal or a pipe is written to.
///
/// # Errors
/// Errors of the system, and [`ErrorKind::PermissionDenied`] if this process cannot give the new file its owner and group.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let replaced = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(metadata),
        Ok(_) => return OpenOptions::new().write(true).open(path)?.write_all(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        // Among them a link that the system refuses to follow, because another user has made it in a folder for all.
        Err(error) => return Err(error),
    };
    let path = target(path)?;
    if path.file_name().is_none() {
        return Err(ErrorKind::IsADirectory.into());
    }
    // A rename works only within a file system. A name that no other process uses, and that is not left in the way by one that crashes.
    let temporary = path.with_file_name(format!(".mqkv-{}-{:016x}", std::process::id(), random::u64()));
    let written =
        write_new(&temporary, bytes, mode, replaced.as_ref()).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
        return written;
    }
    // Fails in a folder that this process may not read. The file has its new content in any case.
    let _ = platform::sync_directory(folder(&path));
    Ok(())
}

/// Locks a file that is read and then replaced against other processes that do so, until the returned file is closed.
///
/// # Errors
/// Neither the file nor its folder can be opened. On a file system without locks there is none, and no error.
pub fn lock(path: &Path) -> io::Result<File> {
    let path = target(path)?;
    platform::lock_file(&path, folder(&path))
}

/// Returns the file that a symbolic link points to, whether or not it exists.
fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = folder(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_new(path: &Path, bytes: &[u8], mode: u32, replaced: Option<&Metadata>) -> io::Result<()> {
    // Not readable by other users before it has its permissions.
    let mode = if replaced.is_some() { 0o600 } else { mode };
    let mut file = platform::create_file(path, mode)?;
    if let Some(replaced) = replaced {
        platform::keep_permissions(&file, replaced)?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

// On Windows files have the permissions of their folder.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::thread;

    use super::*;

    fn attributes(path: &Path) -> (u32, u32, u32) {
        let metadata = fs::metadata(path).unwrap();
        (metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
    }

    #[test]
    fn a_file_keeps_owner_group_and_permissions_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, b"one", 0o600).unwrap();
        assert_eq!(attributes(&path).0, 0o600);
        for mode in [0o640, 0o604, 0o4750] {
            // Only root can give files away.
            let _ = chown(&path, Some(1), Some(65_534));
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let before = attributes(&path);
            replace(&path, b"two", 0o600).unwrap();
            assert_eq!((attributes(&path), &fs::read(&path).unwrap()[..]), (before, &b"two"[..]));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_whether_or_not_its_target_exists() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("real")).unwrap();
        symlink("second", at("first")).unwrap();
        symlink("real/file", at("second")).unwrap();
        for content in [&b"one"[..], b"two"] {
            replace(&at("first"), content, 0o600).unwrap();
            assert!(at("first").is_symlink() && at("second").is_symlink() && !at("real/file").is_symlink());
            assert_eq!(fs::read(at("real/file")).unwrap(), content);
        }
        symlink("loop", at("loop")).unwrap();
        assert!(replace(&at("loop"), b"one", 0o600).is_err() && at("loop").is_symlink());
        assert!(replace(folder.path(), b"one", 0o600).is_err());
        assert!(replace(Path::new("/dev/null"), b"one", 0o600).is_ok());
    }

    #[test]
    fn changes_under_the_lock_are_not_lost_also_while_the_file_does_not_exist() {
        const CHANGES: usize = 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        thread::scope(|scope| {
            for _ in 0..CHANGES {
                scope.spawn(|| {
                    let _locked = lock(&path).unwrap();
                    let mut content = fs::read(&path).unwrap_or_default();
                    content.push(b'x');
                    replace(&path, &content, 0o600).unwrap();
                });
            }
        });
        assert_eq!(fs::read(&path).unwrap().len(), CHANGES);
    }
}
