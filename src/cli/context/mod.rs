//! `context`: lists, shows, changes and tests the contexts of the configuration file.

pub mod args;
mod change;
pub mod config;
mod edit;

use self::args::ContextVerb;
use super::config::file::{Context, File};
use super::config::setting::{Settings, is_on};
use super::config::variables::{CONTEXT, Variables};
use super::config::{Configuration, location, whole_file};
use super::connection::{Endpoint, endpoint};
use super::options::ConnectionArgs;
use crate::commands::config_record::{ConfigRecord, ContextRow};
use crate::commands::{CommandError, Exit, Kind};

/// What is left to do after the verb.
#[derive(Debug)]
pub enum Done {
    /// Print the record, and what overrides the context.
    Record(ConfigRecord, Option<String>, Exit),
    /// Test this context, or the one in use if `None`.
    Test(Option<String>),
}

pub fn run(verb: &ContextVerb, args: &ConnectionArgs, variables: &Variables) -> Result<Done, CommandError> {
    let at = || location::find_any(args.config.as_deref(), variables);
    let done = |record| Ok(Done::Record(record, None, Exit::Yes));
    let changed_default = |record| Ok(Done::Record(record, overriding(args, variables), Exit::Yes));
    match verb {
        ContextVerb::Ls => done(list(&whole_file(args, variables)?)),
        ContextVerb::Show { name } => show(name.as_deref(), args, variables),
        ContextVerb::Add(add) => changed_default(change::add(add, args, &at()?, variables)?),
        ContextVerb::Set(set) => done(change::set(set, args, &at()?, variables)?),
        ContextVerb::Rename { name, new } => done(change::rename(name, new, &at()?, variables)?),
        ContextVerb::Use { name, .. } => {
            changed_default(change::set_default(name.as_deref(), &at()?, variables)?)
        }
        ContextVerb::Rm { name } => done(change::remove(name, &at()?, variables)?),
        ContextVerb::Edit => done(edit::edit(&at()?, variables)?),
        ContextVerb::Test { name } => {
            let is_any = name.is_some()
                || Configuration::resolve(args, &Default::default(), variables)?.context.is_some();
            if !is_any {
                let error = CommandError::new(Kind::Configuration, "no context is in use");
                let change =
                    overriding(args, variables).unwrap_or_else(|| "mqkv context use NAME".to_owned());
                return Err(error.hint("mqkv context test NAME").hint(change));
            }
            Ok(Done::Test(name.clone()))
        }
    }
}

fn list(file: &File) -> ConfigRecord {
    let listed = |context: &Context| ContextRow {
        name: context.name.to_string(),
        broker: broker(&context.settings),
        is_default: file.default.as_deref() == Some(&context.name),
        is_read_only: is_on(&context.settings.read_only),
    };
    ConfigRecord::Contexts(file.contexts.iter().map(listed).collect())
}

/// Describes the broker of a context without other layers.
fn broker(context: &Settings) -> String {
    let endpoint = Settings::resolve(vec![context.clone()]).and_then(|settings| endpoint(&settings));
    match endpoint {
        Ok(Endpoint::Embedded { data: Some(folder) }) => format!("embedded in {}", folder.display()),
        Ok(Endpoint::Embedded { data: None }) => "embedded, in memory".to_owned(),
        Ok(endpoint) => endpoint.url().unwrap_or_default(),
        Err(error) => format!("({})", error.message),
    }
}

fn show(name: Option<&str>, args: &ConnectionArgs, variables: &Variables) -> Result<Done, CommandError> {
    let named = ConnectionArgs { context: name.map(str::to_owned), ..args.clone() };
    let args = if name.is_some() { &named } else { args };
    let Some(active) = Configuration::resolve(args, &Default::default(), variables)?.context else {
        return Ok(Done::Record(ConfigRecord::NoContext, overriding(args, variables), Exit::No));
    };
    let file = whole_file(args, variables)?;
    let context = file.context(&active.name)?;
    let record = ConfigRecord::Context {
        name: context.name.to_string(),
        file: file.path.to_path_buf(),
        is_default: file.default.as_deref() == Some(&context.name),
        settings: config::rows(&context.settings),
    };
    Ok(Done::Record(record, None, Exit::Yes))
}

/// Returns the hint that a variable overrides the default context, if one does. Variables that are invalid are no error
/// here: the file has been changed by now.
fn overriding(args: &ConnectionArgs, variables: &Variables) -> Option<String> {
    let args = ConnectionArgs { config: args.config.clone(), ..ConnectionArgs::default() };
    let file = whole_file(&args, variables).ok()?;
    let default = file.default.as_deref()?;
    let Ok(configuration) = Configuration::resolve(&args, &Default::default(), variables) else {
        let name = variables.get(CONTEXT)?.to_string_lossy();
        let unknown = file.context(&name).is_err();
        return unknown.then(|| {
            format!("{CONTEXT} names {name}, a context that does not exist: unset it, or use -x {default}")
        });
    };
    let variable = match &configuration.context {
        Some(active) if *active.name == *default => return None,
        Some(_) => CONTEXT.to_owned(),
        None => {
            let setting = configuration.settings.broker_setting()?;
            configuration.settings.get(setting)?.1.text(setting)
        }
    };
    Some(format!("{variable} overrides the default context {default}: unset it, or use -x {default}"))
}
