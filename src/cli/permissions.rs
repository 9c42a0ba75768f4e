//! Files with a secret in them, and who may read them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::render::escape::escape;

/// Where containers get their secrets: readable by all there is inside, and nobody inside can change that.
const MOUNTED: [&str; 2] = ["/var/run/secrets", "/run/secrets"];

/// What there is to say of a file with a secret that others than its owner may read or write.
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
        "warning: {file} holds a secret, and others than you may use it (mode {mode:04o}): chmod 600 {file}"
    ))
}

/// Whether Kubernetes has put it there: behind a link to a folder that is named after the time, `..2026_11_21_07_00`.
fn is_projected(file: &Path) -> bool {
    let real = fs::canonicalize(file).unwrap_or_default();
    real.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"..2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_others_may_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "x").unwrap();
        for (mode, is_told) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o644, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(warning(&path).is_some(), is_told, "{mode:o}");
        }
        assert_eq!(warning(Path::new("/var/run/secrets/tokens/none")), None);
        assert_eq!(warning(folder.path()), None, "no file");
        let (real, link) = (folder.path().join("..2026_11_21_07_00"), folder.path().join("token"));
        fs::create_dir(&real).unwrap();
        fs::write(real.join("token"), "x").unwrap();
        fs::set_permissions(real.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(real.join("token"), &link).unwrap();
        assert_eq!(warning(&link), None, "a volume of Kubernetes");
    }
}
