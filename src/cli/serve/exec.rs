//! `serve --exec -- CMD`: runs a command with a store that exists as long as the command runs.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::args::ServeArgs;
use crate::cli::config::setting::Setting;
use crate::cli::config::variables;
use crate::cli::detached::run_detached;
use crate::cli::serve::listener::Listener;
use crate::clock;
use crate::commands::process::child;
use crate::commands::{CommandError, Exit, Kind};
use crate::net::tls::contains_ca;
use crate::platform::{GroupChange, Signal, Signals, adopt_orphans, is_in_background};

/// Time between SIGTERM and SIGKILL for processes that the command has left running.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs the command to its end; forwards signals to it.
pub async fn run(
    args: &ServeArgs,
    listeners: &[(Listener, SocketAddr)],
    signals: &mut Signals,
) -> Result<Exit, CommandError> {
    let variables = variables_of_store(listeners, own_ca(args).await?.as_deref());
    adopt_orphans();
    let mut group = child::spawn(&args.run.command, &variables, &misplaced_variables(args, listeners))?;
    let (mut code, mut kill_at) = (None, None);
    loop {
        tokio::select! {
            biased;
            change = group.next() => match change.map_err(of_system)? {
                GroupChange::Ended(ended) => {
                    code = Some(ended);
                    // Processes that the command has left running cannot work without the store.
                    group.signal(Signal::Terminate);
                    kill_at = clock::monotonic().checked_add(KILL_AFTER);
                }
                // The store is that of the command: both stop, and the shell continues both, with `bg` in the background.
                GroupChange::Suspended => {
                    group.suspend();
                    if is_in_background() {
                        group.resume();
                    }
                }
                GroupChange::Gone => break,
            },
            signal = signals.next() => group.signal(signal),
            // Dropping the group kills it.
            () = at(kill_at) => break,
        }
    }
    Ok(Exit::Child(code.unwrap_or(u8::MAX)))
}

/// Returns the variables that lead to another broker or contain credentials for it.
fn misplaced_variables(args: &ServeArgs, listeners: &[(Listener, SocketAddr)]) -> Vec<String> {
    use Setting::{
        AskPassword, Cafile, Certfile, ClientId, Embedded, Hostname, Insecure, Keyfile, Keypasswordfile,
        Notls, PasswordFile, Port, SatFile, ServerName, Username,
    };
    let has_tls = listeners.iter().any(|(listener, _)| listener.has_tls);
    let tls = [Cafile, Certfile, Keyfile, Keypasswordfile, ServerName, Insecure];
    let groups = [
        // With a client id from the environment, the clients of the command would take over each other's session.
        (&[Hostname, Port, Notls, Embedded, ClientId][..], true),
        (&tls, !has_tls),
        (&[Username, PasswordFile, AskPassword], args.users.is_none()),
        (&[SatFile], args.sat_tokens.is_none()),
    ];
    let removed = groups.into_iter().filter(|(_, is_removed)| *is_removed).flat_map(|(settings, _)| settings);
    removed
        .flat_map(|setting| [Some(setting.variable()), variables::of_sdk(*setting).map(str::to_owned)])
        .flatten()
        .collect()
}

/// Returns the file of the certificate, if it also contains the certificate of its CA.
async fn own_ca(args: &ServeArgs) -> Result<Option<PathBuf>, CommandError> {
    let Some(file) = args.tls_cert.clone() else { return Ok(None) };
    run_detached(move || contains_ca(&file).then(|| absolute(&file).unwrap_or(file))).await
}

/// Returns the variables that lead to the store: those of mqkv and of the official SDKs (protocol §8).
fn variables_of_store(
    listeners: &[(Listener, SocketAddr)],
    ca: Option<&Path>,
) -> Vec<(&'static str, OsString)> {
    let ca_of = |listener: &Listener| ca.filter(|_| listener.has_tls).map(OsString::from);
    let mut variables: Vec<(&str, OsString)> = Vec::new();
    if let Some((listener, address)) = listeners.first() {
        variables.push(("MQKV_BROKER", listener.broker(reachable(*address)).into()));
        // A context named by the environment would override the broker.
        variables.push(("MQKV_CONTEXT", OsString::new()));
        variables.extend(ca_of(listener).map(|ca| ("MQKV_CAFILE", ca)));
    }
    if let Some((listener, address)) = listeners.iter().find(|(listener, _)| !listener.has_web_sockets) {
        let address = reachable(*address);
        variables.push(("AIO_BROKER_HOSTNAME", address.ip().to_string().into()));
        variables.push(("AIO_BROKER_TCP_PORT", address.port().to_string().into()));
        variables.push(("AIO_MQTT_USE_TLS", listener.has_tls.to_string().into()));
        variables.extend(ca_of(listener).map(|ca| ("AIO_TLS_CA_FILE", ca)));
    }
    variables
}

/// Returns an address at which a server on all addresses of this machine can be reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn of_system(error: std::io::Error) -> CommandError {
    CommandError::new(Kind::Bug, format!("cannot wait for the command: {error}"))
}

async fn at(when: Option<std::time::Instant>) {
    match when {
        Some(when) => sleep_until(Instant::from_std(when)).await,
        None => std::future::pending().await,
    }
}
