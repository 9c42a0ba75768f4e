//! The configuration in effect: all layers resolved, and the context in use.

use std::path::PathBuf;
use std::rc::Rc;

use super::file::{Context, File};
use super::location::{self, Location};
use super::origin::{Line, Rank, Source};
use super::setting::{Settings, value};
use super::variables::{CONTEXT, Variables};
use crate::cli::options::{ConnectionArgs, DisplayArgs};
use crate::commands::{CommandError, Kind};
use crate::render::style::CustomColor;

/// The settings in effect.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub settings: Settings,
    /// The context in use, even if a higher layer overrides all of its settings.
    pub context: Option<Active>,
}

/// A context in use.
#[derive(Clone, Debug)]
pub struct Active {
    pub name: Rc<str>,
    pub file: Rc<PathBuf>,
    /// Color of the name at the prompt.
    pub shade: Option<CustomColor>,
}

impl Configuration {
    pub fn resolve(
        connection: &ConnectionArgs,
        display: &DisplayArgs,
        variables: &Variables,
    ) -> Result<Self, CommandError> {
        let flags = Settings::of_options(connection, display)?;
        let mut layers = vec![variables.layer()?, variables.sdk_layer()?];
        let context = context(connection, &flags, variables)?;
        layers.push(flags);
        layers.extend(context.as_ref().map(|(context, ..)| context.settings.clone()));
        let settings = Settings::resolve(layers)?;
        let context = context.filter(|(_, rank, _)| {
            // A default context is not in use if another layer names the broker.
            *rank != Rank::DefaultContext || settings.rank_of_broker().is_none_or(|broker| broker == *rank)
        });
        let shade = value(&settings.prompt_color).copied();
        let context = context.map(|(context, _, file)| Active { name: context.name, file, shade });
        Ok(Self { settings, context })
    }

    /// Resolves the output settings from options and variables, for verbs that do not connect.
    pub fn of_display(display: &DisplayArgs, variables: &Variables) -> Result<Self, CommandError> {
        let settings = Settings::resolve(vec![of_display(display)?, variables.layer()?])?;
        Ok(Self { settings, context: None })
    }

    /// Resolves the output options alone, for output that must work with an invalid configuration.
    #[must_use]
    pub fn typed(display: &DisplayArgs) -> Self {
        let settings =
            of_display(display).and_then(|flags| Settings::resolve(vec![flags])).unwrap_or_default();
        Self { settings, context: None }
    }

    /// Returns the line that makes the context in use read-only.
    #[must_use]
    pub fn read_only(&self) -> Option<&Line> {
        let is_read_only = self.settings.read_only.as_ref().filter(|is_read_only| is_read_only.value)?;
        match &is_read_only.origin.source {
            Source::File(line) if self.context.is_some() => Some(line),
            _ => None,
        }
    }
}

fn of_display(display: &DisplayArgs) -> Result<Settings, CommandError> {
    Settings::of_options(&ConnectionArgs::default(), display)
}

/// Returns the context to use, with its rank, and its file.
fn context(
    connection: &ConnectionArgs,
    flags: &Settings,
    variables: &Variables,
) -> Result<Option<(Context, Rank, Rc<PathBuf>)>, CommandError> {
    if connection.no_context {
        // Clap rejects both on one side of the verb only.
        if connection.context.is_some() {
            let message = "--context cannot be used with --no-context";
            return Err(CommandError::usage(message).hint("use one of the two"));
        }
        return Ok(None);
    }
    if connection.context.as_deref() == Some("") {
        return Err(CommandError::usage("-x requires the name of a context").hint("mqkv context ls"));
    }
    // The source of the name determines the rank of the context.
    let (named, rank) = match (&connection.context, variables.get(CONTEXT)) {
        (Some(name), _) => (Some(name.as_str()), Rank::TypedContext),
        (None, Some(name)) => (Some(name.to_str().unwrap_or("\u{fffd}")), Rank::NamedContext),
        // A default context would have no effect: the file is not read.
        (None, None) if flags.names_target() && connection.config.is_none() => return Ok(None),
        (None, None) => (None, Rank::DefaultContext),
    };
    let location = location::find(connection.config.as_deref(), variables);
    let file = location.as_ref().map_or(Ok(None), |location| location.load(variables))?;
    let Some(file) = file else {
        return missing_file(named, rank, location.as_ref()).map_or(Ok(None), Err);
    };
    let default = file.default.as_deref().filter(|_| !flags.names_target());
    let Some(name) = named.or(default) else { return Ok(None) };
    let mut context = file.context(name).map_err(|error| with_source(rank, error))?.clone();
    context.settings.set_rank(rank);
    Ok(Some((context, rank, Rc::clone(&file.path))))
}

/// Returns the error if a context or file is named and there is no file.
fn missing_file(named: Option<&str>, rank: Rank, location: Option<&Location>) -> Option<CommandError> {
    let file = match location {
        Some(location) => CommandError::missing_file(&location.path).message,
        None => "no configuration file: HOME is not set".to_owned(),
    };
    let configuration = |message: String| CommandError::new(Kind::Configuration, message);
    if let Some(name) = named {
        let error = with_source(rank, configuration(format!("unknown context {name}: {file}")));
        return Some(error.hint(format!("mqkv context add {name} -b URL")));
    }
    let named_by = location.and_then(|location| location.named_by)?;
    Some(configuration(file).cause(format!("set by {named_by}")))
}

/// Adds where the name of the context comes from, unless it is on the command line.
fn with_source(rank: Rank, error: CommandError) -> CommandError {
    match rank {
        Rank::NamedContext => error.cause(format!("set by {CONTEXT}")),
        Rank::DefaultContext => error.cause("set by default_context"),
        _ => error,
    }
}

/// Returns the names of the contexts in the configuration file; none if it cannot be read.
#[must_use]
pub fn context_names(connection: &ConnectionArgs, variables: &Variables) -> Vec<String> {
    let contexts = whole_file(connection, variables).map(|file| file.contexts).unwrap_or_default();
    contexts.iter().map(|context| context.name.to_string()).collect()
}

/// Reads the whole configuration file; it is empty if there is none.
pub fn whole_file(connection: &ConnectionArgs, variables: &Variables) -> Result<File, CommandError> {
    let location = location::find_any(connection.config.as_deref(), variables)?;
    Ok(match location.load(variables)? {
        Some(file) => file,
        None => File { path: Rc::new(location.path), ..File::default() },
    })
}
