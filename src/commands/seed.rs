//! Reads and writes the entries of an export with which a server starts.

use std::path::{Path, PathBuf};
use std::vec;

use super::error::CommandError;
use super::lines::entry::Entry;
use super::lines::pipeline;
use super::lines::reader::Lines;
use crate::client::{Client, Response, SetOptions, SetOutcome};

/// Entries, each with the number of its line.
type NumberedEntry = (u64, Entry);

/// The entries of a file that has been checked.
#[derive(Debug)]
pub enum Seed {
    /// A regular file, which is read again, so that memory does not depend on its size.
    File(PathBuf),
    /// What a pipe contained, or nothing.
    Entries(Vec<NumberedEntry>),
}

/// Checks all lines of a file.
///
/// # Errors
/// The file cannot be read, or a line is invalid; the message has its number.
pub async fn read(file: &Path) -> Result<Seed, CommandError> {
    let mut lines = Lines::of_file(file, b'\n')?;
    let is_regular = lines.bytes_total().is_some();
    let (mut entries, mut is_empty) = (Vec::new(), true);
    while let Some(entry) = next_entry(&mut lines).await? {
        is_empty = false;
        if !is_regular {
            entries.push(entry);
        }
    }
    Ok(if is_regular && !is_empty { Seed::File(file.to_owned()) } else { Seed::Entries(entries) })
}

/// Returns the next entry; None at the end. Cancel-safe.
async fn next_entry(lines: &mut Lines) -> Result<Option<NumberedEntry>, CommandError> {
    while let Some(line) = lines.next().await {
        let content = line.content.map_err(|error| error.at_line(line.number))?;
        if content.trim_ascii().is_empty() {
            continue;
        }
        let entry = Entry::parse(&content).map_err(|error| {
            let error = if line.is_cut_off { error.cause("the file ends within this line") } else { error };
            error.at_line(line.number)
        })?;
        return Ok(Some((line.number, entry)));
    }
    Ok(None)
}

/// Writes entries in order, so that the last one of a key wins.
///
/// # Errors
/// A request failed; the message has the number of its line. The file cannot be read again.
pub async fn write(seed: Seed, client: &Client) -> Result<(), CommandError> {
    let mut source = match seed {
        Seed::File(file) => Source::Lines(Lines::of_file(&file, b'\n')?),
        Seed::Entries(entries) => Source::Entries(entries.into_iter()),
    };
    let next = async || {
        let entry = match &mut source {
            Source::Lines(lines) => next_entry(lines).await?,
            Source::Entries(entries) => entries.next(),
        };
        Ok(entry.map(|(number, entry)| {
            let options = SetOptions { ttl_ms: entry.ttl_ms, ..SetOptions::default() };
            (number, options.request(&entry.key, &entry.value))
        }))
    };
    let handle = |answer: Option<(u64, Result<Response, _>)>| match answer {
        Some((number, response)) => {
            let written = response.and_then(|response| SetOutcome::decode(response, None));
            written.map(drop).map_err(|error| CommandError::from(error).at_line(number))
        }
        None => Ok(()),
    };
    pipeline::for_all(None, client, next, handle).await
}

enum Source {
    Lines(Lines),
    Entries(vec::IntoIter<NumberedEntry>),
}
