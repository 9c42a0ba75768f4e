//! Reads and writes the entries of an export with which a server starts.

use std::path::{Path, PathBuf};
use std::vec;

use super::error::{CommandError, Place};
use super::lines::entry::Entry;
use super::lines::pipeline::{self, Source};
use super::lines::reader::{Line, Lines};
use crate::client::{Client, Error, RawRequest, Response, SetOptions, SetOutcome, unexpected_reply};
use crate::clock;
use crate::protocol::{Reply, Request, Timestamp};
use crate::render::counted;

/// An entry and its line.
type PlacedEntry = (Place, Entry);

/// The entries of a file that has been checked.
#[derive(Debug)]
pub enum Seed {
    /// A regular file, which is read again, so that memory does not depend on its size.
    File(PathBuf),
    /// What a pipe contained, or nothing.
    Entries(Vec<PlacedEntry>),
}

/// Opens a file. Blocks while it is a pipe that no process writes to.
pub fn open(file: &Path) -> Result<Lines, CommandError> {
    Lines::of_file(file, b'\n')
}

/// Checks all lines of a file.
pub async fn read(file: &Path, mut lines: Lines) -> Result<Seed, CommandError> {
    let is_regular = lines.bytes_total().is_some();
    let (mut entries, mut is_empty) = (Vec::new(), true);
    while let Some(line) = lines.next().await {
        let Some(entry) = entry(line)? else { continue };
        is_empty = false;
        if !is_regular {
            entries.push(entry);
        }
    }
    Ok(if is_regular && !is_empty { Seed::File(file.to_owned()) } else { Seed::Entries(entries) })
}

/// Returns the entry on a line; None if the line is empty.
fn entry(line: Line) -> Result<Option<PlacedEntry>, CommandError> {
    let Line { place, content, is_cut_off, .. } = line;
    let content = content.map_err(|error| error.with_place(place.clone()))?;
    if content.trim_ascii().is_empty() {
        return Ok(None);
    }
    let entry = Entry::parse(&content).map_err(|error| {
        let error = if is_cut_off { error.cause("the file ends within this line") } else { error };
        error.with_place(place.clone())
    })?;
    Ok(Some((place, entry)))
}

/// Writes entries in order to a store with a disk, so that the last one of a key wins. All become persistent, because only a new
/// store gets them.
///
/// # Errors
/// A request failed. The file cannot be read again.
pub async fn write(seed: Seed, client: &Client) -> Result<(), CommandError> {
    let source = Entries::of(seed)?;
    let mut set = 0_u64;
    let handle = |answer: Option<(Place, Result<Response, _>)>| match answer {
        Some((place, response)) => {
            response
                .and_then(|response| SetOutcome::decode(response, None))
                .map_err(|error| refused(error, place, set))?;
            set = set.saturating_add(1);
            Ok(())
        }
        None => Ok(()),
    };
    pipeline::for_all(None, client, source, handle).await
}

/// Returns the error of an entry that was not set, after `set` others.
fn refused(error: Error, place: Place, set: u64) -> CommandError {
    CommandError::from(error).with_place(place).cause(format!("{} set before it", counted(set, "key")))
}

/// How many entries are set before other tasks have a turn.
const ENTRIES_PER_TURN: u64 = 1_000;

/// Sets entries in order in a store that replies at once.
pub async fn set(
    seed: Seed,
    mut handle: impl FnMut(Request, Option<Timestamp>) -> Reply,
) -> Result<(), CommandError> {
    let mut entries = Entries::of(seed)?;
    let mut set = 0_u64;
    while let Some((place, entry)) = entries.next_entry().await? {
        if place.line.is_multiple_of(ENTRIES_PER_TURN) {
            // Signals are handled meanwhile.
            tokio::task::yield_now().await;
        }
        let Some(SetOptions { ttl_ms, fence, .. }) = entry.options(clock::wall_ms()) else { continue };
        let Entry { key, value, .. } = entry;
        match handle(Request::Set { key, value, condition: None, ttl_ms }, fence) {
            Reply::Done => set = set.saturating_add(1),
            other => return Err(refused(unexpected_reply("SET", &other), place, set)),
        }
    }
    Ok(())
}

enum Entries {
    Lines(Lines),
    Known(vec::IntoIter<PlacedEntry>),
}

impl Entries {
    fn of(seed: Seed) -> Result<Self, CommandError> {
        Ok(match seed {
            Seed::File(file) => Self::Lines(open(&file)?),
            Seed::Entries(entries) => Self::Known(entries.into_iter()),
        })
    }

    /// Returns the next entry if it is known already.
    fn try_next_entry(&mut self) -> Result<Option<PlacedEntry>, CommandError> {
        match self {
            Self::Lines(lines) => {
                while let Some(line) = lines.try_next() {
                    if let Some(entry) = entry(line)? {
                        return Ok(Some(entry));
                    }
                }
                Ok(None)
            }
            Self::Known(entries) => Ok(entries.next()),
        }
    }

    /// Returns the next entry; None at the end. Cancel-safe.
    async fn next_entry(&mut self) -> Result<Option<PlacedEntry>, CommandError> {
        match self {
            Self::Lines(lines) => {
                while let Some(line) = lines.next().await {
                    if let Some(entry) = entry(line)? {
                        return Ok(Some(entry));
                    }
                }
                Ok(None)
            }
            Self::Known(entries) => Ok(entries.next()),
        }
    }
}

impl Source for Entries {
    /// The line of the request.
    type Context = Place;

    fn try_next(&mut self) -> Result<Option<(Place, RawRequest)>, CommandError> {
        while let Some(entry) = self.try_next_entry()? {
            if let Some(request) = request(entry) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    async fn next(&mut self) -> Result<Option<(Place, RawRequest)>, CommandError> {
        while let Some(entry) = self.next_entry().await? {
            if let Some(request) = request(entry) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }
}

/// Returns the request of an entry; None if its key has expired.
fn request((place, entry): PlacedEntry) -> Option<(Place, RawRequest)> {
    let options = SetOptions { persist: true, ..entry.options(clock::wall_ms())? };
    Some((place, options.request(&entry.key, &entry.value)))
}
