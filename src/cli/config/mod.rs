//! The configuration: what was typed, variables, the contexts of a file, and which of them has the say.

pub mod document;
pub mod file;
pub mod layers;
pub mod location;
pub mod origin;
pub mod setting;
mod suggestions;
pub mod typed;
pub mod variables;
pub mod verb;

use std::path::PathBuf;
use std::rc::Rc;

use self::file::{Context, File};
use self::layers::{Entry, Layer, Rank, Resolved};
use self::location::Location;
use self::origin::{Line, Origin};
use self::setting::{Setting, Value};
use self::variables::{CONTEXT, Variables};
use super::options::{ConnectionArgs, DisplayArgs};
use crate::commands::{CommandError, Kind};
use crate::render::style::Shade;

/// What is so, all layers considered.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The settings.
    pub settings: Resolved,
    /// The context that has a say on where the broker is, or could have had.
    pub context: Option<Active>,
}

/// A context in use.
#[derive(Clone, Debug)]
pub struct Active {
    /// Its name.
    pub name: Rc<str>,
    /// Its file.
    pub file: Rc<PathBuf>,
    /// The colour of its name in the prompt.
    pub shade: Option<Shade>,
}

/// What names a context, and how high that puts it.
#[derive(Clone, Copy, Debug)]
enum Named<'a> {
    Typed(&'a str),
    Variable(&'a str),
    Default,
}

impl Configuration {
    /// Settles everything.
    ///
    /// # Errors
    /// Something that was typed, set or written makes no sense.
    pub fn resolve(
        connection: &ConnectionArgs,
        display: &DisplayArgs,
        variables: &Variables,
    ) -> Result<Self, CommandError> {
        let flags = typed::layer(connection, display)?;
        let mut layers = vec![variables.layer()?];
        layers.extend(variables.sdk_layer()?);
        let context = context(connection, &flags, variables)?;
        layers.push(flags);
        layers.extend(context.as_ref().map(|(context, _)| context.layer.clone()));
        layers.sort_by_key(|layer| layer.rank);
        let settings = Resolved::of(layers)?;
        let context = context.filter(|(context, _)| {
            let rank = context.layer.rank;
            // Where somebody else says where the broker is, a default context is not what the user works with.
            rank != Rank::DefaultContext || settings.rank_of_broker().is_none_or(|place| place == rank)
        });
        let context = context.map(|(context, file)| {
            let shade = match settings.get(Setting::PromptColor) {
                Some(Entry { value: Value::Shade(shade), .. }) => Some(*shade),
                _ => None,
            };
            Active { name: context.name, file, shade }
        });
        Ok(Self { settings, context })
    }

    /// The settings of the display alone, from flags and variables: for what never asks a broker.
    ///
    /// # Errors
    /// A variable makes no sense.
    pub fn of_display(display: &DisplayArgs, variables: &Variables) -> Result<Self, CommandError> {
        let flags = typed::layer(&ConnectionArgs::default(), display)?;
        let settings = Resolved::of(vec![flags, variables.layer()?])?;
        Ok(Self { settings, context: None })
    }

    /// What was typed alone: for what must work whatever else makes no sense.
    #[must_use]
    pub fn typed(display: &DisplayArgs) -> Self {
        let flags = typed::layer(&ConnectionArgs::default(), display);
        let settings = flags.and_then(|flags| Resolved::of(vec![flags])).unwrap_or_default();
        Self { settings, context: None }
    }

    /// The line that makes the context in use read-only, if one does.
    #[must_use]
    pub fn read_only(&self) -> Option<&Line> {
        let entry =
            self.settings.get(Setting::ReadOnly).filter(|entry| entry.value == Value::Switch(true))?;
        match &entry.origin {
            Origin::File(line) if self.context.is_some() => Some(line),
            _ => None,
        }
    }
}

/// The context that is to be used, with its rank, and its file.
fn context(
    connection: &ConnectionArgs,
    flags: &Layer,
    variables: &Variables,
) -> Result<Option<(Context, Rc<PathBuf>)>, CommandError> {
    if connection.no_context {
        // Clap rejects both on one side of the verb only.
        if connection.context.is_some() {
            let message = "--context cannot be used with --no-context";
            return Err(CommandError::usage(message).hint("use one of the two"));
        }
        return Ok(None);
    }
    if connection.context.as_deref() == Some("") {
        return Err(CommandError::usage("-x takes the name of a context").hint("mqkv context ls"));
    }
    let named = match (&connection.context, variables.get(CONTEXT)) {
        (Some(name), _) => Named::Typed(name),
        (None, Some(name)) => Named::Variable(name.to_str().unwrap_or("\u{fffd}")),
        // It would have no say.
        (None, None) if flags.names_target() && connection.config.is_none() => return Ok(None),
        (None, None) => Named::Default,
    };
    let location = location::find(connection.config.as_deref(), variables);
    let file = location.as_ref().map_or(Ok(None), |location| location.load(variables))?;
    let Some(file) = file else {
        return missing(named, location.as_ref()).map_or(Ok(None), Err);
    };
    let (name, rank) = match (named, &file.default) {
        (Named::Default, _) if flags.names_target() => return Ok(None),
        (Named::Typed(name), _) => (name, Rank::TypedContext),
        (Named::Variable(name), _) => (name, Rank::NamedContext),
        (Named::Default, Some(name)) => (name.as_str(), Rank::DefaultContext),
        (Named::Default, None) => return Ok(None),
    };
    let mut context = file.context(name).map_err(|error| because(named, error))?.clone();
    context.layer.rank = rank;
    Ok(Some((context, Rc::clone(&file.path))))
}

/// What is wrong, if there is no file.
fn missing(named: Named<'_>, location: Option<&Location>) -> Option<CommandError> {
    let file = match location {
        Some(location) => format!("there is no file {}", location.path.display()),
        None => "there is no place for the configuration file: HOME is not set".to_owned(),
    };
    let configuration = |message: String| CommandError::new(Kind::Configuration, message);
    let named_by = location.and_then(|location| location.named_by);
    match (named, named_by) {
        (Named::Typed(name) | Named::Variable(name), _) => {
            let error = configuration(format!("there is no context {name}: {file}"));
            let error = because(named, error);
            Some(error.hint(format!("mqkv context add {name} -b URL")))
        }
        (Named::Default, Some(by)) => Some(configuration(file).cause(format!("{by} names it"))),
        (Named::Default, None) => None,
    }
}

/// Whoever has not typed the name does not see where it comes from.
fn because(named: Named<'_>, error: CommandError) -> CommandError {
    match named {
        Named::Typed(_) => error,
        Named::Variable(_) => error.cause(format!("{CONTEXT} names it")),
        Named::Default => error.cause("default_context names it"),
    }
}

/// What is in the file, for whoever wants to see all of it.
///
/// # Errors
/// It cannot be read, or makes no sense.
pub fn file(connection: &ConnectionArgs, variables: &Variables) -> Result<File, CommandError> {
    let location = location::find_any(connection.config.as_deref(), variables)?;
    Ok(match location.load(variables)? {
        Some(file) => file,
        None => File { path: Rc::new(location.path), ..File::default() },
    })
}
