//! Permissions of files that contain secrets, or that decide what the program does.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::commands::process::file::user_id;
use crate::render::escape::escape;

/// Directories in which containers get their secrets: the files are readable by all processes of the container, which
/// cannot change that.
const MOUNTED: [&str; 2] = ["/var/run/secrets", "/run/secrets"];

/// Returns a warning if other users than the owner can read or write the file.
#[must_use]
pub fn warning(file: &Path) -> Option<String> {
    let mode = metadata(file)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
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
    let metadata = metadata(file)?;
    let (mode, owner) = (metadata.permissions().mode() & 0o777, metadata.uid());
    // The group of a user that has no other member has the number of the user, on most systems.
    let others = if metadata.gid() == owner { 0o002 } else { 0o022 };
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_secret_that_other_users_can_access_gets_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "x").unwrap();
        for (mode, is_warned) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o644, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(warning(&path).is_some(), is_warned, "{mode:o}");
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
