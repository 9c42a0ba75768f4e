//! Rows that an exchange keeps on disk, in the same commit group as the values (§4).
//!
//! The state of a node is its rows: loading and undoing both put rows back.

use bytes::{BufMut, Bytes, BytesMut};

use crate::protocol::Key;
use crate::protocol::frame::Frame;

use super::elements::{Elements, id, mutex, number, simple, text};
use super::frame::{Content, Reason, Start};
use super::names::{Mutex, Name};
use super::rules::Rules;

/// The address of a row in the table `notes`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowId {
    Node,
    Rules,
    Terms,
    Key(Key),
    Entry(u64),
    Leaf(Name),
    Verdict(Name, u64),
    Conflict(u64),
}

/// A row of the table `notes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Row {
    Root(RootRow),
    LeafNode(LeafNodeRow),
    Rules(Rules),
    Terms(Vec<Term>),
    Record(Record),
    Note(Note),
    Entry(Entry),
    Leaf(LeafRow),
    Verdict(Verdict),
    Conflict(Conflict),
}

/// A change of a row, with the row before it for the rollback if the change cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowChange {
    pub id: RowId,
    pub before: Option<Row>,
    pub after: Option<Row>,
}

/// The identity of a node and of its data folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub exchange: Name,
    pub node: Name,
    /// Random, made with the folder.
    pub store: u64,
}

/// The root itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RootRow {
    pub identity: Identity,
    /// The last version given out.
    pub ver: u64,
    /// Tombstones up to this version are gone.
    pub purged: u64,
    /// Whether keys of the store that have no record yet are still to be taken over.
    pub is_walk_due: bool,
}

/// The run of the root that made the versions from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    pub first: u64,
    pub run: u64,
}

/// What the root holds of a key, beside the value in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    pub ver: u64,
    pub mutex: Mutex,
    /// The leaf that made it; `None`: the root.
    pub owner: Option<Name>,
    pub is_tombstone: bool,
}

/// What the root knows of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LeafRow {
    /// The identity of the leaf's data folder; `None` until its first HELLO.
    pub store: Option<u64>,
    /// The identity that the listener authenticated, as the service encodes it.
    pub principal: Bytes,
    pub stream: u64,
    /// The last change of the stream that is judged.
    pub applied: u64,
    /// The mutex of the change `applied`.
    pub mutex: Mutex,
    /// The last change of which the verdict is dropped.
    pub pruned: u64,
    /// The leaf has committed all records up to this version.
    pub cursor: u64,
    pub accepted: u64,
    pub refused: u64,
}

/// The root's answer to a change, until the leaf has committed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verdict {
    pub key: Key,
    /// The root's version after the judgement: records up to it are sent before the verdict.
    pub at: u64,
    pub kind: VerdictKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerdictKind {
    Accepted { ver: u64 },
    Refused(Reason),
}

/// The leaf itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeafNodeRow {
    pub identity: Identity,
    /// The identity of the root's data folder; `None` before the first WELCOME.
    pub root: Option<u64>,
    /// All records up to this version are applied.
    pub cursor: u64,
    /// The run of the root that made the version `cursor`.
    pub term: u64,
    /// The last change of which the verdict is applied.
    pub acked: u64,
    /// The mutex of the change `acked`.
    pub acked_mutex: Mutex,
    pub stream: u64,
    /// The last change of the stream.
    pub last_seq: u64,
    /// Changes up to this one may have been judged in an earlier stream.
    pub again_to: u64,
    /// Number of resyncs that were begun. A note of an older epoch has not been named since.
    pub epoch: u32,
    /// The resync that is not complete.
    pub resync: Option<Resync>,
    /// Whether keys of the store that the exchange does not have yet are still to be offered.
    pub is_walk_due: bool,
    pub counts: Counts,
}

/// A resync until the root has named all its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resync {
    pub horizon: u64,
    pub start: Start,
}

/// Counters of a leaf's changes: `made = accepted + refused + merged +` those in the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    pub made: u64,
    pub accepted: u64,
    pub refused: u64,
    pub merged: u64,
}

/// What a leaf knows of the root's record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    pub ver: u64,
    pub mutex: Mutex,
    /// The time when the record's value expires; 0 for a tombstone, [`FOREVER`] without expiry.
    pub until: u64,
    pub epoch: u32,
}

/// The expiry time of a value that does not expire.
pub const FOREVER: u64 = i64::MAX as u64;

/// A change of a leaf that waits for its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub key: Key,
    pub mutex: Mutex,
    pub base: Mutex,
    pub state: EntryState,
    /// `None`: the key is deleted.
    pub value: Option<Bytes>,
    /// The time when the value expires, or [`FOREVER`].
    pub until: u64,
}

/// What has become of an entry before its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryState {
    /// The leaf shows it, or a later one that is based on it.
    Live,
    /// A record showed that it was accepted.
    Settled,
    /// A record has replaced it.
    Lost,
}

/// A change that lost (I5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conflict {
    pub key: Key,
    pub leaf: Name,
    pub mutex: Mutex,
    pub reason: Reason,
    /// The value that lost; `None`: a deletion.
    pub value: Option<Bytes>,
    /// The version that won; 0 if there is no record.
    pub winner: u64,
    /// The leaf that made the winner; `None`: the root.
    pub owner: Option<Name>,
    /// The time of the verdict in milliseconds.
    pub at_ms: u64,
}

impl Content {
    /// Returns the time when the value expires.
    #[must_use]
    pub fn until(&self, now_ms: u64) -> u64 {
        self.ttl_ms.map_or(FOREVER, |ttl_ms| now_ms.saturating_add(ttl_ms).min(FOREVER))
    }

    /// Returns a value with the time that it has left, or `None` if it has expired.
    #[must_use]
    pub fn at(value: &Bytes, until: u64, now_ms: u64) -> Option<Self> {
        let ttl_ms = (until != FOREVER).then(|| until.saturating_sub(now_ms));
        (ttl_ms != Some(0)).then(|| Self { value: value.clone(), ttl_ms })
    }
}

impl Entry {
    /// Returns what the change leaves at a time: its value, or `None` if it deleted the key or the value has expired.
    #[must_use]
    pub fn content(&self, now_ms: u64) -> Option<Content> {
        Content::at(self.value.as_ref()?, self.until, now_ms)
    }

    /// Returns the time until which the key has a value.
    #[must_use]
    pub fn value_until(&self) -> u64 {
        if self.value.is_some() { self.until } else { 0 }
    }
}

impl RowId {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Node => out.put_u8(b'n'),
            Self::Rules => out.put_u8(b'r'),
            Self::Terms => out.put_u8(b't'),
            Self::Key(key) => put(&mut out, b"k/", key.as_bytes()),
            Self::Entry(seq) => put(&mut out, b"o/", &seq.to_be_bytes()),
            Self::Leaf(name) => put(&mut out, b"l/", name.as_str().as_bytes()),
            Self::Verdict(name, seq) => {
                put(&mut out, b"v/", &seq.to_be_bytes());
                out.put_slice(name.as_str().as_bytes());
            }
            Self::Conflict(number) => put(&mut out, b"c/", &number.to_be_bytes()),
        }
        out.freeze()
    }

    /// Returns `None` for anything but the address of a row.
    #[must_use]
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let name = |bytes: &[u8]| Name::new(str::from_utf8(bytes).ok()?).ok();
        let counter = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
        match bytes.as_ref() {
            b"n" => Some(Self::Node),
            b"r" => Some(Self::Rules),
            b"t" => Some(Self::Terms),
            [b'k', b'/', key @ ..] => Key::new(bytes.slice_ref(key)).ok().map(Self::Key),
            [b'o', b'/', seq @ ..] => counter(seq).map(Self::Entry),
            [b'l', b'/', leaf @ ..] => name(leaf).map(Self::Leaf),
            [b'v', b'/', rest @ ..] => {
                let (seq, leaf) = rest.split_first_chunk()?;
                Some(Self::Verdict(name(leaf)?, u64::from_be_bytes(*seq)))
            }
            [b'c', b'/', number @ ..] => counter(number).map(Self::Conflict),
            _ => None,
        }
    }
}

fn put(out: &mut BytesMut, prefix: &[u8], rest: &[u8]) {
    out.put_slice(prefix);
    out.put_slice(rest);
}

impl Row {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        Frame::Array(self.to_elements()).encode(&mut out);
        out.freeze()
    }

    fn to_elements(&self) -> Vec<Frame> {
        match self {
            Self::Root(root) => {
                let [exchange, node, store] = root.identity.to_elements();
                let (ver, purged) = (number(root.ver), number(root.purged));
                vec![simple("root"), exchange, node, store, ver, purged, number(root.is_walk_due.into())]
            }
            Self::LeafNode(leaf) => leaf.to_elements(),
            Self::Rules(rules) => vec![simple("rules"), rules.to_frame()],
            Self::Terms(terms) => {
                let pairs = terms.iter().flat_map(|term| [number(term.first), id(term.run)]);
                std::iter::once(simple("terms")).chain(pairs).collect()
            }
            Self::Record(Record { ver, mutex: shared, owner, is_tombstone }) => {
                let kind = if *is_tombstone { "tombstone" } else { "record" };
                vec![simple(kind), number(*ver), mutex(*shared), optional_name(owner.as_ref())]
            }
            Self::Note(note) => {
                let (until, epoch) = (number(note.until), number(note.epoch.into()));
                vec![simple("note"), number(note.ver), mutex(note.mutex), until, epoch]
            }
            Self::Entry(entry) => entry.to_elements(),
            Self::Leaf(leaf) => leaf.to_elements(),
            Self::Verdict(Verdict { key, at, kind }) => {
                let kind = match kind {
                    VerdictKind::Accepted { ver } => number(*ver),
                    VerdictKind::Refused(reason) => simple(reason.as_str()),
                };
                vec![simple("verdict"), Frame::Bulk(key.to_bytes()), number(*at), kind]
            }
            Self::Conflict(conflict) => conflict.to_elements(),
        }
    }

    /// Returns `None` for anything but a row.
    #[must_use]
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let Ok(Frame::Array(elements)) = Frame::decode(bytes) else { return None };
        let mut rest = Elements(&elements);
        match rest.simple()? {
            b"root" => {
                let identity = Identity::decode(&mut rest)?;
                let (ver, purged, walk) = (rest.number()?, rest.number()?, rest.number()?);
                Some(Self::Root(RootRow { identity, ver, purged, is_walk_due: walk != 0 }))
            }
            b"leaf-node" => LeafNodeRow::decode(&mut rest).map(Self::LeafNode),
            b"rules" => Rules::from_frame(rest.next()?).map(Self::Rules),
            b"terms" => {
                let mut terms = Vec::new();
                while !rest.0.is_empty() {
                    terms.push(Term { first: rest.number()?, run: rest.id()? });
                }
                Some(Self::Terms(terms))
            }
            kind @ (b"record" | b"tombstone") => Some(Self::Record(Record {
                ver: rest.number()?,
                mutex: rest.mutex()?,
                owner: rest.optional_name()?,
                is_tombstone: kind == b"tombstone",
            })),
            b"note" => Some(Self::Note(Note {
                ver: rest.number()?,
                mutex: rest.mutex()?,
                until: rest.number()?,
                epoch: rest.number()?.try_into().ok()?,
            })),
            b"entry" => Entry::decode(&mut rest).map(Self::Entry),
            b"leaf" => LeafRow::decode(&mut rest).map(Self::Leaf),
            b"verdict" => {
                let (key, at) = (rest.key()?, rest.number()?);
                let kind = match rest.next()? {
                    Frame::Simple(reason) => VerdictKind::Refused(Reason::parse(reason)?),
                    ver => VerdictKind::Accepted { ver: Elements(std::slice::from_ref(ver)).number()? },
                };
                Some(Self::Verdict(Verdict { key, at, kind }))
            }
            b"conflict" => Conflict::decode(&mut rest).map(Self::Conflict),
            _ => None,
        }
    }
}

impl Identity {
    fn to_elements(&self) -> [Frame; 3] {
        [text(self.exchange.as_str()), text(self.node.as_str()), id(self.store)]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self { exchange: rest.name()?, node: rest.name()?, store: rest.id()? })
    }
}

impl LeafNodeRow {
    fn to_elements(&self) -> Vec<Frame> {
        let [exchange, node, store] = self.identity.to_elements();
        let (horizon, start) = match self.resync {
            Some(Resync { horizon, start }) => (number(horizon), simple(start.as_str())),
            None => (Frame::Null, Frame::Null),
        };
        let Counts { made, accepted, refused, merged } = self.counts;
        vec![
            simple("leaf-node"),
            exchange,
            node,
            store,
            self.root.map_or(Frame::Null, id),
            number(self.cursor),
            id(self.term),
            number(self.acked),
            mutex(self.acked_mutex),
            id(self.stream),
            number(self.last_seq),
            number(self.again_to),
            number(self.epoch.into()),
            horizon,
            start,
            number(self.is_walk_due.into()),
            number(made),
            number(accepted),
            number(refused),
            number(merged),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            identity: Identity::decode(rest)?,
            root: match rest.next()? {
                Frame::Null => None,
                root => Some(Elements(std::slice::from_ref(root)).id()?),
            },
            cursor: rest.number()?,
            term: rest.id()?,
            acked: rest.number()?,
            acked_mutex: rest.mutex()?,
            stream: rest.id()?,
            last_seq: rest.number()?,
            again_to: rest.number()?,
            epoch: rest.number()?.try_into().ok()?,
            resync: match (rest.next()?, rest.next()?) {
                (Frame::Null, _) => None,
                (Frame::Integer(horizon), Frame::Simple(start)) => {
                    Some(Resync { horizon: (*horizon).try_into().ok()?, start: Start::parse(start)? })
                }
                _ => return None,
            },
            is_walk_due: rest.number()? != 0,
            counts: Counts {
                made: rest.number()?,
                accepted: rest.number()?,
                refused: rest.number()?,
                merged: rest.number()?,
            },
        })
    }
}

impl Entry {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("entry"),
            Frame::Bulk(self.key.to_bytes()),
            mutex(self.mutex),
            mutex(self.base),
            simple(self.state.as_str()),
            self.value.clone().map_or(Frame::Null, Frame::Bulk),
            number(self.until),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            key: rest.key()?,
            mutex: rest.mutex()?,
            base: rest.mutex()?,
            state: EntryState::parse(rest.simple()?)?,
            value: optional_value(rest)?,
            until: rest.number()?,
        })
    }
}

impl EntryState {
    fn parse(text: &[u8]) -> Option<Self> {
        let all = [Self::Live, Self::Settled, Self::Lost];
        all.into_iter().find(|state| state.as_str().as_bytes() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Settled => "settled",
            Self::Lost => "lost",
        }
    }
}

impl LeafRow {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("leaf"),
            self.store.map_or(Frame::Null, id),
            Frame::Bulk(self.principal.clone()),
            id(self.stream),
            number(self.applied),
            mutex(self.mutex),
            number(self.pruned),
            number(self.cursor),
            number(self.accepted),
            number(self.refused),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            store: match rest.next()? {
                Frame::Null => None,
                store => Some(Elements(std::slice::from_ref(store)).id()?),
            },
            principal: rest.bulk()?.clone(),
            stream: rest.id()?,
            applied: rest.number()?,
            mutex: rest.mutex()?,
            pruned: rest.number()?,
            cursor: rest.number()?,
            accepted: rest.number()?,
            refused: rest.number()?,
        })
    }
}

impl Conflict {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("conflict"),
            Frame::Bulk(self.key.to_bytes()),
            text(self.leaf.as_str()),
            mutex(self.mutex),
            simple(self.reason.as_str()),
            self.value.clone().map_or(Frame::Null, Frame::Bulk),
            number(self.winner),
            optional_name(self.owner.as_ref()),
            number(self.at_ms),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            key: rest.key()?,
            leaf: rest.name()?,
            mutex: rest.mutex()?,
            reason: Reason::parse(rest.simple()?)?,
            value: optional_value(rest)?,
            winner: rest.number()?,
            owner: rest.optional_name()?,
            at_ms: rest.number()?,
        })
    }
}

fn optional_name(name: Option<&Name>) -> Frame {
    name.map_or(Frame::Null, |name| text(name.as_str()))
}

fn optional_value(rest: &mut Elements<'_>) -> Option<Option<Bytes>> {
    match rest.next()? {
        Frame::Null => Some(None),
        Frame::Bulk(value) => Some(Some(value.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
