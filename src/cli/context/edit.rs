//! `context edit`: edits a copy of the file, which replaces the file only if it is valid.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::config::file::File;
use crate::cli::config::location::Location;
use crate::cli::config::setting::Settings;
use crate::cli::config::variables::Variables;
use crate::cli::connection::Connection;
use crate::cli::environment;
use crate::commands::config_record::{ConfigRecord, FileChange};
use crate::commands::process::{editor, file};
use crate::commands::{CommandError, Kind};
use crate::net::runtime_thread;
use crate::platform::Signals;

/// Content of a new file.
const TEMPLATE: &str = "\
# Contexts of mqkv; see `mqkv help config`.
#
# default_context = \"lab\"
#
# [context.lab]
# broker = \"mqtt://localhost:1883\"
#
# [context.prod]
# broker = \"mqtts://aio-broker:18883\"
# cafile = \"ca.crt\"
# sat_file = \"/var/run/secrets/tokens/broker-sat\"
# prompt_color = \"red\"
# read_only = true
";

/// Opens the file in the user's editor.
///
/// # Errors
/// The editor fails or the new content is invalid; the file is unchanged then.
pub fn edit(at: &Location, variables: &Variables) -> Result<ConfigRecord, CommandError> {
    let before = at.read()?;
    at.make_folder()?;
    let copy = beside(&at.path, &format!("edit-{}", std::process::id()));
    let text = before.clone().unwrap_or_else(|| TEMPLATE.as_bytes().to_vec());
    file::write_private(&copy, &text)?;
    let edited = run_editor(&copy)
        .and_then(|()| fs::read(&copy).map_err(|error| CommandError::file("read", &copy, &error)));
    let edited = match edited {
        Ok(edited) => edited,
        Err(error) => {
            let _ = fs::remove_file(&copy);
            return Err(error.cause(format!("{} is unchanged", at.path.display())));
        }
    };
    let changed = |change| ConfigRecord::Changed { change, context: None, file: at.path.clone() };
    if edited == text {
        let _ = fs::remove_file(&copy);
        return Ok(changed(FileChange::Unchanged));
    }
    let _held = at.hold()?;
    let broken = beside(&at.path, "broken");
    let result = if at.read()? == before {
        check(&broken, &edited, variables)
    } else {
        Err(CommandError::new(Kind::Configuration, "another process has changed the file in the meantime"))
    };
    if let Err(error) = result {
        let kept = match fs::rename(&copy, &broken) {
            Ok(()) => broken,
            Err(_) => copy,
        };
        let error = error.cause(format!("{} is unchanged", at.path.display()));
        return Err(error.cause(format!("your changes are in {}", kept.display())));
    }
    at.write(&edited)?;
    let _ = fs::remove_file(&copy);
    Ok(changed(FileChange::Edited))
}

/// Checks that every context can be used.
fn check(path: &Path, text: &[u8], variables: &Variables) -> Result<(), CommandError> {
    let file = File::read(path, text, variables.home.as_deref())?;
    if let Some(name) = &file.default {
        file.context(name).map_err(|error| error.cause("default_context names it"))?;
    }
    for context in &file.contexts {
        Connection::of(&Settings::resolve(vec![context.settings.clone()])?, environment::process())?;
    }
    Ok(())
}

fn run_editor(copy: &Path) -> Result<(), CommandError> {
    let failed = |error: io::Error| editor::failed(&error.to_string());
    let runtime = runtime_thread::runtime().map_err(failed)?;
    let ended_by = runtime.block_on(async {
        let mut signals = Signals::new().map_err(failed)?;
        editor::run(&environment::editor(), copy, &mut signals).await
    })?;
    match ended_by {
        None => Ok(()),
        Some(signal) => {
            // The copy stays: the editor may have saved changes.
            signal.take_effect();
            Err(CommandError::new(Kind::Terminated, "the editor was ended by a signal"))
        }
    }
}

/// Returns a path in the same directory, because relative paths in the file are relative to it.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!(".{what}.toml"));
    path.with_file_name(name)
}
