//! Parts of packets, written to the output or only measured.

use bytes::{BufMut, BytesMut};

/// Maximum of a variable byte integer, so also the greatest remaining length (MQTT 5, 1.5.5).
const VARINT_MAX: u32 = 268_435_455;

/// Packet that cannot be sent: it exceeds the client's Maximum Packet Size, or a string exceeds 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsendable;

/// Destination of the parts of a packet. A length stands before what it measures, so a packet's parts are given twice:
/// to a [`Length`], then to the output.
pub(super) trait Sink {
    fn raw(&mut self, bytes: &[u8]);

    /// Adds a string or binary data: a length of two bytes, then at most 65,535 bytes.
    fn text(&mut self, text: &[u8]);

    /// Adds a property whose value is a string or binary data.
    fn property(&mut self, id: u8, text: &[u8]) {
        self.raw(&[id]);
        self.text(text);
    }

    /// Adds a variable byte integer.
    fn varint(&mut self, number: u32);
}

/// Number of bytes that the parts take.
#[derive(Debug, Default)]
pub(super) struct Length {
    bytes: usize,
    is_unsendable: bool,
}

impl Length {
    pub(super) fn add(&mut self, bytes: usize) {
        // More than any packet may have is unsendable, so a sum that stops at the maximum is too.
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.add(other.bytes);
        self.is_unsendable |= other.is_unsendable;
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn exceeds(&self, bytes_max: u32) -> bool {
        u32::try_from(self.bytes).map_or(true, |bytes| bytes > bytes_max)
    }

    /// Returns the length if it can be written as a variable byte integer.
    pub(super) fn sendable(&self) -> Result<u32, Unsendable> {
        match u32::try_from(self.bytes) {
            Ok(bytes) if bytes <= VARINT_MAX && !self.is_unsendable => Ok(bytes),
            _ => Err(Unsendable),
        }
    }
}

impl Sink for Length {
    fn raw(&mut self, bytes: &[u8]) {
        self.add(bytes.len());
    }

    fn text(&mut self, text: &[u8]) {
        self.is_unsendable |= u16::try_from(text.len()).is_err();
        self.add(2);
        self.add(text.len());
    }

    fn varint(&mut self, number: u32) {
        self.is_unsendable |= number > VARINT_MAX;
        self.add(varint_bytes(number));
    }
}

impl Sink for BytesMut {
    fn raw(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }

    fn text(&mut self, text: &[u8]) {
        self.put_slice(&text_length(text));
        self.put_slice(text);
    }

    fn property(&mut self, id: u8, text: &[u8]) {
        // One call for the three bytes: each one checks the capacity.
        let [high, low] = text_length(text);
        self.put_slice(&[id, high, low]);
        self.put_slice(text);
    }

    fn varint(&mut self, mut number: u32) {
        loop {
            let [.., low] = (number & 0x7F).to_be_bytes();
            number >>= 7;
            self.put_u8(if number > 0 { low | 0x80 } else { low });
            if number == 0 {
                return;
            }
        }
    }
}

/// Returns the length of a text that was measured first: a [`Length`] has refused longer ones.
fn text_length(text: &[u8]) -> [u8; 2] {
    debug_assert!(text.len() <= usize::from(u16::MAX), "a text of {} bytes", text.len());
    u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes()
}

/// Returns the number of bytes of a variable byte integer.
fn varint_bytes(number: u32) -> usize {
    match number {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}
