//! Where to connect to and how, from what was settings (pure, but for the look whether a file is there).

use std::path::PathBuf;
use std::time::Duration;

use super::broker::{PLAIN_PORT, TLS_PORT};
use super::config::layers::{Entry, Rank, Resolved};
use super::config::origin::Origin;
use super::config::setting::{EmbeddedStore, Setting, Url, Value};
use crate::client::{Authentication, PasswordSource, Settings, Target};
use crate::commands::CommandError;
use crate::net::{ClientTls, IdentityFiles, TlsOptions};

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where the broker is.
    pub endpoint: Endpoint,
    /// Who the client says it is.
    pub login: Login,
    /// How long each step of the way to the broker may take.
    pub connect_timeout: Duration,
    client_id: String,
    connect_retries: u32,
    request_timeout: Duration,
    keep_alive: Duration,
}

/// Who the client says it is, before anybody has been asked for a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// All is known.
    Known(Authentication),
    /// The password is on standard input.
    Input {
        /// The user's name.
        username: String,
    },
    /// The password is to be asked for.
    Ask {
        /// The user's name.
        username: String,
    },
}

/// Where the broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Somewhere on the network.
    Network {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// What TLS is asked for; none: plain.
        tls: Option<TlsOptions>,
        /// The path of a WebSocket, if one is asked for.
        web_socket: Option<String>,
    },
    /// Inside this process.
    Embedded {
        /// Where everything is kept; none: in memory.
        data: Option<PathBuf>,
    },
}

/// What depends on the process that asks.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Gives a client id for this run alone.
    pub client_id: fn() -> String,
    /// Whether standard input is a terminal.
    pub input_is_terminal: fn() -> bool,
}

/// How long to wait for an answer, unless told otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the connection, unless told otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the broker may be silent, unless told otherwise.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

impl Connection {
    /// Settles where to connect to, and how.
    ///
    /// # Errors
    /// What does not fit together: of the command line, or of the configuration.
    pub fn of(settings: &Resolved, process: Process) -> Result<Self, CommandError> {
        Ok(Self {
            endpoint: endpoint(settings)?,
            login: login(settings, process)?,
            client_id: match settings.get(Setting::ClientId) {
                Some(entry) => client_id(entry)?,
                None => (process.client_id)(),
            },
            connect_timeout: settings.wait(Setting::ConnectTimeout).unwrap_or(CONNECT_TIMEOUT),
            connect_retries: settings.number(Setting::Retries).unwrap_or(0),
            request_timeout: settings.wait(Setting::Timeout).unwrap_or(TIMEOUT),
            keep_alive: settings.wait(Setting::KeepAlive).unwrap_or(KEEP_ALIVE),
        })
    }

    /// What the client is told, once it is known where the broker is.
    #[must_use]
    pub fn settings(
        &self,
        target: Target,
        tls: Option<ClientTls>,
        authentication: Authentication,
    ) -> Settings {
        Settings {
            tls,
            authentication,
            connect_timeout: self.connect_timeout,
            connect_retries: self.connect_retries,
            request_timeout: self.request_timeout,
            keep_alive: self.keep_alive,
            ..Settings::new(target, self.client_id.clone())
        }
    }

    /// The files whose content nobody else should read, if any are used.
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
    /// The broker as a URL; none: it is inside this process.
    #[must_use]
    pub fn url(&self) -> Option<String> {
        let (Self::Network { tls, web_socket, .. }, Some(address)) = (self, self.address()) else {
            return None;
        };
        let scheme = match (web_socket, tls) {
            (None, None) => "mqtt",
            (None, Some(_)) => "mqtts",
            (Some(_), None) => "ws",
            (Some(_), Some(_)) => "wss",
        };
        let path = web_socket.as_deref().unwrap_or_default();
        Some(format!("{scheme}://{address}{path}"))
    }

    /// Host and port, as they are said; none: it is inside this process.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        match self {
            Self::Network { host, port, .. } if host.contains(':') => Some(format!("[{host}]:{port}")),
            Self::Network { host, port, .. } => Some(format!("{host}:{port}")),
            Self::Embedded { .. } => None,
        }
    }
}

/// Where the broker is.
///
/// # Errors
/// What does not fit together.
pub fn endpoint(settings: &Resolved) -> Result<Endpoint, CommandError> {
    let port = settings.number(Setting::Port).and_then(|port| u16::try_from(port).ok());
    if let Some(Entry { value: Value::Store(embedded_store), .. }) = settings.get(Setting::Embedded) {
        refuse_without_tls(settings)?;
        if let Some(Entry { origin, .. }) = settings.get(Setting::Port) {
            return Err(origin.error(Setting::Port, "a store inside this process has no port"));
        }
        let data = match embedded_store {
            EmbeddedStore::Folder(folder) => Some(folder.clone()),
            EmbeddedStore::Memory | EmbeddedStore::Off => None,
        };
        return Ok(Endpoint::Embedded { data });
    }
    let (host, port, has_tls) =
        if let Some(Entry { value: Value::Url(url), .. }) = settings.get(Setting::Broker) {
            let has_tls = tls_of_url(settings, url)?;
            (url.broker.host.clone(), port.unwrap_or(url.broker.port), has_tls)
        } else if let Some(entry) = settings.get(Setting::Hostname) {
            // Microsoft's tool takes TLS for granted, and its port even without; so does its command line here.
            (hostname(entry)?, port.unwrap_or(TLS_PORT), !settings.is_on(Setting::Notls))
        } else {
            ("localhost".to_owned(), port.unwrap_or(PLAIN_PORT), false)
        };
    let tls = if has_tls {
        Some(tls_options(settings)?)
    } else {
        refuse_without_tls(settings)?;
        None
    };
    let web_socket = match settings.get(Setting::Broker) {
        Some(Entry { value: Value::Url(url), .. }) => url.broker.web_socket.clone(),
        _ => None,
    };
    Ok(Endpoint::Network { host, port, tls, web_socket })
}

/// The URL says it, unless a higher layer says something else.
fn tls_of_url(settings: &Resolved, url: &Url) -> Result<bool, CommandError> {
    let Some(entry) = settings.get(Setting::Notls) else {
        return Ok(url.broker.tls);
    };
    let is_off = entry.value == Value::Switch(true);
    if settings.rank(Setting::Notls) < settings.rank(Setting::Broker) {
        return Ok(!is_off);
    }
    if is_off && url.broker.tls {
        let (scheme, hint) = match url.broker.web_socket {
            None => ("mqtts", "-b mqtt://HOST[:PORT] for plain MQTT"),
            Some(_) => ("wss", "-b ws://HOST[:PORT] for plain WebSockets"),
        };
        let message = format!("{scheme}:// is with TLS and --notls without");
        let error = entry.origin.error(Setting::Notls, &message);
        return Err(error.hint(of_flag(&entry.origin, hint)));
    }
    Ok(url.broker.tls)
}

fn hostname(entry: &Entry) -> Result<String, CommandError> {
    let Value::Text(host) = &entry.value else {
        return Ok(String::new());
    };
    if host.is_empty() || host.contains("://") || host.contains('@') {
        let what = if entry.origin == Origin::Flag {
            "-n takes the name of a host"
        } else {
            "it takes the name of a host"
        };
        let hint = match &entry.origin {
            Origin::Variable(_) => Setting::Broker.variable() + " takes a URL",
            Origin::File(_) => "broker takes a URL".to_owned(),
            _ => "-b takes a URL".to_owned(),
        };
        return Err(entry.origin.error(Setting::Hostname, what).hint(hint));
    }
    // An address of IPv6 has two colons at least, a name none.
    if let Some((name, port)) = host.split_once(':')
        && !port.contains(':')
    {
        let (what, hint) = match &entry.origin {
            Origin::Variable(_) | Origin::File(_) => {
                ("it takes a host without a port", "the port has a setting of its own".to_owned())
            }
            _ => ("-n takes a host without a port", format!("-n {name} -p {port}")),
        };
        return Err(entry.origin.error(Setting::Hostname, what).hint(hint));
    }
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Ok(plain.to_owned())
}

/// A hint names flags; whoever wrote a file finds the setting of the same name.
fn of_flag(origin: &Origin, hint: &str) -> String {
    match origin {
        Origin::File(_) | Origin::Variable(_) => hint.trim_start_matches("-b ").to_owned(),
        _ => hint.to_owned(),
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

/// What is for TLS, where there is none: a mistake of whoever said both, but not of one who sets a variable once and
/// for all.
fn refuse_without_tls(settings: &Resolved) -> Result<(), CommandError> {
    let said =
        FOR_TLS.iter().filter_map(|setting| settings.get(*setting)).filter(|entry| !entry.value.is_off());
    let endpoint = settings.rank_of_broker();
    for entry in said {
        if entry.origin == Origin::Flag {
            let message = "-T, -C, -K, -P, --server-name and --insecure are for TLS, and there is none";
            return Err(
                CommandError::usage(message).hint("-b mqtts://HOST[:PORT], or -n HOST without --notls")
            );
        }
        if endpoint.is_some() && settings.rank(entry.setting) == endpoint {
            return Err(entry.origin.error(entry.setting, "it is for TLS, and there is none"));
        }
    }
    Ok(())
}

/// What was said of TLS; no file is opened before it is used.
fn tls_options(settings: &Resolved) -> Result<TlsOptions, CommandError> {
    let file = |setting| settings.path(setting);
    let fail = |setting: Setting, flag: &str, other: &str| {
        let origin = settings.get(setting).map_or(Origin::Flag, |entry| entry.origin.clone());
        match origin {
            Origin::Flag => Err(CommandError::usage(flag)),
            origin => Err(origin.error(setting, other)),
        }
    };
    if file(Setting::Keypasswordfile).is_some_and(|path| !path.exists()) {
        return fail(
            Setting::Keypasswordfile,
            "-P takes the name of a file, and there is none of that name (it is not repeated: it may be a password)",
            "there is no file of that name (it is not repeated: it may be a password)",
        );
    }
    let files = (file(Setting::Certfile), file(Setting::Keyfile), file(Setting::Keypasswordfile));
    let identity = match files {
        (Some(certfile), Some(keyfile), keypasswordfile) => {
            Some(IdentityFiles { certfile, keyfile, keypasswordfile })
        }
        (None, None, None) => None,
        (Some(_), None, _) => {
            let other = "it has no use without keyfile";
            return fail(Setting::Certfile, "-C has no use without its key, -K FILE", other);
        }
        (None, Some(_), _) => {
            let other = "it has no use without certfile";
            return fail(Setting::Keyfile, "-K has no use without its certificate, -C FILE", other);
        }
        (None, None, Some(_)) => {
            let flag = "-P has no use without the key that it is for, -C FILE -K FILE";
            return fail(Setting::Keypasswordfile, flag, "it has no use without certfile and keyfile");
        }
    };
    Ok(TlsOptions {
        cafile: file(Setting::Cafile),
        identity,
        server_name: settings.text(Setting::ServerName).map(str::to_owned),
        insecure: settings.is_on(Setting::Insecure),
    })
}

/// Who the client says it is; a password that must be read or asked for is not read yet.
fn login(settings: &Resolved, process: Process) -> Result<Login, CommandError> {
    let is_embedded = settings.get(Setting::Embedded).is_some();
    // Nobody asks for a login within this process; what was typed is an error elsewhere or does no harm.
    let is_used = |setting| !is_embedded || settings.rank(setting) == Some(Rank::Flags);
    if let Some(file) = settings.path(Setting::SatFile).filter(|_| is_used(Setting::SatFile)) {
        return Ok(Login::Known(Authentication::ServiceAccountToken { file }));
    }
    let username = settings.text(Setting::Username).filter(|_| is_used(Setting::Username)).map(str::to_owned);
    let Some(username) = username else {
        for setting in [Setting::PasswordFile, Setting::AskPassword] {
            let entry = settings.get(setting).filter(|entry| is_used(setting) && !entry.value.is_off());
            match entry.map(|entry| &entry.origin) {
                Some(origin @ Origin::Flag) => {
                    return Err(origin
                        .error(setting, "a password has no use without its user")
                        .hint("-u NAME"));
                }
                Some(origin @ Origin::File(_)) => {
                    let error = origin.error(setting, "a password has no use without its user");
                    return Err(error.hint("username = \"NAME\""));
                }
                _ => {}
            }
        }
        return Ok(Login::Known(Authentication::None));
    };
    Ok(match settings.path(Setting::PasswordFile) {
        _ if settings.is_on(Setting::AskPassword) => Login::Ask { username },
        // On a terminal it would be seen.
        Some(file) if file.as_os_str() == "-" && (process.input_is_terminal)() => Login::Ask { username },
        Some(file) if file.as_os_str() == "-" => Login::Input { username },
        file => {
            let password = file.map(PasswordSource::File);
            Login::Known(Authentication::Password { username, password })
        }
    })
}

/// The client id becomes a level of the topics of answers and notifications, the latter in hexadecimal digits.
fn client_id(entry: &Entry) -> Result<String, CommandError> {
    const BYTES_MAX: usize = 1024;
    let Value::Text(id) = &entry.value else {
        return Ok(String::new());
    };
    let wrong = |what: &str| Err(entry.origin.error(Setting::ClientId, what));
    if id.is_empty() {
        return wrong("the client id is empty");
    }
    if id.len() > BYTES_MAX {
        return wrong(&format!("the client id has {} bytes; the limit is {BYTES_MAX}", id.len()));
    }
    if id.contains(|c: char| c.is_control() || c == '+' || c == '#') {
        return wrong("a client id has no control characters, no + and no #");
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
        Endpoint::Network { host, port, tls: None, web_socket: None }
    }

    fn with_tls(host: &str, port: u16, options: TlsOptions) -> Endpoint {
        let host = host.to_owned();
        Endpoint::Network { host, port, tls: Some(options), web_socket: None }
    }

    #[test]
    fn with_nothing_configured_the_broker_is_here() {
        assert_eq!(settings("mqkv get k").unwrap(), network("localhost", 1883));
        assert_eq!(settings("mqkv get k -p 1884").unwrap(), network("localhost", 1884));
    }

    #[test]
    fn a_host_takes_tls_for_granted() {
        let tls = TlsOptions::default();
        assert_eq!(settings("mqkv get k -n aio-broker").unwrap(), with_tls("aio-broker", 8883, tls.clone()));
        assert_eq!(settings("mqkv get k -b mqtts://h:1").unwrap(), with_tls("h", 1, tls));
        assert_eq!(settings("mqkv get k -n aio-broker --notls").unwrap(), network("aio-broker", 8883));
        assert_eq!(settings("mqkv get k --host ::1 -p 1883 --no-tls").unwrap(), network("::1", 1883));
    }

    #[test]
    fn what_is_for_tls_needs_tls() {
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

    #[test]
    fn an_embedded_store_is_in_memory_or_in_a_folder() {
        assert_eq!(settings("mqkv --embedded get k").unwrap(), Endpoint::Embedded { data: None });
        let data = Some(PathBuf::from("dir"));
        assert_eq!(settings("mqkv get --embedded=dir k").unwrap(), Endpoint::Embedded { data });
    }

    #[test]
    fn a_password_in_place_of_a_file_is_not_repeated() {
        let error = settings("mqkv get k -n h -P hunter2").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
        let variables = [("MQKV_HOSTNAME", "h"), ("MQKV_KEYPASSWORDFILE", "hunter2")];
        let error = connection_with("mqkv get k", &variables).unwrap_err();
        assert!(error.message.starts_with("MQKV_KEYPASSWORDFILE: "), "{error:?}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn a_client_says_who_it_is_in_one_way() {
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
    fn inside_a_pod_the_variables_of_the_sdk_are_enough() {
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
    fn ports_and_tls_of_higher_layers_change_a_url() {
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
    fn what_is_set_for_all_brokers_is_no_error_at_one_without_tls() {
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
    fn bad_values_are_told_with_where_they_come_from() {
        for (name, value) in [("MQKV_CLIENT_ID", "a+b"), ("MQKV_HOSTNAME", "mqtt://h")] {
            let error = connection_with("mqkv get k", &[(name, value)]).unwrap_err();
            assert!(error.message.starts_with(&format!("{name}: ")), "{error:?}");
            assert_eq!(error.kind, crate::commands::Kind::Configuration);
        }
    }
}
