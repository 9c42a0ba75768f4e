//! The verbs `completions` and `man`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory, ValueEnum};
use clap_mangen::Man;

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::completion::stub::Shell;
use crate::commands::{CommandError, Kind};

/// A file to write: its name and its contents.
pub type Generated = (OsString, Vec<u8>);

/// Returns the completion scripts of all shells.
#[must_use]
pub fn all_completions() -> Vec<Generated> {
    let scripts = Shell::value_variants().iter().map(|shell| shell.script());
    scripts.map(|(name, script)| (name.into(), script.into())).collect()
}

/// Returns the manual pages of the program and of each verb.
///
/// # Errors
/// None in practice: the pages are written to memory.
pub fn man_pages() -> io::Result<Vec<Generated>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    add_pages(&root, &mut pages)?;
    Ok(pages)
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
    let pages = man_pages().map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
    if let Some(directory) = &args.dir {
        write_all(directory, &pages)?;
        return Ok(Vec::new());
    }
    Ok(pages.into_iter().next().map(|(_, page)| page).unwrap_or_default())
}

/// Renders the page of a command, then the pages of the commands below it.
fn add_pages(command: &Command, pages: &mut Vec<Generated>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename().into(), page));
    command.get_subcommands().try_for_each(|below| add_pages(below, pages))
}

fn write_all(directory: &Path, files: &[Generated]) -> Result<(), CommandError> {
    fs::create_dir_all(directory).map_err(|error| CommandError::file("create", directory, &error))?;
    files.iter().try_for_each(|(name, bytes)| {
        let path = directory.join(name);
        fs::write(&path, bytes).map_err(|error| CommandError::file("write", &path, &error))
    })
}
