//! From what was typed to what is meant; the only reader of the environment.
#![expect(clippy::disallowed_methods, reason = "this file is the owner of the environment")]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::pin::Pin;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::args::{ColorWhen, ConnectionArgs, DisplayArgs, OutputFormat};
use super::broker::{self, PLAIN_PORT, TLS_PORT};
use super::{report, terminal};
use crate::chance;
use crate::client::authentication::first_line;
use crate::client::{
    Authentication, IdentityFiles, PasswordSource, Secret, Settings, Target, Tls, TlsOptions,
};
use crate::clock;
use crate::commands::{CommandError, FENCING_TOKEN, FENCING_TOKEN_FILE, Kind, LOCK_HOLDER, Surroundings};
use crate::protocol::Timestamp;
use crate::render::{Format, Style};

/// Where to connect to, and how.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where the broker is.
    pub place: Place,
    /// Who the client says it is.
    pub login: Login,
    client_id: String,
    connect_timeout: Duration,
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
pub enum Place {
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

impl Connection {
    /// What the client is told, once it is known where the broker is.
    #[must_use]
    pub fn settings(&self, target: Target, tls: Option<Tls>, authentication: Authentication) -> Settings {
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
}

/// Settles where to connect to.
///
/// # Errors
/// A usage error.
pub fn connection(args: &ConnectionArgs) -> Result<Connection, CommandError> {
    let (place, user_of_url) = place(args)?;
    Ok(Connection {
        place,
        login: login(args, user_of_url)?,
        client_id: match &args.client_id {
            Some(id) => client_id(id)?,
            None => default_client_id(),
        },
        connect_timeout: args.connect_timeout,
        connect_retries: args.retries,
        request_timeout: args.timeout,
        keep_alive: args.keep_alive,
    })
}

/// The client id becomes a level of the topics of answers and notifications, the latter in hexadecimal digits.
fn client_id(id: &str) -> Result<String, CommandError> {
    const BYTES_MAX: usize = 1024;
    if id.is_empty() {
        return Err(CommandError::usage("the client id is empty"));
    }
    if id.len() > BYTES_MAX {
        let message = format!("the client id has {} bytes; the limit is {BYTES_MAX}", id.len());
        return Err(CommandError::usage(message));
    }
    if id.contains(|c: char| c.is_control() || c == '+' || c == '#') {
        return Err(CommandError::usage("a client id has no control characters, no + and no #"));
    }
    Ok(id.to_owned())
}

/// Who the client says it is; a password that must be read or asked for is not read yet.
fn login(args: &ConnectionArgs, user_of_url: Option<String>) -> Result<Login, CommandError> {
    let username = match (&args.username, user_of_url) {
        (Some(typed), Some(of_url)) if *typed != of_url => {
            return Err(CommandError::usage("-u names another user than the URL does").hint("one of the two"));
        }
        (typed, of_url) => typed.clone().or(of_url),
    };
    if let Some(file) = &args.sat_file {
        if username.is_some() {
            let message = "--sat-file says who the client is, and so does the user's name";
            return Err(CommandError::usage(message).hint("one of the two"));
        }
        return Ok(Login::Known(Authentication::ServiceAccountToken { file: file.clone() }));
    }
    let Some(username) = username else {
        if args.password_file.is_some() || args.ask_password {
            return Err(CommandError::usage("a password has no use without its user").hint("-u NAME"));
        }
        return Ok(Login::Known(Authentication::None));
    };
    Ok(match &args.password_file {
        _ if args.ask_password => Login::Ask { username },
        // On a terminal it would be seen.
        Some(file) if file.as_os_str() == "-" && io::stdin().is_terminal() => Login::Ask { username },
        Some(file) if file.as_os_str() == "-" => Login::Input { username },
        file => {
            let password = file.clone().map(PasswordSource::File);
            Login::Known(Authentication::Password { username, password })
        }
    })
}

fn place(args: &ConnectionArgs) -> Result<(Place, Option<String>), CommandError> {
    let mut user_of_url = None;
    let mut web_socket = None;
    let (host, port, tls) = if let Some(url) = &args.broker {
        let broker::BrokerUrl { user, host, port, tls, web_socket: path } = broker::parse(url)?;
        (user_of_url, web_socket) = (user, path);
        if tls && args.notls {
            let (scheme, hint) = match web_socket {
                None => ("mqtts", "-b mqtt://HOST[:PORT] for plain MQTT"),
                Some(_) => ("wss", "-b ws://HOST[:PORT] for plain WebSockets"),
            };
            let message = format!("{scheme}:// is with TLS and --notls without");
            return Err(CommandError::usage(message).hint(hint));
        }
        (host, port, tls)
    } else {
        let (host, tls, port) = match &args.hostname {
            Some(host) if host.is_empty() || host.contains("://") || host.contains('@') => {
                return Err(CommandError::usage("-n takes the name of a host").hint("-b takes a URL"));
            }
            // Microsoft's tool takes TLS for granted, and its port even without; so does its command line here.
            Some(host) => (host.as_str(), !args.notls, TLS_PORT),
            None => ("localhost", false, PLAIN_PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (host.to_owned(), args.port.unwrap_or(port), tls)
    };
    let options = tls_options(args)?;
    if tls {
        return Ok((Place::Network { host, port, tls: Some(options), web_socket }, user_of_url));
    }
    if options != TlsOptions::default() {
        let message = "-T, -C, -K, -P, --server-name and --insecure are for TLS, and there is none";
        return Err(CommandError::usage(message).hint("-b mqtts://HOST[:PORT], or -n HOST without --notls"));
    }
    let place = match &args.embedded {
        Some(data) => Place::Embedded { data: data.clone() },
        None => Place::Network { host, port, tls: None, web_socket },
    };
    Ok((place, user_of_url))
}

/// What was said of TLS; no file is opened before it is used.
fn tls_options(args: &ConnectionArgs) -> Result<TlsOptions, CommandError> {
    if args.keypasswordfile.as_ref().is_some_and(|path| !path.exists()) {
        return Err(CommandError::usage(
            "-P takes the name of a file, and there is none of that name (it is not repeated: it may be a password)",
        ));
    }
    let identity = match (&args.certfile, &args.keyfile, &args.keypasswordfile) {
        (Some(certfile), Some(keyfile), keypasswordfile) => Some(IdentityFiles {
            certfile: certfile.clone(),
            keyfile: keyfile.clone(),
            keypasswordfile: keypasswordfile.clone(),
        }),
        (None, None, None) => None,
        (Some(_), None, _) => return Err(CommandError::usage("-C has no use without its key, -K FILE")),
        (None, Some(_), _) => {
            return Err(CommandError::usage("-K has no use without its certificate, -C FILE"));
        }
        (None, None, Some(_)) => {
            return Err(CommandError::usage("-P has no use without the key that it is for, -C FILE -K FILE"));
        }
    };
    Ok(TlsOptions {
        cafile: args.cafile.clone(),
        identity,
        server_name: args.server_name.clone(),
        insecure: args.insecure,
    })
}

/// A client id for this run alone: two runs with one id would take over each other's session.
fn default_client_id() -> String {
    let random = chance::number() & 0xFFFF_FFFF;
    format!("mqkv-{}-{random:08x}", host_name())
}

fn host_name() -> String {
    /// The longest label of a host name.
    const LEN_MAX: usize = 63;
    let named = |name| env::var(name).ok();
    let name = named("HOSTNAME")
        .or_else(|| named("COMPUTERNAME"))
        .or_else(|| fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .or_else(|| fs::read_to_string("/etc/hostname").ok())
        .unwrap_or_default();
    let label = name.trim().split('.').next().unwrap_or_default();
    let plain: String =
        label.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).take(LEN_MAX).collect();
    if plain.is_empty() { "host".to_owned() } else { plain }
}

/// Whether there is a terminal on which something may move.
#[must_use]
pub fn shows_progress() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_none_or(|value| value != "dumb")
}

/// Settles what the output looks like; `json` is what the verb prefers.
#[must_use]
pub fn style(args: &DisplayArgs, json: bool) -> Style {
    let format = match args.output {
        _ if args.json => Format::Json,
        OutputFormat::Json | OutputFormat::Jsonl => Format::Json,
        OutputFormat::Text => Format::Text,
        OutputFormat::Raw => Format::Raw,
        OutputFormat::Hex => Format::Hex,
        OutputFormat::Base64 => Format::Base64,
        OutputFormat::Auto if json => Format::Json,
        OutputFormat::Auto if io::stdout().is_terminal() => Format::Text,
        OutputFormat::Auto => Format::Lines,
    };
    Style {
        format,
        color_data: color(args.color, io::stdout().is_terminal()),
        color_words: color(args.color, io::stderr().is_terminal()),
        words_on_terminal: io::stderr().is_terminal(),
        verbose: args.verbose,
        quiet: args.quiet,
    }
}

fn color(when: ColorWhen, terminal: bool) -> bool {
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
                || env::var_os("TERM").is_some_and(|value| value == "dumb");
            terminal && !refused
        }
    }
}

/// Whether somebody sits at a terminal, before standard input and standard output.
#[must_use]
pub fn is_at_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether standard input is a terminal.
#[must_use]
pub fn is_input_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Where the history of the shell is kept.
#[must_use]
pub fn history() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("mqkv").join("history"))
}

/// What the user's own shell is.
#[must_use]
pub fn login_shell() -> OsString {
    env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into())
}

/// What the verbs get from this process.
#[must_use]
pub fn surroundings() -> Surroundings {
    Surroundings {
        read_input,
        open_input: || Box::new(io::stdin()),
        input_is_terminal: || io::stdin().is_terminal(),
        end_of_input,
        inherited_fence,
        inherited_holder: || env::var_os(LOCK_HOLDER),
        private_folder,
        now: clock::monotonic,
        wall_ms: clock::wall_ms,
        chance: chance::number,
        output_closed: report::output_closed,
        columns: terminal::columns,
    }
}

/// Reads a password from standard input, all of which is taken for it.
///
/// # Errors
/// There is none, or it is too long.
pub fn read_password() -> Result<Secret, CommandError> {
    const BYTES_MAX: usize = 65_535;
    let failed =
        |error: io::Error| CommandError::new(Kind::File, format!("cannot read standard input: {error}"));
    let password = first_line(Secret::new(read_input(BYTES_MAX).map_err(failed)?));
    match password.bytes() {
        [] => Err(CommandError::usage("there is no password on standard input")),
        _ => Ok(password),
    }
}

fn read_input(max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads standard input in a thread of its own: whoever waits for its end must not wait for the thread, too.
fn end_of_input() -> Pin<Box<dyn Future<Output = ()>>> {
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        // Input that cannot be read has no end that could mean anything.
        if io::copy(&mut io::stdin().lock(), &mut io::sink()).is_ok() {
            let _ = ended.send(());
        }
    });
    Box::pin(async move {
        if end.await.is_err() {
            std::future::pending().await
        }
    })
}

/// A folder of this user's, in memory where the system has one.
fn private_folder() -> PathBuf {
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    folder.filter(|folder| folder.is_absolute() && folder.is_dir()).unwrap_or_else(env::temp_dir)
}

/// The file goes first: whoever renews the lock writes the newer token there.
fn inherited_fence() -> Result<Timestamp, CommandError> {
    let (source, text) = if let Some(path) = env::var_os(FENCING_TOKEN_FILE) {
        let path = PathBuf::from(path);
        let text = fs::read_to_string(&path).map_err(|error| CommandError::file("read", &path, &error))?;
        (FENCING_TOKEN_FILE, text)
    } else if let Ok(text) = env::var(FENCING_TOKEN) {
        (FENCING_TOKEN, text)
    } else {
        let message =
            format!("--fence-env finds no token: neither {FENCING_TOKEN_FILE} nor {FENCING_TOKEN} is set");
        return Err(CommandError::usage(message).hint("--fence TOKEN"));
    };
    text.trim()
        .parse()
        .map_err(|error| CommandError::usage(format!("{source} holds no fencing token: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Cli;
    use clap::Parser;

    fn settled(line: &str) -> Result<Place, CommandError> {
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        Ok(connection(&cli.options.connection)?.place)
    }

    fn network(host: &str, port: u16) -> Place {
        let host = host.to_owned();
        Place::Network { host, port, tls: None, web_socket: None }
    }

    fn with_tls(host: &str, port: u16, options: TlsOptions) -> Place {
        let host = host.to_owned();
        Place::Network { host, port, tls: Some(options), web_socket: None }
    }

    #[test]
    fn with_nothing_configured_the_broker_is_here() {
        assert_eq!(settled("mqkv get k").unwrap(), network("localhost", 1883));
        assert_eq!(settled("mqkv get k -p 1884").unwrap(), network("localhost", 1884));
    }

    #[test]
    fn a_host_takes_tls_for_granted() {
        let tls = TlsOptions::default();
        assert_eq!(settled("mqkv get k -n aio-broker").unwrap(), with_tls("aio-broker", 8883, tls.clone()));
        assert_eq!(settled("mqkv get k -b mqtts://h:1").unwrap(), with_tls("h", 1, tls));
        assert_eq!(settled("mqkv get k -n aio-broker --notls").unwrap(), network("aio-broker", 8883));
        assert_eq!(settled("mqkv get k --host ::1 -p 1883 --no-tls").unwrap(), network("::1", 1883));
    }

    #[test]
    fn what_is_for_tls_needs_tls() {
        let cafile = Some(PathBuf::from("ca"));
        let options = TlsOptions { cafile, ..TlsOptions::default() };
        assert_eq!(settled("mqkv get k -n h -T ca").unwrap(), with_tls("h", 8883, options));
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
            assert!(settled(line).is_err(), "{line}");
        }
    }

    #[test]
    fn an_embedded_store_is_in_memory_or_in_a_folder() {
        assert_eq!(settled("mqkv --embedded get k").unwrap(), Place::Embedded { data: None });
        let data = Some(PathBuf::from("dir"));
        assert_eq!(settled("mqkv get --embedded=dir k").unwrap(), Place::Embedded { data });
    }

    #[test]
    fn a_password_in_place_of_a_file_is_not_repeated() {
        let error = settled("mqkv get k -P hunter2").unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn a_client_says_who_it_is_in_one_way() {
        let login = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).map_err(|_| ())?;
            Ok(connection(&cli.options.connection).map_err(|_| ())?.login)
        };
        let password = |password| {
            let username = "u".to_owned();
            Ok(Login::Known(Authentication::Password { username, password }))
        };
        let file = || Some(PasswordSource::File("f".into()));
        assert_eq!(login("mqkv get k"), Ok(Login::Known(Authentication::None)));
        assert_eq!(login("mqkv get k -u u --password-file f"), password(file()));
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
    fn every_run_has_a_client_id_of_its_own() {
        let (one, other) = (default_client_id(), default_client_id());
        assert_ne!(one, other);
        assert!(one.starts_with("mqkv-") && !one.contains([':', '/', '+', '#', ' ']), "{one}");
    }
}
