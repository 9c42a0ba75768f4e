//! Machines as network namespaces on two bridges: one network for etcd, one for the broker.
//!
//! They are made inside the network namespace of the program, and end with it.

use std::ffi::OsStr;
use std::process::Command;

/// A network: each has a bridge, and an address of the program itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Etcd,
    Broker,
}

impl Network {
    const ALL: [Self; 2] = [Self::Etcd, Self::Broker];

    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Broker => "broker",
        }
    }

    /// Returns the address of a machine, or of the program if the number is 1.
    pub fn address(self, number: usize) -> String {
        match self {
            Self::Etcd => format!("10.77.0.{number}"),
            Self::Broker => format!("10.77.1.{number}"),
        }
    }
}

/// The number of the program in both networks.
pub const PROGRAM: usize = 1;

/// Makes both networks.
///
/// # Errors
/// The program is not in a network namespace of its own.
pub fn create() -> Result<(), String> {
    ip(&["link", "set", "lo", "up"])?;
    for network in Network::ALL {
        let name = network.name();
        ip(&["link", "add", name, "type", "bridge", "forward_delay", "0"])?;
        ip(&["address", "add", &format!("{}/24", network.address(PROGRAM)), "dev", name])?;
        ip(&["link", "set", name, "up"])?;
    }
    Ok(())
}

/// A network namespace with a link to each of its networks.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
}

impl Machine {
    pub fn create(name: &str, number: usize, networks: &[Network]) -> Result<Self, String> {
        let machine = Self { name: name.to_owned() };
        ip(&["netns", "add", name])?;
        let inside = |words: &[&str]| ip(&[&["-n", name], words].concat());
        inside(&["link", "set", "lo", "up"])?;
        for network in networks {
            let (bridge, port) = (network.name(), machine.port(*network));
            ip(&["link", "add", &port, "type", "veth", "peer", "name", bridge, "netns", name])?;
            ip(&["link", "set", &port, "master", bridge, "up"])?;
            inside(&["address", "add", &format!("{}/24", network.address(number)), "dev", bridge])?;
            inside(&["link", "set", bridge, "up"])?;
        }
        Ok(machine)
    }

    /// The link's end at the bridge.
    fn port(&self, network: Network) -> String {
        format!("{}-{}", network.name(), self.name)
    }

    /// Takes the link to a network down, or up again.
    pub fn set_link(&self, network: Network, is_up: bool) -> Result<(), String> {
        ip(&["link", "set", &self.port(network), if is_up { "up" } else { "down" }])
    }

    /// Returns a command that becomes a process of this machine.
    pub fn command(&self, program: &OsStr) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(words).output().map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
