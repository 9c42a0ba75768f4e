//! Key-value state machine of the state store: requests in, replies and changes out; no I/O, no clock.

pub mod authorization;
mod checks;
mod deadlines;
mod entries;
mod entry;
mod glob;
mod key_view;
mod key_walk;
mod limits;
mod machine;
mod prefix_watchers;
mod request;
mod scan;
mod statistics;
mod versions;
mod watchers;

pub use entry::{StoredValue, Version};
pub use glob::{InvalidPattern, Pattern};
pub use key_view::KeyView;
pub use key_walk::KeyWalk;
pub use limits::{KEY_COST_BYTES, Limits};
pub use machine::{EXPIRED_PER_POLL_MAX, PersistentEntry, Store};
pub use request::{Change, Now, StoreRequest, StoreResponse, WatchOptions};
pub use scan::Scan;
pub use statistics::StoreStatistics;
pub use watchers::Watcher;
