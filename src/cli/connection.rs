//! Connection settings, from the resolved configuration. Pure, except that it checks whether a file exists.

use std::path::PathBuf;
use std::time::Duration;

use super::broker_url::{PLAIN_PORT, TLS_PORT};
use super::config::origin::{Origin, Rank, Source};
use super::config::setting::{
    CONNECT_TIMEOUT, KEEP_ALIVE, Setting, Settings, Sourced, TIMEOUT, is_on, rank, value,
};
use super::config::value::{EmbeddedStore, Url};
use super::kube::Kube;
use super::kube::url::KubeUrl;
use crate::client::{self, Authentication, PasswordSource, Target};
use crate::commands::CommandError;
use crate::net::{ClientTls, IdentityFiles, TlsOptions};

/// Settings of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub endpoint: Endpoint,
    pub login: Login,
    /// Time limit of each step of connecting.
    pub connect_timeout: Duration,
    /// Time limit of each call of kubectl.
    pub kubectl_timeout: Duration,
    pub client_id: String,
    /// Number of further attempts to connect.
    pub connect_retries: u32,
    request_timeout: Duration,
    keep_alive: Duration,
    is_cautious: bool,
}

/// Credentials of the client, or where to get the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    Known(Authentication),
    /// The password is on standard input.
    Input {
        username: String,
    },
    /// The password is to be asked for on the terminal.
    Ask {
        username: String,
    },
}

/// Location of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Network {
        /// Name or address, without brackets.
        host: String,
        port: u16,
        /// `None` without TLS.
        tls: Option<TlsOptions>,
        /// Path of the WebSocket; `None` without one.
        web_socket: Option<String>,
        /// How kubectl leads to the broker; `None` if this machine reaches it.
        kube: Option<Box<Kube>>,
    },
    /// Inside this process.
    Embedded {
        /// Directory of the data; `None` for data in memory.
        data: Option<PathBuf>,
    },
}

/// Properties of the process that affect a connection.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Returns a client id that is unique to this run.
    pub client_id: fn() -> String,
    pub input_is_terminal: fn() -> bool,
}

impl Connection {
    pub fn of(settings: &Settings, process: Process) -> Result<Self, CommandError> {
        Ok(Self {
            endpoint: endpoint(settings)?,
            login: login(settings, process)?,
            client_id: match &settings.client_id {
                Some(client_id) => valid_client_id(client_id)?,
                None => (process.client_id)(),
            },
            connect_timeout: connect_timeout(settings, CONNECT_TIMEOUT),
            kubectl_timeout: connect_timeout(settings, KUBECTL_TIMEOUT),
            connect_retries: value(&settings.retries).copied().unwrap_or(0),
            request_timeout: value(&settings.timeout).copied().unwrap_or(TIMEOUT),
            keep_alive: value(&settings.keep_alive).copied().unwrap_or(KEEP_ALIVE),
            is_cautious: is_on(&settings.cautious),
        })
    }

    /// Returns the settings of the client.
    #[must_use]
    pub fn settings(
        &self,
        target: Target,
        tls: Option<ClientTls>,
        authentication: Authentication,
    ) -> client::Settings {
        client::Settings {
            tls,
            authentication,
            connect_timeout: self.connect_timeout,
            connect_retries: self.connect_retries,
            request_timeout: self.request_timeout,
            keep_alive: self.keep_alive,
            is_cautious: self.is_cautious,
            ..client::Settings::new(target, self.client_id.clone())
        }
    }

    /// Returns whether a signal must not end the process at once: it asks for a password, or kubectl runs for it.
    #[must_use]
    pub fn has_to_end(&self) -> bool {
        let is_kube = matches!(self.endpoint, Endpoint::Network { kube: Some(_), .. });
        is_kube || matches!(self.login, Login::Ask { .. })
    }

    /// Returns the files that contain secrets.
    pub fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        let identity = match &self.endpoint {
            Endpoint::Network { tls: Some(TlsOptions { identity: Some(identity), .. }), .. } => {
                Some(identity)
            }
            _ => None,
        };
        let key = identity
            .into_iter()
            .flat_map(|identity| std::iter::once(&identity.keyfile).chain(&identity.keypasswordfile));
        let login = match &self.login {
            Login::Known(Authentication::Password { password: Some(PasswordSource::File(file)), .. })
            | Login::Known(Authentication::ServiceAccountToken { file }) => Some(file),
            _ => None,
        };
        key.chain(login)
    }
}

impl Endpoint {
    /// Returns the URL of the broker; `None` if it is inside this process.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        let (Self::Network { tls, web_socket, kube, .. }, Some(address)) = (self, self.address()) else {
            return None;
        };
        if let Some(kube) = kube {
            return Some(kube.url.to_string());
        }
        let scheme = match (web_socket, tls) {
            (None, None) => "mqtt",
            (None, Some(_)) => "mqtts",
            (Some(_), None) => "ws",
            (Some(_), Some(_)) => "wss",
        };
        let path = web_socket.as_deref().unwrap_or_default();
        Some(format!("{scheme}://{address}{path}"))
    }

    /// Returns host and port of the broker; `None` if it is inside this process.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        match self {
            Self::Network { host, port, .. } if host.contains(':') => Some(format!("[{host}]:{port}")),
            Self::Network { host, port, .. } => Some(format!("{host}:{port}")),
            Self::Embedded { .. } => None,
        }
    }
}

/// Default time limit of each call of kubectl: its plug-ins for signing in are slow.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns `--timeout` if it bounds connecting, too: it is the shorter one, and no layer of the same rank or above it sets
/// `--connect-timeout`.
#[must_use]
pub fn timeout_of_connecting(settings: &Settings, default: Duration) -> Option<Duration> {
    let timeout = settings.timeout.as_ref()?;
    let of_connecting = settings.connect_timeout.as_ref();
    let is_set = of_connecting.is_some_and(|wait| wait.origin.rank <= timeout.origin.rank);
    let of_connecting = of_connecting.map_or(default, |wait| wait.value);
    (!is_set && timeout.value < of_connecting).then_some(timeout.value)
}

fn connect_timeout(settings: &Settings, default: Duration) -> Duration {
    let own = value(&settings.connect_timeout).copied();
    timeout_of_connecting(settings, default).or(own).unwrap_or(default)
}

pub fn endpoint(settings: &Settings) -> Result<Endpoint, CommandError> {
    if let Some(Sourced { value: store, .. }) = &settings.embedded {
        refuse_without_tls(settings)?;
        if let Some(Sourced { origin, .. }) = &settings.port {
            return Err(origin.error(Setting::Port, "an embedded store has no port"));
        }
        let data = match store {
            EmbeddedStore::Folder(folder) => Some(folder.clone()),
            EmbeddedStore::Memory | EmbeddedStore::Off => None,
        };
        return Ok(Endpoint::Embedded { data });
    }
    let (host, default_port, has_tls, web_socket, kube) = match (&settings.broker, &settings.hostname) {
        (Some(Sourced { value: url, origin }), _) => {
            let has_tls = tls_of_url(settings, url, origin)?;
            let broker = url.broker.clone();
            (broker.host, broker.port, has_tls, broker.web_socket, broker.kube)
        }
        // As Microsoft's tool does: TLS by default, and port 8883 even without TLS.
        (None, Some(host)) => (hostname(host)?, TLS_PORT, !is_on(&settings.notls), None, None),
        (None, None) => ("localhost".to_owned(), PLAIN_PORT, false, None, None),
    };
    let tls = if has_tls {
        Some(tls_options(settings)?)
    } else {
        refuse_without_tls(settings)?;
        None
    };
    let port = value(&settings.port).copied().unwrap_or(default_port);
    let kube = kube.map(|url| Kube {
        url: KubeUrl { port, ..url },
        needs_ca: tls.as_ref().is_some_and(|tls| tls.cafile.is_none() && !tls.insecure),
        needs_token: !settings.has_any(&[Setting::SatFile, Setting::Username, Setting::Certfile]),
    });
    Ok(Endpoint::Network { host, port, tls, web_socket, kube: kube.map(Box::new) })
}

/// Returns whether to use TLS: as the URL specifies, unless a higher layer sets --notls.
fn tls_of_url(settings: &Settings, url: &Url, origin: &Origin) -> Result<bool, CommandError> {
    let Some(notls) = &settings.notls else {
        return Ok(url.broker.tls);
    };
    let is_kube = url.broker.kube.is_some();
    if notls.origin.rank < origin.rank && !is_kube {
        return Ok(!notls.value);
    }
    if notls.value && url.broker.tls {
        let (scheme, hint) = match url.broker.web_socket {
            None if is_kube => ("kube", "without TLS: kubectl port-forward, then -b mqtt://localhost:PORT"),
            None => ("mqtts", "-b mqtt://HOST[:PORT] for plain MQTT"),
            Some(_) => ("wss", "-b ws://HOST[:PORT] for plain WebSockets"),
        };
        let error = notls.origin.error(Setting::Notls, &format!("{scheme}:// contradicts --notls"));
        return Err(error.hint(of_flag(&notls.origin, hint)));
    }
    Ok(url.broker.tls)
}

fn hostname(Sourced { value: host, origin }: &Sourced<String>) -> Result<String, CommandError> {
    if host.is_empty() || host.contains("://") || host.contains('@') {
        let (what, hint) = match origin.source {
            Source::Flag => ("-n takes a host name", "-b takes a URL"),
            Source::Variable(_) => ("a host name is required", "MQKV_BROKER takes a URL"),
            Source::File(_) => ("a host name is required", "broker takes a URL"),
        };
        return Err(origin.error(Setting::Hostname, what).hint(hint));
    }
    // An IPv6 address has at least two colons, a name none.
    if let Some((name, port)) = host.split_once(':')
        && !port.contains(':')
    {
        let (what, hint) = match origin.source {
            Source::Flag => ("-n takes a host without a port", format!("-n {name} -p {port}")),
            Source::Variable(_) | Source::File(_) => {
                ("a host name without port is required", "set the port with the setting port".to_owned())
            }
        };
        return Err(origin.error(Setting::Hostname, what).hint(hint));
    }
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok(plain.to_owned())
}

/// Returns the hint for the origin of a setting: without the option, if it comes from a file or variable.
fn of_flag(origin: &Origin, hint: &str) -> String {
    match origin.source {
        Source::Flag => hint.to_owned(),
        Source::File(_) | Source::Variable(_) => hint.trim_start_matches("-b ").to_owned(),
    }
}

const FOR_TLS: [Setting; 6] = [
    Setting::Cafile,
    Setting::Certfile,
    Setting::Keyfile,
    Setting::Keypasswordfile,
    Setting::ServerName,
    Setting::Insecure,
];

/// Rejects TLS settings of a connection without TLS, unless they are set in another layer than the broker: a variable can
/// be set for all brokers.
fn refuse_without_tls(settings: &Settings) -> Result<(), CommandError> {
    let endpoint = settings.rank_of_broker();
    for setting in FOR_TLS {
        let Some((_, origin)) = settings.get(setting).filter(|(value, _)| !value.is_off()) else { continue };
        if origin.source == Source::Flag {
            let message = "-T, -C, -K, -P, --server-name and --insecure require TLS";
            let hint = if setting == Setting::Keypasswordfile {
                "-P FILE is the password of the key; the password of -u NAME is --password-file FILE"
            } else {
                "-b mqtts://HOST[:PORT], or -n HOST without --notls"
            };
            return Err(CommandError::usage(message).hint(hint));
        }
        if endpoint == Some(origin.rank) {
            return Err(origin.error(setting, "it requires TLS"));
        }
    }
    Ok(())
}

/// Returns the TLS options. The files are not opened yet.
fn tls_options(settings: &Settings) -> Result<TlsOptions, CommandError> {
    /// Returns the error of a setting: as that of an option, or of a setting of a context.
    fn fail<T>(setting: Setting, origin: &Origin, flag: &str, other: &str) -> Result<T, CommandError> {
        Err(origin.error(setting, if origin.source == Source::Flag { flag } else { other }))
    }
    if let Some(Sourced { value: path, origin }) = &settings.keypasswordfile
        && !path.exists()
    {
        let flag = "the file of -P does not exist (its name is not printed: it can be a password)";
        let other = "the file does not exist (its name is not printed: it can be a password)";
        return fail(Setting::Keypasswordfile, origin, flag, other);
    }
    let identity = match (&settings.certfile, &settings.keyfile, &settings.keypasswordfile) {
        (Some(certfile), Some(keyfile), password) => Some(IdentityFiles {
            certfile: certfile.value.clone(),
            keyfile: keyfile.value.clone(),
            keypasswordfile: value(password).cloned(),
        }),
        (None, None, None) => None,
        (Some(Sourced { origin, .. }), None, _) => {
            let flag = "-C requires its key: -K FILE";
            return fail(Setting::Certfile, origin, flag, "it requires keyfile");
        }
        (None, Some(Sourced { origin, .. }), _) => {
            let flag = "-K requires its certificate: -C FILE";
            return fail(Setting::Keyfile, origin, flag, "it requires certfile");
        }
        (None, None, Some(Sourced { origin, .. })) => {
            let flag = "-P requires a certificate and its key: -C FILE -K FILE";
            return fail(Setting::Keypasswordfile, origin, flag, "it requires certfile and keyfile");
        }
    };
    Ok(TlsOptions {
        cafile: value(&settings.cafile).cloned(),
        identity,
        given_ca: None,
        server_name: value(&settings.server_name).cloned(),
        insecure: is_on(&settings.insecure),
    })
}

/// Returns the credentials, or where to get the password: it is neither read nor asked for yet.
fn login(settings: &Settings, process: Process) -> Result<Login, CommandError> {
    // An embedded store requires no credentials: only those on the command line count.
    let is_used = |rank: Option<Rank>| settings.embedded.is_none() || rank == Some(Rank::Flags);
    if let Some(Sourced { value: file, .. }) =
        settings.sat_file.as_ref().filter(|_| is_used(rank(&settings.sat_file)))
    {
        return Ok(Login::Known(Authentication::ServiceAccountToken { file: file.clone() }));
    }
    let username = value(&settings.username).filter(|_| is_used(rank(&settings.username))).cloned();
    let Some(username) = username else {
        for setting in [Setting::PasswordFile, Setting::AskPassword] {
            let Some((value, origin)) = settings.get(setting) else { continue };
            let hint = match origin.source {
                Source::Flag => "-u NAME",
                Source::File(_) => "username = \"NAME\"",
                Source::Variable(_) => continue,
            };
            if is_used(Some(origin.rank)) && !value.is_off() {
                return Err(origin.error(setting, "a password requires a user").hint(hint));
            }
        }
        return Ok(Login::Known(Authentication::None));
    };
    Ok(match value(&settings.password_file) {
        _ if is_on(&settings.ask_password) => Login::Ask { username },
        // Typed input would be visible on the terminal.
        Some(file) if file.as_os_str() == "-" && (process.input_is_terminal)() => Login::Ask { username },
        Some(file) if file.as_os_str() == "-" => Login::Input { username },
        file => {
            let password = file.cloned().map(PasswordSource::File);
            Login::Known(Authentication::Password { username, password })
        }
    })
}

/// Validates the client id: it becomes a level of the topics of responses and notifications.
fn valid_client_id(Sourced { value: id, origin }: &Sourced<String>) -> Result<String, CommandError> {
    const BYTES_MAX: usize = 1024;
    let wrong = |what: &str| Err(origin.error(Setting::ClientId, what));
    if id.is_empty() {
        return wrong("the client id is empty");
    }
    if id.len() > BYTES_MAX {
        return wrong(&format!("the client id has {} bytes; the limit is {BYTES_MAX}", id.len()));
    }
    if id.contains(|c: char| c.is_control() || c == '+' || c == '#') {
        return wrong("the client id contains a control character, + or #");
    }
    Ok(id.clone())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::config::Configuration;
    use crate::cli::config::variables::Variables;
    use crate::cli::options::Options;

    #[derive(Parser)]
    struct Line {
        /// The verb and its operands.
        _words: Vec<String>,
        #[command(flatten)]
        options: Options,
    }

    const PROCESS: Process = Process { client_id: || "me".to_owned(), input_is_terminal: || false };

    fn connection_with(line: &str, variables: &[(&str, &str)]) -> Result<Connection, CommandError> {
        let options = Line::try_parse_from(line.split(' '))
            .map_err(|error| CommandError::usage(error.to_string()))?
            .options;
        let variables = Variables::of(variables.iter().map(|(name, value)| (name.into(), value.into())));
        let configuration = Configuration::resolve(&options.connection, &options.display, &variables)?;
        Connection::of(&configuration.settings, PROCESS)
    }

    fn settings(line: &str) -> Result<Endpoint, CommandError> {
        Ok(connection_with(line, &[])?.endpoint)
    }

    fn network(host: &str, port: u16) -> Endpoint {
        let host = host.to_owned();
        Endpoint::Network { host, port, tls: None, web_socket: None, kube: None }
    }

    fn with_tls(host: &str, port: u16, options: TlsOptions) -> Endpoint {
        let host = host.to_owned();
        Endpoint::Network { host, port, tls: Some(options), web_socket: None, kube: None }
    }

    #[test]
    fn the_default_broker_is_on_this_machine() {
        assert_eq!(settings("mqkv get k").unwrap(), network("localhost", 1883));
        assert_eq!(settings("mqkv get k -p 1884").unwrap(), network("localhost", 1884));
    }

    #[test]
    fn a_host_name_implies_tls() {
        let tls = TlsOptions::default();
        assert_eq!(settings("mqkv get k -n aio-broker").unwrap(), with_tls("aio-broker", 8883, tls.clone()));
        assert_eq!(settings("mqkv get k -b mqtts://h:1").unwrap(), with_tls("h", 1, tls));
        assert_eq!(settings("mqkv get k -n aio-broker --notls").unwrap(), network("aio-broker", 8883));
        assert_eq!(settings("mqkv get k --host ::1 -p 1883 --no-tls").unwrap(), network("::1", 1883));
    }

    #[test]
    fn tls_options_require_tls() {
        let cafile = Some(PathBuf::from("ca"));
        let options = TlsOptions { cafile, ..TlsOptions::default() };
        assert_eq!(settings("mqkv get k -n h -T ca").unwrap(), with_tls("h", 8883, options));
        for line in [
            "mqkv get k -T ca",
            "mqkv get k --insecure",
            "mqkv get k -n h --notls -T ca",
            "mqkv get k -b mqtt://h --server-name n",
            "mqkv get k --embedded -C c -K k",
            "mqkv get k -n h -C c",
            "mqkv get k -n h -K k",
            "mqkv get k -b mqtts://h --notls",
        ] {
            assert!(settings(line).is_err(), "{line}");
        }
    }

    fn kube(line: &str, variables: &[(&str, &str)]) -> (Kube, Option<TlsOptions>, Login) {
        let connection = connection_with(line, variables).unwrap();
        let Endpoint::Network { tls, kube, .. } = connection.endpoint else { panic!("{line}") };
        (*kube.unwrap(), tls, connection.login)
    }

    #[test]
    fn options_replace_what_kubectl_would_get() {
        let needs = |line: &str| {
            let (kube, ..) = kube(line, &[]);
            (kube.needs_ca, kube.needs_token)
        };
        assert_eq!(needs("mqkv get k -b kube:"), (true, true));
        assert_eq!(needs("mqkv get k -b kube: --server-name n"), (true, true));
        assert_eq!(needs("mqkv get k -b kube: -T ca"), (false, true));
        assert_eq!(needs("mqkv get k -b kube: --insecure"), (false, true));
        assert_eq!(needs("mqkv get k -b kube: --sat-file t"), (true, false));
        assert_eq!(needs("mqkv get k -b kube: -u ann --password-file p"), (true, false));
        assert_eq!(needs("mqkv get k -T ca -b kube: -C c -K k"), (false, false));
        // A token of a pod belongs to the broker of the pod.
        let pod = [("AIO_BROKER_HOSTNAME", "aio-broker"), ("AIO_TLS_CA_FILE", "c"), ("AIO_SAT_FILE", "t")];
        let (of_pod, tls, _) = kube("mqkv get k -b kube:", &pod);
        assert_eq!((of_pod.needs_ca, of_pod.needs_token, tls.unwrap().cafile), (true, true, None));
    }

    #[test]
    fn a_broker_in_a_cluster_has_tls_and_the_name_of_its_service() {
        let connection = connection_with("mqkv get k -b kube://plant", &[]).unwrap();
        assert_eq!(connection.endpoint.address().as_deref(), Some("aio-broker:18883"));
        assert_eq!(connection.endpoint.url().as_deref(), Some("kube://plant"));
        let (kube, tls, login) = kube("mqkv get k -p 1884", &[("MQKV_BROKER", "kube://p?serviceaccount=me")]);
        let url = kube.url.to_string();
        assert_eq!(url, "kube://p/azure-iot-operations/aio-broker:1884?serviceaccount=me");
        assert!(tls.is_some() && login == Login::Known(Authentication::None));
        for line in ["mqkv get k -b kube: --notls", "mqkv get k -b kube: -p 1", "mqkv get k -b kube: -C c"] {
            assert!(settings(line).is_err(), "{line}");
        }
        let error = connection_with("mqkv get k --notls", &[("MQKV_BROKER", "kube:")]).unwrap_err();
        assert!(error.message.contains("kube:// contradicts --notls"), "{error:?}");
    }

    #[test]
    fn kubectl_has_half_a_minute_unless_an_option_bounds_connecting() {
        let within = |line: &str| connection_with(line, &[]).unwrap().kubectl_timeout.as_secs();
        assert_eq!(within("mqkv get k -b kube:"), 30);
        assert_eq!(within("mqkv get k -b kube: -t 20s"), 20);
        assert_eq!(within("mqkv get k -b kube: -t 1m"), 30);
        assert_eq!(within("mqkv get k -b kube: --connect-timeout 2m -t 1s"), 120);
    }

    #[test]
    fn an_embedded_store_is_in_memory_or_in_a_directory() {
        assert_eq!(settings("mqkv --embedded get k").unwrap(), Endpoint::Embedded { data: None });
        let data = Some(PathBuf::from("dir"));
        assert_eq!(settings("mqkv get --embedded=dir k").unwrap(), Endpoint::Embedded { data });
    }

    #[test]
    fn a_password_instead_of_a_file_name_is_not_printed() {
        let error = settings("mqkv get k -n h -P hunter2").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
        let variables = [("MQKV_HOSTNAME", "h"), ("MQKV_KEYPASSWORDFILE", "hunter2")];
        let error = connection_with("mqkv get k", &variables).unwrap_err();
        assert!(error.message.starts_with("MQKV_KEYPASSWORDFILE: "), "{error:?}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn a_client_has_one_kind_of_credentials() {
        let login =
            |line: &str| connection_with(line, &[]).map(|connection| connection.login).map_err(|_| ());
        let password = |password| {
            let username = "u".to_owned();
            Ok(Login::Known(Authentication::Password { username, password }))
        };
        let file = || Some(PasswordSource::File("f".into()));
        assert_eq!(login("mqkv get k"), Ok(Login::Known(Authentication::None)));
        assert_eq!(login("mqkv get k -u u --password-file f"), password(file()));
        assert_eq!(login("mqkv get k -u u --password-file -"), Ok(Login::Input { username: "u".to_owned() }));
        assert_eq!(login("mqkv get k -b mqtt://u@h --password-file f"), password(file()));
        assert_eq!(login("mqkv get k -b mqtt://u@h -u u"), password(None));
        assert_eq!(login("mqkv get k -u u --ask-password"), Ok(Login::Ask { username: "u".to_owned() }));
        let sat = Authentication::ServiceAccountToken { file: "f".into() };
        assert_eq!(login("mqkv get k --sat-file f"), Ok(Login::Known(sat)));
        for line in [
            "mqkv get k --password-file f",
            "mqkv get k --ask-password",
            "mqkv get k -u u --password-file f --ask-password",
            "mqkv get k -u u --sat-file f",
            "mqkv get k -b mqtt://u@h --sat-file f",
            "mqkv get k -b mqtt://u@h -u other",
        ] {
            assert_eq!(login(line), Err(()), "{line}");
        }
    }

    #[test]
    fn inside_a_pod_the_variables_of_the_sdk_are_sufficient() {
        let pod = [
            ("AIO_BROKER_HOSTNAME", "aio-broker"),
            ("AIO_TLS_CA_FILE", "/ca.crt"),
            ("AIO_SAT_FILE", "/sat"),
            ("AIO_MQTT_CLIENT_ID", "application"),
        ];
        let connection = connection_with("mqkv get k", &pod).unwrap();
        let options = TlsOptions { cafile: Some("/ca.crt".into()), ..TlsOptions::default() };
        assert_eq!(connection.endpoint, with_tls("aio-broker", 8883, options));
        let sat = Authentication::ServiceAccountToken { file: "/sat".into() };
        assert_eq!(connection.login, Login::Known(sat));
        assert_eq!(connection.client_id, "me", "the application's would be taken over");
        // Another broker gets neither the token nor an error about the CA.
        let connection = connection_with("mqkv get k -b mqtt://h", &pod).unwrap();
        assert_eq!(
            (connection.endpoint, connection.login),
            (network("h", 1883), Login::Known(Authentication::None))
        );
    }

    #[test]
    fn port_and_notls_of_a_higher_layer_change_a_url() {
        let over = |line: &str, url: &str| connection_with(line, &[("MQKV_BROKER", url)]).map(|c| c.endpoint);
        assert_eq!(over("mqkv get k -p 5", "mqtts://h").unwrap(), with_tls("h", 5, TlsOptions::default()));
        assert_eq!(over("mqkv get k --notls", "mqtts://h:7").unwrap(), network("h", 7));
        assert_eq!(
            over("mqkv get k -n i", "mqtt://h:7").unwrap(),
            with_tls("i", 8883, TlsOptions::default())
        );
        let error =
            connection_with("mqkv get k", &[("MQKV_BROKER", "mqtts://h"), ("MQKV_NOTLS", "1")]).unwrap_err();
        assert_eq!(error.kind, crate::commands::Kind::Configuration);
    }

    #[test]
    fn tls_variables_are_ignored_for_a_broker_without_tls() {
        assert!(connection_with("mqkv get k -b mqtt://h", &[("MQKV_CAFILE", "ca")]).is_ok());
        assert!(
            connection_with("mqkv get k --embedded", &[("MQKV_USERNAME", "u"), ("MQKV_CAFILE", "ca")])
                .is_ok()
        );
        assert!(
            connection_with("mqkv get k", &[("MQKV_BROKER", "mqtt://h"), ("MQKV_CAFILE", "ca")]).is_err()
        );
    }

    #[test]
    fn a_short_timeout_bounds_connecting_unless_connect_timeout_is_set_beside_or_above_it() {
        let within = |line: &str, variables: &[(&str, &str)]| {
            connection_with(line, variables).unwrap().connect_timeout.as_secs()
        };
        assert_eq!(within("mqkv get k", &[]), 5);
        assert_eq!(within("mqkv get k -t 1s", &[]), 1);
        assert_eq!(within("mqkv get k -t 1s --connect-timeout 3s", &[]), 3);
        assert_eq!(within("mqkv get k -t 20s", &[]), 5);
        assert_eq!(within("mqkv get k", &[("MQKV_TIMEOUT", "2s")]), 2);
        assert_eq!(within("mqkv get k -t 1s", &[("MQKV_CONNECT_TIMEOUT", "3s")]), 1);
        assert_eq!(within("mqkv get k --connect-timeout 3s", &[("MQKV_TIMEOUT", "1s")]), 3);
    }

    #[test]
    fn errors_name_the_variable_of_an_invalid_value() {
        for (name, value) in [("MQKV_CLIENT_ID", "a+b"), ("MQKV_HOSTNAME", "mqtt://h")] {
            let error = connection_with("mqkv get k", &[(name, value)]).unwrap_err();
            assert!(error.message.starts_with(&format!("{name}: ")), "{error:?}");
            assert_eq!(error.kind, crate::commands::Kind::Configuration);
        }
    }
}
