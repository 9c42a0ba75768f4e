//! What a verb says, as data; `render` knows the shapes.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::configured::Configured;
pub use super::doctor::check::{Advice, Check, Checked, Seen, Status};
use super::error::CommandError;
pub use crate::client::lock::Loss;
pub use crate::client::probe::{AddressSource, ConnackProperties};
pub use crate::client::{DeleteOutcome, Found, Outcome, SetOutcome, WatchEvent};
use crate::commands::lines::records::Id;
use crate::commands::monitor::traffic_event::TrafficEvent;
pub use crate::net::certificate::Certificate;
pub use crate::net::tls::{TlsHandshake, TrustedRoots};
use crate::protocol::frame::Frame;
use crate::protocol::topic::Topic;
use crate::protocol::{Condition, Key, Notification, Reply, Request, Timestamp, Value};

/// One record of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// What `get` found.
    Got {
        /// The key that was read.
        key: Key,
        /// What came of it.
        got: Got,
    },
    /// What became of a `set`.
    Set {
        /// The key that was to be written.
        key: Key,
        /// The value's length in bytes.
        size: usize,
        /// Milliseconds until it expires.
        ttl_ms: Option<u64>,
        /// What had to hold.
        condition: Option<Condition>,
        /// What became of it.
        outcome: SetOutcome,
    },
    /// What became of a `del` or `vdel`.
    Deleted {
        /// Which of the two.
        verb: Deletion,
        /// The key that was to be removed.
        key: Key,
        /// What became of it.
        outcome: DeleteOutcome,
    },
    /// `lock` holds the lock; where a command runs under it, this is not told.
    Locked {
        /// The lock.
        key: Key,
        /// In whose name it is held.
        holder: Value,
        /// The fencing token.
        token: Timestamp,
        /// How long the lease lasts, in milliseconds.
        ttl_ms: u64,
        /// Whether it is left to end by itself.
        once: bool,
    },
    /// `lock` waits for somebody else.
    LockWaiting {
        /// The lock.
        key: Key,
        /// Who holds it.
        holder: Value,
        /// For how long nothing has been heard of the holder, if for longer than a lease should last.
        unrenewed: Option<Duration>,
    },
    /// `lock` did not get the lock.
    LockHeld {
        /// The lock.
        key: Key,
        /// Who holds it; none: it has come free since.
        holder: Option<Value>,
        /// As for `LockWaiting`.
        unrenewed: Option<Duration>,
    },
    /// What `lock` has to say beside the matter.
    LockNote {
        /// The lock.
        key: Key,
        /// What it is.
        note: LockNote,
    },
    /// What became of an `unlock`.
    Unlocked {
        /// The lock.
        key: Key,
        /// In whose name it was held.
        holder: Value,
        /// What became of it.
        outcome: DeleteOutcome,
    },
    /// Who holds a lock, of `holder`.
    Holder {
        /// The lock.
        key: Key,
        /// The holder's name, with the newest fencing token as its version; none: the lock is free.
        found: Option<Found>,
    },
    /// One round trip of `ping`.
    Pinged {
        /// Where the broker is.
        broker: String,
        /// Counts from 1.
        sequence: u32,
        /// From the first packet to CONNACK; only the first record has it.
        connect: Option<Duration>,
        /// The version of TLS on the way, if any; only the first record has it.
        tls: Option<&'static str>,
        /// From asking to the answer.
        round_trip: Duration,
    },
    /// What came of a check of `doctor`.
    Checked(Box<Checked>),
    /// What came of all of them, at the end.
    Examined(Vec<Checked>),
    /// What `monitor` saw.
    Sighted {
        /// What it was.
        sighting: Box<TrafficEvent>,
        /// When, in milliseconds since the Unix epoch.
        at_ms: u64,
        /// Counts the records from 1; none for what is said beside them.
        sequence: Option<u64>,
        /// How wide a line may be at a terminal.
        columns_max: Option<usize>,
    },
    /// A key, of `keys`.
    Listed {
        /// The key.
        key: Key,
        /// Whether its exact bytes are asked for, with a NUL byte behind them.
        null: bool,
    },
    /// A key and its value, of `export`.
    Entry {
        /// The key.
        key: Key,
        /// What it holds.
        found: Found,
    },
    /// What became of an `export`, at its end.
    Exported(Exported),
    /// What became of an `import`, at its end.
    Imported(Imported),
    /// What became of a line of `batch` or `import`.
    Answered(Answered),
    /// How far a verb has come: of no interest any more when the next one comes.
    Progress(Progress),
    /// One event of `watch`.
    Watched {
        /// What happened.
        event: WatchEvent,
        /// When it came, in milliseconds since the Unix epoch.
        received_ms: u64,
        /// Counts the records from 1; none for what is said beside them.
        sequence: Option<u64>,
    },
    /// A command that `watch` ran for a key has not ended well.
    HandlerEnded {
        /// The key.
        key: Key,
        /// How it ended.
        ended: Ended,
    },
    /// A response as sent, of `raw`.
    Response {
        /// The payload.
        payload: Bytes,
        /// The version that came with it.
        version: Option<Timestamp>,
    },
    /// What a topic is for, of `decode topic`.
    Topic(Topic),
    /// What a payload is, of `decode frame`.
    Frame {
        /// What it means to the state store.
        meaning: Meaning,
        /// The frame itself.
        frame: Frame,
    },
    /// A hybrid logical clock, of `decode hlc`.
    Clock(Timestamp),
    /// What `config` or `context` tells.
    Configured(Box<Configured>),
}

/// What came of reading a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// The key's value.
    Found(Found),
    /// There is no such key; this stands in for its value.
    Default(Value),
    /// The value was written to a file.
    Written {
        /// The file.
        file: PathBuf,
        /// The value's length in bytes.
        size: usize,
        /// Its version; none for a default.
        version: Option<Timestamp>,
        /// Whether there is such a key; if not, the default was written.
        found: bool,
    },
    /// There is no such key.
    Missing,
}

/// What became of an `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// How many keys were put out.
    pub keys: u64,
    /// How many were not there when their value was asked for.
    pub missing: u64,
}

/// What became of an `import`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// How many keys were written, or would have been.
    pub written: u64,
    /// How many exist and were left.
    pub left: u64,
    /// How many lines failed.
    pub failed: u64,
    /// Whether nothing was to be written.
    pub dry_run: bool,
}

/// What became of one line of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Counts from 1.
    pub line: u64,
    /// What the line calls itself.
    pub id: Option<Id>,
    /// What became of it.
    pub answer: Answer,
}

/// What became of one line of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A record of its verb.
    Record(Box<Output>),
    /// It failed.
    Failed {
        /// Why.
        error: CommandError,
        /// Whether this, or what came before it, ends everything, and is told at the end.
        is_end: bool,
    },
}

/// How far a verb has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many are done.
    pub count: u64,
    /// What is counted.
    pub unit: &'static str,
    /// How many bytes of the input have been read.
    pub bytes_read: u64,
    /// How many there are, where that is known.
    pub bytes_total: Option<u64>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What `lock` has to say beside the matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockNote {
    /// The lock is lost while the command runs on.
    Lost {
        /// Why.
        reason: Loss,
    },
    /// The file with the fencing token does not have the newest one.
    TokenFile {
        /// Why not.
        cause: String,
    },
    /// The store did not say that the lock is free.
    Unconfirmed {
        /// What it said.
        cause: String,
        /// When it is free at the latest, in milliseconds.
        ttl_ms: u64,
    },
}

/// Which verb deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// `del`
    Del,
    /// `vdel`
    VDel,
}

impl Deletion {
    /// The verb's word.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Del => "del",
            Self::VDel => "vdel",
        }
    }
}

/// What a frame means to the state store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A request to the store.
    Request(Request),
    /// A reply of the store.
    Reply(Reply),
    /// What a watcher is told.
    Notification(Notification),
    /// A frame and no more.
    Other,
}
