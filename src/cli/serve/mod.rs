//! `serve`: runs a broker with a state store until a signal.

pub mod args;
pub mod cluster;
pub mod configuration;
pub mod exchange;
mod exec;
pub mod limits;
mod listen_address;
mod listener;
pub mod logging;
pub mod operations;
pub mod persistence;
mod port_file;
mod reload;
pub mod rules;
mod seed;
pub mod user;

use std::io;
use std::mem::forget;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::time::sleep;

use self::args::ServeArgs;
use self::exchange::NodeFile;
use self::listen_address::{ClientCertificate, ListenAddress};
use self::listener::Listener;
use self::logging::{EventLog, LogLevel};
use self::operations::LogFormat;
use self::port_file::PortFile;
use self::reload::ReloadSignals;
use super::detached::run_detached;
use super::etcd::cluster_error;
use super::options::DisplayArgs;
use super::{runtime, storage_error};
use crate::broker;
use crate::clock;
use crate::commands::process::signal::exit_of;
use crate::commands::size::Size;
use crate::commands::{CommandError, Exit, Kind, duration, limit_hint};
use crate::platform::{Signals, memory_limit, raise_open_files_limit, release_hangup, service_manager};
use crate::render::escape::escape;
use crate::render::{Style, counted};
use crate::server::{
    self, AdminSettings, CredentialFiles, Identities, ListenerSettings, OperationsSettings, ServerTls,
    ServerTlsFiles, Settings, StoreServer, StoreSettings, WebSocketSettings,
};

/// Time for blocking work that the runtime has not finished at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an instance that has taken over tries to listen, and the pause between two attempts.
const BIND_WITHIN: Duration = Duration::from_secs(5);
const BIND_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of threads that serve connections: they share one store, more threads do not make it faster.
const THREADS_MAX: usize = 16;

/// Runs the server until a signal, or until its command has ended.
///
/// # Errors
/// A listener, the data directory, the seed or the command cannot be used.
pub fn run(args: &ServeArgs, display: &DisplayArgs, style: Style) -> Result<Exit, CommandError> {
    let runtime = runtime::here()?;
    let format = args.operations.log.unwrap_or(LogFormat::Text);
    let (log, writer) = EventLog::start(format, log_level(args, display), style)?;
    let result = runtime.block_on(serve(args, display.verbose, &log));
    // A read that hangs must not delay the exit.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    drop(log);
    writer.finish();
    result
}

/// With --exec standard error belongs to the command, unless -v or --log requests the log.
fn log_level(args: &ServeArgs, display: &DisplayArgs) -> LogLevel {
    match (display.quiet, display.verbose || args.operations.log.is_some()) {
        (true, _) => LogLevel::Off,
        (false, true) => LogLevel::All,
        (false, false) if args.run.exec => LogLevel::Off,
        (false, false) => LogLevel::Warnings,
    }
}

async fn serve(args: &ServeArgs, is_verbose: bool, log: &EventLog) -> Result<Exit, CommandError> {
    let mut port_file = args.port_file.as_deref().map(PortFile::reserve).transpose()?;
    let reload_signals = ReloadSignals::listen(args)?;
    let signals = if reload_signals.is_some() { Signals::except_hangup() } else { Signals::new() };
    let mut signals = signals.map_err(|error| CommandError::system("listen to signals", &error))?;
    release_hangup();
    // A signal ends the start too: a file that it reads can be a pipe or on a file system that hangs.
    let mut starting = Box::pin(async {
        let Some(file) = &args.run.seed else { return start(args, is_verbose, log).await };
        let seed = seed::read(file).await?;
        let Started { server, listeners, exchange } = start(args, is_verbose, log).await?;
        let server = seed::load(server, seed, log).await?;
        Ok::<_, CommandError>(Started { server, listeners, exchange })
    });
    let started = tokio::select! {
        biased;
        started = &mut starting => started,
        signal = signals.next() => {
            // To drop a server would wait for its disk. No client has been answered, and the process ends.
            forget(starting);
            // An instance of a cluster may wait for its name.
            return Ok(if args.cluster.is_given() { Exit::Yes } else { exit_of(signal) });
        }
    };
    let Started { mut server, listeners, exchange } = started?;
    if let Some(instance) = args.cluster.describe() {
        service_manager::ready(&escape(instance.as_bytes()));
        log.note("standby", &format!("standby: {instance} listens when it owns the store"));
        let failed = server.cluster_failed();
        tokio::select! {
            biased;
            _ = signals.next() => return Ok(end_standby(server, args, &mut signals, log).await),
            error = failed => {
                server.shutdown().await;
                return Err(failure(error));
            }
            () = server.serving() => {}
        }
        let bound = tokio::select! {
            biased;
            _ = signals.next() => return Ok(end_standby(server, args, &mut signals, log).await),
            bound = bind(&mut server) => bound,
        };
        if let Err(error) = bound {
            // Another instance takes over at once.
            server.drain(args.operations.drain).await;
            return Err(failure(error));
        }
    }
    server.open();
    if let Some(file) = &mut port_file {
        file.write(server.addresses())?;
    }
    let listeners: Vec<_> = listeners.into_iter().zip(server.addresses().iter().copied()).collect();
    let (exchange, file) = exchange.unzip();
    warn_of_anonymous(&listeners, args.authz.is_some(), file.as_ref().is_some_and(NodeFile::is_root), log);
    let reloading = reload_signals.map(|signals| signals.reload(&server, args, file, log));
    let exit = if args.run.exec {
        exec::run(args, &listeners, &mut signals).await?
    } else {
        log_ready(log, &listeners, &server, args, exchange.as_deref());
        tokio::select! {
            biased;
            _ = signals.next() => {}
            () = server.lost() => {
                drop(port_file);
                server.shutdown().await;
                let error = CommandError::new(Kind::Unavailable, "this instance does not own the store any more");
                return Err(error.hint("start it again: it follows while another instance owns the store"));
            }
        }
        Exit::Yes
    };
    drop(reloading);
    // While its port is still taken: a later server on this port may write the file while this one ends.
    drop(port_file);
    Ok(drain(server, args.operations.drain, true, &mut signals, log).await.unwrap_or(exit))
}

/// Stops a server gracefully within a time; with `warns`, warns if that is too short. Returns the exit of a signal that ended
/// it before.
pub(in crate::cli) async fn drain(
    server: StoreServer,
    within: Duration,
    warns: bool,
    signals: &mut Signals,
    log: &EventLog,
) -> Option<Exit> {
    service_manager::stopping();
    let draining = server.drain(within);
    log.note("stopping", "stopping: answering pending requests");
    tokio::select! {
        biased;
        is_done = draining => {
            if warns && !is_done {
                log.warn(&format!("not all requests were answered within {}", duration::text(within)));
            }
            None
        }
        signal = signals.next() => Some(exit_of(signal)),
    }
}

/// Binds the addresses of an instance that has taken over. The former owner may not have closed them yet.
async fn bind(server: &mut StoreServer) -> Result<(), server::Error> {
    let begun = clock::monotonic();
    loop {
        match server.bind().await {
            Err(server::Error::Bind { cause, .. })
                if is_passing(&cause)
                    && clock::monotonic().saturating_duration_since(begun) < BIND_WITHIN => {}
            result => return result,
        }
        sleep(BIND_PAUSE).await;
    }
}

/// Whether an address may become free, or arrive at this machine, until an instance takes over.
fn is_passing(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

/// Checks that the addresses of an instance that may take over later can be bound. Another instance may have them now.
fn check_addresses(listeners: &[ListenerSettings], log: &EventLog) -> Result<(), CommandError> {
    for ListenerSettings { address, .. } in listeners {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(cause) if is_passing(&cause) => log.warn(&format!(
                "cannot listen on {address} at present: {cause}; tried again when this instance owns the store"
            )),
            Err(cause) => return Err(failure(server::Error::Bind { address: *address, cause })),
        }
    }
    Ok(())
}

/// Ends an instance that listens to nothing yet.
async fn end_standby(server: StoreServer, args: &ServeArgs, signals: &mut Signals, log: &EventLog) -> Exit {
    drain(server, args.operations.drain, false, signals, log).await.unwrap_or(Exit::Yes)
}

fn log_ready(
    log: &EventLog,
    listeners: &[(Listener, SocketAddr)],
    server: &StoreServer,
    args: &ServeArgs,
    exchange: Option<&str>,
) {
    let admin: Vec<String> =
        server.admin_addresses().iter().map(|address| format!("http://{address}/")).collect();
    let state = args.cluster.describe().unwrap_or_else(|| args.data.describe());
    let mut line = format!("listening on {}, {state}", listener::describe(listeners));
    if listeners.iter().all(|(listener, _)| listener.requires_authentication()) {
        line.push_str(", with authentication");
    }
    if let Some(exchange) = exchange {
        line = format!("{line}, {exchange}");
    }
    if !admin.is_empty() {
        line = format!("{line}; status page: {}", admin.join(" and "));
    }
    service_manager::ready(&escape(line.as_bytes()));
    let brokers: Vec<_> = listeners.iter().map(|(listener, address)| listener.broker(*address)).collect();
    log.ready(&line, &brokers, &admin);
}

/// Lowers the limit on connections to what the limit on open files allows: otherwise connections would take the descriptors that
/// the storage needs for its next file. Logs a warning then.
fn fit_descriptors(settings: broker::Settings, log: &EventLog) -> broker::Settings {
    /// Standard streams, storage, files that are read again, the status page and its 64 clients, and 16 connections that are refused
    /// with the reason.
    const OWN: u64 = 128;
    /// Descriptors that the runtime of a thread needs.
    const PER_THREAD: u64 = 4;
    let Some(limit) = raise_open_files_limit() else { return settings };
    let own = (settings.threads as u64).saturating_mul(PER_THREAD).saturating_add(OWN);
    let wanted = u64::from(settings.connections_max).saturating_add(settings.waiting_max().into());
    let fitted = settings.clone().within_sockets(limit.saturating_sub(own));
    if fitted.connections_max < settings.connections_max {
        let (room, wanted) = (counted(fitted.connections_max, "connection"), wanted.saturating_add(own));
        log.warn(&format!("the limit on open files allows {room}: `ulimit -n {wanted}` allows all"));
    }
    fitted
}

/// Logs a warning if the process may not have the memory that clients can make it hold: it ends when it gets none.
fn warn_of_little_memory(memory_max: u64, log: &EventLog) {
    if let Some(limit) = memory_limit()
        && limit / 3 < memory_max / 2
    {
        let (limit, memory_max) = (Size(limit), Size(memory_max));
        log.warn(&format!(
            "the limit on memory (`ulimit -v`) is {limit}, less than 1.5 times --memory-max {memory_max}: a server that gets no memory \
             ends; lower --memory-max"
        ));
    }
}

/// A server that is prepared, with the listener of each address, and the description and file of its part in an exchange.
struct Started {
    server: StoreServer,
    listeners: Vec<Listener>,
    exchange: Option<(String, NodeFile)>,
}

async fn start(args: &ServeArgs, is_verbose: bool, log: &EventLog) -> Result<Started, CommandError> {
    let listeners = listener::resolve(args)?;
    let (exchange, file) = args.exchange.settings(log).await?.unzip();
    let files = CredentialFiles { users: args.users.clone(), tokens: args.sat_tokens.clone() };
    let identities = run_detached(move || Identities::load(&files)).await??;
    let secrets = [&args.users, &args.sat_tokens, &args.tls_key].into_iter().flatten();
    secrets.for_each(|file| log.warn_of_secret(file));
    let (bound, listeners) = bindings(args, listeners).await?;
    if args.cluster.describe().is_some() {
        check_addresses(&bound, log)?;
    }
    let authorizer = rules::load(args.authz.clone()).await?;
    rules::warn_of_users(authorizer.as_deref(), args, log);
    let events = log.clone();
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let broker = broker::Settings { listeners: bound, threads, ..broker::Settings::default() };
    let settings = Settings {
        broker: fit_descriptors(args.limits.limit(broker), log),
        external: None,
        cluster: args.cluster.settings().await?,
        identities: Arc::new(identities.with_login_failures_max(args.limits.login_failures_max())),
        authorizer,
        events: Arc::new(move |event| events.event(&event)),
    };
    let files = [&args.config_file, &args.authz, &args.exchange.exchange].into_iter().flatten();
    files.for_each(|file| log.warn_of_settings(file));
    args.data.data.iter().for_each(|directory| log.warn_of_data(directory));
    warn_of_little_memory(args.limits.memory_max(), log);
    let limits = args.limits.store();
    let persistence = args.data.persistence();
    if is_verbose {
        let login_failures_max = args.limits.login_failures_max();
        log.note("limits", &limits::describe(&limits, &settings.broker, login_failures_max, &persistence));
    }
    let sys_interval = Some(args.sys_interval).filter(|every| !every.is_zero());
    let operations = args.operations.resolve(sys_interval).await?;
    let is_taken = |admin: &&AdminSettings| {
        let addresses = settings.broker.listeners.iter().map(|listener| listener.address);
        admin.address.port() != 0 && addresses.into_iter().any(|address| address == admin.address)
    };
    if let Some(AdminSettings { address, .. }) = operations.admin.iter().find(is_taken) {
        return Err(CommandError::usage(format!("{address} is the address of --listen and of --admin"))
            .hint("--admin HOST:PORT with another port"));
    }
    warn_of_admin(&operations, log);
    let description = exchange.as_ref().map(exchange::describe).zip(file);
    let has_seed = args.run.seed.is_some();
    let store = StoreSettings { limits, persistence, has_seed, operations, exchange };
    let server = StoreServer::prepare(settings, store).await.map_err(failure)?;
    Ok(Started { server, listeners, exchange: description })
}

/// Logs a warning for each listener on which other machines need no authentication. Rules may leave such clients few
/// permissions, but none of them is needed to join an exchange as a leaf.
fn warn_of_anonymous(listeners: &[(Listener, SocketAddr)], has_rules: bool, is_root: bool, log: &EventLog) {
    let may = match (has_rules, is_root) {
        (false, false) => "read and change all keys",
        (false, true) => "read and change all keys, and join the exchange as a leaf",
        (true, true) => "join the exchange as a leaf",
        (true, false) => return,
    };
    let is_open = |(listener, address): &&(Listener, SocketAddr)| {
        !listener.requires_authentication() && !address.ip().is_loopback()
    };
    for (_, address) in listeners.iter().filter(is_open) {
        log.warn(&format!("every client that can reach {address} can {may}: there is no authentication"));
    }
}

/// Logs a warning for each status page that other machines can reach.
pub fn warn_of_admin(operations: &OperationsSettings, log: &EventLog) {
    for AdminSettings { address, .. } in
        operations.admin.iter().filter(|admin| !admin.address.ip().is_loopback())
    {
        log.warn(&format!(
            "every client that can reach {address} can read keys and values: there is no password"
        ));
    }
}

/// Resolves the host names of the listeners: returns the settings of each address, and the listener that it belongs to.
async fn bindings(
    args: &ServeArgs,
    listeners: Vec<Listener>,
) -> Result<(Vec<ListenerSettings>, Vec<Listener>), CommandError> {
    let (mut settings, mut of) = (Vec::new(), Vec::new());
    for listener in listeners {
        let web_socket = listener.has_web_sockets.then(|| WebSocketSettings {
            path: listener.address.path.clone(),
            names: vec![listener.address.host.clone()],
            origins: args.ws_origin.clone(),
        });
        let tls = tls(args, &listener).await?;
        for address in lookup(&listener.address).await? {
            let (tls, web_socket) = (tls.clone(), web_socket.clone());
            let is_anonymous = listener.is_anonymous;
            settings.push(ListenerSettings { address, tls, web_socket, is_anonymous });
            of.push(listener.clone());
        }
    }
    Ok((settings, of))
}

async fn tls(args: &ServeArgs, listener: &Listener) -> Result<Option<ServerTls>, CommandError> {
    let (true, Some(certfile), Some(keyfile)) = (listener.has_tls, &args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    let wanted = match listener.client_certificate {
        ClientCertificate::Required => Some(server::ClientCertificate::Required),
        ClientCertificate::Optional => Some(server::ClientCertificate::Optional),
        ClientCertificate::None => None,
    };
    let client_ca = args.client_ca.clone().zip(wanted);
    let files = ServerTlsFiles { certfile: certfile.clone(), keyfile: keyfile.clone(), client_ca };
    Ok(Some(run_detached(move || ServerTls::load(files)).await??))
}

/// Converts the error of a server that did not start.
pub fn failure(error: server::Error) -> CommandError {
    match &error {
        server::Error::Bind { address, cause } => {
            let port = address.port();
            let hint = match cause.kind() {
                io::ErrorKind::AddrNotAvailable if limit_hint(cause).is_none() => {
                    format!(
                        "--listen 0.0.0.0:{port} for all addresses: this machine does not have {}",
                        address.ip()
                    )
                }
                _ => bind_hint("--listen", *address, cause),
            };
            CommandError::new(Kind::Unavailable, error.to_string()).hint(hint)
        }
        server::Error::Admin { address, cause } => {
            let hint = bind_hint("--admin", *address, cause);
            CommandError::new(Kind::Unavailable, error.to_string()).hint(hint)
        }
        server::Error::Storage(storage) => storage_error::of_start(storage),
        server::Error::Cluster { kind, reason, hint } => cluster_error(*kind, reason.clone(), hint.clone()),
        server::Error::Thread(cause) => CommandError::system("start a thread", cause),
        server::Error::Settings(_) => CommandError::new(Kind::Bug, error.to_string()),
    }
}

fn bind_hint(option: &str, address: SocketAddr, cause: &io::Error) -> String {
    match cause.kind() {
        _ if let Some(more) = limit_hint(cause) => more.to_owned(),
        io::ErrorKind::PermissionDenied => "use a port above 1023".to_owned(),
        _ => {
            let any = SocketAddr::new(address.ip(), 0);
            format!("{option} {any} for any free port, or stop the process that listens there")
        }
    }
}

async fn lookup(address: &ListenAddress) -> Result<Vec<SocketAddr>, CommandError> {
    let ListenAddress { host, port, is_required, .. } = address;
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let unknown =
        |error| CommandError::new(Kind::Unavailable, format!("cannot resolve {host}:{port}: {error}"));
    // The default [::1] is optional: a machine can be without IPv6, or another process can use the port there.
    Ok(found.map_err(unknown)?.filter(|address| *is_required || TcpListener::bind(address).is_ok()).collect())
}
