//! Permissions of files that contain secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::render::escape::escape;

/// Directories in which containers get their secrets: the files are readable by all processes of the container, which
/// cannot change that.
const MOUNTED: [&str; 2] = ["/var/run/secrets", "/run/secrets"];

/// Returns a warning if other users than the owner can read or write the file.
#[must_use]
pub fn warning(file: &Path) -> Option<String> {
    if MOUNTED.iter().any(|folder| file.starts_with(folder)) || is_projected(file) {
        return None;
    }
    let metadata = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return None;
    }
    let file = escape(file.as_os_str().as_encoded_bytes());
    Some(format!(
        "warning: {file} contains a secret, and other users can access it (mode {mode:04o}): chmod 600 {file}"
    ))
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
