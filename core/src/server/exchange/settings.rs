//! Settings of a node of an exchange.

use crate::client;
use crate::exchange::leaf::JoinPolicy;
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
        /// Leaves that may join by themselves.
        admit: Patterns,
    },
    Leaf {
        /// The connection with the root. Its client id is replaced.
        uplink: Box<client::Settings>,
        join: JoinPolicy,
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
    use super::{JoinPolicy, Role, client};
    use crate::exchange::leaf::{BeforeJoin, OnJoin};

    /// A leaf whose uplink connects to nothing. It accepts writes before it has joined.
    pub fn leaf() -> Role {
        let target = client::Target::Tcp { host: "localhost".to_owned(), port: 1 };
        let uplink = Box::new(client::Settings::new(target, "unused".to_owned()));
        let join = JoinPolicy { on_join: OnJoin::Offer, before_join: BeforeJoin::Accept };
        Role::Leaf { uplink, join }
    }
}
