//! The names of a node and the settings of its uplink, which a service reads without its lock.

use super::settings::{ExchangeSettings, Role};
use super::uplink::UplinkSettings;
use crate::exchange::names::Name;

/// What a service knows of its exchange without its lock.
#[derive(Clone, Debug)]
pub struct Membership {
    pub exchange: Name,
    pub node: Name,
    /// The leaf's connection with the root; `None` at the root.
    pub uplink: Option<UplinkSettings>,
}

impl Membership {
    /// Returns what the settings define. `run`: the random number of this process.
    #[must_use]
    pub fn new(settings: &ExchangeSettings, run: u64) -> Self {
        let ExchangeSettings { exchange, node, role } = settings;
        let uplink = match role {
            Role::Root { .. } => None,
            Role::Leaf { uplink, .. } => {
                let (exchange, leaf, client) = (exchange.clone(), node.clone(), uplink.as_ref().clone());
                Some(UplinkSettings { exchange, leaf, run, client })
            }
        };
        Self { exchange: exchange.clone(), node: node.clone(), uplink }
    }
}
