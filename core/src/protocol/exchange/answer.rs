//! Answers to operator requests.

use std::fmt;

use bytes::Bytes;

use super::conflict::{ConflictPage, Lost, Origin};
use super::elements::{Elements, encoded, number, optional_number, optional_text, simple, text};
use super::refusal::Refusal;
use crate::protocol::frame::{Frame, FrameError};

/// An answer to a [`Command`](super::Command).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The state of a root.
    Root(RootReport),
    /// The state of a leaf itself.
    Leaf(OwnReport),
    Key(KeyReport),
    Conflicts(ConflictPage),
    /// The bytes that lost, or what lost without any.
    Value(Result<Bytes, Lost>),
    /// The number of conflicts or leaves that were changed.
    Done {
        count: u64,
    },
    /// There is no such leaf or conflict.
    NotFound,
    Refused(Refusal),
}

/// The state of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootReport {
    pub exchange: String,
    /// The last version given out.
    pub ver: u64,
    /// Records with a value.
    pub records: u64,
    pub tombstones: u64,
    pub conflicts: u64,
    /// Conflicts that made room for others.
    pub dropped: u64,
    pub leaves: Vec<LeafReport>,
}

/// What a root knows of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafReport {
    pub name: String,
    pub state: LeafState,
    /// Versions that the leaf has not committed.
    pub behind: u64,
    /// Changes without a decision that the leaf has committed, or some more; `None`: not known, because there is no link.
    pub pending: Option<u64>,
    pub conflicts: u64,
    /// Milliseconds since the last frame of the leaf; `None`: it has sent none since the root has started.
    pub heard_ms: Option<u64>,
    pub accepted: u64,
    pub refused: u64,
}

/// The state of a leaf, as its root sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafState {
    /// It may join, and has not yet.
    Expected,
    Offline,
    /// The root has no room for the next change of the leaf.
    Blocked,
    /// Linked, and not synchronized yet.
    Linked,
    /// Linked, with all records and all decisions.
    Synchronized,
}

/// The state of a leaf itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnReport {
    pub exchange: String,
    pub name: String,
    pub state: OwnState,
    /// Whether it is linked, and has all records up to the root's last reported version, and all decisions.
    pub is_synchronized: bool,
    /// The leaf has committed the root's records up to this version.
    pub received: u64,
    /// Changes without a decision.
    pub outbox: u64,
    pub outbox_bytes: u64,
    pub made: u64,
    pub accepted: u64,
    pub refused: u64,
    pub merged: u64,
    pub conflicts: u64,
    /// Conflicts that made room for others.
    pub dropped: u64,
    /// The reason why the last link has ended, or none can be established, until one is.
    pub ended: Option<String>,
}

/// The state of a leaf itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnState {
    Offline,
    /// This store or the root's has no room for the next change.
    Blocked,
    /// Linked, and receiving all records again.
    Resync,
    Linked,
}

/// What a node knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReport {
    pub state: KeyState,
    /// `None`: no rule has a pattern for the key.
    pub rule: Option<RuleReport>,
    /// The version of the root's record; 0 if there is none.
    pub ver: u64,
    /// The change id of the root's record; `None` if there is none.
    pub change_id: Option<[u8; 16]>,
    /// The node that made the root's record.
    pub owner: Origin,
    /// At a leaf: the change id of the last change without a decision.
    pub pending: Option<[u8; 16]>,
}

/// A rule of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// Counts from 1.
    pub number: u64,
    pub keys: Vec<String>,
    /// Whether leaves may change the keys, not the root alone.
    pub is_for_leaves: bool,
    /// Patterns of the leaves concerned; `None`: all.
    pub leaves: Option<Vec<String>>,
}

/// The state of a key, as far as one node can know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key takes no part.
    Local,
    /// There is neither a record nor a change.
    Absent,
    /// The node has what the root holds.
    Synchronized,
    /// A change waits for the root.
    Proposed,
    /// The root has committed a change that a leaf has not committed. At the leaf there is no such state: it answers when
    /// what it has received is committed.
    Replicating,
}

/// Error of decoding an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The payload is not one frame.
    Frame(FrameError),
    /// The payload is a frame that is no answer.
    Unexpected,
}

impl Answer {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Root(root) => encoded(root.to_elements()),
            Self::Leaf(leaf) => encoded(leaf.to_elements()),
            Self::Key(key) => encoded(key.to_elements()),
            Self::Conflicts(page) => encoded(page.to_elements()),
            Self::Value(Ok(value)) => encoded(vec![simple("value"), Frame::Bulk(value.clone())]),
            Self::Value(Err(lost)) => {
                encoded(vec![simple("value"), lost.frame_without_value().unwrap_or(Frame::Null)])
            }
            Self::Done { count } => encoded(vec![simple("done"), number(*count)]),
            Self::NotFound => Bytes::from_static(b"$-1\r\n"),
            Self::Refused(refusal) => Bytes::from(format!("-ERR {}\r\n", refusal.text())),
        }
    }

    /// # Errors
    /// [`AnswerError`] for anything but an answer.
    pub fn decode(payload: &Bytes) -> Result<Self, AnswerError> {
        match Frame::decode(payload).map_err(AnswerError::Frame)? {
            Frame::Null => Ok(Self::NotFound),
            Frame::Error(text) => {
                let text = text.strip_prefix(b"ERR ").unwrap_or(&text);
                Ok(Self::Refused(Refusal::parse(&String::from_utf8_lossy(text))))
            }
            Frame::Array(elements) => {
                Self::from_elements(&mut Elements(&elements)).ok_or(AnswerError::Unexpected)
            }
            Frame::Simple(_) | Frame::Integer(_) | Frame::Bulk(_) => Err(AnswerError::Unexpected),
        }
    }

    fn from_elements(rest: &mut Elements<'_>) -> Option<Self> {
        match rest.simple()? {
            b"root" => RootReport::decode(rest).map(Self::Root),
            b"leaf" => OwnReport::decode(rest).map(Self::Leaf),
            b"key" => KeyReport::decode(rest).map(Self::Key),
            b"conflicts" => ConflictPage::decode(rest).map(Self::Conflicts),
            b"value" => match rest.next()? {
                Frame::Bulk(value) => Some(Self::Value(Ok(value.clone()))),
                other => Lost::without_value(other).map(|lost| Self::Value(Err(lost))),
            },
            b"done" => Some(Self::Done { count: rest.number()? }),
            _ => None,
        }
    }
}

impl RootReport {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("root"),
            text(&self.exchange),
            number(self.ver),
            number(self.records),
            number(self.tombstones),
            number(self.conflicts),
            number(self.dropped),
            Frame::Array(self.leaves.iter().map(LeafReport::to_frame).collect()),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            exchange: rest.text()?,
            ver: rest.number()?,
            records: rest.number()?,
            tombstones: rest.number()?,
            conflicts: rest.number()?,
            dropped: rest.number()?,
            leaves: rest.list(LeafReport::decode)?,
        })
    }
}

impl LeafReport {
    /// Whether the leaf is linked with the root.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.pending.is_some()
    }

    fn to_frame(&self) -> Frame {
        Frame::Array(vec![
            text(&self.name),
            simple(self.state.as_str()),
            number(self.behind),
            optional_number(self.pending),
            number(self.conflicts),
            optional_number(self.heard_ms),
            number(self.accepted),
            number(self.refused),
        ])
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            name: rest.text()?,
            state: LeafState::parse(rest.simple()?)?,
            behind: rest.number()?,
            pending: rest.optional_number()?,
            conflicts: rest.number()?,
            heard_ms: rest.optional_number()?,
            accepted: rest.number()?,
            refused: rest.number()?,
        })
    }
}

impl OwnReport {
    fn to_elements(&self) -> Vec<Frame> {
        let counters = [
            self.received,
            self.outbox,
            self.outbox_bytes,
            self.made,
            self.accepted,
            self.refused,
            self.merged,
            self.conflicts,
            self.dropped,
        ];
        let state = [simple(self.state.as_str()), number(self.is_synchronized.into())];
        let names = [simple("leaf"), text(&self.exchange), text(&self.name)].into_iter().chain(state);
        let ended = optional_text(self.ended.as_deref());
        names.chain(counters.into_iter().map(number)).chain([ended]).collect()
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            exchange: rest.text()?,
            name: rest.text()?,
            state: OwnState::parse(rest.simple()?)?,
            is_synchronized: rest.switch()?,
            received: rest.number()?,
            outbox: rest.number()?,
            outbox_bytes: rest.number()?,
            made: rest.number()?,
            accepted: rest.number()?,
            refused: rest.number()?,
            merged: rest.number()?,
            conflicts: rest.number()?,
            dropped: rest.number()?,
            ended: rest.optional_text()?,
        })
    }
}

impl KeyReport {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("key"),
            simple(self.state.as_str()),
            self.rule.as_ref().map_or(Frame::Null, RuleReport::to_frame),
            number(self.ver),
            change_id(self.change_id),
            self.owner.to_frame(),
            change_id(self.pending),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            state: KeyState::parse(rest.simple()?)?,
            rule: rest.optional(|rest| match rest.next()? {
                Frame::Array(elements) => RuleReport::decode(&mut Elements(elements)),
                _ => None,
            })?,
            ver: rest.number()?,
            change_id: decode_change_id(rest)?,
            owner: Origin::decode(rest)?,
            pending: decode_change_id(rest)?,
        })
    }
}

impl RuleReport {
    fn to_frame(&self) -> Frame {
        let texts = |texts: &[String]| Frame::Array(texts.iter().map(|one| text(one)).collect());
        let leaves = self.leaves.as_deref().map_or(Frame::Null, texts);
        let is_for_leaves = number(self.is_for_leaves.into());
        Frame::Array(vec![number(self.number), texts(&self.keys), is_for_leaves, leaves])
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            number: rest.number()?,
            keys: rest.texts()?,
            is_for_leaves: rest.switch()?,
            leaves: rest.optional(Elements::texts)?,
        })
    }
}

fn change_id(change_id: Option<[u8; 16]>) -> Frame {
    change_id.map_or(Frame::Null, |change_id| Frame::Bulk(Bytes::copy_from_slice(&change_id)))
}

fn decode_change_id(rest: &mut Elements<'_>) -> Option<Option<[u8; 16]>> {
    rest.optional(|rest| rest.bulk()?.as_ref().try_into().ok())
}

/// Defines the text of each state, for the wire and for output.
macro_rules! states {
    ($state:ident: $($variant:ident = $text:literal),+) => {
        impl $state {
            fn parse(text: &[u8]) -> Option<Self> {
                $(if text == $text.as_bytes() { return Some(Self::$variant); })+
                None
            }

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

states!(LeafState: Expected = "expected", Offline = "offline", Blocked = "blocked", Linked = "linked", Synchronized = "synchronized");
states!(OwnState: Offline = "offline", Blocked = "blocked", Resync = "resync", Linked = "linked");
states!(
    KeyState: Local = "local", Absent = "absent", Synchronized = "synchronized", Proposed = "proposed",
    Replicating = "replicating"
);

impl RootReport {
    /// Whether all leaves of the report are synchronized.
    #[must_use]
    pub fn is_synchronized(&self) -> bool {
        self.leaves.iter().all(|leaf| leaf.state == LeafState::Synchronized)
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(out),
            Self::Unexpected => out.write_str("a frame that is no answer of an exchange"),
        }
    }
}

impl std::error::Error for AnswerError {}
