//! Options of `serve` and `store` for operators: log, status page, shutdown.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::serve::listen_address::host_and_port;
use crate::commands::duration;
use crate::commands::{CommandError, Kind};
use crate::server::{AdminSettings, OperationsSettings};

const SHAPE: &str = "the address is HOST:PORT, for example 127.0.0.1:9883, or a port of 127.0.0.1";

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Options for operators.
#[derive(Debug, Args)]
pub struct OperationsArgs {
    /// Log each connection on standard error
    ///
    /// Without this option only warnings and errors are logged, as text.
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
    /// Serve status page and metrics over HTTP
    ///
    /// Serves /, /metrics for Prometheus, /livez, /readyz and /healthz. A port alone is one of 127.0.0.1.
    #[arg(long, value_name = "HOST:PORT", value_parser = AdminPlace::parse)]
    pub admin: Option<AdminPlace>,
    /// Time to answer pending requests at exit
    ///
    /// A second signal ends at once.
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "5s", value_parser = duration::parse_or_zero)]
    pub drain: Duration,
}

/// Address of the status page, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlace {
    host: String,
    port: u16,
}

impl AdminPlace {
    /// Parses the value of `--admin`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let port = text.parse().map_err(|_| SHAPE)?;
            return Ok(Self { host: "127.0.0.1".to_owned(), port });
        }
        let (host, port) = host_and_port(text).map_err(|_| SHAPE)?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// Resolves the host name.
    async fn resolve(&self) -> Result<Vec<AdminSettings>, CommandError> {
        let Self { host, port } = self;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found = found.map_err(|error| {
            CommandError::new(Kind::Unavailable, format!("cannot resolve {host}:{port}: {error}"))
        })?;
        let all: Vec<SocketAddr> = found.collect();
        // A name can have addresses that this machine does not have. If it has none of them, binding the first reports why.
        let usable: Vec<SocketAddr> =
            all.iter().copied().filter(|address| TcpListener::bind(address).is_ok()).collect();
        let chosen = if usable.is_empty() { all.into_iter().take(1).collect() } else { usable };
        let names = host.parse::<IpAddr>().is_err().then(|| host.clone());
        let settings = |address| AdminSettings { address, names: names.iter().cloned().collect() };
        Ok(chosen.into_iter().map(settings).collect())
    }
}

impl OperationsArgs {
    /// Returns the settings of the server, with the interval of its counters below $SYS/broker.
    pub async fn resolve(&self, sys_interval: Option<Duration>) -> Result<OperationsSettings, CommandError> {
        let admin = match &self.admin {
            Some(place) => place.resolve().await?,
            None => Vec::new(),
        };
        Ok(OperationsSettings { admin, sys_interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_the_loopback_address() {
        let parsed = |text| AdminPlace::parse(text).map(|place| (place.host, place.port));
        assert_eq!(parsed("9883"), Ok(("127.0.0.1".to_owned(), 9883)));
        assert_eq!(parsed("[::]:1"), Ok(("::".to_owned(), 1)));
        assert_eq!(parsed("store.example:80"), Ok(("store.example".to_owned(), 80)));
        for text in ["", "65536", "h", "h:", ":1", "http://h:1", "::1:1"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
