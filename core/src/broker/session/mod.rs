//! Sessions: the messages of a client, its session entry, and the handle of its connection.

pub mod connection_handle;
pub mod entry;
pub mod shared_task;
pub mod state_machine;
pub mod wake_queue;
pub mod woken;
