//! Instances of a store in etcd: which one owns it, and what each of them is. `ledger/etcd` has what the owner commits and the
//! others follow.

pub mod audit;
mod candidate;
pub mod clocks;
mod departure;
pub mod event;
pub mod instance;
pub mod lowering;
pub mod overview;
mod roster;
#[cfg(test)]
mod simulation_tests;
mod status;
mod upkeep;

pub use event::ClusterEvent;
pub use instance::{Effect, Instance, InstanceSettings};
pub use overview::{Member, Overview};
pub use status::{Role, Status};
