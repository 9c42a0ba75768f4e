//! Frames of a link between a root and a leaf (§3): one RESP3 array each.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::protocol::Key;
use crate::protocol::frame::{self, Frame};

use super::elements::{Elements, TEXT_BYTES_MAX, change_id, id, number, simple, text};
use super::names::{ChangeId, Name};
use super::rules::Rules;
pub use content::Content;
pub use proposal::{Flags, Proposal, Proposed, ValueKind};
pub use reason::Reason;

mod content;
mod proposal;
mod reason;

/// The most items of one CHANGES or RECORDS.
pub const ITEMS_MAX: usize = 128;
/// The bytes of keys and values after which a sender begins another frame. A single item may be larger.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// The most CHANGES without all their decisions, and the most RECORDS that are not acknowledged.
pub const FRAMES_IN_FLIGHT_MAX: usize = 8;
/// The most changes without a decision that the leaf has committed.
pub const DECISIONS_MAX: usize = 1_024;
/// The time without progress after which a link ends, on either side.
pub const STALL_MS: u64 = 15_000;
/// The time after which the root sends RECORDS, without items if need be, so that each side notices the loss of the other.
pub const IDLE_MS: u64 = 60_000;
/// The time without any frame of the root after which the leaf ends the link.
pub const SILENCE_MS: u64 = IDLE_MS + STALL_MS;
/// The latest version of these frames.
pub const VERSION: u64 = 1;
/// The oldest version of these frames that this software still speaks.
pub const OLDEST_VERSION: u64 = 1;

/// One frame of a link. Elements behind the known ones are ignored, so that a later version can add some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LinkFrame {
    Hello(Hello),
    Welcome(Welcome),
    Refused(Refused),
    Changes(Changes),
    Records(Records),
    Ack(Ack),
}

/// The first frame of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    /// The latest version that the leaf speaks.
    pub version: u64,
    pub exchange: Name,
    pub leaf: Name,
    /// The identity of the leaf's data folder.
    pub store: u64,
    /// The random number of the leaf's process.
    pub run: u64,
    pub link: u64,
    /// The identity of the leaf's sequence of changes.
    pub stream: u64,
    /// The last change of which the leaf has committed the decision.
    pub acked: u64,
    /// The leaf has committed all records up to this version.
    pub cursor: u64,
    /// The last version of the root in the last RECORDS that the leaf has committed: a record that it lacks up to `cursor` was
    /// replaced by then.
    pub last_ver: u64,
    /// The run of the root that made the version `last_ver`.
    pub term: u64,
    /// The digest of the rules that the leaf has.
    pub rules: u64,
    pub software: String,
    /// The oldest version that the leaf speaks.
    pub oldest_version: u64,
    /// Whether the leaf asks for a resync.
    pub is_resync: bool,
    /// The version at which the resync that goes on is complete; 0 if there is none.
    pub horizon: u64,
    /// The last change without a decision, or `acked` if there is none.
    pub last_seq: u64,
    /// Whether the leaf still has keys to offer, or a resync to complete.
    pub is_busy: bool,
}

/// The root's answer to a leaf that it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Welcome {
    pub link: u64,
    /// The identity of the root's data folder.
    pub root: u64,
    /// The last change of the leaf's stream that the root has decided.
    pub applied: u64,
    /// The change id of the change `applied`.
    pub change_id: ChangeId,
    /// The last change of which the root has dropped the decision.
    pub pruned: u64,
    pub start: Start,
    /// The records follow from above this version.
    pub from: u64,
    /// The version at which a resync is complete.
    pub horizon: u64,
    /// `None` if the leaf has them.
    pub rules: Option<Rules>,
    /// The version that both speak from here on.
    pub version: u64,
}

/// How the stream of records begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the leaf's cursor.
    Resume,
    /// At 0, because records that the leaf needs are gone.
    Resync,
    /// At 0, because the root was restored from a backup that is older than the leaf's records.
    Restored,
}

/// The root's answer to a leaf that it does not accept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    pub link: u64,
    pub code: String,
    pub text: String,
}

/// Changes that a leaf proposes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changes {
    pub link: u64,
    /// The number of the frame on the link, from 1.
    pub n: u64,
    pub items: Vec<Proposal>,
}

/// Records and decisions for a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Records {
    pub link: u64,
    /// The number of the frame on the link, from 1.
    pub n: u64,
    /// All records up to this version have been sent.
    pub to: u64,
    /// The run of the root that made the version `last_ver`.
    pub term: u64,
    /// The digest of all records, for comparison; sent when idle.
    pub digest: Option<u64>,
    pub items: Vec<Item>,
    /// Tombstones up to this version are purged, at the root and by the leaf.
    pub purged: u64,
    /// The root's last version: if it is above `to`, more RECORDS follow.
    pub last_ver: u64,
}

/// An element of RECORDS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    Record(RecordItem),
    /// The change was accepted, as this version.
    Accepted {
        seq: u64,
        ver: u64,
    },
    /// The change was refused. The record is the key's at the time of sending.
    Refused {
        seq: u64,
        reason: Reason,
        record: Option<RecordItem>,
    },
}

/// What the root holds of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordItem {
    pub key: Key,
    pub ver: u64,
    pub change_id: ChangeId,
    /// The leaf that made it; `None`: the root.
    pub owner: Option<Name>,
    /// `None`: a tombstone.
    pub content: Option<Content>,
}

/// The leaf has committed the records up to `cursor`, and the decisions up to `acked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    pub link: u64,
    /// The last RECORDS that the leaf has committed.
    pub n: u64,
    pub cursor: u64,
    pub acked: u64,
    /// As in [`Hello`]. If `is_busy` changes, an ACK reports it.
    pub last_seq: u64,
    pub is_busy: bool,
}

/// Error of decoding a frame of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFrameError {
    /// It is no RESP3 frame.
    Syntax(frame::FrameError),
    /// It is no array that begins with the name of a known frame.
    UnknownKind,
    /// An element of the frame of this name is missing, of another type, or out of bounds.
    Malformed(&'static str),
}

const HELLO: &str = "HELLO";
const WELCOME: &str = "WELCOME";
const REFUSED: &str = "REFUSED";
const CHANGES: &str = "CHANGES";
const RECORDS: &str = "RECORDS";
const ACK: &str = "ACK";

impl LinkFrame {
    /// Returns the link that the frame belongs to.
    #[must_use]
    pub fn link(&self) -> u64 {
        match self {
            Self::Hello(Hello { link, .. })
            | Self::Welcome(Welcome { link, .. })
            | Self::Refused(Refused { link, .. })
            | Self::Changes(Changes { link, .. })
            | Self::Records(Records { link, .. })
            | Self::Ack(Ack { link, .. }) => *link,
        }
    }

    /// Decodes one frame. Keys and values share the memory of `payload`.
    ///
    /// # Errors
    /// [`LinkFrameError`]; nothing is allocated beyond the size of the payload.
    pub fn decode(payload: &Bytes) -> Result<Self, LinkFrameError> {
        let frame = Frame::decode(payload).map_err(LinkFrameError::Syntax)?;
        let Frame::Array(elements) = frame else { return Err(LinkFrameError::UnknownKind) };
        let Some((Frame::Simple(kind), rest)) = elements.split_first() else {
            return Err(LinkFrameError::UnknownKind);
        };
        let mut rest = Elements(rest);
        let (kind, decoded) = match kind.as_ref() {
            b"HELLO" => (HELLO, hello(&mut rest).map(Self::Hello)),
            b"WELCOME" => (WELCOME, welcome(&mut rest).map(Self::Welcome)),
            b"REFUSED" => (REFUSED, refused(&mut rest).map(Self::Refused)),
            b"CHANGES" => (CHANGES, changes(&mut rest).map(Self::Changes)),
            b"RECORDS" => (RECORDS, records(&mut rest).map(Self::Records)),
            b"ACK" => (ACK, ack(&mut rest).map(Self::Ack)),
            _ => return Err(LinkFrameError::UnknownKind),
        };
        decoded.ok_or(LinkFrameError::Malformed(kind))
    }

    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.to_frame().encode(&mut out);
        out.freeze()
    }

    fn to_frame(&self) -> Frame {
        let (kind, mut elements) = match self {
            Self::Hello(hello) => (HELLO, hello.to_elements()),
            Self::Welcome(welcome) => (WELCOME, welcome.to_elements()),
            Self::Refused(Refused { link, code, text: reason }) => {
                (REFUSED, vec![id(*link), simple(code), text(reason)])
            }
            Self::Changes(Changes { link, n, items }) => {
                let items = items.iter().map(Proposal::to_frame).collect();
                (CHANGES, vec![id(*link), number(*n), Frame::Array(items)])
            }
            Self::Records(records) => (RECORDS, records.to_elements()),
            Self::Ack(Ack { link, n, cursor, acked, last_seq, is_busy }) => {
                let numbers = [*n, *cursor, *acked, *last_seq, (*is_busy).into()].map(number);
                (ACK, std::iter::once(id(*link)).chain(numbers).collect())
            }
        };
        elements.insert(0, simple(kind));
        Frame::Array(elements)
    }
}

impl Hello {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            number(self.version),
            text(self.exchange.as_str()),
            text(self.leaf.as_str()),
            id(self.store),
            id(self.run),
            id(self.link),
            id(self.stream),
            number(self.acked),
            number(self.cursor),
            number(self.last_ver),
            id(self.term),
            id(self.rules),
            text(&self.software),
            number(self.oldest_version),
            number(self.is_resync.into()),
            number(self.horizon),
            number(self.last_seq),
            number(self.is_busy.into()),
        ]
    }
}

fn hello(rest: &mut Elements<'_>) -> Option<Hello> {
    Some(Hello {
        version: rest.number()?,
        exchange: rest.name()?,
        leaf: rest.name()?,
        store: rest.id()?,
        run: rest.id()?,
        link: rest.id()?,
        stream: rest.id()?,
        acked: rest.number()?,
        cursor: rest.number()?,
        last_ver: rest.number()?,
        term: rest.id()?,
        rules: rest.id()?,
        software: rest.short_text()?,
        oldest_version: rest.number()?,
        is_resync: rest.number()? != 0,
        horizon: rest.number()?,
        last_seq: rest.number()?,
        is_busy: rest.number()? != 0,
    })
}

impl Welcome {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            id(self.link),
            id(self.root),
            number(self.applied),
            change_id(self.change_id),
            number(self.pruned),
            simple(self.start.as_str()),
            number(self.from),
            number(self.horizon),
            self.rules.as_ref().map_or(Frame::Null, Rules::to_frame),
            number(self.version),
        ]
    }
}

fn welcome(rest: &mut Elements<'_>) -> Option<Welcome> {
    Some(Welcome {
        link: rest.id()?,
        root: rest.id()?,
        applied: rest.number()?,
        change_id: rest.change_id()?,
        pruned: rest.number()?,
        start: Start::parse(rest.simple()?)?,
        from: rest.number()?,
        horizon: rest.number()?,
        rules: match rest.next()? {
            Frame::Null => None,
            rules => Some(Rules::from_frame(rules)?),
        },
        version: rest.number()?,
    })
}

impl Start {
    fn parse(text: &[u8]) -> Option<Self> {
        let all = [Self::Resume, Self::Resync, Self::Restored];
        all.into_iter().find(|start| start.as_str().as_bytes() == text)
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Resync => "resync",
            Self::Restored => "restored",
        }
    }
}

fn refused(rest: &mut Elements<'_>) -> Option<Refused> {
    let link = rest.id()?;
    let code = str::from_utf8(rest.simple()?).ok().filter(|code| code.len() <= TEXT_BYTES_MAX)?.to_owned();
    Some(Refused { link, code, text: rest.short_text()? })
}

fn changes(rest: &mut Elements<'_>) -> Option<Changes> {
    Some(Changes {
        link: rest.id()?,
        n: rest.number()?,
        items: rest.list_within(ITEMS_MAX, Proposal::decode)?,
    })
}

impl Records {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            id(self.link),
            number(self.n),
            number(self.to),
            id(self.term),
            self.digest.map_or(Frame::Null, id),
            Frame::Array(self.items.iter().map(Item::to_frame).collect()),
            number(self.purged),
            number(self.last_ver),
        ]
    }
}

fn records(rest: &mut Elements<'_>) -> Option<Records> {
    Some(Records {
        link: rest.id()?,
        n: rest.number()?,
        to: rest.number()?,
        term: rest.id()?,
        digest: match rest.next()? {
            Frame::Null => None,
            digest => Some(Elements(std::slice::from_ref(digest)).id()?),
        },
        items: rest.list_within(ITEMS_MAX, item)?,
        purged: rest.number()?,
        last_ver: rest.number()?,
    })
}

impl Item {
    fn to_frame(&self) -> Frame {
        match self {
            Self::Record(record) => record.to_frame(),
            Self::Accepted { seq, ver } => Frame::Array(vec![simple("A"), number(*seq), number(*ver)]),
            Self::Refused { seq, reason, record } => {
                let record = record.as_ref().map_or(Frame::Null, RecordItem::to_frame);
                Frame::Array(vec![simple("X"), number(*seq), simple(reason.as_str()), record])
            }
        }
    }
}

fn item(rest: &mut Elements<'_>) -> Option<Item> {
    match rest.simple()? {
        b"R" => record_item(rest).map(Item::Record),
        b"A" => Some(Item::Accepted { seq: rest.number()?, ver: rest.number()? }),
        b"X" => {
            let (seq, reason) = (rest.number()?, Reason::parse(rest.simple()?)?);
            let record = match rest.next()? {
                Frame::Null => None,
                Frame::Array(elements) => {
                    let mut rest = Elements(elements);
                    rest.simple().filter(|kind| *kind == b"R")?;
                    Some(record_item(&mut rest)?)
                }
                _ => return None,
            };
            Some(Item::Refused { seq, reason, record })
        }
        _ => None,
    }
}

impl RecordItem {
    fn to_frame(&self) -> Frame {
        let owner = self.owner.as_ref().map_or(Frame::Null, |owner| text(owner.as_str()));
        let key = Frame::Bulk(self.key.to_bytes());
        let mut elements = vec![simple("R"), key, number(self.ver), change_id(self.change_id), owner];
        elements.extend(content::to_frames(self.content.as_ref()));
        Frame::Array(elements)
    }
}

fn record_item(rest: &mut Elements<'_>) -> Option<RecordItem> {
    Some(RecordItem {
        key: rest.key()?,
        ver: rest.number()?,
        change_id: rest.change_id()?,
        owner: rest.optional_name()?,
        content: content::decode(rest)?,
    })
}

fn ack(rest: &mut Elements<'_>) -> Option<Ack> {
    Some(Ack {
        link: rest.id()?,
        n: rest.number()?,
        cursor: rest.number()?,
        acked: rest.number()?,
        last_seq: rest.number()?,
        is_busy: rest.number()? != 0,
    })
}

impl fmt::Display for LinkFrameError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(out, "malformed frame: {error}"),
            Self::UnknownKind => out.write_str("unknown frame"),
            Self::Malformed(kind) => write!(out, "malformed {kind}"),
        }
    }
}

impl std::error::Error for LinkFrameError {}

#[cfg(test)]
mod tests;
