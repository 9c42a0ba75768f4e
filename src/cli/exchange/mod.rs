//! Exchange files: what `serve --exchange` and `exchange check` read.

pub mod check;
pub mod file;

use std::path::Path;

use super::config::location::Location;
use super::environment;
use crate::commands::CommandError;
use file::ExchangeFile;

/// Reads and validates an exchange file. May block.
///
/// # Errors
/// The file cannot be read, or has mistakes: all of them are reported.
pub fn read(path: &Path) -> Result<ExchangeFile, CommandError> {
    let location = Location { path: path.to_owned(), named_by: None };
    let bytes = location.read()?.ok_or_else(|| CommandError::missing_file(path))?;
    ExchangeFile::read(path, &bytes, environment::variables().home.as_deref())
}
