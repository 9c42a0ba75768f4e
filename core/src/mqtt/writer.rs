//! Parts of packets, written to the output or only measured.

use bytes::BytesMut;

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

/// The place of a packet in the output. Its length was measured, so that no part needs a check of the capacity.
pub(super) struct PacketSlot<'a>(&'a mut [u8]);

impl<'a> PacketSlot<'a> {
    /// Appends a place of so many bytes to the output, with room for `more` after it.
    pub(super) fn new(output: &'a mut BytesMut, bytes: usize, more: usize) -> Self {
        let start = output.len();
        output.reserve(bytes.saturating_add(more));
        output.resize(start.saturating_add(bytes), 0);
        Self(output.get_mut(start..).unwrap_or_default())
    }

    /// Ends the place, which must be full.
    pub(super) fn end(self) {
        debug_assert!(self.0.is_empty(), "{} bytes too many were measured", self.0.len());
    }
}

impl Sink for PacketSlot<'_> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        let place = std::mem::take(&mut self.0).split_at_mut_checked(bytes.len());
        debug_assert!(place.is_some(), "too few bytes were measured");
        if let Some((place, rest)) = place {
            place.copy_from_slice(bytes);
            self.0 = rest;
        }
    }

    #[inline]
    fn text(&mut self, text: &[u8]) {
        self.raw(&text_length(text));
        self.raw(text);
    }

    #[inline]
    fn varint(&mut self, mut number: u32) {
        loop {
            let [.., low] = (number & 0x7F).to_be_bytes();
            number >>= 7;
            self.raw(&[if number > 0 { low | 0x80 } else { low }]);
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
