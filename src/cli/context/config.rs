//! `config`: shows the settings in effect and the path of the file.

use clap::{Args, Subcommand};

use crate::cli::config::origin::Origin;
use crate::cli::config::setting::{CONNECT_TIMEOUT, Setting, Settings};
use crate::cli::config::value::Shown;
use crate::cli::config::variables::Variables;
use crate::cli::config::{Configuration, location};
use crate::cli::connection::{Endpoint, endpoint, timeout_of_connecting};
use crate::cli::options::ConnectionArgs;
use crate::commands::CommandError;
use crate::commands::config_record::{ConfigRecord, SettingRow};

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

/// The settings that name the broker, which are shown as one.
const OF_ENDPOINT: [Setting; 5] =
    [Setting::Broker, Setting::Hostname, Setting::Embedded, Setting::Port, Setting::Notls];

const BUILT_IN: &str = "built in";

/// Returns the settings in effect.
pub fn show(configuration: &Configuration, with_origin: bool) -> Result<ConfigRecord, CommandError> {
    let Configuration { settings, context } = configuration;
    let mut rows = vec![row_of_endpoint(&endpoint(settings)?, settings)];
    for setting in Setting::all().filter(|setting| !OF_ENDPOINT.contains(setting)) {
        let name = setting.key().to_owned();
        let source = match setting {
            // It has no effect without a context.
            Setting::ReadOnly if configuration.read_only().is_none() => continue,
            Setting::ConnectTimeout if timeout_of_connecting(settings, CONNECT_TIMEOUT).is_some() => {
                Setting::Timeout
            }
            _ => setting,
        };
        if let Some((value, origin)) = settings.get(source) {
            rows.push(SettingRow { name, value: value.into(), origin: origin.text(source) });
        } else if let Some(value) = setting.built_in() {
            rows.push(SettingRow { name, value: value.into(), origin: BUILT_IN.to_owned() });
        }
    }
    Ok(ConfigRecord::Settings {
        context: context.as_ref().map(|context| context.name.to_string()),
        file: context.as_ref().map(|context| context.file.to_path_buf()),
        settings: rows,
        with_origin,
    })
}

/// Returns the row of the broker, which combines several settings, with the sources of all of them.
fn row_of_endpoint(endpoint: &Endpoint, settings: &Settings) -> SettingRow {
    let parts = OF_ENDPOINT.iter().filter_map(|setting| Some((*setting, settings.get(*setting)?.1)));
    let mut parts: Vec<(Setting, &Origin)> = parts.collect();
    // One line of a context is enough to find its other lines.
    parts.dedup_by(|(_, one), (_, other)| one.is_of_context() && other.is_of_context());
    let origins: Vec<String> = parts.iter().map(|(setting, origin)| origin.text(*setting)).collect();
    let origin = if origins.is_empty() { BUILT_IN.to_owned() } else { origins.join("; ") };
    let (name, value) = match endpoint {
        Endpoint::Network { .. } => ("broker", Shown::Text(endpoint.url().unwrap_or_default().into())),
        Endpoint::Embedded { data: Some(folder) } => ("embedded", Shown::Path(folder)),
        Endpoint::Embedded { data: None } => ("embedded", Shown::Switch(true)),
    };
    SettingRow { name: name.to_owned(), value: value.into(), origin }
}

/// Returns the rows of the settings of a context.
#[must_use]
pub fn rows(settings: &Settings) -> Vec<SettingRow> {
    let row = |(setting, value, origin): (Setting, Shown<'_>, &Origin)| SettingRow {
        name: setting.key().to_owned(),
        value: value.into(),
        origin: origin.text(setting),
    };
    settings.iter().map(row).collect()
}
