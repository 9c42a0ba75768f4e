//! `context`: the contexts of the configuration file, listed, shown, changed and tried.

mod change;
mod edit;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::args::ConnectionArgs;
use super::config::file::{Context, File};
use super::config::layers::{Layer, Settled};
use super::config::location::{self, Location};
use super::config::setting::{Setting, Value};
use super::config::variables::Variables;
use super::config::{self, Configuration, verb};
use super::connection::{Place, place};
use crate::commands::configured::{Configured, Listed};
use crate::commands::{CommandError, Kind, Verdict};

const EXAMPLES: &str = "\
Examples:
  mqkv context add lab -b mqtt://lab:1883
  mqkv context add prod -b mqtts://aio-broker:18883 -T ca.crt --sat-file token --read-only --prompt-color red
  mqkv context use lab                  the default from now on
  mqkv get k -x prod                    another one, for once
  mqkv context test prod

Contexts are kept in the file that `mqkv config path` names. `mqkv help config` says what else can be in it.";

/// List, show, change and try contexts: brokers with all that belongs to them, under a name
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = false)]
pub struct ContextArgs {
    #[command(subcommand)]
    pub verb: ContextVerb,
}

/// What `context` does.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub enum ContextVerb {
    /// List the contexts
    Ls,
    /// Keep the flags of the connection under a name
    ///
    /// What is typed is kept and nothing else; paths become absolute.
    Add(AddArgs),
    /// Make a context the default one
    Use {
        /// The context
        #[arg(value_name = "NAME", required_unless_present = "none", conflicts_with = "none")]
        name: Option<String>,
        /// Have no default context
        #[arg(long)]
        none: bool,
    },
    /// Show a context, or the one that is in use
    Show {
        /// The context
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
    /// Open the file in $VISUAL or $EDITOR; it is checked before it counts
    Edit,
    /// Remove a context
    Rm {
        /// The context
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Connect and ping with a context, or with the one that is in use
    Test {
        /// The context
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// What is kept beside the flags of the connection.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Refuse to write through this context, unless --force-write
    #[arg(long)]
    pub read_only: bool,
    /// The colour of its name in the prompt
    #[arg(long, value_name = "COLOUR")]
    pub prompt_color: Option<String>,
    /// Replace a context of this name
    #[arg(long)]
    pub force: bool,
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// A record is to be told.
    Told(Configured, Verdict),
    /// This context is to be tried; none: the one in use.
    Test(Option<String>),
}

/// Runs the verb.
///
/// # Errors
/// The file cannot be read or written, or makes no sense; there is no such context.
pub fn run(verb: &ContextVerb, args: &ConnectionArgs, variables: &Variables) -> Result<Done, CommandError> {
    let at = || location::find_any(args.config.as_deref(), variables);
    let told = |record| Ok(Done::Told(record, Verdict::Yes));
    match verb {
        ContextVerb::Ls => told(list(&config::file(args, variables)?)),
        ContextVerb::Show { name } => show(name.as_deref(), args, variables),
        ContextVerb::Add(add) => told(change::add(add, args, &at()?, variables)?),
        ContextVerb::Use { name, .. } => told(change::set_default(name.as_deref(), &at()?, variables)?),
        ContextVerb::Rm { name } => told(change::remove(name, &at()?, variables)?),
        ContextVerb::Edit => told(edit::edit(&at()?, variables)?),
        ContextVerb::Test { name } => {
            let is_any = name.is_some()
                || Configuration::settle(args, &Default::default(), variables)?.context.is_some();
            if !is_any {
                let error = CommandError::new(Kind::Configuration, "no context is in use");
                return Err(error.hint("mqkv context test NAME").hint("mqkv context use NAME"));
            }
            Ok(Done::Test(name.clone()))
        }
    }
}

fn list(file: &File) -> Configured {
    let listed = |context: &Context| Listed {
        name: context.name.to_string(),
        broker: broker(&context.layer),
        is_default: file.default.as_deref() == Some(&context.name),
        is_read_only: context
            .layer
            .entries
            .iter()
            .any(|entry| entry.setting == Setting::ReadOnly && entry.value == Value::Switch(true)),
    };
    Configured::Contexts(file.contexts.iter().map(listed).collect())
}

/// Where the broker of a context alone is.
fn broker(layer: &Layer) -> String {
    let place = Settled::of(vec![layer.clone()]).and_then(|settled| place(&settled));
    match place {
        Ok(Place::Embedded { data: Some(folder) }) => format!("embedded in {}", folder.display()),
        Ok(Place::Embedded { data: None }) => "embedded, in memory".to_owned(),
        Ok(place) => place.url().unwrap_or_default(),
        Err(error) => format!("({})", error.message),
    }
}

fn show(name: Option<&str>, args: &ConnectionArgs, variables: &Variables) -> Result<Done, CommandError> {
    let named = ConnectionArgs { context: name.map(str::to_owned), ..args.clone() };
    let args = if name.is_some() { &named } else { args };
    let Some(active) = Configuration::settle(args, &Default::default(), variables)?.context else {
        return Ok(Done::Told(Configured::NoContext, Verdict::No));
    };
    let file = config::file(args, variables)?;
    let context = file.context(&active.name)?;
    let record = Configured::Context {
        name: context.name.to_string(),
        file: file.path.to_path_buf(),
        is_default: file.default.as_deref() == Some(&context.name),
        settings: verb::rows(&context.layer.entries),
    };
    Ok(Done::Told(record, Verdict::Yes))
}

/// The file's text, and what it says, before it is changed.
fn before(at: &Location, variables: &Variables) -> Result<(String, File), CommandError> {
    let bytes = at.read()?.unwrap_or_default();
    let file = File::read(&at.path, &bytes, variables.home.as_deref())?;
    // It was read, so it is UTF-8.
    Ok((String::from_utf8_lossy(&bytes).into_owned(), file))
}

/// Where a path points to, wherever it is read.
fn absolute(path: &PathBuf) -> Result<PathBuf, CommandError> {
    std::path::absolute(path).map_err(|error| CommandError::file("find", path, &error))
}
