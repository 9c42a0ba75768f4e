//! `serve`: a broker with a state store, until a signal.

pub mod data;
mod exec;
mod limits;
pub mod listener;
mod logging;
pub mod misplaced;
mod operations;
mod reload;
mod rules;
mod seed;
mod systemd;
pub mod user;

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;

use super::args::DisplayArgs;
use super::descriptors;
use super::runtime;
use crate::cli::detached::aside;
use data::DataArgs;
use exec::ExecArgs;
use limits::LimitArgs;
use listener::{ClientCertificate, Door, Settled};
use logging::{Teller, Told};
use operations::{LogFormat, OperationsArgs};
use reload::Hangups;
use user::ServeAction;

use crate::broker;
use crate::commands::process::signal::Signals;
use crate::commands::{CommandError, Kind, Verdict, duration, more_of};
use crate::render::log::Field;
use crate::server::{
    self, AdminSettings, Identities, IdentityFiles, ListenerSettings, ServerTls, ServerTlsFiles, Settings,
    StoreServer, StoreSettings, WebSocketSettings,
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
  mqkv serve --admin 9883               with http://127.0.0.1:9883/ to look at, and its /metrics and /healthz
  mqkv serve --seed defaults.jsonl --exec -- ./test.sh    a store for one command, with these keys in it

A URL behind --listen says what is spoken there: mqtt:// or ws:// (WebSockets), with TLS mqtts:// or wss://. What \
differs from the other options stands behind a ?, with & between:
  anonymous=yes|no                      whether those come in who do not say who they are;
                                        yes by default, without --users and --sat-tokens
  client-cert=required|optional|none    whether clients are asked for a certificate;
                                        required by default, with --client-ca

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
attributes are those of the client's certificate: of its subject by their short names (CN, O, OU, L, ST, C, UID, DC, \
serialNumber, emailAddress; others by their numbers), and DNS, IP, URI and email of its alternative names. All of one \
entry must be there; a name that comes several times is any of its values, and in {principal.attributes.NAME} the first. \
A client needs the right to publish to the topic that it wants its answers on, too.

A SIGHUP reads the files of --authz, and of --tls-cert, --tls-key and --client-ca, again, and disconnects nobody. A \
subscription that is not allowed any more brings nothing until it is allowed again; whoever comes from then on is shown \
the new certificate, and needs one from the new CAs. A mistake is told, and what was read before stays in force: for \
the rules by themselves, and for all files of TLS together.

The files of --users and --sat-tokens are read again whenever somebody comes in. One that has become unreadable \
changes nothing, but is told. A session is its user's: the same client id leads nobody else to it.

--exec sets MQKV_BROKER, and AIO_BROKER_HOSTNAME, AIO_BROKER_TCP_PORT and AIO_MQTT_USE_TLS, for its command; without \
--listen the store is at a free port of 127.0.0.1. What else the environment says of the way to another broker, and of \
who one is there, is kept from it, but for what these options give a meaning: users, tokens, TLS. If the file of \
--tls-cert ends with a certificate that has signed itself, MQKV_CAFILE and AIO_TLS_CA_FILE name it; for another, set \
them to the file of its CA. Signals are passed on to the command; mqkv is silent but for -v.

--admin serves what can be looked at and nothing that changes anything, to whoever can reach the address: there is no \
password. A name is served only if it was given here; an address and localhost always are.

SIGTERM and SIGINT end it: nobody else comes in, what came in is answered, exit 0. So does SIGHUP where there is neither \
--authz nor TLS; with --exec it is the command's, unless there is --authz.";

/// How long what the runtime still has to do may take at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The most threads that serve connections: there is one store behind them all.
const THREADS_MAX: usize = 16;

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
    /// Let pages of this origin, such as https://dash.example, use WebSockets from a browser; * for all; may be given several times [default: pages of this machine, and of the address listened on]
    #[arg(long, value_name = "ORIGIN", value_parser = listener::parse_origin)]
    pub ws_origin: Vec<String>,
    #[command(flatten)]
    pub data: DataArgs,
    /// TLS, with this certificate and those that lead to its CA, in PEM; read again at a SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM; read again at a SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate from one of these CAs, in PEM; read again at a SIGHUP
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
    /// Write the first port to this file once it is open
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
    /// What operators see.
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// What it begins with, and what it is started for.
    #[command(flatten)]
    pub run: ExecArgs,
    /// How much it takes; last, for its heading in the help is that of whatever follows it.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// Runs the verb: listens, says so, writes the port file, and serves until a signal or until its command has ended.
///
/// # Errors
/// An address is taken, the folder or the seed cannot be used, or the command cannot be started.
pub fn run(args: &ServeArgs, display: &DisplayArgs) -> Result<Verdict, CommandError> {
    let runtime = runtime::here()?;
    let (teller, writer) =
        Teller::start(args.operations.log.unwrap_or(LogFormat::Text), how_much_is_told(args, display))?;
    let result = runtime.block_on(serve(args, display.verbose, &teller));
    // A file that cannot be read is not waited for.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    drop(teller);
    writer.finish();
    result
}

/// With a command, standard error is the command's, unless more is asked for.
fn how_much_is_told(args: &ServeArgs, display: &DisplayArgs) -> Told {
    match (display.quiet, display.verbose || args.operations.log.is_some()) {
        (true, _) => Told::Nothing,
        (false, true) => Told::Everything,
        (false, false) if args.run.exec => Told::Nothing,
        (false, false) => Told::ErrorPolicy,
    }
}

async fn serve(args: &ServeArgs, is_verbose: bool, teller: &Teller) -> Result<Verdict, CommandError> {
    let hangups = Hangups::listen(args)?;
    let signals = if hangups.is_some() { Signals::besides_hangup() } else { Signals::new() };
    let mut signals = signals.map_err(|error| CommandError::system("listen to signals", &error))?;
    // What is read at the start may be a pipe, or on a disk that hangs.
    let started = async {
        let entries = seed::read(args.run.seed.as_deref()).await?;
        let (server, doors) = start(args, is_verbose, teller).await?;
        Ok::<_, CommandError>((seed::load(server, entries).await?, doors))
    };
    let (mut server, doors) = tokio::select! {
        biased;
        started = started => started?,
        signal = signals.next() => return Ok(signal.verdict()),
    };
    server.open();
    if let Some(path) = &args.port_file {
        write_port(path, server.addresses())?;
    }
    let doors: Vec<_> = doors.into_iter().zip(server.addresses().iter().copied()).collect();
    let reloading = hangups.map(|hangups| hangups.reload(&server, args, teller));
    let verdict = if args.run.exec {
        exec::run(args, &doors, &mut signals).await?
    } else {
        say_ready(teller, &doors, &server, args);
        signals.next().await;
        Verdict::Yes
    };
    drop(reloading);
    systemd::stopping();
    let draining = server.drain(args.operations.drain);
    teller.note("stopping", "answering what has come in, then stopping".to_owned());
    tokio::select! {
        biased;
        is_done = draining => {
            if !is_done {
                let within = duration::text(args.operations.drain);
                teller.warn(&format!("not everything that had come in could be answered within {within}"));
            }
            Ok(verdict)
        }
        signal = signals.next() => Ok(signal.verdict()),
    }
}

fn say_ready(teller: &Teller, doors: &[(Settled, SocketAddr)], server: &StoreServer, args: &ServeArgs) {
    let admin: Vec<String> =
        server.admin_addresses().iter().map(|address| format!("http://{address}/")).collect();
    let mut line = ready(doors, args);
    if !admin.is_empty() {
        line = format!("{line}; to look at: {}", admin.join(" and "));
    }
    systemd::ready(&line);
    let brokers = doors.iter().map(|(door, address)| door.broker(*address)).collect();
    teller.ready(line, vec![("brokers", Field::List(brokers)), ("admin", Field::List(admin))]);
}

/// A server that takes fewer connections than it says should say so before somebody finds out.
fn warn_of_few_descriptors(settings: &broker::Settings, teller: &Teller) {
    /// Subscribers, standard streams, the disk, and whoever looks at what operators see.
    const OWN: u64 = 128;
    /// What the runtime of a thread needs.
    const PER_THREAD: u64 = 4;
    let threads = u64::try_from(settings.threads).unwrap_or(u64::MAX);
    let own = threads.saturating_mul(PER_THREAD).saturating_add(OWN);
    let wanted = u64::from(settings.connections_max).saturating_add(own);
    if let Some(limit) = descriptors::raise_limit()
        && limit < wanted
    {
        let room = limit.saturating_sub(own);
        teller.warn(&format!(
            "the system lets this process have about {room} connections: `ulimit -n {wanted}` for more"
        ));
    }
}

async fn start(
    args: &ServeArgs,
    is_verbose: bool,
    teller: &Teller,
) -> Result<(StoreServer, Vec<Settled>), CommandError> {
    let doors = listener::settle(args)?;
    let files = IdentityFiles { users: args.users.clone(), tokens: args.sat_tokens.clone() };
    let identities = aside(move || Identities::load(&files)).await??;
    let secrets = [&args.users, &args.sat_tokens, &args.tls_key].into_iter().flatten();
    secrets.for_each(|file| teller.warn_of_secret(file));
    let (listeners, doors) = listeners(args, doors).await?;
    let events = teller.clone();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let broker = broker::Settings { listeners, threads, ..broker::Settings::default() };
    let settings = Settings {
        broker: args.limits.limit(broker),
        identities: Arc::new(identities),
        authorizer: rules::load(args.authz.clone()).await?,
        events: Arc::new(move |event| events.event(&event)),
    };
    let limits = args.limits.store();
    warn_of_few_descriptors(&settings.broker, teller);
    if is_verbose {
        teller.note("limits", limits::words(&limits, &settings.broker));
    }
    let operations = args.operations.settle().await?;
    for AdminSettings { address, .. } in
        operations.admin.iter().filter(|admin| !admin.address.ip().is_loopback())
    {
        teller.warn(&format!(
            "whoever reaches {address} can read keys and values there: it asks for no password"
        ));
    }
    let persistence = args.data.persistence();
    let store = StoreSettings { limits, persistence, operations, ..StoreSettings::default() };
    Ok((StoreServer::prepare(settings, store).await.map_err(failure)?, doors))
}

/// What the server is told of each door, one for each address; and the door again that it is of.
async fn listeners(
    args: &ServeArgs,
    doors: Vec<Settled>,
) -> Result<(Vec<ListenerSettings>, Vec<Settled>), CommandError> {
    let (mut listeners, mut of) = (Vec::new(), Vec::new());
    for door in doors {
        let web_socket = door.has_web_sockets.then(|| WebSocketSettings {
            path: door.door.path().map(str::to_owned),
            names: vec![door.door.host.clone()],
            origins: args.ws_origin.clone(),
        });
        let tls = tls(args, &door).await?;
        for address in resolve(&door.door).await? {
            let (tls, web_socket) = (tls.clone(), web_socket.clone());
            listeners.push(ListenerSettings { address, tls, web_socket, is_anonymous: door.is_anonymous });
            of.push(door.clone());
        }
    }
    Ok((listeners, of))
}

async fn tls(args: &ServeArgs, door: &Settled) -> Result<Option<ServerTls>, CommandError> {
    let (true, Some(certfile), Some(keyfile)) = (door.has_tls, &args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let wanted = match door.client_certificate {
        ClientCertificate::Required => Some(server::ClientCertificate::Required),
        ClientCertificate::Optional => Some(server::ClientCertificate::Optional),
        ClientCertificate::None => None,
    };
    let client_ca = args.client_ca.clone().zip(wanted);
    let files = ServerTlsFiles { certfile: certfile.clone(), keyfile: keyfile.clone(), client_ca };
    Ok(Some(aside(move || ServerTls::load(files)).await??))
}

/// Why a server did not start, for the user.
pub fn failure(error: server::Error) -> CommandError {
    match &error {
        server::Error::Bind { address, cause } => {
            let port = address.port();
            let hint = match cause.kind() {
                _ if let Some(more) = more_of(cause) => more.to_owned(),
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
        server::Error::Admin { address, cause } => {
            let hint = match cause.kind() {
                _ if let Some(more) = more_of(cause) => more.to_owned(),
                io::ErrorKind::PermissionDenied => "a port above 1023".to_owned(),
                _ => {
                    let any = SocketAddr::new(address.ip(), 0);
                    format!("--admin {any} for any free port, or end what listens there")
                }
            };
            CommandError::new(Kind::Unavailable, error.to_string()).hint(hint)
        }
        server::Error::Storage(journal) => data::failure(journal),
        server::Error::Thread(cause) => CommandError::system("start a thread", cause),
        server::Error::Settings(_) => CommandError::new(Kind::Bug, error.to_string()),
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
    format!("listening on {}, {}", listener::words(doors), args.data.words())
}
