//! `serve`'s options for operators: what is told, what can be looked at, how the end comes.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::serve::listen_address::host_and_port;
use crate::commands::duration;
use crate::commands::{CommandError, Kind};
use crate::server::{AdminSettings, OperationsSettings};

const SHAPE: &str = "where operators look is HOST:PORT, for example 127.0.0.1:9883, or a port of 127.0.0.1";

/// The shape of what is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The options.
#[derive(Debug, Args)]
pub struct OperationsArgs {
    /// Tell of every connection on standard error, in this shape [default: text, and of troubles only]
    #[arg(long, value_name = "FORMAT")]
    pub log: Option<LogFormat>,
    /// Serve a page to look at, /metrics for Prometheus and /healthz there, in HTTP; a port alone is one of 127.0.0.1
    #[arg(long, value_name = "HOST:PORT", value_parser = AdminPlace::parse)]
    pub admin: Option<AdminPlace>,
    /// How often the counters below $SYS/broker are published; 0 for never
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse_or_zero)]
    pub sys_interval: Duration,
    /// How long a signal lets what came in be answered; a second one ends at once
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = duration::parse_or_zero)]
    pub drain: Duration,
}

/// Where operators look, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPlace {
    host: String,
    port: u16,
}

impl AdminPlace {
    /// Reads what was typed behind `--admin`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let port = text.parse().map_err(|_| SHAPE)?;
            return Ok(Self { host: "127.0.0.1".to_owned(), port });
        }
        let (host, port) = host_and_port(text).map_err(|_| SHAPE)?;
        Ok(Self { host: host.to_owned(), port })
    }

    /// The addresses that it comes to.
    async fn resolve(&self) -> Result<Vec<AdminSettings>, CommandError> {
        let Self { host, port } = self;
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found = found.map_err(|error| {
            CommandError::new(Kind::Unavailable, format!("cannot find {host}:{port}: {error}"))
        })?;
        let all: Vec<SocketAddr> = found.collect();
        // A name may stand for addresses that this machine has not; if it has none, the first says why.
        let usable: Vec<SocketAddr> =
            all.iter().copied().filter(|address| TcpListener::bind(address).is_ok()).collect();
        let chosen = if usable.is_empty() { all.into_iter().take(1).collect() } else { usable };
        let names = host.parse::<IpAddr>().is_err().then(|| host.clone());
        let settings = |address| AdminSettings { address, names: names.iter().cloned().collect() };
        Ok(chosen.into_iter().map(settings).collect())
    }
}

impl OperationsArgs {
    /// What the server is told of it.
    ///
    /// # Errors
    /// There is no such host.
    pub async fn resolve(&self) -> Result<OperationsSettings, CommandError> {
        let admin = match &self.admin {
            Some(place) => place.resolve().await?,
            None => Vec::new(),
        };
        Ok(OperationsSettings {
            admin,
            sys_interval: Some(self.sys_interval).filter(|every| !every.is_zero()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine_alone() {
        let parsed = |text| AdminPlace::parse(text).map(|place| (place.host, place.port));
        assert_eq!(parsed("9883"), Ok(("127.0.0.1".to_owned(), 9883)));
        assert_eq!(parsed("[::]:1"), Ok(("::".to_owned(), 1)));
        assert_eq!(parsed("store.example:80"), Ok(("store.example".to_owned(), 80)));
        for text in ["", "65536", "h", "h:", ":1", "http://h:1", "::1:1"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
