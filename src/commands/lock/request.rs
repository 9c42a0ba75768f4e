//! What `lock` was asked for, checked before a connection is made.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::timing::Timing;
use crate::protocol::{Key, Value};

/// A lock to acquire, and its use.
#[derive(Clone, Debug)]
pub struct LockRequest {
    pub key: Key,
    /// None for the client id.
    pub holder: Option<Value>,
    pub timing: Timing,
    /// The duration of the lease in milliseconds.
    pub ttl_ms: u64,
    pub usage: LockUsage,
    pub token_file: Option<PathBuf>,
    /// The exit status if another client holds the lock.
    pub conflict_code: Option<u8>,
}

/// The use of a lock.
#[derive(Clone, Debug)]
pub enum LockUsage {
    /// Hold it while a command runs.
    Command { words: Vec<OsString>, stop: StopOptions },
    /// Hold it until a signal or, with `until_eof` or on a terminal, until the end of input.
    Hold { until_eof: bool },
    /// Leave it held for one lease.
    Once,
}

/// How a command is stopped.
#[derive(Clone, Copy, Debug)]
pub struct StopOptions {
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// The time before the lease's end at which the command must be gone.
    pub reserve: Duration,
    /// Whether the command is stopped when the lock is lost.
    pub on_loss: bool,
}
