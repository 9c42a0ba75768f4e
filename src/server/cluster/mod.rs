//! The store's state in etcd: one owner at a time commits by compare-and-swap on a head record, all other instances follow.

pub mod action;
pub mod audit;
pub mod bulk_read;
mod candidate;
mod chain;
pub mod clocks;
mod codec;
mod commit;
mod departure;
pub mod event;
mod follower;
pub mod instance;
pub mod layout;
pub mod lowering;
pub mod operation;
pub mod overview;
mod record;
mod responses;
mod roster;
#[cfg(test)]
mod simulation_tests;
mod space;
mod status;
mod upkeep;

pub use codec::{Head, MemberState, Meta, Owner, encode_request, encode_run};
pub use event::ClusterEvent;
pub use instance::{Effect, Instance, InstanceSettings};
pub use layout::Layout;
pub use overview::{Member, Overview};
pub use status::{Role, Status};
