//! `completions` and `man`: generated from the one definition of the command line.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::args::{Cli, CompletionsArgs, ManArgs};
use crate::commands::{CommandError, Kind};

/// A generated file: its name and what it holds.
pub type Generated = (OsString, Vec<u8>);

/// The completions of all shells.
#[must_use]
pub fn all_completions() -> Vec<Generated> {
    use clap::ValueEnum;
    use clap_complete::Generator;
    Shell::value_variants()
        .iter()
        .map(|shell| (shell.file_name("mqkv").into(), completions_for(*shell)))
        .collect()
}

/// The manual pages of the program and of each verb.
///
/// # Errors
/// Never in practice: they are written to memory.
pub fn man_pages() -> io::Result<Vec<Generated>> {
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    pages_of(&root, &mut pages)?;
    Ok(pages)
}

/// What `completions` puts out.
///
/// # Errors
/// The folder cannot be written to.
pub fn completions(args: &CompletionsArgs) -> Result<Vec<u8>, CommandError> {
    if let Some(folder) = &args.all {
        write_all(folder, &all_completions())?;
        return Ok(Vec::new());
    }
    Ok(args.shell.map(completions_for).unwrap_or_default())
}

/// What `man` puts out.
///
/// # Errors
/// The folder cannot be written to.
pub fn man(args: &ManArgs) -> Result<Vec<u8>, CommandError> {
    let pages = man_pages().map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
    if let Some(folder) = &args.dir {
        write_all(folder, &pages)?;
        return Ok(Vec::new());
    }
    Ok(pages.into_iter().next().map(|(_, page)| page).unwrap_or_default())
}

fn completions_for(shell: Shell) -> Vec<u8> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mqkv", &mut out);
    out
}

/// The page of a command, then those of the commands below it.
fn pages_of(command: &Command, pages: &mut Vec<Generated>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    pages.push((man.get_filename().into(), page));
    command.get_subcommands().try_for_each(|below| pages_of(below, pages))
}

fn write_all(folder: &Path, files: &[Generated]) -> Result<(), CommandError> {
    fs::create_dir_all(folder).map_err(|error| CommandError::file("create", folder, &error))?;
    files.iter().try_for_each(|(name, bytes)| {
        let path = folder.join(name);
        fs::write(&path, bytes).map_err(|error| CommandError::file("write", &path, &error))
    })
}
