//! `serve`: a broker with a state store, until a signal.

use std::path::PathBuf;

use clap::Args;

use crate::commands::{CommandError, Kind};

const EXAMPLES: &str = "\
Examples:
  mqkv serve                            in memory: gone at the end
  mqkv serve --data ./state             everything is kept in ./state
  mqkv serve --listen 0.0.0.0:1883      for other machines too
  mqkv serve --listen 127.0.0.1:0 --port-file port";

/// Run a broker with a state store
///
/// Any MQTT 5 client can use it. In memory, gone at the end, unless --data names a folder.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    /// Where to listen; may be given several times [default: 127.0.0.1:1883 and, if available, [::1]:1883]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    pub listen: Vec<Address>,
    /// Keep everything in this folder
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
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
        let default = |host: &str, required| Address { host: host.to_owned(), port: 1883, required };
        // Not every machine has IPv6.
        vec![default("127.0.0.1", true), default("::1", false)]
    }
}

/// Runs the verb.
///
/// # Errors
/// An address is taken, or the folder cannot be used.
pub fn run(args: &ServeArgs) -> Result<(), CommandError> {
    run_server(args, &args.addresses())
}

/// Listens, writes the port file, and serves until a signal.
fn run_server(_args: &ServeArgs, _addresses: &[Address]) -> Result<(), CommandError> {
    Err(CommandError::new(Kind::Unavailable, "this build has no server inside"))
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
