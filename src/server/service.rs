//! The state store behind a broker: from MQTT message to request, to response and notifications, to the disk.
//!
//! [`Service`] is the application that the broker calls. Its state is in [`shared`]: the store and, with a disk, the
//! queue of uncommitted changes. [`commit_thread`] and [`expiry_task`] work on the same state in the background.

mod application;
mod background;
mod commit_thread;
mod exchange;
mod exchange_inspection;
mod exchange_messages;
mod exchange_task;
mod expiry_task;
mod inspection;
mod scan;
mod settings;
mod shared;
mod state;
mod uplink_node;
mod wall_clock;

#[cfg(test)]
mod exchange_simulation_tests;
#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod monitor_tests;
#[cfg(test)]
mod persistence_tests;
#[cfg(test)]
mod power_cut_tests;
#[cfg(test)]
mod tests;

pub use application::Service;
pub use background::BackgroundTasks;
pub use exchange_inspection::NodeReport;
pub use settings::{Persistence, StoreSettings, recorded_bytes_max};
pub use state::{DiskStatistics, ServiceStatistics};
