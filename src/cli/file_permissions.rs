//! Permissions of files that contain secrets, or that decide what the program does.

use std::fs;
use std::path::Path;

use crate::platform::{Permissions, permissions, user_id};
use crate::render::escape::escape;

/// Directories in which containers get their secrets: the files are readable by all processes of the container, which
/// cannot change that.
const MOUNTED: [&str; 2] = ["/var/run/secrets", "/run/secrets"];

/// Returns a warning if other users than the owner can read or write the file. Root may let a group read its file: the one of a
/// server.
#[must_use]
pub fn warning(file: &Path) -> Option<String> {
    let Permissions { mode, owner, .. } = permissions(&metadata(file)?)?;
    let mode = mode & 0o777;
    let others = if owner == 0 { 0o037 } else { 0o077 };
    if mode & others == 0 {
        return None;
    }
    let file = escape(file.as_os_str().as_encoded_bytes());
    Some(format!(
        "warning: {file} contains a secret, and other users can access it (mode {mode:04o}): chmod 600 {file}"
    ))
}

/// Returns a warning if other users can write a file with settings or rules: these name the broker that gets the passwords,
/// and the files that are read and written. Root may own it, and its owner's private group may write it.
#[must_use]
pub fn warning_of_settings(file: &Path) -> Option<String> {
    let Permissions { mode, owner, group } = permissions(&metadata(file)?)?;
    let mode = mode & 0o777;
    // The group of a user that has no other member has the number of the user, on most systems.
    let others = if group == owner { 0o002 } else { 0o022 };
    let file = escape(file.as_os_str().as_encoded_bytes());
    let (cause, next) = if mode & others != 0 {
        (format!("mode {mode:04o}"), format!("chmod go-w {file}"))
    } else if owner != 0 && owner != user_id() {
        (format!("it belongs to the user {owner}"), format!("chown {} {file}", user_id()))
    } else {
        return None;
    };
    Some(format!("warning: other users can change {file} ({cause}): {next}"))
}

/// Returns a warning if other users can change the directory of a store, or read its files. To see their names is harmless. The
/// group counts as other users unless it is the owner's private one, or the directory was given to it, as Kubernetes does for
/// `fsGroup`.
#[must_use]
pub fn warning_of_data(directory: &Path) -> Option<String> {
    let metadata = fs::metadata(directory).ok().filter(fs::Metadata::is_dir)?;
    let Permissions { mode, owner, group } = permissions(&metadata)?;
    let is_own_group = group == owner || mode & 0o2000 != 0;
    let others = mode & if is_own_group { 0o007 } else { 0o077 };
    let shown = escape(directory.as_os_str().as_encoded_bytes());
    if others & 0o022 != 0 {
        return Some(format!(
            "other users can change the store in {shown} (mode {mode:04o}): chmod go-w {shown}"
        ));
    }
    // Users that may not enter the directory (the bit 1 of their class) cannot read a file in it (the bit 4).
    let readers = (others & 0o011) << 2;
    let is_readable = |entry: &fs::DirEntry| {
        let file = entry.metadata().ok().filter(fs::Metadata::is_file);
        file.and_then(|file| permissions(&file)).is_some_and(|file| file.mode & readers != 0)
    };
    let entries = fs::read_dir(directory).ok().filter(|_| readers != 0)?;
    let file = entries.flatten().find(is_readable)?.path();
    let file = escape(file.as_os_str().as_encoded_bytes());
    Some(format!("other users can read {file}: chmod go-rwx {shown}"))
}

/// Returns the metadata of a regular file, unless its permissions are those of a container.
fn metadata(file: &Path) -> Option<fs::Metadata> {
    if MOUNTED.iter().any(|folder| file.starts_with(folder)) || is_projected(file) {
        return None;
    }
    fs::metadata(file).ok().filter(fs::Metadata::is_file)
}

/// Returns whether the file is in a projected volume of Kubernetes: it is a link into a directory named after the time,
/// such as `..2026_11_21_07_00`.
fn is_projected(file: &Path) -> bool {
    let real = fs::canonicalize(file).unwrap_or_default();
    real.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"..2"))
}

// On Windows files have the permissions of their folder.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_with_settings_that_other_users_can_change_gets_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, "").unwrap();
        let (me, others) = (user_id(), 54_321);
        let warning = |mode, owner, group| {
            if me == 0 {
                std::os::unix::fs::chown(&path, Some(owner), Some(group)).unwrap();
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            warning_of_settings(&path)
        };
        for (mode, is_warned) in
            [(0o600, false), (0o644, false), (0o444, false), (0o602, true), (0o646, true), (0o666, true)]
        {
            assert_eq!(warning(mode, me, me).is_some(), is_warned, "{mode:o}");
        }
        if me != 0 {
            return;
        }
        let shown = path.display();
        for (mode, owner, group, expected) in [
            (0o664, me, me, None),
            (0o664, me, others, Some(format!("(mode 0664): chmod go-w {shown}"))),
            (0o644, me, others, None),
            (0o600, others, others, Some(format!("(it belongs to the user {others}): chown 0 {shown}"))),
        ] {
            let expected = expected.map(|rest| format!("warning: other users can change {shown} {rest}"));
            assert_eq!(warning(mode, owner, group), expected);
        }
    }

    #[test]
    fn a_store_that_other_users_can_change_or_read_gets_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("kept"), folder.path().join("kept/log-1"));
        assert_eq!(warning_of_data(&path), None, "it is made for its owner only");
        fs::create_dir(&path).unwrap();
        fs::write(&file, "x").unwrap();
        let shown = path.display();
        let change = |mode| {
            Some(format!("other users can change the store in {shown} (mode {mode}): chmod go-w {shown}"))
        };
        let read = || Some(format!("other users can read {shown}/log-1: chmod go-rwx {shown}"));
        let me = user_id();
        for (mode, file_mode, group, expected) in [
            (0o700, 0o666, me, None),
            (0o755, 0o600, me, None),
            (0o775, 0o660, me, None),
            (0o777, 0o600, me, change("0777")),
            (0o755, 0o644, me, read()),
            (0o755, 0o640, me, None),
            (0o775, 0o600, 54_321, change("0775")),
            (0o750, 0o640, 54_321, read()),
            (0o701, 0o640, 54_321, None),
            (0o2775, 0o660, 54_321, None),
        ] {
            if group == me || me == 0 {
                let owner = (me == 0).then_some(me);
                std::os::unix::fs::chown(&path, owner, (me == 0).then_some(group)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(file_mode)).unwrap();
                // As another user, the group of a temporary directory may be any.
                if me == 0 {
                    assert_eq!(warning_of_data(&path), expected, "{mode:o} {file_mode:o} {group}");
                }
            }
        }
    }

    #[test]
    fn a_secret_that_other_users_can_access_gets_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "x").unwrap();
        let is_root = user_id() == 0;
        for (mode, is_warned) in
            [(0o600, false), (0o400, false), (0o640, !is_root), (0o660, true), (0o604, true), (0o644, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(warning(&path).is_some(), is_warned, "{mode:o}");
        }
        if is_root {
            std::os::unix::fs::chown(&path, Some(54_321), Some(54_321)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            assert!(warning(&path).is_some(), "of another user");
        }
        assert_eq!(warning(Path::new("/var/run/secrets/tokens/none")), None);
        assert_eq!(warning(folder.path()), None, "not a file");
        let (real, link) = (folder.path().join("..2026_11_21_07_00"), folder.path().join("token"));
        fs::create_dir(&real).unwrap();
        fs::write(real.join("token"), "x").unwrap();
        fs::set_permissions(real.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(real.join("token"), &link).unwrap();
        assert_eq!(warning(&link), None, "a volume of Kubernetes");
    }
}
