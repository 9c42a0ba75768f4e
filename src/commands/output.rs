//! What a verb says, as data; `render` knows the shapes.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use crate::client::{DeleteOutcome, Found, Outcome, SetOutcome};
use super::error::CommandError;
use super::records::Id;
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
    /// One round trip of `ping`.
    Pinged {
        /// Where the broker is.
        broker: String,
        /// Counts from 1.
        sequence: u32,
        /// From the first packet to CONNACK; only the first record has it.
        connect: Option<Duration>,
        /// From asking to the answer.
        round_trip: Duration,
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
