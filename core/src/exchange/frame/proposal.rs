//! Changes that a leaf proposes.

use bytes::Bytes;

use super::super::elements::{Elements, change_id, number, serial, simple};
use super::super::fingerprint::{Fingerprint, ValueHash};
use super::super::names::{ChangeId, Name, Serial};
use super::content::{self, Content};
use crate::protocol::Key;
use crate::protocol::frame::Frame;

/// One change that a leaf proposes. It has no id: the root makes that, so that it is the leaf's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proposal {
    pub seq: u64,
    pub key: Key,
    pub serial: Serial,
    pub base: ChangeId,
    pub flags: Flags,
    pub content: Proposed,
}

/// What a proposed change leaves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Proposed {
    Deletion,
    Value(Content),
    /// A value that has expired on the way.
    Expired(ValueHash),
    /// The value of a change that has lost, which is too large for the root. Only the conflict at the leaf has it.
    Unsent(ValueHash, ValueKind),
}

/// Whether a value expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    Lasting,
    Expiring,
}

/// Flags of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flags {
    /// The leaf has replaced the change by a record: it is sent to be recorded, and never accepted.
    pub is_lost: bool,
    /// It is no change of the leaf's, but a value that went because the root was restored: it is sent to be recorded, too.
    pub is_restored: bool,
    /// The change may have been decided in an earlier stream.
    pub is_again: bool,
    /// The base is no record: nothing, or the leaf's own tombstone.
    pub is_base_absent: bool,
}

impl Proposal {
    /// Returns the id of the change, if this leaf has made it.
    #[must_use]
    pub fn change_id(&self, leaf: &Name) -> ChangeId {
        ChangeId::of(Some(leaf), self.serial, &self.key, self.content.fingerprint())
    }

    pub(super) fn to_frame(&self) -> Frame {
        let mut elements = vec![
            number(self.seq),
            Frame::Bulk(self.key.to_bytes()),
            serial(self.serial),
            change_id(self.base),
            self.flags.to_frame(),
        ];
        elements.extend(content::to_frames(self.content.content()));
        elements.push(self.content.hash_frame());
        Frame::Array(elements)
    }

    pub(super) fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            seq: rest.number().filter(|seq| *seq > 0)?,
            key: rest.key()?,
            serial: rest.serial()?,
            base: rest.change_id()?,
            flags: Flags::parse(rest.simple()?),
            content: Proposed::decode(rest)?,
        })
    }
}

impl Proposed {
    /// Returns the value that the key has, if the change is accepted.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        if let Self::Value(content) = self { Some(content) } else { None }
    }

    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        match self {
            Self::Deletion => Fingerprint::Deletion,
            Self::Value(Content { value, ttl_ms }) => Fingerprint::of(Some(value), ttl_ms.is_some()),
            Self::Expired(hash) | Self::Unsent(hash, ValueKind::Expiring) => Fingerprint::Expiring(*hash),
            Self::Unsent(hash, ValueKind::Lasting) => Fingerprint::Lasting(*hash),
        }
    }

    fn hash_frame(&self) -> Frame {
        let (kind, hash) = match self {
            Self::Deletion | Self::Value(_) => return Frame::Null,
            Self::Expired(hash) => ("expired", hash),
            Self::Unsent(hash, ValueKind::Lasting) => ("lasting", hash),
            Self::Unsent(hash, ValueKind::Expiring) => ("expiring", hash),
        };
        Frame::Array(vec![simple(kind), Frame::Bulk(Bytes::copy_from_slice(&hash.0))])
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        let content = content::decode(rest)?;
        match (content, rest.next()?) {
            (Some(content), Frame::Null) => Some(Self::Value(content)),
            (None, Frame::Null) => Some(Self::Deletion),
            (None, Frame::Array(elements)) => {
                let mut rest = Elements(elements);
                let (kind, hash) = (rest.simple()?, rest.bulk()?.as_ref().try_into().ok().map(ValueHash)?);
                match kind {
                    b"expired" => Some(Self::Expired(hash)),
                    b"lasting" => Some(Self::Unsent(hash, ValueKind::Lasting)),
                    b"expiring" => Some(Self::Unsent(hash, ValueKind::Expiring)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl Flags {
    fn to_frame(self) -> Frame {
        let flags = [
            (self.is_lost, "lost"),
            (self.is_restored, "restored"),
            (self.is_again, "again"),
            (self.is_base_absent, "absent"),
        ];
        let set: Vec<_> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        simple(&set.join(","))
    }

    /// Unknown flags are ignored.
    fn parse(text: &[u8]) -> Self {
        let has = |name: &str| text.split(|byte| *byte == b',').any(|flag| flag == name.as_bytes());
        Self {
            is_lost: has("lost"),
            is_restored: has("restored"),
            is_again: has("again"),
            is_base_absent: has("absent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_flags_are_ignored() {
        let flags = Flags { is_again: true, ..Flags::default() };
        assert_eq!(Flags::parse(b"again,later"), flags);
        assert_eq!(Flags::parse(b""), Flags::default());
    }
}
