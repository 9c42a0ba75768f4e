//! History file: the lines of earlier sessions, without values, readable by its owner only.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;

use super::redact;
use crate::commands::lines::words::Word;
use crate::commands::process::file;
use crate::platform;

/// How many lines remain when the file is truncated.
const LINES_MAX: usize = 2_000;
/// The file is truncated when it has more lines.
const LINES_GROWN: usize = 3_000;

/// The history file. Without a path, or after a failed write, nothing is stored.
#[derive(Debug)]
pub struct History {
    path: Option<PathBuf>,
    last: String,
}

impl History {
    /// Opens the file and returns its lines. A file that cannot be read counts as empty: the prompt starts without it.
    #[must_use]
    pub fn open(path: Option<PathBuf>) -> (Self, Vec<String>) {
        let text = path.as_ref().and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<String> = text.lines().map(unescaped).collect();
        let recent: Vec<String> = all.iter().skip(all.len().saturating_sub(LINES_MAX)).cloned().collect();
        if let Some(path) = path.as_ref().filter(|_| all.len() > LINES_GROWN) {
            let text: String = recent.iter().map(|line| escaped(line)).collect();
            let _ = file::write_private(path, text.as_bytes());
        }
        let last = recent.last().cloned().unwrap_or_default();
        (Self { path, last }, recent)
    }

    /// Appends a line without its values, unless it repeats the last one. `is_valid` returns whether the words of a statement
    /// can be run.
    ///
    /// # Errors
    /// The file cannot be written. Later lines are not stored, and report no error.
    pub fn add(
        &mut self,
        line: &str,
        definition: &Command,
        is_valid: &dyn Fn(Vec<Word>) -> bool,
    ) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let Some(redacted) = redact::redacted(line, definition, is_valid) else { return Ok(()) };
        if redacted == self.last {
            return Ok(());
        }
        let entry = escaped(&redacted);
        self.last = redacted;
        let result = append(path, &entry);
        if result.is_err() {
            self.path = None;
        }
        result
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        platform::create_private_directory(directory)?;
    }
    let mut file = platform::append_private(path)?;
    platform::make_private(&file)?;
    // One write, so that the lines of two sessions do not interleave.
    file.write_all(line.as_bytes())
}

fn escaped(line: &str) -> String {
    format!("{}\n", line.replace('\\', "\\\\").replace('\n', "\\n"))
}

fn unescaped(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '\\' => match rest.next() {
                Some('n') => '\n',
                other => other.unwrap_or('\\'),
            },
            c => c,
        });
    }
    out
}

// On Windows files have the permissions of their folder.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::definition::sample;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_are_stored_without_values_for_their_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state/mqkv/history");
        let (mut history, lines) = History::open(Some(path.clone()));
        assert_eq!(lines, Vec::<String>::new());
        let definition = sample::definition();
        for line in ["get k", "get k", "set k secret", " get hidden", "\\! echo 'a\n\\n'"] {
            history.add(line, &definition, &|_| true).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(History::open(Some(path)).1, ["get k", "set k", "\\! echo 'a\n\\n'"]);
    }

    #[test]
    fn a_large_file_is_truncated() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("history");
        let text: String = (0..LINES_GROWN + 1).map(|at| format!("get {at}\n")).collect();
        fs::write(&path, text).unwrap();
        assert_eq!(History::open(Some(path.clone())).1.len(), LINES_MAX);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), LINES_MAX);
    }

    #[test]
    fn without_a_path_nothing_is_stored() {
        let (mut history, lines) = History::open(None);
        assert!(history.add("get k", &sample::definition(), &|_| true).is_ok() && lines.is_empty());
    }
}
