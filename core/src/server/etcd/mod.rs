//! Client of etcd: transactions, reads, watches and leases, with failover between the endpoints.

mod assembly;
mod audit;
mod channel;
mod client;
mod endpoint_choice;
mod error;
mod lowering;
mod member;
mod node;
mod overview;
mod runner;
mod version;
mod watch;

pub use audit::{AuditReport, audit};
pub use client::{EndpointStatus, Etcd, EtcdSettings};
pub use error::{ConnectError, is_access_refusal};
pub use lowering::{LoweringError, lower_versions};
pub use member::{Announcement, Member, MemberEvent};
pub use node::{ClusterNode, ClusterSettings};
pub use overview::{OverviewError, cluster_names, overview};
pub use runner::{Application, Command, run};
pub use version::{has_stale_read_fix, is_supported};
pub use watch::Watch;
