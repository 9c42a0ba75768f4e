//! The verbs `completions` and `man`.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clap::ValueEnum;

use super::args::{CompletionsArgs, ManArgs, definition};
use super::completion_script::Shell;
pub use super::exit_codes::TABLE as EXIT_CODES;
use super::help::{manual, markdown};
use crate::commands::CommandError;

/// A file to write: its name and its contents.
pub type Generated = (OsString, Vec<u8>);

/// Returns the completion scripts of all shells.
#[must_use]
pub fn all_completions() -> Vec<Generated> {
    let scripts = Shell::value_variants().iter().map(|shell| shell.script());
    scripts.map(|(name, script)| (name.into(), script.into())).collect()
}

/// Returns the manual pages of the program and of each verb.
#[must_use]
pub fn man_pages() -> Vec<Generated> {
    manual::pages(&definition()).into_iter().map(|(name, page)| (name.into(), page.into_bytes())).collect()
}

/// Returns `docs/reference.md`: all verbs with their help.
#[must_use]
pub fn reference() -> String {
    markdown::page(&definition())
}

/// Returns the output of `completions`.
///
/// # Errors
/// The directory cannot be written.
pub fn completions(args: &CompletionsArgs) -> Result<Vec<u8>, CommandError> {
    if let Some(directory) = &args.all {
        write_all(directory, &all_completions())?;
        return Ok(Vec::new());
    }
    Ok(args.shell.map(|shell| shell.script().1.into()).unwrap_or_default())
}

/// Returns the output of `man`.
///
/// # Errors
/// The directory cannot be written.
pub fn man(args: &ManArgs) -> Result<Vec<u8>, CommandError> {
    let pages = man_pages();
    if let Some(verbs) = args.verbs() {
        let root = definition();
        let (mut name, mut command) = ("mqkv".to_owned(), Some(&root));
        for verb in &verbs {
            command = command.and_then(|command| command.find_subcommand(verb));
            name = format!("{name}-{}", command.map_or(verb.as_str(), |command| command.get_name()));
        }
        let file = OsString::from(format!("{name}.1"));
        let page = pages.into_iter().find(|(name, _)| *name == file);
        let unknown = || {
            let error = CommandError::usage(format!("unknown verb '{}'", verbs.join(" ")));
            error.hint("mqkv man ./DIR writes all pages")
        };
        return page.map(|(_, page)| page).ok_or_else(unknown);
    }
    if let Some(directory) = args.of.first() {
        write_all(directory, &pages)?;
        return Ok(Vec::new());
    }
    Ok(pages.into_iter().next().map(|(_, page)| page).unwrap_or_default())
}

fn write_all(directory: &Path, files: &[Generated]) -> Result<(), CommandError> {
    fs::create_dir_all(directory).map_err(|error| CommandError::file("create", directory, &error))?;
    files.iter().try_for_each(|(name, bytes)| {
        let path = directory.join(name);
        fs::write(&path, bytes).map_err(|error| CommandError::file("write", &path, &error))
    })
}
