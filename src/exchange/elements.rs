//! Elements of the RESP3 arrays of which frames and rows consist.

use bytes::Bytes;

use crate::protocol::Key;
use crate::protocol::frame::Frame;

use super::names::{Mutex, Name};

/// The longest free text in bytes: a version of the software, the reason of a refusal.
pub(super) const TEXT_BYTES_MAX: usize = 512;

pub(super) fn simple(text: &str) -> Frame {
    Frame::Simple(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn text(text: &str) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn id(id: u64) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(&id.to_be_bytes()))
}

pub(super) fn mutex(mutex: Mutex) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(&mutex.to_bytes()))
}

/// Counters do not reach 63 bits: at a million changes a second they would take 290,000 years.
pub(super) fn number(number: u64) -> Frame {
    Frame::Integer(number.try_into().unwrap_or(i64::MAX))
}

/// The elements of an array that have not been decoded yet.
pub(super) struct Elements<'a>(pub &'a [Frame]);

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

    pub fn id(&mut self) -> Option<u64> {
        self.bulk()?.as_ref().try_into().ok().map(u64::from_be_bytes)
    }

    pub fn mutex(&mut self) -> Option<Mutex> {
        Mutex::from_bytes(self.bulk()?)
    }

    pub fn name(&mut self) -> Option<Name> {
        Name::new(str::from_utf8(self.bulk()?).ok()?).ok()
    }

    pub fn optional_name(&mut self) -> Option<Option<Name>> {
        match self.0.first()? {
            Frame::Null => self.next().map(|_| None),
            _ => self.name().map(Some),
        }
    }

    /// Decodes a key. It is copied: a node keeps keys, and one of them would hold the memory of its whole frame.
    pub fn key(&mut self) -> Option<Key> {
        Key::new(Bytes::copy_from_slice(self.bulk()?)).ok()
    }

    pub fn text(&mut self) -> Option<String> {
        let text = str::from_utf8(self.bulk()?).ok()?;
        (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
    }

    /// Decodes an array of at most `count_max` arrays.
    pub fn list<T>(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_hold_the_memory_of_its_frame() {
        let payload = Bytes::from_static(b"*1\r\n$3\r\nkey\r\n");
        let Ok(Frame::Array(elements)) = Frame::decode(&payload) else { panic!() };
        let key = Elements(&elements).key().unwrap();
        assert_eq!(key.as_bytes(), b"key");
        assert!(!payload.as_ptr_range().contains(&key.as_bytes().as_ptr()));
    }
}
