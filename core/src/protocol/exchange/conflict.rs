//! Changes that lost, as operators see them.

use bytes::Bytes;

use super::elements::{Elements, encoded, number, simple, text};
use crate::protocol::frame::Frame;
use crate::protocol::key::Key;

const EXPIRED: &str = "expired";
const UNSENT: &str = "unsent";

/// Conflicts in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictPage {
    pub conflicts: Vec<ConflictReport>,
    /// The last id that was looked at: `since` of the next request.
    pub last: u64,
    /// Whether no conflict follows.
    pub is_complete: bool,
}

/// A change that lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictReport {
    pub id: u64,
    /// The time of the decision in milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub key: Key,
    /// The leaf that made the change.
    pub leaf: String,
    /// A code: `first-leaf-wins`.
    pub reason: String,
    pub lost: Lost,
    /// The version that won; 0 if there is no record.
    pub winner: u64,
    /// The node that made the version that won.
    pub owner: Origin,
    /// The content that won; `None`: not known, or replaced since.
    pub won: Option<Lost>,
}

/// The content of a change, or the start of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    Deletion,
    /// A value that had expired before the change reached the root.
    Expired,
    /// A value that the leaf has not sent to the root, because it was too large.
    Unsent,
    Value {
        /// At most [`Lost::START_BYTES_MAX`] bytes.
        start: Bytes,
        size: u64,
    },
}

/// The node that made a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A leaf does not know it.
    Unknown,
    Root,
    Leaf(String),
}

impl Lost {
    /// The longest start of a value in an answer.
    pub const START_BYTES_MAX: usize = 256;

    #[must_use]
    pub fn of(value: Option<&Bytes>) -> Self {
        let Some(value) = value else { return Self::Deletion };
        let start = Bytes::copy_from_slice(value.get(..Self::START_BYTES_MAX).unwrap_or(value));
        Self::Value { start, size: u64::try_from(value.len()).unwrap_or(u64::MAX) }
    }

    fn to_elements(&self) -> [Frame; 2] {
        match self {
            Self::Deletion => [Frame::Null, number(0)],
            Self::Expired => [simple(EXPIRED), number(0)],
            Self::Unsent => [simple(UNSENT), number(0)],
            Self::Value { start, size } => [Frame::Bulk(start.clone()), number(*size)],
        }
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        let (start, size) = (rest.next()?, rest.number()?);
        Self::without_value(start).or_else(|| match start {
            Frame::Bulk(start) => Some(Self::Value { start: start.clone(), size }),
            _ => None,
        })
    }

    /// Returns the frame of a content whose value is not there; `None` for a value.
    pub(super) fn frame_without_value(&self) -> Option<Frame> {
        let [frame, _] = self.to_elements();
        Some(frame).filter(|frame| !matches!(frame, Frame::Bulk(_)))
    }

    pub(super) fn without_value(frame: &Frame) -> Option<Self> {
        match frame {
            Frame::Null => Some(Self::Deletion),
            Frame::Simple(kind) if kind.as_ref() == EXPIRED.as_bytes() => Some(Self::Expired),
            Frame::Simple(kind) if kind.as_ref() == UNSENT.as_bytes() => Some(Self::Unsent),
            _ => None,
        }
    }
}

impl Origin {
    pub(super) fn to_frame(&self) -> Frame {
        match self {
            Self::Unknown => Frame::Null,
            Self::Root => simple("root"),
            Self::Leaf(name) => text(name),
        }
    }

    pub(super) fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        match rest.0.first()? {
            Frame::Null => rest.next().map(|_| Self::Unknown),
            Frame::Simple(_) => rest.next().map(|_| Self::Root),
            _ => rest.text().map(Self::Leaf),
        }
    }
}

impl ConflictPage {
    pub(super) fn to_elements(&self) -> Vec<Frame> {
        let conflicts = self.conflicts.iter().map(|conflict| Frame::Array(conflict.to_elements())).collect();
        let is_complete = number(self.is_complete.into());
        vec![simple("conflicts"), Frame::Array(conflicts), number(self.last), is_complete]
    }

    pub(super) fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            conflicts: rest.list(ConflictReport::from_elements)?,
            last: rest.number()?,
            is_complete: rest.switch()?,
        })
    }
}

impl ConflictReport {
    /// Removes what the values begin with: the operator has no permission to read the key.
    pub fn hide_values(&mut self) {
        for content in std::iter::once(&mut self.lost).chain(&mut self.won) {
            if let Lost::Value { start, .. } = content {
                *start = Bytes::new();
            }
        }
    }

    /// Encodes the payload of a message on the topic of conflicts.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        encoded(self.to_elements())
    }

    /// Returns `None` for anything but a conflict.
    #[must_use]
    pub fn decode(payload: &Bytes) -> Option<Self> {
        let Ok(Frame::Array(elements)) = Frame::decode(payload) else { return None };
        Self::from_elements(&mut Elements(&elements))
    }

    fn to_elements(&self) -> Vec<Frame> {
        let [lost, lost_size] = self.lost.to_elements();
        let mut elements = vec![
            number(self.id),
            number(self.at_ms),
            Frame::Bulk(self.key.to_bytes()),
            text(&self.leaf),
            text(&self.reason),
            lost,
            lost_size,
            number(self.winner),
            self.owner.to_frame(),
            number(self.won.is_some().into()),
        ];
        elements.extend(self.won.iter().flat_map(Lost::to_elements));
        elements
    }

    fn from_elements(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            id: rest.number()?,
            at_ms: rest.number()?,
            key: rest.key()?,
            leaf: rest.text()?,
            reason: rest.text()?,
            lost: Lost::decode(rest)?,
            winner: rest.number()?,
            owner: Origin::decode(rest)?,
            won: if rest.switch()? { Some(Lost::decode(rest)?) } else { None },
        })
    }
}
