//! Settings of a node of an exchange.

use crate::client;
use crate::exchange::leaf::OnJoin;
use crate::exchange::names::Name;
use crate::exchange::rules::{Patterns, Rules};

/// How a store takes part in an exchange. All its participating keys are persistent.
#[derive(Clone, Debug)]
pub struct ExchangeSettings {
    pub exchange: Name,
    pub node: Name,
    pub role: Role,
}

/// The role of a node.
#[derive(Clone, Debug)]
pub enum Role {
    Root {
        rules: Rules,
        /// Leaves that may join unasked.
        admit: Patterns,
    },
    Leaf {
        /// The connection with the root. Its client id is replaced.
        uplink: Box<client::Settings>,
        on_join: OnJoin,
    },
}

/// What a root's file defines, read again.
#[derive(Clone, Debug)]
pub struct RootFile {
    pub exchange: Name,
    pub node: Name,
    pub rules: Rules,
    pub admit: Patterns,
}

#[cfg(test)]
pub mod tests {
    use super::{OnJoin, Role, client};

    /// A leaf whose uplink connects to nothing.
    pub fn leaf() -> Role {
        let target = client::Target::Tcp { host: "localhost".to_owned(), port: 1 };
        let uplink = Box::new(client::Settings::new(target, "unused".to_owned()));
        Role::Leaf { uplink, on_join: OnJoin::Offer }
    }
}
