//! Completion of paths of files and directories.

use std::fs;
use std::path::Path;

/// Lists the paths that begin with a prefix, sorted; directories end with a slash. Hidden files are listed only if the
/// prefix names one.
#[must_use]
pub fn beginning_with(prefix: &str) -> Vec<String> {
    let (directory, name) =
        prefix.rfind('/').map_or(("", prefix), |at| prefix.split_at(at.saturating_add(1)));
    let Ok(entries) = fs::read_dir(if directory.is_empty() { Path::new(".") } else { Path::new(directory) })
    else {
        return Vec::new();
    };
    let mut paths: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let found = entry.file_name().into_string().ok()?;
            let is_wanted = found.starts_with(name) && (!found.starts_with('.') || name.starts_with('.'));
            let slash = if entry.path().is_dir() { "/" } else { "" };
            is_wanted.then(|| format!("{directory}{found}{slash}"))
        })
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_end_with_a_slash_and_hidden_files_are_listed_on_request() {
        let place = tempfile::tempdir().unwrap();
        for name in ["one", "only", ".hidden"] {
            fs::write(place.path().join(name), "").unwrap();
        }
        fs::create_dir(place.path().join("on")).unwrap();
        let within = |prefix: &str| {
            let directory = format!("{}/", place.path().display());
            let found = beginning_with(&format!("{directory}{prefix}"));
            found.into_iter().map(|path| path.replace(&directory, "")).collect::<Vec<_>>()
        };
        assert_eq!(within("on"), ["on/", "one", "only"]);
        assert_eq!(within("."), [".hidden"]);
        assert_eq!(within("x"), Vec::<String>::new());
    }
}
