//! The state store behind a broker: from MQTT message to request, to response and notifications, to the disk.
//!
//! [`Service`] is the application that the broker calls. Its state is in `shared`: the store, and the queue of what is not durable
//! yet (`ledger::queue`). `group_outcome` has what a commit sends, and what a failed one undoes, for all ledgers. `commit_thread`
//! commits to files; with etcd the task of `server/etcd/runner` does, by `cluster_instance`, which also receives what other instances
//! have committed.

mod answered_writes;
mod application;
mod background;
mod cluster;
mod cluster_instance;
mod cluster_state;
mod commit_thread;
mod exchange;
mod exchange_inspection;
mod exchange_messages;
mod exchange_task;
mod expiry_task;
mod group_outcome;
mod inspection;
mod ledger_work;
mod memory_store;
mod removed_versions;
mod scan;
mod scan_token;
mod settings;
mod shared;
mod state;
mod statistics;
mod tombstones;
mod uplink_node;
mod wall_clock;
mod work_signal;

#[cfg(test)]
mod cluster_instance_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod exchange_simulation_tests;
#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod ledger_steps_for_tests;
#[cfg(test)]
mod ledger_work_tests;
#[cfg(test)]
mod monitor_tests;
#[cfg(test)]
mod persistence_tests;
#[cfg(test)]
mod power_cut_tests;
#[cfg(test)]
mod prefix_watch_tests;
#[cfg(test)]
mod simulated_ledger;
#[cfg(test)]
mod tests;

pub use application::Service;
pub use background::BackgroundTasks;
pub use cluster_state::{CLUSTER_VALUE_BYTES_MAX, ClusterStatistics};
pub use exchange_inspection::NodeReport;
pub(super) use scan::RunningScan;
pub use settings::{Persistence, StoreSettings, recorded_bytes_max};
pub use statistics::{DiskStatistics, ServiceStatistics};
