//! Elements of RESP3 arrays that only frames and rows have; `protocol/exchange/elements.rs` has the others.

use bytes::Bytes;

use crate::protocol::frame::Frame;

pub(super) use crate::protocol::exchange::elements::{Elements, number, simple, text};

use super::names::{ChangeId, Name, Serial};

/// The longest free text in bytes: a version of the software, the reason of a refusal.
pub(super) const TEXT_BYTES_MAX: usize = 512;

pub(super) fn id(id: u64) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(&id.to_be_bytes()))
}

pub(super) fn change_id(change_id: ChangeId) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(&change_id.to_bytes()))
}

pub(super) fn serial(serial: Serial) -> Frame {
    Frame::Bulk(Bytes::copy_from_slice(&serial.to_bytes()))
}

impl Elements<'_> {
    pub(super) fn id(&mut self) -> Option<u64> {
        self.bulk()?.as_ref().try_into().ok().map(u64::from_be_bytes)
    }

    pub(super) fn change_id(&mut self) -> Option<ChangeId> {
        ChangeId::from_bytes(self.bulk()?)
    }

    pub(super) fn serial(&mut self) -> Option<Serial> {
        Serial::from_bytes(self.bulk()?)
    }

    pub(super) fn name(&mut self) -> Option<Name> {
        Name::new(str::from_utf8(self.bulk()?).ok()?).ok()
    }

    pub(super) fn optional_name(&mut self) -> Option<Option<Name>> {
        self.optional(Self::name)
    }

    pub(super) fn short_text(&mut self) -> Option<String> {
        self.text().filter(|text| text.len() <= TEXT_BYTES_MAX)
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
