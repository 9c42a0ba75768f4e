//! Layers of the variables `MQKV_*` and `AIO_*` (pure).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::origin::{Origin, Rank, Source};
use super::setting::{PREFIX, Setting, Settings};
use super::value::{PathBases, RawValue};
use crate::commands::CommandError;
use crate::commands::similarity::closest;
use crate::platform::{HOME, SETTINGS};

/// The variables that affect the configuration.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// `MQKV_*` and `AIO_*` with their values; empty ones are left out.
    entries: Vec<(String, OsString)>,
    /// Of [`SETTINGS`].
    pub config_home: Option<PathBuf>,
    /// Of [`HOME`].
    pub home: Option<PathBuf>,
}

/// Prefix of the variables of the official SDKs.
const SDK_PREFIX: &str = "AIO_";
const SDK_HOST: &str = "AIO_BROKER_HOSTNAME";

/// The variables of the official SDKs (protocol §8), except those of the session: mqkv has a session of its own.
const SDK: [(&str, Setting); 10] = [
    ("AIO_BROKER_TCP_PORT", Setting::Port),
    ("AIO_TLS_CA_FILE", Setting::Cafile),
    ("AIO_TLS_CERT_FILE", Setting::Certfile),
    ("AIO_TLS_KEY_FILE", Setting::Keyfile),
    ("AIO_TLS_KEY_PASSWORD_FILE", Setting::Keypasswordfile),
    ("AIO_MQTT_USERNAME", Setting::Username),
    ("AIO_MQTT_PASSWORD_FILE", Setting::PasswordFile),
    ("AIO_SAT_FILE", Setting::SatFile),
    (SDK_HOST, Setting::Hostname),
    (SDK_TLS, Setting::Notls),
];
const SDK_TLS: &str = "AIO_MQTT_USE_TLS";
const SDK_KEEP_ALIVE: &str = "AIO_MQTT_KEEP_ALIVE";

/// Returns the variable of the official SDKs for a setting.
#[must_use]
pub fn of_sdk(setting: Setting) -> Option<&'static str> {
    SDK.iter().find(|(_, known)| *known == setting).map(|(name, _)| *name)
}

/// Variable with the name of the context.
pub const CONTEXT: &str = "MQKV_CONTEXT";
/// Variable with the path of the configuration file.
pub const CONFIG: &str = "MQKV_CONFIG";
/// The variable that asks for keys in completions.
pub const COMPLETE_KEYS: &str = "MQKV_COMPLETE_KEYS";
/// The variable with the pager of long help.
pub const PAGER: &str = "MQKV_PAGER";
/// The variable with the program of `kube:`.
pub const KUBECTL: &str = "MQKV_KUBECTL";
/// What `watch`, `lock` and we ourselves use beside settings.
const OTHERS: &[&str] = &[
    CONTEXT,
    CONFIG,
    COMPLETE_KEYS,
    PAGER,
    KUBECTL,
    "MQKV_EVENT",
    "MQKV_KEY",
    "MQKV_FOUND",
    "MQKV_SEQ",
    "MQKV_VERSION",
    "MQKV_LOCK_KEY",
    "MQKV_LOCK_HOLDER",
    "MQKV_FENCING_TOKEN",
    "MQKV_FENCING_TOKEN_FILE",
    // Options of a cluster on etcd.
    "MQKV_ETCD",
    "MQKV_CLUSTER",
    "MQKV_INSTANCE",
    "MQKV_FAILOVER",
    "MQKV_ETCD_CA",
    "MQKV_ETCD_CERT",
    "MQKV_ETCD_KEY",
    "MQKV_ETCD_USER",
    "MQKV_ETCD_PASSWORD_FILE",
];

impl Variables {
    /// Selects the variables that affect the configuration.
    #[must_use]
    pub fn of(all: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut variables = Self::default();
        for (name, value) in all {
            let Some(name) = name.to_str().filter(|_| !value.is_empty()) else { continue };
            let folder = || Some(PathBuf::from(&value)).filter(|path| path.is_absolute());
            match name {
                name if name == SETTINGS.variable => variables.config_home = folder(),
                name if name == HOME => variables.home = folder(),
                name if is_of_kubernetes(name, &value) => {}
                name if name.starts_with(PREFIX) || name.starts_with(SDK_PREFIX) => {
                    variables.entries.push((name.to_owned(), value));
                }
                _ => {}
            }
        }
        variables
    }

    /// Returns the value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.entries.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str())
    }

    /// Returns the layer of `MQKV_*`.
    ///
    /// # Errors
    /// A value is invalid. The message contains the name of the variable, not the value.
    pub fn layer(&self) -> Result<Settings, CommandError> {
        let mut layer = Settings::default();
        for (name, value) in &self.entries {
            if let Some(setting) = name.strip_prefix(PREFIX).and_then(Setting::of_variable) {
                read(&mut layer, setting, value, &of_variable(Rank::Variables, name))?;
            }
        }
        Ok(layer)
    }

    /// Returns the layer of `AIO_*`; it is empty without `AIO_BROKER_HOSTNAME`.
    pub fn sdk_layer(&self) -> Result<Settings, CommandError> {
        let mut layer = Settings::default();
        if self.get(SDK_HOST).is_none() {
            return Ok(layer);
        }
        for (name, setting) in SDK {
            if let Some(value) = self.get(name) {
                read(&mut layer, setting, value, &of_variable(Rank::Sdk, name))?;
            }
        }
        // The variable has the opposite meaning: whether to use TLS.
        layer.notls.iter_mut().for_each(|notls| notls.value = !notls.value);
        if let Some(seconds) = self.get(SDK_KEEP_ALIVE) {
            let origin = of_variable(Rank::Sdk, SDK_KEEP_ALIVE);
            let whole = seconds.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let whole = OsString::from(format!("{}s", whole.unwrap_or_default()));
            let what = "expected a number of seconds from 1 to 65535";
            read(&mut layer, Setting::KeepAlive, &whole, &origin)
                .map_err(|_| origin.error(Setting::KeepAlive, what))?;
        }
        Ok(layer)
    }

    /// Returns unknown variables with the prefix `MQKV_`, each with the name that was probably meant.
    #[must_use]
    pub fn mistyped(&self) -> Vec<(String, String)> {
        let ours = self.entries.iter().filter_map(|(name, _)| name.strip_prefix(PREFIX));
        let others = || OTHERS.iter().filter_map(|name| name.strip_prefix(PREFIX));
        let is_known =
            |name: &str| Setting::of_variable(name).is_some() || others().any(|other| other == name);
        let meant = |name: &str| {
            let settings = Setting::all().filter(|setting| setting.has_flag());
            let settings = settings.map(|setting| setting.key().to_ascii_uppercase());
            let known = settings.chain(others().map(str::to_owned));
            let of_context =
                Setting::of_key(&name.to_ascii_lowercase()).filter(|setting| !setting.has_flag());
            match of_context {
                Some(setting) => Some(format!("{} in a context", setting.key())),
                None => closest(name, known).map(|near| format!("{PREFIX}{near}")),
            }
        };
        ours.filter(|name| !is_known(name))
            .filter_map(|name| Some((format!("{PREFIX}{name}"), meant(name)?)))
            .collect()
    }
}

/// Whether Kubernetes has set this variable, as it does in all pods for each Service of their namespace: here for one with the name
/// `mqkv`. It is no port: `MQKV_PORT=tcp://10.0.0.1:1883`.
fn is_of_kubernetes(name: &str, value: &OsStr) -> bool {
    let service = name.strip_prefix(PREFIX).unwrap_or_default();
    service == "SERVICE_HOST"
        || ["SERVICE_PORT", "PORT_"].iter().any(|variable| service.starts_with(variable))
        || service == "PORT" && value.as_encoded_bytes().starts_with(b"tcp://")
}

fn of_variable(rank: Rank, name: &str) -> Origin {
    Origin { rank, source: Source::Variable(name.to_owned()) }
}

fn read(layer: &mut Settings, setting: Setting, value: &OsStr, origin: &Origin) -> Result<(), CommandError> {
    let read = layer.read(setting, RawValue::Word(value), PathBases::default(), origin);
    read.map_err(|what| {
        let error = origin.error(setting, &what);
        match value.as_encoded_bytes() {
            [first @ (b'"' | b'\''), .., last] if first == last => {
                error.hint("remove the quotes: they are part of the value")
            }
            _ => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::config::setting::value;
    use crate::commands::Kind;

    fn variables(all: &[(&str, &str)]) -> Variables {
        Variables::of(all.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn each_setting_has_a_variable() {
        let layer = variables(&[
            ("MQKV_HOSTNAME", "h"),
            ("MQKV_SERVER_NAME", "n"),
            ("MQKV_NOTLS", "yes"),
            ("MQKV_KEY", "k"),
            ("MQKV_FENCING_TOKEN", "5"),
            ("MQKV_READ_ONLY", "1"),
            ("MQKV_TIMEOUT", ""),
            ("HOSTNAME", "x"),
        ]);
        let layer = layer.layer().unwrap();
        assert_eq!(layer.iter().count(), 3);
        assert_eq!(value(&layer.notls), Some(&true));
        assert_eq!(layer.hostname.unwrap().origin, of_variable(Rank::Variables, "MQKV_HOSTNAME"));
    }

    #[test]
    fn an_invalid_value_is_reported_without_the_value() {
        let error = variables(&[("MQKV_PORT", "hunter2")]).layer().unwrap_err();
        assert_eq!(error.kind, Kind::Configuration);
        assert_eq!(error.message, "MQKV_PORT: expected a number from 1 to 65535");
        let error = variables(&[("MQKV_BROKER", "mqtt://u:hunter2@h")]).layer().unwrap_err();
        assert!(error.message.starts_with("MQKV_BROKER: ") && !format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn the_variables_of_a_kubernetes_service_with_the_name_mqkv_are_ignored() {
        let service = variables(&[
            ("MQKV_SERVICE_HOST", "10.0.0.1"),
            ("MQKV_SERVICE_PORT", "1883"),
            ("MQKV_SERVICE_PORT_MQTT", "1883"),
            ("MQKV_PORT", "tcp://10.0.0.1:1883"),
            ("MQKV_PORT_1883_TCP", "tcp://10.0.0.1:1883"),
            ("MQKV_PORT_1883_TCP_PROTO", "tcp"),
            ("MQKV_PORT_1883_TCP_PORT", "1883"),
            ("MQKV_PORT_1883_TCP_ADDR", "10.0.0.1"),
        ]);
        assert_eq!((service.layer().unwrap().iter().count(), service.mistyped().len()), (0, 0));
        let port = variables(&[("MQKV_PORT", "1884")]).layer().unwrap();
        assert_eq!(value(&port.port), Some(&1884));
    }

    #[test]
    fn the_variables_of_the_sdk_require_a_host() {
        assert_eq!(variables(&[("AIO_BROKER_TCP_PORT", "x")]).sdk_layer(), Ok(Settings::default()));
        let all = [
            ("AIO_BROKER_HOSTNAME", "aio-broker"),
            ("AIO_BROKER_TCP_PORT", "18883"),
            ("AIO_MQTT_USE_TLS", "false"),
            ("AIO_MQTT_KEEP_ALIVE", "30"),
            ("AIO_SAT_FILE", "/var/sat"),
            ("AIO_MQTT_CLIENT_ID", "application"),
            ("AIO_MQTT_SESSION_EXPIRY", "x"),
        ];
        let layer = variables(&all).sdk_layer().unwrap();
        assert_eq!(layer.iter().count(), 5);
        assert_eq!(value(&layer.notls), Some(&true), "no TLS");
        assert_eq!(value(&layer.keep_alive), Some(&Duration::from_secs(30)));
        assert_eq!(value(&layer.client_id), None, "it belongs to the application");
        for bad in ["30s", "0", "-1", "65536"] {
            let error = variables(&[("AIO_BROKER_HOSTNAME", "h"), ("AIO_MQTT_KEEP_ALIVE", bad)]).sdk_layer();
            assert!(error.is_err_and(|error| error.message.starts_with("AIO_MQTT_KEEP_ALIVE: ")), "{bad}");
        }
    }

    #[test]
    fn mistyped_names_are_found_and_unrelated_ones_are_ignored() {
        let names = [
            "MQKV_BROCKER",
            "MQKV_TIMEOUT",
            "MQKV_SEQ",
            "MQKV_KEYS_DIR_OF_MY_SCRIPT",
            "MQKV_PASSWORD",
            "MQKV_READ_ONLY",
        ];
        let all: Vec<_> = names.iter().map(|name| (*name, "1")).collect();
        let owned = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        let expected = [
            owned("MQKV_BROCKER", "MQKV_BROKER"),
            owned("MQKV_PASSWORD", "MQKV_PASSWORD_FILE"),
            owned("MQKV_READ_ONLY", "read_only in a context"),
        ];
        assert_eq!(variables(&all).mistyped(), expected);
    }
}
