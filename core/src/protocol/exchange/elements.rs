//! Elements of the RESP3 arrays of which requests and answers, frames and rows of an exchange consist.

use bytes::{Bytes, BytesMut};

use crate::protocol::frame::Frame;
use crate::protocol::key::Key;

/// The longest text in bytes: a name, a URL, a pattern, an error.
pub(crate) const TEXT_BYTES_MAX: usize = 2_048;

pub(crate) fn simple(text: &str) -> Frame {
    Frame::Simple(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) fn text(text: &str) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

pub(crate) fn optional_text(name: Option<&str>) -> Frame {
    name.map_or(Frame::Null, text)
}

/// Counters do not reach 63 bits: at a million changes a second they would take 290,000 years.
pub(crate) fn number(number: u64) -> Frame {
    Frame::Integer(number.try_into().unwrap_or(i64::MAX))
}

pub(crate) fn optional_number(optional: Option<u64>) -> Frame {
    optional.map_or(Frame::Null, number)
}

pub(crate) fn encoded(elements: Vec<Frame>) -> Bytes {
    let mut out = BytesMut::new();
    Frame::Array(elements).encode(&mut out);
    out.freeze()
}

/// The elements of an array that have not been decoded yet.
pub(crate) struct Elements<'a>(pub &'a [Frame]);

impl<'a> Elements<'a> {
    pub fn next(&mut self) -> Option<&'a Frame> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub fn number(&mut self) -> Option<u64> {
        match self.next()? {
            Frame::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub fn switch(&mut self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }

    pub fn bulk(&mut self) -> Option<&'a Bytes> {
        match self.next()? {
            Frame::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn simple(&mut self) -> Option<&'a [u8]> {
        match self.next()? {
            Frame::Simple(text) => Some(text),
            _ => None,
        }
    }

    pub fn text(&mut self) -> Option<String> {
        let text = str::from_utf8(self.bulk()?).ok()?;
        (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
    }

    /// Decodes a key. It is copied: a node keeps keys, and one of them would hold the memory of its whole frame.
    pub fn key(&mut self) -> Option<Key> {
        Key::new(Bytes::copy_from_slice(self.bulk()?)).ok()
    }

    /// Decodes an element that may be null.
    pub fn optional<T>(&mut self, decode: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.0.first()? {
            Frame::Null => self.next().map(|_| None),
            _ => decode(self).map(Some),
        }
    }

    pub fn optional_text(&mut self) -> Option<Option<String>> {
        self.optional(Self::text)
    }

    pub fn optional_number(&mut self) -> Option<Option<u64>> {
        self.optional(Self::number)
    }

    /// Decodes an array of texts.
    pub fn texts(&mut self) -> Option<Vec<String>> {
        let Frame::Array(texts) = self.next()? else { return None };
        let mut texts = Elements(texts);
        let mut found = Vec::new();
        while !texts.0.is_empty() {
            found.push(texts.text()?);
        }
        Some(found)
    }

    /// Decodes an array of arrays.
    pub fn list<T>(&mut self, decode: impl Fn(&mut Elements<'_>) -> Option<T>) -> Option<Vec<T>> {
        self.list_within(usize::MAX, decode)
    }

    /// Decodes an array of at most `count_max` arrays.
    pub fn list_within<T>(
        &mut self,
        count_max: usize,
        decode: impl Fn(&mut Elements<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Frame::Array(items) = self.next()? else { return None };
        if items.len() > count_max {
            return None;
        }
        let item = |item: &Frame| match item {
            Frame::Array(elements) => decode(&mut Elements(elements)),
            _ => None,
        };
        items.iter().map(item).collect()
    }
}
