//! Changes of the configuration file, which preserve comments and layout.

use super::args::{AddArgs, SetArgs};
use crate::cli::config::document::{self, Content};
use crate::cli::config::file::{File, check_name, of_syntax};
use crate::cli::config::location::Location;
use crate::cli::config::origin::{Origin, Rank};
use crate::cli::config::setting::{ContextOptions, Setting, Settings};
use crate::cli::config::value::{PathBases, RawValue, Value};
use crate::cli::config::variables::Variables;
use crate::cli::connection::Connection;
use crate::cli::options::{ConnectionArgs, DisplayArgs};
use crate::cli::resolve;
use crate::commands::configured::{ConfigRecord, FileChange, SettingValue};
use crate::commands::{CommandError, Kind};

/// Saves the options on the command line as a context.
///
/// # Errors
/// The options are invalid, the context exists already, or the file cannot be changed.
pub fn add(
    add: &AddArgs,
    args: &ConnectionArgs,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    check_name(&add.name).map_err(CommandError::usage)?;
    if args.context.is_some() || args.no_context {
        return Err(CommandError::usage("a context cannot refer to another context")
            .hint("mqkv context add NAME -b URL"));
    }
    let settings = typed(args, add.read_only.then_some(true), add.prompt_color.as_deref())?;
    if settings.iter().next().is_none() {
        let error = CommandError::usage("there is no option to save");
        return Err(error.hint(format!("mqkv context add {} -b URL", add.name)));
    }
    // Reports contradictions now, not at the first use.
    let settings = contents(settings)?;
    let _held = at.hold()?;
    let (text, file) = before(at, variables)?;
    let is_there = file.contexts.iter().any(|context| *context.name == *add.name);
    if is_there && !add.force {
        let message = format!("context {} exists already in {}", add.name, at.path.display());
        return Err(CommandError::new(Kind::Configuration, message).hint("--force replaces it"));
    }
    let mut text =
        document::put_context(&text, &add.name, &settings).map_err(|error| of_syntax(&at.path, &error))?;
    let is_first = file.contexts.is_empty();
    if is_first {
        text = document::set_default(&text, Some(&add.name)).map_err(|error| of_syntax(&at.path, &error))?;
    }
    write(at, &text, variables)?;
    let change = match (is_there, is_first) {
        (true, _) => FileChange::Replaced,
        (false, true) => FileChange::AddedAsDefault,
        (false, false) => FileChange::Added,
    };
    Ok(ConfigRecord::Changed { change, context: Some(add.name.clone()), file: at.path.clone() })
}

/// Changes the options of a context that are on the command line; they replace the ones that they exclude.
///
/// # Errors
/// The options are invalid, the context does not exist, or the file cannot be changed.
pub fn set(
    set: &SetArgs,
    args: &ConnectionArgs,
    at: &Location,
    variables: &Variables,
) -> Result<ConfigRecord, CommandError> {
    if args.context.is_some() || args.no_context {
        return Err(CommandError::usage("a context cannot refer to another context")
            .hint("mqkv context set NAME -b URL"));
    }
    let changes = typed(args, set.read_only, set.prompt_color.as_deref())?;
    if changes.iter().next().is_none() {
        let error = CommandError::usage("there is no option to change");
        return Err(error.hint(format!("mqkv context set {} -b URL", set.name)));
    }
    let _held = at.hold()?;
    let (text, file) = before(at, variables)?;
    let mut settings = changes.extended_by(&file.context(&set.name)?.settings);
    settings.set_rank(Rank::Flags);
    let settings = contents(settings)?;
    let text =
        document::put_context(&text, &set.name, &settings).map_err(|error| of_syntax(&at.path, &error))?;
    write(at, &text, variables)?;
    Ok(ConfigRecord::Changed {
        change: FileChange::Edited,
        context: Some(set.name.clone()),
        file: at.path.clone(),
    })
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
    let _held = at.hold()?;
    let (text, file) = before(at, variables)?;
    file.context(name)?;
    if file.contexts.iter().any(|context| *context.name == *new) {
        let message = format!("context {new} exists already in {}", at.path.display());
        return Err(CommandError::new(Kind::Configuration, message));
    }
    let invalid = |error| of_syntax(&at.path, &error);
    let mut text = document::rename_context(&text, name, new).map_err(invalid)?;
    if file.default.as_deref() == Some(name) {
        text = document::set_default(&text, Some(new)).map_err(invalid)?;
    }
    write(at, &text, variables)?;
    Ok(ConfigRecord::Changed {
        change: FileChange::Renamed,
        context: Some(new.to_owned()),
        file: at.path.clone(),
    })
}

/// Returns the options, and the settings that only contexts have.
fn typed(
    args: &ConnectionArgs,
    read_only: Option<bool>,
    prompt_color: Option<&str>,
) -> Result<Settings, CommandError> {
    let mut settings = Settings::of_options(
        args,
        &DisplayArgs::default(),
        &ContextOptions { read_only, prompt_color: None },
    )?;
    if let Some(color) = prompt_color {
        let raw = RawValue::Word(color.as_ref());
        let read = settings.read(Setting::PromptColor, raw, PathBases::default(), &Origin::FLAG);
        read.map_err(|what| CommandError::usage(format!("--prompt-color: {what}")))?;
    }
    Ok(settings)
}

/// Returns the keys of a context with their contents. Reports contradictions now, not at the first use.
fn contents(settings: Settings) -> Result<Vec<(String, Content)>, CommandError> {
    let contents = settings.iter().map(|(setting, value, _)| Ok((setting.key().to_owned(), content(value)?)));
    let contents = contents.collect::<Result<Vec<_>, CommandError>>();
    Connection::of(&Settings::resolve(vec![settings])?, resolve::process())?;
    contents
}

fn content(value: &dyn Value) -> Result<Content, CommandError> {
    if let Some(path) = value.path().filter(|path| path.as_os_str() != "-") {
        let path = std::path::absolute(path).map_err(|error| CommandError::file("find", path, &error))?;
        return path.into_os_string().into_string().map(Content::Text).map_err(|path| {
            CommandError::usage(format!("{}: the path is not UTF-8, as the file requires", path.display()))
        });
    }
    Ok(match value.typed() {
        SettingValue::Text(text) => Content::Text(text),
        SettingValue::Number(number) => Content::Number(number.into()),
        SettingValue::Switch(switch) => Content::Switch(switch),
    })
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
    let _held = at.hold()?;
    let (text, file) = before(at, variables)?;
    if let Some(name) = name {
        file.context(name)?;
    }
    let changed = document::set_default(&text, name).map_err(|error| of_syntax(&at.path, &error))?;
    if changed != text {
        write(at, &changed, variables)?;
    }
    let change = if name.is_some() { FileChange::Used } else { FileChange::NoneUsed };
    Ok(ConfigRecord::Changed { change, context: name.map(str::to_owned), file: at.path.clone() })
}

/// Removes a context. The last one may be the default.
///
/// # Errors
/// The context does not exist or is the default of several, or the file cannot be changed.
pub fn remove(name: &str, at: &Location, variables: &Variables) -> Result<ConfigRecord, CommandError> {
    let _held = at.hold()?;
    let (text, file) = before(at, variables)?;
    file.context(name)?;
    let is_default = file.default.as_deref() == Some(name);
    if is_default && file.contexts.len() > 1 {
        let error = CommandError::new(Kind::Configuration, format!("{name} is the default context"));
        return Err(error.hint("mqkv context use OTHER").hint("mqkv context use --none"));
    }
    let invalid = |error| of_syntax(&at.path, &error);
    let mut text = document::remove_context(&text, name).map_err(invalid)?;
    if is_default {
        text = document::set_default(&text, None).map_err(invalid)?;
    }
    write(at, &text, variables)?;
    Ok(ConfigRecord::Changed {
        change: FileChange::Removed,
        context: Some(name.to_owned()),
        file: at.path.clone(),
    })
}

/// Writes the text, if it is valid.
fn write(at: &Location, text: &str, variables: &Variables) -> Result<(), CommandError> {
    File::read(&at.path, text.as_bytes(), variables.home.as_deref())?;
    at.write(text.as_bytes())
}

/// Reads the file: its text and its content.
fn before(at: &Location, variables: &Variables) -> Result<(String, File), CommandError> {
    let bytes = at.read()?.unwrap_or_default();
    let file = File::read(&at.path, &bytes, variables.home.as_deref())?;
    // Lossless: `File::read` accepts UTF-8 only.
    Ok((String::from_utf8_lossy(&bytes).into_owned(), file))
}
