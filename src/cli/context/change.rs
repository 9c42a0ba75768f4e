//! Changes of the configuration file, which preserve comments and layout.

use std::fs;
use std::path::{Path, PathBuf};

use super::args::{AddArgs, SetArgs};
use crate::cli::config::document::{self, Content, Syntax};
use crate::cli::config::file::{File, check_name, of_syntax};
use crate::cli::config::location::Location;
use crate::cli::config::origin::{Origin, Rank};
use crate::cli::config::setting::{Setting, Settings, Sourced};
use crate::cli::config::value::{PathBases, RawValue, Shown};
use crate::cli::config::variables::Variables;
use crate::cli::connection::Connection;
use crate::cli::environment;
use crate::cli::options::{ConnectionArgs, DisplayArgs};
use crate::commands::config_record::{ConfigRecord, FileChange};
use crate::commands::{CommandError, Kind, duration};

/// A change of the file, which other processes cannot change meanwhile.
struct Change<'a> {
    at: &'a Location,
    variables: &'a Variables,
    /// The text, changed.
    text: String,
    /// The content before the change.
    file: File,
    _held: fs::File,
}

impl<'a> Change<'a> {
    /// Reads the file.
    fn begin(at: &'a Location, variables: &'a Variables) -> Result<Self, CommandError> {
        let held = at.hold()?;
        let bytes = at.read()?.unwrap_or_default();
        let file = File::read(&at.path, &bytes, variables.home.as_deref())?;
        // Lossless: `File::read` accepts UTF-8 only.
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
        Ok(Self { at, variables, text, file, _held: held })
    }

    /// Whether there is a context of this name.
    fn has(&self, name: &str) -> bool {
        self.file.contexts.iter().any(|context| *context.name == *name)
    }

    /// Returns the error if a new context has the name of another one.
    fn exists(&self, name: &str) -> CommandError {
        let message = format!("context {name} exists already in {}", self.at.path.display());
        CommandError::new(Kind::Configuration, message)
    }

    fn edit(&mut self, edit: impl FnOnce(&str) -> Result<String, Syntax>) -> Result<(), CommandError> {
        self.text = edit(&self.text).map_err(|error| of_syntax(&self.at.path, &error))?;
        Ok(())
    }

    /// Writes the text, if it is valid.
    fn write(self, change: FileChange, context: Option<&str>) -> Result<ConfigRecord, CommandError> {
        File::read(&self.at.path, self.text.as_bytes(), self.variables.home.as_deref())?;
        self.at.write(self.text.as_bytes())?;
        Ok(self.record(change, context))
    }

    fn record(self, change: FileChange, context: Option<&str>) -> ConfigRecord {
        ConfigRecord::Changed { change, context: context.map(str::to_owned), file: self.at.path.clone() }
    }
}

/// Saves the options on the command line as a context.
///
/// # Errors
/// The options are invalid, the context exists already, or the file cannot be changed.
pub fn add(
    AddArgs { name, read_only, prompt_color, force }: &AddArgs,
    args: &ConnectionArgs,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    check_name(name).map_err(CommandError::usage)?;
    let settings = typed(args, read_only.then_some(true), prompt_color.as_deref(), ("add", "save", name))?;
    let contents = contents(settings)?;
    let mut change = Change::begin(at, variables)?;
    let (is_there, is_first) = (change.has(name), change.file.contexts.is_empty());
    if is_there && !force {
        return Err(change.exists(name).hint("--force replaces it"));
    }
    change.edit(|text| document::put_context(text, name, &contents))?;
    if is_first {
        change.edit(|text| document::set_default(text, Some(name)))?;
    }
    let done = match (is_there, is_first) {
        (true, _) => FileChange::Replaced,
        (false, true) => FileChange::AddedAsDefault,
        (false, false) => FileChange::Added,
    };
    change.write(done, Some(name))
}

/// Changes the options of a context that are on the command line; they replace the ones that they exclude.
///
/// # Errors
/// The options are invalid, the context does not exist, or the file cannot be changed.
pub fn set(
    SetArgs { name, read_only, prompt_color }: &SetArgs,
    args: &ConnectionArgs,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    let settings = typed(args, *read_only, prompt_color.as_deref(), ("set", "change", name))?;
    let mut change = Change::begin(at, variables)?;
    let mut settings = settings.extended_by(&change.file.context(name)?.settings);
    settings.set_rank(Rank::Flags);
    let contents = contents(settings)?;
    change.edit(|text| document::put_context(text, name, &contents))?;
    change.write(FileChange::Edited, Some(name))
}

/// Renames a context, and the default if it is this one.
///
/// # Errors
/// The context does not exist, another one has the new name, or the file cannot be changed.
pub fn rename(
    name: &str,
    new: &str,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    check_name(new).map_err(CommandError::usage)?;
    let mut change = Change::begin(at, variables)?;
    change.file.context(name)?;
    if change.has(new) {
        return Err(change.exists(new));
    }
    change.edit(|text| document::rename_context(text, name, new))?;
    if change.file.default.as_deref() == Some(name) {
        change.edit(|text| document::set_default(text, Some(new)))?;
    }
    change.write(FileChange::Renamed, Some(new))
}

/// Sets or removes the default context.
///
/// # Errors
/// The context does not exist, or the file cannot be changed.
pub fn set_default(
    name: Option<&str>,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    let mut change = Change::begin(at, variables)?;
    if let Some(name) = name {
        change.file.context(name)?;
    }
    let before = change.text.clone();
    change.edit(|text| document::set_default(text, name))?;
    let done = if name.is_some() { FileChange::Used } else { FileChange::NoneUsed };
    if change.text == before { Ok(change.record(done, name)) } else { change.write(done, name) }
}

/// Removes a context. The last one may be the default.
///
/// # Errors
/// The context does not exist or is the default of several, or the file cannot be changed.
pub fn remove(name: &str, at: &Location, variables: &Variables) -> Result<ConfigRecord, CommandError> {
    let mut change = Change::begin(at, variables)?;
    change.file.context(name)?;
    let is_default = change.file.default.as_deref() == Some(name);
    if is_default && change.file.contexts.len() > 1 {
        let error = CommandError::new(Kind::Configuration, format!("{name} is the default context"));
        return Err(error.hint("mqkv context use OTHER").hint("mqkv context use --none"));
    }
    change.edit(|text| document::remove_context(text, name))?;
    if is_default {
        change.edit(|text| document::set_default(text, None))?;
    }
    change.write(FileChange::Removed, Some(name))
}

/// Returns the options, and the settings that only contexts have.
fn typed(
    args: &ConnectionArgs,
    read_only: Option<bool>,
    prompt_color: Option<&str>,
    (verb, what, name): (&str, &str, &str),
) -> Result<Settings, CommandError> {
    if args.context.is_some() || args.no_context {
        let error = CommandError::usage("a context cannot refer to another context");
        return Err(error.hint(format!("mqkv context {verb} NAME -b URL")));
    }
    let mut settings = Settings::of_options(args, &DisplayArgs::default())?;
    settings.read_only = read_only.map(Sourced::typed);
    if let Some(color) = prompt_color {
        let raw = RawValue::Word(color.as_ref());
        let read = settings.read(Setting::PromptColor, raw, PathBases::default(), &Origin::FLAG);
        read.map_err(|what| CommandError::usage(format!("--prompt-color: {what}")))?;
    }
    if settings.iter().next().is_none() {
        let error = CommandError::usage(format!("there is no option to {what}"));
        return Err(error.hint(format!("mqkv context {verb} {name} -b URL")));
    }
    Ok(settings)
}

/// Returns the keys of a context with their contents. Reports contradictions now, not at the first use.
fn contents(settings: Settings) -> Result<Vec<(String, Content)>, CommandError> {
    let contents = settings.iter().map(|(setting, value, _)| Ok((setting.key().to_owned(), content(value)?)));
    let contents = contents.collect::<Result<Vec<_>, CommandError>>();
    Connection::of(&Settings::resolve(vec![settings])?, environment::process())?;
    contents
}

fn content(value: Shown<'_>) -> Result<Content, CommandError> {
    Ok(match value {
        Shown::Text(text) => Content::Text(text.into_owned()),
        Shown::Number(number) => Content::Number(number.into()),
        Shown::Switch(is_on) => Content::Switch(is_on),
        // As one word, as users type it.
        Shown::Wait(wait) => Content::Text(duration::text(wait).replace(' ', "")),
        Shown::Path(path) => {
            let path = if path.as_os_str() == "-" { path.to_owned() } else { absolute(path)? };
            Content::Text(path.into_os_string().into_string().map_err(|path| {
                let path = path.display();
                CommandError::usage(format!("{path}: the path is not UTF-8, as the file requires"))
            })?)
        }
    })
}

fn absolute(path: &Path) -> Result<PathBuf, CommandError> {
    std::path::absolute(path).map_err(|error| CommandError::file("find", path, &error))
}
