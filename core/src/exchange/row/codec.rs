//! Encoding of rows and of their addresses.

use bytes::{BufMut, Bytes, BytesMut};

use crate::protocol::Key;
use crate::protocol::frame::Frame;

use super::super::elements::{Elements, change_id, id, number, serial, simple, text};
use super::{
    Conflict, Counts, Decision, DecisionKind, EARLIER_STREAMS_MAX, Entry, EntryState, Identity, LeafNodeRow,
    LeafRow, LostContent, Name, Note, Reason, Record, RecordKind, Resync, ResyncKind, RootRow, Row, RowId,
    Rules, Term,
};

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
            Self::Decision(name, seq) => {
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
                Some(Self::Decision(name(leaf)?, u64::from_be_bytes(*seq)))
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
                let versions = [root.ver, root.purged, root.rules_ver].map(number);
                let flags = [root.is_sweep_due, root.is_walk_due].map(|flag| number(flag.into()));
                let identity = [simple("root"), exchange, node, store];
                identity
                    .into_iter()
                    .chain(versions)
                    .chain(flags)
                    .chain([root.last_conflict, root.dropped_conflicts].map(number))
                    .collect()
            }
            Self::LeafNode(leaf) => leaf.to_elements(),
            Self::Rules(rules) => vec![simple("rules"), rules.to_frame()],
            Self::Terms(terms) => {
                let pairs = terms.iter().flat_map(|term| [number(term.first), id(term.run)]);
                std::iter::once(simple("terms")).chain(pairs).collect()
            }
            Self::Record(Record { ver, change_id: shared, owner, kind }) => {
                vec![simple(kind.as_str()), number(*ver), change_id(*shared), optional_name(owner.as_ref())]
            }
            Self::Note(note) => {
                let (until, epoch) = (number(note.until), number(note.epoch.into()));
                vec![simple("note"), number(note.ver), change_id(note.change_id), until, epoch]
            }
            Self::Entry(entry) => entry.to_elements(),
            Self::Leaf(leaf) => leaf.to_elements(),
            Self::Decision(Decision { key, at, kind }) => {
                let kind = match kind {
                    DecisionKind::Accepted { ver } => number(*ver),
                    DecisionKind::Refused(reason) => simple(reason.as_str()),
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
                Some(Self::Root(RootRow {
                    identity,
                    ver: rest.number()?,
                    purged: rest.number()?,
                    rules_ver: rest.number()?,
                    is_sweep_due: rest.number()? != 0,
                    is_walk_due: rest.number()? != 0,
                    last_conflict: rest.number()?,
                    dropped_conflicts: rest.number()?,
                }))
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

            b"note" => Some(Self::Note(Note {
                ver: rest.number()?,
                change_id: rest.change_id()?,
                until: rest.number()?,
                epoch: rest.number()?.try_into().ok()?,
            })),
            b"entry" => Entry::decode(&mut rest).map(Self::Entry),
            b"leaf" => LeafRow::decode(&mut rest).map(Self::Leaf),
            b"verdict" => {
                let (key, at) = (rest.key()?, rest.number()?);
                let kind = match rest.next()? {
                    Frame::Simple(reason) => DecisionKind::Refused(Reason::parse(reason)?),
                    ver => DecisionKind::Accepted { ver: Elements(std::slice::from_ref(ver)).number()? },
                };
                Some(Self::Decision(Decision { key, at, kind }))
            }
            b"conflict" => Conflict::decode(&mut rest).map(Self::Conflict),
            kind => Some(Self::Record(Record {
                kind: RecordKind::parse(kind)?,
                ver: rest.number()?,
                change_id: rest.change_id()?,
                owner: rest.optional_name()?,
            })),
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
        let (horizon, kind) = match self.resync {
            Some(Resync { horizon, kind }) => (number(horizon), simple(kind.as_str())),
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
            number(self.last_ver),
            id(self.term),
            number(self.acked),
            change_id(self.acked_change_id),
            id(self.stream),
            number(self.last_seq),
            number(self.again_to),
            number(self.rejoin_to),
            number(self.epoch.into()),
            horizon,
            kind,
            self.due.map_or(Frame::Null, |kind| simple(kind.as_str())),
            number(self.is_walk_due.into()),
            number(made),
            number(accepted),
            number(refused),
            number(merged),
            number(self.last_conflict),
            number(self.dropped_conflicts),
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
            last_ver: rest.number()?,
            term: rest.id()?,
            acked: rest.number()?,
            acked_change_id: rest.change_id()?,
            stream: rest.id()?,
            last_seq: rest.number()?,
            again_to: rest.number()?,
            rejoin_to: rest.number()?,
            epoch: rest.number()?.try_into().ok()?,
            resync: match (rest.next()?, rest.next()?) {
                (Frame::Null, _) => None,
                (Frame::Integer(horizon), Frame::Simple(kind)) => {
                    Some(Resync { horizon: (*horizon).try_into().ok()?, kind: ResyncKind::parse(kind)? })
                }
                _ => return None,
            },
            due: match rest.next()? {
                Frame::Null => None,
                Frame::Simple(kind) => Some(ResyncKind::parse(kind)?),
                _ => return None,
            },
            is_walk_due: rest.number()? != 0,
            counts: Counts {
                made: rest.number()?,
                accepted: rest.number()?,
                refused: rest.number()?,
                merged: rest.number()?,
            },
            last_conflict: rest.number()?,
            dropped_conflicts: rest.number()?,
        })
    }
}

impl Entry {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("entry"),
            Frame::Bulk(self.key.to_bytes()),
            serial(self.serial),
            change_id(self.change_id),
            change_id(self.base),
            simple(self.state.as_str()),
            self.value.clone().map_or(Frame::Null, Frame::Bulk),
            number(self.until),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            key: rest.key()?,
            serial: rest.serial()?,
            change_id: rest.change_id()?,
            base: rest.change_id()?,
            state: EntryState::parse(rest.simple()?)?,
            value: optional_value(rest)?,
            until: rest.number()?,
        })
    }
}

impl EntryState {
    fn parse(text: &[u8]) -> Option<Self> {
        let all = [Self::Live, Self::Settled, Self::Lost, Self::Restored];
        all.into_iter().find(|state| state.as_str().as_bytes() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Settled => "settled",
            Self::Lost => "lost",
            Self::Restored => "restored",
        }
    }
}

impl RecordKind {
    fn parse(text: &[u8]) -> Option<Self> {
        let all = [Self::Lasting, Self::Expiring, Self::Tombstone];
        all.into_iter().find(|kind| kind.as_str().as_bytes() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Lasting => "record",
            Self::Expiring => "expiring",
            Self::Tombstone => "tombstone",
        }
    }
}

impl ResyncKind {
    fn parse(text: &[u8]) -> Option<Self> {
        let all = [Self::Missed, Self::Restored, Self::NewRoot];
        all.into_iter().find(|kind| kind.as_str().as_bytes() == text)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Restored => "restored",
            Self::NewRoot => "new-root",
        }
    }
}

impl LeafRow {
    fn to_elements(&self) -> Vec<Frame> {
        let elements = vec![
            simple("leaf"),
            self.store.map_or(Frame::Null, id),
            Frame::Bulk(self.principal.clone()),
            id(self.stream),
            number(self.applied),
            change_id(self.change_id),
            number(self.pruned),
            number(self.cursor),
            number(self.accepted),
            number(self.refused),
            number(self.is_resync_due.into()),
        ];
        elements.into_iter().chain(self.earlier_streams.iter().copied().map(id)).collect()
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
            change_id: rest.change_id()?,
            pruned: rest.number()?,
            cursor: rest.number()?,
            accepted: rest.number()?,
            refused: rest.number()?,
            is_resync_due: rest.number()? != 0,
            earlier_streams: {
                let mut streams = Vec::new();
                while !rest.0.is_empty() && streams.len() < EARLIER_STREAMS_MAX {
                    streams.push(rest.id()?);
                }
                streams
            },
        })
    }
}

impl Conflict {
    fn to_elements(&self) -> Vec<Frame> {
        vec![
            simple("conflict"),
            Frame::Bulk(self.key.to_bytes()),
            text(self.leaf.as_str()),
            change_id(self.change_id),
            simple(self.reason.as_str()),
            self.lost.to_frame(),
            number(self.winner),
            optional_name(self.owner.as_ref()),
            number(self.at_ms),
        ]
    }

    fn decode(rest: &mut Elements<'_>) -> Option<Self> {
        Some(Self {
            key: rest.key()?,
            leaf: rest.name()?,
            change_id: rest.change_id()?,
            reason: Reason::parse(rest.simple()?)?,
            lost: LostContent::from_frame(rest.next()?)?,
            winner: rest.number()?,
            owner: rest.optional_name()?,
            at_ms: rest.number()?,
        })
    }
}

impl LostContent {
    fn to_frame(&self) -> Frame {
        match self {
            Self::Deletion => Frame::Null,
            Self::Value(value) => Frame::Bulk(value.clone()),
            Self::Expired => simple("expired"),
            Self::Unsent => simple("unsent"),
        }
    }

    fn from_frame(frame: &Frame) -> Option<Self> {
        match frame {
            Frame::Null => Some(Self::Deletion),
            Frame::Bulk(value) => Some(Self::Value(value.clone())),
            Frame::Simple(kind) if kind.as_ref() == b"expired" => Some(Self::Expired),
            Frame::Simple(kind) if kind.as_ref() == b"unsent" => Some(Self::Unsent),
            _ => None,
        }
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
