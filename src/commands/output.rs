//! The records of the verbs, as data; `render` formats them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use super::bench::report::{
    Band, BenchEnd, BenchProgress, BenchReport, BenchSettings, Failure, FailureCount, Latency, Limit,
    Measured, Workload,
};
use super::configured::ConfigRecord;
pub use super::doctor::check::{Check, CheckResult, Detail, Status, Warning};
use super::error::{CommandError, Place};
pub use super::exchange::record::{ExchangeRecord, present};
use super::lines::records::Id;
use super::monitor::traffic_event::TrafficEvent;
pub use crate::client::lock::LossReason;
pub use crate::client::probe::{AddressSource, ConnackProperties};
pub use crate::client::{
    Certificate, DeleteOutcome, Outcome, SetOutcome, TlsHandshake, TrustedRoots, VersionedValue, WatchEvent,
};
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Condition, Key, Notification, Reply, Request, Timestamp, Value};

/// Takes the records of a verb, each as soon as it exists.
pub type Emit<'a> = &'a mut dyn FnMut(Output) -> io::Result<()>;

/// A record of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The result of `get` for one key.
    Got {
        key: Key,
        got: Got,
        /// Whether it is one of several, so that its value is a line of its own.
        is_one_of_many: bool,
    },
    /// The result of `set`.
    Set {
        key: Key,
        /// The length of the value in bytes.
        size: usize,
        ttl_ms: Option<u64>,
        condition: Option<Condition>,
        outcome: SetOutcome,
    },
    /// The result of `edit`.
    Edited { key: Key, result: EditResult },
    /// The result of `del` or `vdel`.
    Deleted {
        verb: Deletion,
        key: Key,
        outcome: DeleteOutcome,
        /// Whether a missing key is a success.
        is_missing_ignored: bool,
    },
    /// `lock` has acquired the lock. Not emitted if a command runs under it.
    Locked {
        key: Key,
        holder: Value,
        /// The fencing token.
        token: Timestamp,
        ttl_ms: u64,
        held_until: HeldUntil,
    },
    /// `lock` waits for another holder.
    LockWaiting {
        key: Key,
        holder: Value,
        /// The time since the last renewal, if it is longer than a lease lasts.
        unrenewed: Option<Duration>,
    },
    /// `lock` has not acquired the lock.
    LockHeld {
        key: Key,
        /// None if the lock has become free since.
        holder: Option<Value>,
        /// As for `LockWaiting`.
        unrenewed: Option<Duration>,
    },
    /// A warning of `lock`.
    LockNote { key: Key, note: LockNote },
    /// The result of `unlock`.
    Unlocked { key: Key, holder: Value, outcome: DeleteOutcome },
    /// The result of `holder`.
    Holder {
        key: Key,
        /// The holder's name, with the newest fencing token as its version; None if the lock is free.
        found: Option<VersionedValue>,
    },
    /// A round trip of `ping`.
    Pinged {
        /// The broker's address.
        broker: String,
        /// Counts from 1.
        sequence: u32,
        /// The time from the first packet to CONNACK; only in the first record.
        connect: Option<Duration>,
        /// The version of TLS; only in the first record.
        tls: Option<&'static str>,
        round_trip: Duration,
    },
    /// The result of one check of `doctor`.
    Checked(Box<CheckResult>),
    /// The results of all checks, at the end.
    CheckSummary(Vec<CheckResult>),
    /// An event of `monitor`.
    Traffic {
        event: Box<TrafficEvent>,
        /// Milliseconds since the Unix epoch.
        at_ms: u64,
        /// Counts the records from 1; None for events that are not data.
        sequence: Option<u64>,
        /// The width of the terminal, to which a line is cut.
        columns_max: Option<usize>,
    },
    /// A key of `keys`.
    Listed {
        key: Key,
        /// Whether the exact bytes are printed, followed by NUL.
        null: bool,
    },
    /// The number of keys of `keys --count`.
    Counted(u64),
    /// A hint about the arguments of a verb that succeeded.
    Hint(String),
    /// The number of lines of a batch with a negative answer, and the first of them.
    AnsweredNo { lines: u64, first: Place },
    /// The number of valid lines of `batch --dry-run`.
    Validated { lines: u64 },
    /// A key and its value, of `export`.
    Entry { key: Key, found: VersionedValue },
    /// The summary of `export`.
    Exported(Exported),
    /// The summary of `import`.
    Imported(Imported),
    /// The result of a line of `batch` or `import`.
    Answered(Answered),
    /// The progress of a verb; replaces the previous one.
    Progress(Progress),
    /// `watch` watches these keys; with a prefix, more may follow.
    Watching { keys: Vec<Key>, prefix: Option<String> },
    /// An event of `watch`.
    Watched {
        event: WatchEvent,
        /// Milliseconds since the Unix epoch.
        received_ms: u64,
        /// Counts the records from 1; None for events that are not data.
        sequence: Option<u64>,
    },
    /// A command that `watch` ran for a key has failed.
    HandlerEnded { key: Key, ended: Ended },
    /// The reply of `raw`, as received.
    Response { payload: Bytes, version: Option<Timestamp> },
    /// The result of `decode topic`.
    Topic(Topic),
    /// The result of `decode frame`.
    Frame { meaning: Meaning, frame: Frame },
    /// The result of `decode hlc`.
    Clock(Timestamp),
    /// The progress of `bench`; replaces the previous one.
    BenchProgress(BenchProgress),
    /// The result of `bench`.
    Benched(Box<BenchReport>),
    /// A record of `config` or `context`.
    Config(Box<ConfigRecord>),
    /// A record of `exchange`.
    Exchange(Box<ExchangeRecord>),
}

/// The result of reading a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// The value of the key.
    Found(VersionedValue),
    /// The key does not exist; this value was given as the default.
    Default(Value),
    /// The value was written to a file.
    Written {
        file: PathBuf,
        /// The length of the value in bytes.
        size: usize,
        /// The version of the value; None for a default.
        version: Option<Timestamp>,
        /// Whether the key exists; if not, the default was written.
        found: bool,
    },
    /// The key does not exist.
    Missing,
}

/// The result of editing a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditResult {
    /// The value was not changed, so nothing was written.
    Unchanged,
    Stored {
        /// The length of the value in bytes.
        size: usize,
        ttl_ms: Option<u64>,
        outcome: SetOutcome,
    },
    /// The key was changed meanwhile, so nothing was written.
    Conflict {
        /// The file with the edited text.
        draft: PathBuf,
    },
}

/// The numbers of keys of an `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Keys that were printed.
    pub keys: u64,
    /// Keys that were deleted before their value was read.
    pub missing: u64,
}

/// The numbers of lines of an `import`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Keys that were written, or would have been.
    pub written: u64,
    /// Keys that were not written because they exist.
    pub skipped: u64,
    pub failed: u64,
    pub dry_run: bool,
}

/// The result of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub place: Place,
    /// The id that the request has given itself.
    pub id: Option<Id>,
    pub answer: Answer,
}

/// The answer to a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A record of the line's verb.
    Record(Box<Output>),
    /// The line failed.
    Failed {
        error: CommandError,
        /// Whether the whole verb fails with this error or an earlier one, which is reported at the end.
        is_end: bool,
    },
}

/// The progress of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub count: u64,
    /// The unit of `count`, in the plural.
    pub unit: &'static str,
    /// The bytes of the input that have been read.
    pub bytes_read: u64,
    /// The length of the input in bytes, where it is known.
    pub bytes_total: Option<u64>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit status.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What ends a lock that `lock` holds without a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldUntil {
    /// The end of the lease, which is not renewed, or `unlock`.
    LeaseEnd,
    /// The end of input, or a signal.
    InputEnd,
    Signal,
}

/// A warning of `lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockNote {
    /// The lock was lost while the command keeps running (`--no-kill`).
    Lost { reason: LossReason },
    /// The file does not contain the newest fencing token.
    TokenFile { cause: String },
    /// The store has not answered the first attempt to acquire the lock; more attempts follow.
    Unanswered { cause: String },
    /// The store has not confirmed the release.
    Unconfirmed {
        cause: String,
        /// The time after which the lease has ended, in milliseconds.
        ttl_ms: u64,
    },
}

/// A verb that deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    Del,
    VDel,
}

impl Deletion {
    /// Returns the verb's name.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Del => "del",
            Self::VDel => "vdel",
        }
    }
}

/// The meaning of a frame to the state store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A request to the store.
    Request(Request),
    /// A reply of the store.
    Reply(Reply),
    /// A notification to a watcher.
    Notification(Notification),
    /// A frame without meaning to the store.
    Other,
}
