//! Key-value state machine of the state store: requests in, replies and changes out; no I/O, no clock.

pub mod authorization;
mod condition;
mod entries;
mod entry;
mod expiry;
mod glob;
mod limits;
mod machine;
mod page;
mod request;
mod scan;
mod versions;
mod watchers;

pub use entry::{StoredValue, Version};
pub use limits::{KEY_COST_BYTES, Limits};
pub use machine::{EXPIRED_PER_POLL_MAX, PersistentEntry, Store};
pub use page::{KeySummary, Page, StoreStatistics};
pub use request::{Change, Now, StoreRequest, StoreResponse};
pub use scan::Scan;
pub use watchers::Watcher;
