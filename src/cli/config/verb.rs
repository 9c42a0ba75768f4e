//! `config`: shows the settings in effect and the path of the file.

use clap::{Args, Subcommand};

use super::Configuration;
use super::layers::Entry;
use super::location;
use super::origin::Origin;
use super::setting::{EmbeddedStore, Setting, Value};
use super::variables::Variables;
use crate::cli::connection::{
    CONNECT_TIMEOUT, Endpoint, KEEP_ALIVE, TIMEOUT, endpoint, timeout_of_connecting,
};
use crate::cli::options::{ColorWhen, ConnectionArgs, OutputFormat};
use crate::commands::configured::{ConfigRecord, SettingRow, SettingValue};
use crate::commands::{CommandError, duration};

const EXAMPLES: &str = "\
Examples:
  mqkv config show                      settings in effect
  mqkv config show --origin             settings with their sources
  mqkv config show -x prod -t 3s        settings with these options
  mqkv config path                      path of the configuration file

Passwords and tokens are never shown: the settings contain only the names of their files.";

/// Show the settings in effect and their sources
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = false)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub verb: ConfigVerb,
}

/// The verbs below `config`.
#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub enum ConfigVerb {
    /// Show every setting in effect
    Show {
        /// Show the source of each setting
        #[arg(long)]
        origin: bool,
    },
    /// Print the path of the configuration file
    Path,
}

/// Returns the path of the configuration file.
///
/// # Errors
/// No option, variable or home directory determines a path.
pub fn path(connection: &ConnectionArgs, variables: &Variables) -> Result<ConfigRecord, CommandError> {
    let location = location::find_any(connection.config.as_deref(), variables)?;
    let exists = location.path.exists();
    Ok(ConfigRecord::Path { file: location.path, exists })
}

/// Returns the settings in effect.
///
/// # Errors
/// The settings of the broker contradict each other.
pub fn show(configuration: &Configuration, with_origin: bool) -> Result<ConfigRecord, CommandError> {
    let endpoint = endpoint(&configuration.settings)?;
    let mut rows = vec![row_of_endpoint(&endpoint, configuration)];
    for setting in Setting::all() {
        let is_part_of_endpoint = matches!(
            setting,
            Setting::Broker | Setting::Hostname | Setting::Embedded | Setting::Port | Setting::Notls
        );
        let is_without_effect = setting == Setting::ReadOnly && configuration.read_only().is_none();
        if is_part_of_endpoint || is_without_effect {
            continue;
        }
        let bound =
            timeout_of_connecting(&configuration.settings).filter(|_| setting == Setting::ConnectTimeout);
        let entry = bound.or_else(|| configuration.settings.get(setting));
        let entry = entry.map(|entry| (entry.value.clone(), entry.origin.text(entry.setting)));
        let entry = entry.or_else(|| Some((built_in(setting)?, Origin::BuiltIn.text(setting))));
        if let Some((value, origin)) = entry {
            rows.push(SettingRow { name: setting.key(), value: shown(&value), origin });
        }
    }
    let context = configuration.context.as_ref();
    Ok(ConfigRecord::Settings {
        context: context.map(|context| context.name.to_string()),
        file: context.map(|context| context.file.to_path_buf()),
        settings: rows,
        with_origin,
    })
}

/// Returns the row of the broker, which combines several settings, with the sources of all of them.
fn row_of_endpoint(endpoint: &Endpoint, configuration: &Configuration) -> SettingRow {
    let parts = [Setting::Broker, Setting::Hostname, Setting::Embedded, Setting::Port, Setting::Notls];
    let parts = parts.iter().filter_map(|setting| configuration.settings.get(*setting));
    // One line of a context is enough to find its other lines.
    let mut entries: Vec<&Entry> = parts.collect();
    entries.dedup_by(|one, other| one.origin.is_of_context() && other.origin.is_of_context());
    let origins: Vec<String> = entries.iter().map(|entry| entry.origin.text(entry.setting)).collect();
    let origin = if origins.is_empty() { Origin::BuiltIn.text(Setting::Broker) } else { origins.join("; ") };
    let (name, value) = match endpoint {
        Endpoint::Network { .. } => ("broker", SettingValue::Text(endpoint.url().unwrap_or_default())),
        Endpoint::Embedded { data: Some(folder) } => {
            ("embedded", SettingValue::Text(folder.display().to_string()))
        }
        Endpoint::Embedded { data: None } => ("embedded", SettingValue::Switch(true)),
    };
    SettingRow { name: name.to_owned(), value, origin }
}

/// Returns the default value of a setting.
fn built_in(setting: Setting) -> Option<Value> {
    Some(match setting {
        Setting::Timeout => Value::Wait(TIMEOUT),
        Setting::ConnectTimeout => Value::Wait(CONNECT_TIMEOUT),
        Setting::KeepAlive => Value::Wait(KEEP_ALIVE),
        Setting::Retries => Value::Number(0),
        Setting::Output => Value::Format(OutputFormat::Auto),
        Setting::Color => Value::When(ColorWhen::Auto),
        Setting::ClientId => Value::Text("mqkv-HOST-RANDOM".to_owned()),
        _ => return None,
    })
}

/// Returns the rows of the entries.
#[must_use]
pub fn rows(entries: &[Entry]) -> Vec<SettingRow> {
    let row = |Entry { setting, value, origin }: &Entry| SettingRow {
        name: setting.key(),
        value: shown(value),
        origin: origin.text(*setting),
    };
    entries.iter().map(row).collect()
}

fn shown(value: &Value) -> SettingValue {
    SettingValue::Text(match value {
        Value::Number(number) => return SettingValue::Number(*number),
        Value::Switch(switch) => return SettingValue::Switch(*switch),
        Value::Store(EmbeddedStore::Off) => return SettingValue::Switch(false),
        Value::Store(EmbeddedStore::Memory) => return SettingValue::Switch(true),
        Value::Store(EmbeddedStore::Folder(path)) | Value::Path(path) => path.display().to_string(),
        Value::Url(url) => url.text.clone(),
        Value::Text(text) => text.clone(),
        Value::Wait(wait) => duration::text(*wait),
        Value::Format(format) => format!("{format:?}").to_lowercase(),
        Value::When(when) => format!("{when:?}").to_lowercase(),
        Value::CustomColor(shade) => shade.name(),
    })
}
