//! Reads and writes the entries of an export for a server that begins with them.

use std::path::Path;

use super::error::CommandError;
use super::import;
use crate::client::Client;
use crate::commands::lines::pipeline::{INFLIGHT, Window};
use crate::commands::lines::reader::Lines;
use crate::commands::lines::records;
use crate::commands::lines::records::Entry;

/// Reads all entries of a file, each with the number of its line.
///
/// # Errors
/// The file cannot be read, or a line of it; that one is named.
pub async fn read(file: &Path) -> Result<Vec<(u64, Entry)>, CommandError> {
    let mut lines = Lines::of_file(file, b'\n')?;
    let mut entries = Vec::new();
    while let Some(line) = lines.next().await {
        let content = line.content.map_err(|error| error.at_line(line.number))?;
        if content.trim_ascii().is_empty() {
            continue;
        }
        match records::entry(&content) {
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

/// Writes entries in their order, so the last one of a key wins.
///
/// # Errors
/// The store refuses one; its line is named.
pub async fn write(entries: Vec<(u64, Entry)>, client: &Client) -> Result<(), CommandError> {
    let mut window = Window::new(INFLIGHT);
    let mut entries = entries.into_iter();
    loop {
        while window.has_room()
            && let Some((number, entry)) = entries.next()
        {
            let size = entry.value.len();
            let flight = async move {
                import::write(entry, None, client).await.map_err(|error| error.at_line(number))
            };
            window.push(size, flight);
        }
        if window.is_empty() {
            return Ok(());
        }
        window.settle().await;
        while let Some(outcome) = window.try_next() {
            outcome?;
        }
    }
}
