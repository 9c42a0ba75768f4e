//! The state in etcd: how a group becomes transactions, and how other instances receive their records.
//!
//! ```text
//! Group ── commit: parts ── chain: transactions, one under way ──► etcd ──► follower: a read, then a watch ──► Record
//! ```
//!
//! Each transaction compares the revision of the head that the one before has written ([`chain`]): whichever instance has committed
//! last, no other one can commit after it without having seen that. Which instance commits is decided in `server/cluster`; the
//! operations on etcd are performed by `server/etcd`. [`layout`] and [`codec`] have the keys and the values in etcd.

pub mod action;
pub mod bulk_read;
pub mod chain;
pub mod codec;
pub mod commit;
pub mod follower;
pub mod layout;
pub mod operation;
mod responses;
mod row;
pub mod space;

pub use codec::{CLUSTER_KEY_BYTES, Head, MemberState, Meta, Owner, encode_request, encode_run};
pub use layout::Layout;
