//! `serve`: a broker with a state store, until a signal.

pub mod data;
pub mod door;
mod rules;
pub mod user;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::args::DisplayArgs;
use super::aside::aside;
use super::descriptors;
use super::exit::Exit;
use super::log::Log;
use super::permissions;
use data::DataArgs;
use door::{ClientCertificate, Door, Settled};
use user::ServeAction;

use crate::commands::signal::Signals;
use crate::commands::{CommandError, Kind};
use crate::server::{
    self, Event, Identities, IdentityFiles, Limits, ListenerSettings, Settings, StoreServer, StoreSettings,
    Tls, TlsFiles, WebSocketSettings,
};

const EXAMPLES: &str = "\
Examples:
  mqkv serve                            in memory: gone at the end
  mqkv serve --data ./state             everything is kept in ./state
  mqkv serve --data ./state --persist custom
  mqkv serve --data ./state --verify    what is in there, and whether it is whole
  mqkv serve --listen 0.0.0.0:1883      for other machines too
  mqkv serve --listen 127.0.0.1:0 --port-file port
  mqkv serve --tls-cert server.pem --tls-key server.key --client-ca ca.pem
  mqkv serve --users users              for those only whom `mqkv serve user add users NAME` has added
  mqkv serve --sat-tokens tokens        for those only who bear one of the tokens in the lines NAME TOKEN
  mqkv serve --listen 127.0.0.1:1883 --listen ws://127.0.0.1:8080/mqtt
  mqkv serve --users users --listen 'mqtt://127.0.0.1:1883?anonymous=yes' --listen mqtt://0.0.0.0:1884

A URL behind --listen says what is spoken there: mqtt:// or ws:// (WebSockets), with TLS mqtts:// or wss://. What
differs from the other options stands behind a ?, with & between:
  anonymous=yes|no                      whether those come in who do not say who they are; yes by default, without
                                        --users and --sat-tokens
  client-cert=required|optional|none    whether clients are asked for a certificate; required by default, with
                                        --client-ca

--authz takes rules in the shape of the product's BrokerAuthorization, in YAML or JSON. What no rule allows is refused:
  rules:
  - principals: {clientIds: [press-7], usernames: [ann], attributes: [{CN: press 7, O: Werk}]}
    brokerResources:
    - method: Connect
    - {method: Publish, topics: [statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke]}
    - {method: Publish, topics: [\"clients/{principal.clientId}/#\"]}
    - {method: Subscribe, topics: [\"clients/{principal.clientId}/#\"]}
    stateStoreResources:
    - {method: ReadWrite, keyType: Pattern, keys: [\"line1/*\", \"{principal.clientId}/*\"]}
A client needs the right to publish to the topic that it wants its answers on, too. A SIGHUP reads the file again.

The files of --users and --sat-tokens are read again whenever somebody comes in. One that has become unreadable
changes nothing, but is told.";

/// How long what still runs may take at the end: checks of passwords, and files being read.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Run a broker with a state store
///
/// Any MQTT 5 client can use it. In memory, gone at the end, unless --data names a folder.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ServeArgs {
    /// Something else than to serve
    #[command(subcommand)]
    pub action: Option<ServeAction>,
    /// Where to listen, as HOST:PORT or a URL; may be given several times [default: 127.0.0.1:1883, with TLS 8883, and, if available, the same port of [::1]]
    #[arg(long, value_name = "HOST:PORT|URL", value_parser = Door::parse)]
    pub listen: Vec<Door>,
    #[command(flatten)]
    pub data: DataArgs,
    /// TLS, with this certificate and those that lead to its CA, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate from one of these CAs, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// Let in only the users of this file, with their passwords
    #[arg(long, value_name = "FILE")]
    pub users: Option<PathBuf>,
    /// Let in only bearers of the service account tokens of this file; with --users both
    #[arg(long, value_name = "FILE")]
    pub sat_tokens: Option<PathBuf>,
    /// Let clients do only what the rules in this file allow; read again at a SIGHUP
    #[arg(long, value_name = "FILE")]
    pub authz: Option<PathBuf>,
    /// How many keys there may be
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys_max: Option<u64>,
    /// Write the first port to this file once it is open
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
}

/// Runs the verb: listens, says so, writes the port file, and serves until a signal.
///
/// # Errors
/// An address is taken, or the folder cannot be used.
pub fn run(args: &ServeArgs, display: &DisplayArgs) -> Result<Exit, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::new(Kind::Bug, format!("cannot start: {error}")))?;
    let (log, writer) = Log::start()?;
    warn_of_few_descriptors(&log, display);
    let result = runtime.block_on(async {
        let mut signals = if args.authz.is_some() { Signals::besides_hangup() } else { Signals::new() }?;
        // What is read at the start may be a pipe, or on a disk that hangs.
        let (server, doors) = tokio::select! {
            biased;
            started = start(args, display, log.clone()) => started?,
            signal = signals.next() => return Ok(Exit::from(signal.verdict())),
        };
        if let Some(path) = &args.port_file {
            write_port(path, server.addresses())?;
        }
        if !display.quiet {
            let doors: Vec<_> = doors.into_iter().zip(server.addresses().iter().copied()).collect();
            log.tell(ready(&doors, args));
        }
        let reloading = server.reloader().cloned().map(rules::reload_at_hangup).transpose()?;
        signals.next().await;
        if let Some(reloading) = reloading {
            reloading.abort();
        }
        server.shutdown().await;
        Ok(Exit::Yes)
    });
    // A file that cannot be read is not waited for.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    drop(log);
    writer.finish();
    result
}

/// A server that takes fewer connections than it says should say so before somebody finds out.
fn warn_of_few_descriptors(log: &Log, display: &DisplayArgs) {
    /// Listeners, standard streams, the disk, what the runtime needs.
    const OWN: u64 = 64;
    let wanted = u64::from(Settings::default().connections_max).saturating_add(OWN);
    if let Some(limit) = descriptors::raise_limit()
        && limit < wanted
        && !display.quiet
    {
        let room = limit.saturating_sub(OWN);
        log.tell(format!(
            "warning: the system lets this process have about {room} connections: `ulimit -n {wanted}` for more"
        ));
    }
}

async fn start(
    args: &ServeArgs,
    display: &DisplayArgs,
    log: Log,
) -> Result<(StoreServer, Vec<Settled>), CommandError> {
    let (quiet, verbose) = (display.quiet, display.verbose);
    let doors = door::settle(args)?;
    let files = IdentityFiles { users: args.users.clone(), tokens: args.sat_tokens.clone() };
    let identities = aside(move || Identities::load(&files)).await??;
    if !quiet {
        let secrets = [&args.users, &args.sat_tokens, &args.tls_key].into_iter().flatten();
        secrets.filter_map(|file| permissions::warning(file)).for_each(|warning| log.tell(warning));
    }
    let (listeners, doors) = listeners(args, doors).await?;
    let events = move |event: Event| {
        if verbose || (event.is_trouble() && !quiet) {
            log.tell(event.to_string());
        }
    };
    let settings = Settings {
        listeners,
        identities: Arc::new(identities),
        authorizer: rules::load(args.authz.as_deref())?,
        events: Arc::new(events),
        ..Settings::default()
    };
    let mut limits = Limits::default();
    if let Some(keys_max) = args.keys_max {
        limits.keys_max = usize::try_from(keys_max).unwrap_or(usize::MAX);
    }
    let store = StoreSettings { limits, persistence: args.data.persistence(), ..StoreSettings::default() };
    Ok((StoreServer::start(settings, store).await.map_err(failure)?, doors))
}

/// What the server is told of each door, one for each address; and the door again that it is of.
async fn listeners(
    args: &ServeArgs,
    doors: Vec<Settled>,
) -> Result<(Vec<ListenerSettings>, Vec<Settled>), CommandError> {
    let (mut listeners, mut of) = (Vec::new(), Vec::new());
    for door in doors {
        let web_socket = door.has_web_sockets;
        let web_socket = web_socket.then(|| WebSocketSettings { path: door.door.path().map(str::to_owned) });
        let tls = tls(args, &door).await?;
        for address in resolve(&door.door).await? {
            let (tls, web_socket) = (tls.clone(), web_socket.clone());
            listeners.push(ListenerSettings { address, tls, web_socket, is_anonymous: door.is_anonymous });
            of.push(door.clone());
        }
    }
    Ok((listeners, of))
}

async fn tls(args: &ServeArgs, door: &Settled) -> Result<Option<Tls>, CommandError> {
    let (true, Some(certfile), Some(keyfile)) = (door.has_tls, &args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let wanted = match door.client_certificate {
        ClientCertificate::Required => Some(server::ClientCertificate::Required),
        ClientCertificate::Optional => Some(server::ClientCertificate::Optional),
        ClientCertificate::None => None,
    };
    let client_ca = args.client_ca.clone().zip(wanted);
    let files = TlsFiles { certfile: certfile.clone(), keyfile: keyfile.clone(), client_ca };
    Ok(Some(aside(move || Tls::load(&files)).await??))
}

/// Why a server did not start, for the user.
pub fn failure(error: server::Error) -> CommandError {
    match &error {
        server::Error::Bind { address, cause } => {
            let port = address.port();
            let hint = match cause.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    format!(
                        "--listen 0.0.0.0:{port} for all addresses of this machine: it has no {}",
                        address.ip()
                    )
                }
                io::ErrorKind::PermissionDenied => "a port above 1023".to_owned(),
                _ => {
                    let any = SocketAddr::new(address.ip(), 0);
                    format!("--listen {any} for any free port, or end what listens there")
                }
            };
            CommandError::new(Kind::Unavailable, error.to_string()).hint(hint)
        }
        server::Error::Journal(journal) => data::failure(journal),
        server::Error::Settings(_) | server::Error::Thread(_) => {
            CommandError::new(Kind::Bug, error.to_string())
        }
    }
}

async fn resolve(door: &Door) -> Result<Vec<SocketAddr>, CommandError> {
    let Door { host, port, is_required, .. } = door;
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let unknown = |error| CommandError::new(Kind::Unavailable, format!("cannot find {host}:{port}: {error}"));
    // A machine without IPv6 is no reason to fail, nor is somebody else's listener there.
    Ok(found.map_err(unknown)?.filter(|address| *is_required || TcpListener::bind(address).is_ok()).collect())
}

/// The file appears with its content: whoever waits for it need not look twice.
fn write_port(path: &Path, addresses: &[SocketAddr]) -> Result<(), CommandError> {
    let failed = |error| CommandError::file("write", path, &error);
    let port = addresses.first().map_or(0, SocketAddr::port);
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, format!("{port}\n")).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

fn ready(doors: &[(Settled, SocketAddr)], args: &ServeArgs) -> String {
    format!("listening on {}, {}", door::words(doors), args.data.words())
}
