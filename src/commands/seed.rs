//! Reads and writes the entries of an export with which a server starts.

use std::path::Path;

use super::error::CommandError;
use super::lines::pipeline;
use super::lines::reader::Lines;
use super::lines::entry::Entry;
use crate::client::{Client, Response, SetOptions, SetOutcome};

/// Reads all entries of a file, each with the number of its line.
///
/// # Errors
/// The file cannot be read, or a line is invalid; the message has its number.
pub async fn read(file: &Path) -> Result<Vec<(u64, Entry)>, CommandError> {
    let mut lines = Lines::of_file(file, b'\n')?;
    let mut entries = Vec::new();
    while let Some(line) = lines.next().await {
        let content = line.content.map_err(|error| error.at_line(line.number))?;
        if content.trim_ascii().is_empty() {
            continue;
        }
        match Entry::parse(&content) {
            Ok(entry) => entries.push((line.number, entry)),
            Err(error) => {
                let error =
                    if line.is_cut_off { error.cause("the file ends within this line") } else { error };
                return Err(error.at_line(line.number));
            }
        }
    }
    Ok(entries)
}

/// Writes entries in order, so that the last one of a key wins.
///
/// # Errors
/// A request failed; the message has the number of its line.
pub async fn write(entries: Vec<(u64, Entry)>, client: &Client) -> Result<(), CommandError> {
    let mut entries = entries.into_iter();
    let next = async || {
        Ok(entries.next().map(|(number, entry)| {
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
