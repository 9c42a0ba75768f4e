//! `store`: serves the state store behind another broker until a signal; verbs for the operator of a cluster.

pub mod action;
pub mod args;
#[cfg(feature = "cluster")]
mod check;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod doctor;
#[cfg(feature = "cluster")]
mod lower_versions;
#[cfg(feature = "cluster")]
mod resign;
#[cfg(feature = "cluster")]
mod status;

use std::mem::forget;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use self::action::StoreAction;
use self::args::StoreArgs;
use super::config::variables::Variables;
use super::connection::{Connection, Endpoint};
use super::detached::run_detached;
use super::etcd::complete_required;
use super::options::DisplayArgs;
use super::report::Reporter;
use super::serve::logging::{EventLog, LogLevel};
use super::serve::operations::LogFormat;
use super::serve::{self, limits, rules};
use super::{runtime, session};
use crate::broker;
use crate::client::{Client, Error, Settings};
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::process::signal::exit_of;
use crate::commands::session::other_client_id;
use crate::commands::{CommandError, Exit, Kind};
use crate::platform::{Signals, release_hangup, service_manager};
use crate::protocol::Key;
use crate::render::Style;
use crate::render::escape::escape;
use crate::server::external::ExternalSettings;
use crate::server::{self, StoreServer, StoreSettings};

/// Time for blocking work that the runtime has not finished at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long another store at the broker may take to answer before this one starts.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The attempts to find another store, while there is a subscriber to its requests. Its connection may be lost for a moment.
const PROBES: u32 = 2;
/// The key that is read to find another store.
const PROBE_KEY: &str = "mqkv/store/probe";

/// Runs a verb for the operator of a cluster.
///
/// # Errors
/// etcd cannot be used, its content is not valid, or this build does not support etcd.
pub fn run_action(
    action: &StoreAction,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let etcd = complete_required(action.etcd(), variables)?;
    #[cfg(not(feature = "cluster"))]
    {
        let _ = (etcd, reporter);
        Err(super::etcd::unsupported())
    }
    #[cfg(feature = "cluster")]
    match action {
        StoreAction::Status(_) => status::run(&etcd, reporter),
        StoreAction::Check(_) => check::run(&etcd, reporter),
        StoreAction::Resign(args) => resign::run(&etcd, args, reporter),
        StoreAction::LowerVersions(_) => lower_versions::run(&etcd, reporter),
    }
}

/// Checks etcd for a cluster: `mqkv doctor --etcd`.
///
/// # Errors
/// The options are invalid, the output cannot be written, or this build does not support etcd.
pub fn doctor(
    etcd: &EtcdArgs,
    is_read_only: bool,
    variables: &Variables,
    reporter: &mut Reporter,
) -> Result<Exit, CommandError> {
    let etcd = complete_required(etcd, variables)?;
    #[cfg(feature = "cluster")]
    {
        doctor::run(&etcd, is_read_only, reporter)
    }
    #[cfg(not(feature = "cluster"))]
    {
        let _ = (etcd, is_read_only, reporter);
        Err(super::etcd::unsupported())
    }
}

/// Runs the store until a signal.
///
/// # Errors
/// The broker or the data directory cannot be used, or another store answers at the broker.
pub fn run(
    args: &StoreArgs,
    connection: &Connection,
    display: &DisplayArgs,
    style: Style,
) -> Result<Exit, CommandError> {
    if matches!(connection.endpoint, Endpoint::Embedded { .. }) {
        return Err(CommandError::usage("store needs a broker, not --embedded").hint("-b mqtt://HOST"));
    }
    if matches!(connection.endpoint, Endpoint::Network { kube: Some(_), .. }) {
        let error = CommandError::usage("store needs a broker that this machine reaches, not kube:");
        return Err(error.hint("run it in the cluster, with -b mqtts://SERVICE:PORT"));
    }
    let runtime = runtime::here()?;
    let format = args.operations.log.unwrap_or(LogFormat::Text);
    let level = match (display.quiet, display.verbose || args.operations.log.is_some()) {
        (true, _) => LogLevel::Off,
        (false, true) => LogLevel::All,
        (false, false) => LogLevel::Warnings,
    };
    let (log, writer) = EventLog::start(format, level, style)?;
    let result = runtime.block_on(serve(args, connection, display.verbose, style, &log));
    // A read that hangs must not delay the exit.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    drop(log);
    writer.finish();
    result
}

async fn serve(
    args: &StoreArgs,
    connection: &Connection,
    is_verbose: bool,
    style: Style,
    log: &EventLog,
) -> Result<Exit, CommandError> {
    let mut hangup = match args.authz.is_some() {
        true => Some(Signals::of_hangup().map_err(|error| CommandError::system("listen to SIGHUP", &error))?),
        false => None,
    };
    let signals = if hangup.is_some() { Signals::except_hangup() } else { Signals::new() };
    let mut signals = signals.map_err(|error| CommandError::system("listen to signals", &error))?;
    release_hangup();
    let mut starting = Box::pin(start(args, connection, is_verbose, style, log));
    let started = tokio::select! {
        biased;
        started = &mut starting => started,
        signal = signals.next() => {
            // See `serve`.
            forget(starting);
            return Ok(if args.cluster.is_given() { Exit::Yes } else { exit_of(signal) });
        }
    };
    let mut server = started?;
    let mut failed = pin!(server.cluster_failed());
    let ended = loop {
        tokio::select! {
            biased;
            _ = signals.next() => break Ok(()),
            error = server.external_ended() => break Err(failure(error)),
            error = &mut failed => break Err(serve::failure(error)),
            () = hung_up(hangup.as_mut()) => reload(&server, log),
        }
    };
    let stopped = serve::drain(server, args.operations.drain, ended.is_ok(), &mut signals, log).await;
    stopped.map_or_else(|| ended.map(|()| Exit::Yes), Ok)
}

/// Opens the store and connects it.
async fn start(
    args: &StoreArgs,
    connection: &Connection,
    is_verbose: bool,
    style: Style,
    log: &EventLog,
) -> Result<StoreServer, CommandError> {
    let requests = args.request_filter()?;
    let mut client = session::network_settings(connection, style).await?;
    let cluster = args.cluster.settings().await?;
    let is_in_cluster = cluster.is_some();
    if let Some(cluster) = &cluster {
        client.keep_alive = cluster.keep_alive(client.keep_alive);
    } else {
        check_alone(&client, log).await?;
    }
    let target = connection.endpoint.url().unwrap_or_default();
    let limits = args.limits.limits();
    let (store_limits, persistence) = (limits.store(), args.data.persistence());
    if is_verbose {
        log.note("limits", &limits::describe_store(&store_limits, &persistence));
    }
    let operations = args.operations.resolve(None).await?;
    serve::warn_of_admin(&operations, log);
    let events = log.clone();
    let ready = format!(
        "serving {target} as {}: requests on {}, {}, {}",
        client.client_id,
        requests.filter(),
        if requests.has_client() { "clients by topic" } else { "clients as claimed" },
        args.cluster.describe().unwrap_or_else(|| args.data.describe())
    );
    let settings = server::Settings {
        broker: limits.limit(broker::Settings::default()),
        external: Some(ExternalSettings { client: client.clone(), requests }),
        cluster,
        authorizer: rules::load(args.authz.clone()).await?,
        events: Arc::new(move |event| events.event(&event)),
        ..server::Settings::default()
    };
    args.authz.iter().for_each(|file| log.warn_of_settings(file));
    args.data.data.iter().for_each(|directory| log.warn_of_data(directory));
    let store = StoreSettings { limits: store_limits, persistence, operations, ..StoreSettings::default() };
    let mut server = StoreServer::prepare(settings, store).await.map_err(serve::failure)?;
    // It takes nothing over before it is connected.
    let checked = if is_in_cluster { check_cluster_alone(&server, &client, log).await } else { Ok(()) };
    let connected = match checked {
        Ok(()) => server.connect().await.map_err(failure),
        Err(error) => Err(error),
    };
    if let Err(error) = connected {
        server.shutdown().await;
        return Err(error);
    }
    server.open();
    let admin: Vec<String> =
        server.admin_addresses().iter().map(|address| format!("http://{address}/")).collect();
    let ready =
        if admin.is_empty() { ready } else { format!("{ready}; status page: {}", admin.join(" and ")) };
    service_manager::ready(&escape(ready.as_bytes()));
    log.ready(&ready, &[target], &admin);
    Ok(server)
}

/// Checks that no store answers at the broker that is not of this store's cluster.
async fn check_cluster_alone(
    server: &StoreServer,
    settings: &Settings,
    log: &EventLog,
) -> Result<(), CommandError> {
    // The first instance has checked it.
    if server.has_other_instances(Duration::ZERO).await {
        return Ok(());
    }
    match check_alone(settings, log).await.map_err(|error| match error.kind {
        Kind::Unavailable => error.hint("if it is of a cluster, use the name of that: --cluster NAME"),
        _ => error,
    }) {
        // It may be that of an instance that was started at the same time.
        Err(error) if error.kind == Kind::Unavailable && !server.has_other_instances(PROBE_TIMEOUT).await => {
            Err(error)
        }
        Err(error) if error.kind != Kind::Unavailable => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Checks that no other store answers at the broker.
async fn check_alone(settings: &Settings, log: &EventLog) -> Result<(), CommandError> {
    let key = Key::new(PROBE_KEY).map_err(|error| CommandError::new(Kind::Bug, error.to_string()))?;
    // Another client id than the store's: the broker would end the session of a store with the same one.
    let client_id = other_client_id(&settings.client_id);
    let request_timeout = settings.request_timeout.min(PROBE_TIMEOUT);
    let client = Client::connect(Settings { client_id, request_timeout, ..settings.clone() }).await;
    let client = client.map_err(failure)?;
    let mut answer = client.get(&key).await;
    for _ in 1..PROBES {
        if matches!(answer, Err(Error::Timeout { .. })) {
            answer = client.get(&key).await;
        }
    }
    client.close().await;
    match answer {
        Err(Error::NoStore { .. }) => Ok(()),
        Err(Error::Timeout { .. }) => {
            log.warn("a client subscribes to the requests, and does not answer: it may be a store whose connection is lost");
            Ok(())
        }
        Err(error @ (Error::PublishRefused { .. } | Error::SubscribeRefused { .. })) => {
            log.warn(&format!("whether there is another store was not checked: {error}"));
            Ok(())
        }
        Ok(_)
        | Err(
            Error::Refused(_) | Error::Denied(_) | Error::MalformedReply { .. } | Error::ClockSkew { .. },
        ) => {
            let message = format!("another state store answers at {}", settings.target);
            let error = CommandError::new(Kind::Unavailable, message);
            Err(error.hint("stop that one first: one store serves a broker"))
        }
        Err(error) => Err(failure(error)),
    }
}

/// Returns the error of a connection: no request was sent, so there is no outcome.
fn failure(error: Error) -> CommandError {
    CommandError { outcome: None, ..error.into() }
}

async fn hung_up(signals: Option<&mut Signals>) {
    match signals {
        Some(signals) => _ = signals.next().await,
        None => std::future::pending().await,
    }
}

/// Reloads the rules, in a task: a file can be on a file system that hangs.
fn reload(server: &StoreServer, log: &EventLog) {
    let (Some(rules), log) = (server.rules().cloned(), log.clone()) else { return };
    tokio::spawn(async move {
        service_manager::reloading();
        if let Err(error) = run_detached(move || rules.reload()).await {
            log.warn(&format!("nothing was reloaded at a SIGHUP: {}", error.message));
        }
        service_manager::reloaded();
    });
}
