//! `serve`: a broker with a state store, until a signal.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::args::DisplayArgs;
use super::broker::{PLAIN_PORT, TLS_PORT};
use super::log::Log;

use crate::commands::signal::Signals;
use crate::commands::{CommandError, Kind};
use crate::render::escape::escape;
use crate::server::{
    self, Event, JournalErrorKind, Limits, Persistence, Settings, StoreServer, StoreSettings, Tls, TlsFiles,
};

const EXAMPLES: &str = "\
Examples:
  mqkv serve                            in memory: gone at the end
  mqkv serve --data ./state             everything is kept in ./state
  mqkv serve --listen 0.0.0.0:1883      for other machines too
  mqkv serve --listen 127.0.0.1:0 --port-file port
  mqkv serve --tls-cert server.pem --tls-key server.key --client-ca ca.pem";

/// Run a broker with a state store
///
/// Any MQTT 5 client can use it. In memory, gone at the end, unless --data names a folder.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    /// Where to listen; may be given several times [default: 127.0.0.1:1883, with TLS 8883, and, if available, the same port of [::1]]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    pub listen: Vec<Address>,
    /// Keep everything in this folder
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// TLS, with this certificate and those that lead to its CA, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate from one of these CAs, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// How many keys there may be
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub keys_max: Option<u64>,
    /// Write the first port to this file once it is open
    #[arg(long, value_name = "FILE")]
    pub port_file: Option<PathBuf>,
}

/// An address to listen at, as typed; port 0 stands for any free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether it is an error if nothing can listen here.
    pub required: bool,
}

impl ServeArgs {
    /// The addresses to listen at.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        if !self.listen.is_empty() {
            return self.listen.clone();
        }
        let port = if self.tls_cert.is_some() { TLS_PORT } else { PLAIN_PORT };
        let default = |host: &str, required| Address { host: host.to_owned(), port, required };
        // Not every machine has IPv6.
        vec![default("127.0.0.1", true), default("::1", false)]
    }

    fn tls(&self) -> Option<TlsFiles> {
        let (Some(certfile), Some(keyfile)) = (&self.tls_cert, &self.tls_key) else { return None };
        let (certfile, keyfile) = (certfile.clone(), keyfile.clone());
        Some(TlsFiles { certfile, keyfile, client_ca: self.client_ca.clone() })
    }
}

/// Runs the verb: listens, says so, writes the port file, and serves until a signal.
///
/// # Errors
/// An address is taken, or the folder cannot be used.
pub fn run(args: &ServeArgs, display: &DisplayArgs) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::new(Kind::Bug, format!("cannot start: {error}")))?;
    let (log, writer) = Log::start()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let server = start(args, display, log.clone()).await?;
        if let Some(path) = &args.port_file {
            write_port(path, server.addresses())?;
        }
        if !display.quiet {
            log.tell(ready(server.addresses(), args));
        }
        signals.next().await;
        server.shutdown().await;
        Ok(())
    });
    drop((log, runtime));
    writer.finish();
    result
}

async fn start(args: &ServeArgs, display: &DisplayArgs, log: Log) -> Result<StoreServer, CommandError> {
    let (quiet, verbose) = (display.quiet, display.verbose);
    let events = move |event: Event| {
        if verbose || (event.is_trouble() && !quiet) {
            log.tell(event.to_string());
        }
    };
    let settings = Settings {
        addresses: resolve(&args.addresses()).await?,
        tls: args.tls().as_ref().map(Tls::load).transpose()?,
        events: Arc::new(events),
        ..Settings::default()
    };
    let mut limits = Limits::default();
    if let Some(keys_max) = args.keys_max {
        limits.keys_max = usize::try_from(keys_max).unwrap_or(usize::MAX);
    }
    let store =
        StoreSettings { limits, persistence: persistence(args.data.as_deref()), ..StoreSettings::default() };
    StoreServer::start(settings, store).await.map_err(failure)
}

/// What a folder means: everything is kept in it.
pub fn persistence(data: Option<&Path>) -> Persistence {
    data.map_or(Persistence::None, |folder| Persistence::All(folder.to_owned()))
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
        server::Error::Journal(journal) => {
            let hint = match &journal.kind {
                JournalErrorKind::InUse => {
                    "-b mqtt://HOST:PORT of the `mqkv serve` that keeps it, or end that"
                }
                JournalErrorKind::Damaged(_) => "another folder, or this file from a backup",
                JournalErrorKind::OtherFormat(_) => "another folder, or the version of mqkv that wrote it",
                JournalErrorKind::Io(_) | JournalErrorKind::Other(_) => "a folder that you may write to",
            };
            CommandError::new(Kind::File, error.to_string()).hint(hint)
        }
        server::Error::Settings(_) | server::Error::Thread(_) => {
            CommandError::new(Kind::Bug, error.to_string())
        }
    }
}

async fn resolve(addresses: &[Address]) -> Result<Vec<SocketAddr>, CommandError> {
    let mut resolved = Vec::new();
    for Address { host, port, required } in addresses {
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let unknown =
            |error| CommandError::new(Kind::Unavailable, format!("cannot find {host}:{port}: {error}"));
        let found = found.map_err(unknown)?;
        // A machine without IPv6 is no reason to fail, nor is somebody else's listener there.
        resolved.extend(found.filter(|address| *required || TcpListener::bind(address).is_ok()));
    }
    Ok(resolved)
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

fn ready(addresses: &[SocketAddr], args: &ServeArgs) -> String {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let tls = match (&args.tls_cert, &args.client_ca) {
        (None, _) => "",
        (Some(_), None) => " with TLS",
        (Some(_), Some(_)) => " with TLS and client certificates",
    };
    let kept = match &args.data {
        Some(folder) => format!("everything is kept in {}", escape(folder.as_os_str().as_encoded_bytes())),
        None => "in memory".to_owned(),
    };
    format!("listening on {}{tls}, {kept}", addresses.join(" and "))
}

fn parse_address(text: &str) -> Result<Address, String> {
    const SHAPE: &str = "an address is HOST:PORT, for example 127.0.0.1:1883 or [::1]:1883";
    let (host, port) = text.rsplit_once(':').ok_or(SHAPE)?;
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match plain {
        Some(host) => host,
        None if host.contains(':') => return Err(SHAPE.to_owned()),
        None => host,
    };
    if host.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SHAPE.to_owned());
    }
    Ok(Address { host: host.to_owned(), port: port.parse().map_err(|_| SHAPE)?, required: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_host_and_port() {
        let parsed = |text| parse_address(text).map(|address| (address.host, address.port));
        assert_eq!(parsed("127.0.0.1:0"), Ok(("127.0.0.1".to_owned(), 0)));
        assert_eq!(parsed("[::1]:1883"), Ok(("::1".to_owned(), 1883)));
        assert_eq!(parsed("localhost:1884"), Ok(("localhost".to_owned(), 1884)));
        for text in ["", "1883", "localhost", ":1883", "::1:1883", "h:65536", "h:+1", "h:"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
