//! Exchange files: what `serve --exchange` and `exchange check` read.

pub mod check;
pub mod file;

use std::path::Path;

use super::config::location::Location;
use super::resolve;
use crate::commands::{CommandError, Kind};
use file::ExchangeFile;

/// Reads and validates an exchange file. May block.
///
/// # Errors
/// The file cannot be read, or has mistakes: all of them are reported.
pub fn read(path: &Path) -> Result<ExchangeFile, CommandError> {
    let location = Location { path: path.to_owned(), named_by: None };
    let missing = || CommandError::new(Kind::File, format!("{} does not exist", path.display()));
    let bytes = location.read()?.ok_or_else(missing)?;
    ExchangeFile::read(path, &bytes, resolve::variables().home.as_deref())
}
