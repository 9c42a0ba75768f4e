//! Operator requests.

use bytes::Bytes;

use super::elements::{Elements, encoded, number, optional_text, simple, text};
use crate::protocol::frame::Frame;
use crate::protocol::key::Key;

/// The most ids of one [`Command::Clear`].
pub const IDS_MAX: usize = 1_000;

/// A request of an operator. The server validates names: it answers a request for an invalid one as for an unknown one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The state of the node; at a root with one leaf or all.
    Status { leaf: Option<String> },
    /// What the node knows of a key.
    Key { key: Key },
    /// The conflicts after the id `since`, at most `max` of them, and fewer if the node decides so.
    Conflicts { leaf: Option<String>, since: u64, max: u64 },
    /// The bytes that lost.
    Value { id: u64 },
    /// Removes these conflicts, at most [`IDS_MAX`]; `None`: the oldest ones, at most as many.
    Clear { ids: Option<Vec<u64>> },
    /// Lets a leaf join; with `is_replaced` another store and another identity may take the name over.
    AddLeaf { name: String, is_replaced: bool },
    /// Forgets a leaf.
    DropLeaf { name: String },
    /// Sends all records again: at a root to one leaf or all, at a leaf to this leaf. `is_new_root`: the leaf joins a root
    /// with another store.
    Resync { name: Option<String>, is_new_root: bool },
    /// Has a leaf try to connect now, instead of after its delay.
    Reconnect,
}

impl Command {
    /// Whether the request changes what the node has.
    #[must_use]
    pub fn changes(&self) -> bool {
        match self {
            Self::Status { .. }
            | Self::Key { .. }
            | Self::Conflicts { .. }
            | Self::Value { .. }
            | Self::Reconnect => false,
            Self::Clear { .. } | Self::AddLeaf { .. } | Self::DropLeaf { .. } | Self::Resync { .. } => true,
        }
    }

    #[must_use]
    pub fn encode(&self) -> Bytes {
        let elements = match self {
            Self::Status { leaf } => vec![simple("status"), optional_text(leaf.as_deref())],
            Self::Key { key } => vec![simple("key"), Frame::Bulk(key.to_bytes())],
            Self::Conflicts { leaf, since, max } => {
                vec![simple("conflicts"), optional_text(leaf.as_deref()), number(*since), number(*max)]
            }
            Self::Value { id } => vec![simple("value"), number(*id)],
            Self::Clear { ids: None } => vec![simple("clear"), Frame::Null],
            Self::Clear { ids: Some(ids) } => {
                vec![simple("clear"), Frame::Array(ids.iter().copied().map(number).collect())]
            }
            Self::AddLeaf { name, is_replaced } => {
                vec![simple("add-leaf"), text(name), number((*is_replaced).into())]
            }
            Self::DropLeaf { name } => vec![simple("drop-leaf"), text(name)],
            Self::Resync { name, is_new_root } => {
                vec![simple("resync"), optional_text(name.as_deref()), number((*is_new_root).into())]
            }
            Self::Reconnect => vec![simple("reconnect")],
        };
        encoded(elements)
    }

    /// Returns `None` for anything but a request.
    #[must_use]
    pub fn decode(payload: &Bytes) -> Option<Self> {
        let Ok(Frame::Array(elements)) = Frame::decode(payload) else { return None };
        let mut rest = Elements(&elements);
        Some(match rest.simple()? {
            b"status" => Self::Status { leaf: rest.optional_text()? },
            b"key" => Self::Key { key: rest.key()? },
            b"conflicts" => {
                Self::Conflicts { leaf: rest.optional_text()?, since: rest.number()?, max: rest.number()? }
            }
            b"value" => Self::Value { id: rest.number()? },
            b"clear" => Self::Clear { ids: ids(&mut rest)? },
            b"add-leaf" => Self::AddLeaf { name: rest.text()?, is_replaced: rest.switch()? },
            b"drop-leaf" => Self::DropLeaf { name: rest.text()? },
            b"resync" => Self::Resync { name: rest.optional_text()?, is_new_root: rest.switch()? },
            b"reconnect" => Self::Reconnect,
            _ => return None,
        })
    }
}

fn ids(rest: &mut Elements<'_>) -> Option<Option<Vec<u64>>> {
    match rest.next()? {
        Frame::Null => Some(None),
        Frame::Array(ids) if ids.len() <= IDS_MAX => {
            let mut ids = Elements(ids);
            let mut found = Vec::new();
            while !ids.0.is_empty() {
                found.push(ids.number()?);
            }
            Some(Some(found))
        }
        _ => None,
    }
}
