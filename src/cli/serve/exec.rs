//! `serve --exec -- CMD`: a command that has a store of its own for as long as it runs.

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
use crate::commands::process::child::{Change, Group};
use crate::commands::process::signal::{Signal, Signals};
use crate::commands::{CommandError, Kind, Verdict};
use crate::net::tls::contains_ca;

/// How long what the command has left running may take to end when told to.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs the command to its end; signals are passed on.
///
/// # Errors
/// It cannot be started, or the system does not say what has become of it.
pub async fn run(
    args: &ServeArgs,
    listeners: &[(Listener, SocketAddr)],
    signals: &mut Signals,
) -> Result<Verdict, CommandError> {
    let variables = leading(listeners, own_ca(args).await?.as_deref());
    let mut group = Group::spawn(&args.run.command, &variables, &foreign(args, listeners))?;
    let (mut code, mut kill_at) = (None, None);
    loop {
        tokio::select! {
            biased;
            change = group.next() => match change.map_err(of_system)? {
                Change::Ended(ended) => {
                    code = Some(ended);
                    // Without the store, what the command has left running is of no use.
                    group.signal(Signal::Terminate);
                    kill_at = clock::monotonic().checked_add(KILL_AFTER);
                }
                Change::Suspended => group.resume(),
                Change::Gone => break,
            },
            signal = signals.next() => group.signal(signal),
            // Dropped, the group is killed.
            () = at(kill_at) => break,
        }
    }
    Ok(Verdict::Child(code.unwrap_or(u8::MAX)))
}

/// The variables that lead to another broker, or say who one is there, where this one gives them no meaning.
fn foreign(args: &ServeArgs, listeners: &[(Listener, SocketAddr)]) -> Vec<String> {
    use Setting::{
        AskPassword, Cafile, Certfile, ClientId, Embedded, Hostname, Insecure, Keyfile, Keypasswordfile,
        Notls, PasswordFile, Port, SatFile, ServerName, Username,
    };
    let has_tls = listeners.iter().any(|(listener, _)| listener.has_tls);
    let tls = [Cafile, Certfile, Keyfile, Keypasswordfile, ServerName, Insecure];
    let groups = [
        // Under one client id the clients of one command would take each other's session over.
        (&[Hostname, Port, Notls, Embedded, ClientId][..], true),
        (&tls, !has_tls),
        (&[Username, PasswordFile, AskPassword], args.users.is_none()),
        (&[SatFile], args.sat_tokens.is_none()),
    ];
    let foreign = groups.into_iter().filter(|(_, is_foreign)| *is_foreign).flat_map(|(settings, _)| settings);
    foreign
        .flat_map(|setting| [Some(setting.variable()), variables::of_sdk(*setting).map(str::to_owned)])
        .flatten()
        .collect()
}

/// The file of the certificate, if that of its CA is in it, too.
async fn own_ca(args: &ServeArgs) -> Result<Option<PathBuf>, CommandError> {
    let Some(file) = args.tls_cert.clone() else { return Ok(None) };
    run_detached(move || contains_ca(&file).then(|| absolute(&file).unwrap_or(file))).await
}

/// What leads a command to the store: our own variables, and those of the official SDKs (protocol §8).
fn leading(listeners: &[(Listener, SocketAddr)], ca: Option<&Path>) -> Vec<(&'static str, OsString)> {
    let ca_of = |listener: &Listener| ca.filter(|_| listener.has_tls).map(OsString::from);
    let mut variables: Vec<(&str, OsString)> = Vec::new();
    if let Some((listener, address)) = listeners.first() {
        variables.push(("MQKV_BROKER", listener.broker(reachable(*address)).into()));
        // A context named there would have its say, too.
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

/// An address at which a server on all addresses of this machine can be reached.
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
