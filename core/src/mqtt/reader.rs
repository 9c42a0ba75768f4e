//! Bounded cursor over the bytes of one packet.

use std::borrow::Cow;
use std::str;

use super::error::Cause;
use crate::protocol::message::{CONTENT_TYPE, ContentType, Qos};
use crate::protocol::topic;

/// Bytes of a packet that are not decoded yet. No method reads past their end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails if bytes are left.
    pub(super) fn end(&self) -> Result<(), Cause> {
        if self.0.is_empty() { Ok(()) } else { Err(Cause::TrailingBytes) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, Cause> {
        let (first, rest) = self.0.split_first().ok_or(Cause::EndsEarly)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Cause> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Cause::EndsEarly)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Cause> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Cause::EndsEarly)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// Reads a variable byte integer: one to four bytes, and no more than it needs (MQTT 5, 1.5.5).
    pub(super) fn varint(&mut self) -> Result<u32, Cause> {
        let mut number = 0_u32;
        for shift in [0, 7, 14, 21_u32] {
            let byte = self.u8()?;
            number |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return if byte > 0 || shift == 0 { Ok(number) } else { Err(Cause::IntegerNotMinimal) };
            }
        }
        Err(Cause::IntegerTooLong)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Cause> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Cause::EndsEarly)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads binary data: a length of two bytes, then as many bytes (MQTT 5, 1.5.6).
    pub(super) fn binary(&mut self) -> Result<&'a [u8], Cause> {
        let length = self.u16()?;
        self.bytes(length.into())
    }

    /// Reads a string: UTF-8 without U+0000 (MQTT 5, 1.5.4).
    pub(super) fn string(&mut self) -> Result<&'a str, Cause> {
        string(self.binary()?)
    }

    /// Reads a string of ASCII characters other than U+0000. None: it has others, or is malformed.
    pub(super) fn ascii(&mut self) -> Option<&'a str> {
        self.binary().ok().filter(|bytes| is_plain(bytes)).and_then(|bytes| str::from_utf8(bytes).ok())
    }

    /// Returns all bytes that are left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Reads a content type. The one of the state store is not allocated, nor validated again.
    pub(super) fn content_type(&mut self) -> Result<ContentType, Cause> {
        let bytes = self.binary()?;
        if bytes == CONTENT_TYPE.as_bytes() {
            return Ok(CONTENT_TYPE.into());
        }
        Ok(string(bytes)?.to_owned().into())
    }

    /// Reads two strings like [`Self::string`], and returns them with their lengths, as they are.
    pub(super) fn string_pair(&mut self) -> Result<&'a [u8], Cause> {
        let start = self.0;
        for _ in 0..2 {
            let bytes = self.binary()?;
            if !is_plain(bytes) {
                string(bytes)?;
            }
        }
        Ok(start.get(..start.len().saturating_sub(self.0.len())).unwrap_or_default())
    }

    /// Reads pairs like [`Self::string_pair`], as long as the byte `id` and another pair follow. Returns them as they are, and
    /// their number.
    pub(super) fn string_pairs(&mut self, id: u8) -> Result<(&'a [u8], usize), Cause> {
        let (start, mut count) = (self.0, 0_usize);
        loop {
            self.string_pair()?;
            count = count.saturating_add(1);
            match self.0.split_first() {
                Some((next, rest)) if *next == id => self.0 = rest,
                _ => break,
            }
        }
        Ok((start.get(..start.len().saturating_sub(self.0.len())).unwrap_or_default(), count))
    }

    /// Reads a topic name: a string without wildcards (MQTT 5, 4.7.1). It may be empty.
    ///
    /// The topic of nearly all packets is that of the requests, which is neither allocated nor validated.
    pub(super) fn topic_name(&mut self) -> Result<Cow<'static, str>, Cause> {
        let bytes = self.binary()?;
        if bytes == topic::REQUEST.as_bytes() {
            return Ok(topic::REQUEST.into());
        }
        if contains(bytes, |byte| matches!(byte, 0 | b'+' | b'#')) {
            return Err(string(bytes).err().unwrap_or(Cause::TopicWildcard));
        }
        Ok(str::from_utf8(bytes).map_err(|_| Cause::NotUtf8)?.to_owned().into())
    }

    /// Reads a packet identifier: never 0 (MQTT 5, 2.2.1).
    pub(super) fn packet_id(&mut self) -> Result<u16, Cause> {
        match self.u16()? {
            0 => Err(Cause::PacketIdZero),
            packet_id => Ok(packet_id),
        }
    }
}

/// Returns the QoS of two bits, or None for 3.
pub(super) fn qos(bits: u8) -> Option<Qos> {
    match bits {
        0 => Some(Qos::AtMostOnce),
        1 => Some(Qos::AtLeastOnce),
        2 => Some(Qos::ExactlyOnce),
        _ => None,
    }
}

fn string(bytes: &[u8]) -> Result<&str, Cause> {
    if contains(bytes, |byte| byte == 0) {
        return Err(if str::from_utf8(bytes).is_err() { Cause::NotUtf8 } else { Cause::NullCharacter });
    }
    str::from_utf8(bytes).map_err(|_| Cause::NotUtf8)
}

/// Whether all bytes are ASCII characters except U+0000, as nearly always.
///
/// Eight bytes at a time: in a byte that is 0, and in one above 0x7F, the highest bit is set once 1 is subtracted, or before.
/// Without either no byte borrows from its neighbor. Names are too short for vectors.
fn is_plain(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHEST: u64 = u64::from_ne_bytes([0x80; 8]);
    // The last word has bytes of the one before it, unless the length is a multiple of eight.
    let Some(last) = bytes.last_chunk() else { return bytes.iter().all(|byte| matches!(byte, 0x01..=0x7F)) };
    let words = bytes.as_chunks().0.iter().chain([last]).map(|word| u64::from_ne_bytes(*word));
    let bits = words.fold(0, |bits, word| bits | word | word.wrapping_sub(ONES));
    bits & HIGHEST == 0
}

/// Looks at every byte instead of stopping at the first match: the compiler then compares many at a time.
fn contains(bytes: &[u8], is_match: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |found, byte| found | is_match(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_byte_integers_have_the_bounds_of_the_standard() {
        // MQTT 5, table 1-1.
        for (bytes, number) in [
            (&b"\x00"[..], 0),
            (b"\x7F", 127),
            (b"\x80\x01", 128),
            (b"\xFF\x7F", 16_383),
            (b"\x80\x80\x01", 16_384),
            (b"\xFF\xFF\x7F", 2_097_151),
            (b"\x80\x80\x80\x01", 2_097_152),
            (b"\xFF\xFF\xFF\x7F", 268_435_455),
        ] {
            assert_eq!(Reader::new(bytes).varint(), Ok(number), "{bytes:?}");
        }
        for (bytes, cause) in [
            (&b""[..], Cause::EndsEarly),
            (b"\x80", Cause::EndsEarly),
            (b"\x80\x00", Cause::IntegerNotMinimal),
            (b"\x80\x80\x80\x00", Cause::IntegerNotMinimal),
            (b"\x80\x80\x80\x80\x01", Cause::IntegerTooLong),
        ] {
            assert_eq!(Reader::new(bytes).varint(), Err(cause), "{bytes:?}");
        }
    }

    #[test]
    fn a_failed_read_never_passes_the_end() {
        let read = |read: fn(&mut Reader<'_>) -> Result<(), Cause>| read(&mut Reader::new(b"\0\x02a"));
        assert_eq!(read(|reader| reader.u32().map(drop)), Err(Cause::EndsEarly));
        assert_eq!(read(|reader| reader.binary().map(drop)), Err(Cause::EndsEarly));
        assert_eq!(read(|reader| reader.string().map(drop)), Err(Cause::EndsEarly));
        assert_eq!(read(|reader| reader.bytes(4).map(drop)), Err(Cause::EndsEarly));
        assert_eq!(read(|reader| reader.bytes(3).map(drop)), Ok(()));
    }

    #[test]
    fn strings_are_utf_8_without_the_null_character_and_topic_names_have_no_wildcard() {
        let string = |bytes: &'static [u8]| Reader::new(bytes).string();
        assert_eq!(string(b"\0\x02\xC3\xA4"), Ok("ä"));
        assert_eq!(string(b"\0\x01+"), Ok("+"));
        assert_eq!(string(b"\0\x01\xFF"), Err(Cause::NotUtf8));
        assert_eq!(string(b"\0\x03\xED\xA0\x80"), Err(Cause::NotUtf8));
        assert_eq!(string(b"\0\x01\0"), Err(Cause::NullCharacter));
        assert_eq!(string(b"\0\x02\0\xFF"), Err(Cause::NotUtf8));
        let topic = |bytes: &'static [u8]| Reader::new(bytes).topic_name();
        assert_eq!(topic(b"\0\x03a/b"), Ok("a/b".into()));
        assert_eq!(topic(b"\0\0"), Ok("".into()));
        assert_eq!(topic(b"\0\x02a+"), Err(Cause::TopicWildcard));
        assert_eq!(topic(b"\0\x01#"), Err(Cause::TopicWildcard));
        assert_eq!(topic(b"\0\x02#\0"), Err(Cause::NullCharacter));
        assert_eq!(topic(b"\0\x02#\xFF"), Err(Cause::NotUtf8));
    }

    #[test]
    fn the_content_type_of_the_state_store_is_not_allocated() {
        let encoded = [&[0, 24], CONTENT_TYPE.as_bytes()].concat();
        assert!(matches!(Reader::new(&encoded).content_type(), Ok(ContentType::Borrowed(CONTENT_TYPE))));
        let another = Reader::new(b"\0\x01a").content_type();
        assert!(matches!(another, Ok(ContentType::Owned(text)) if text == "a"));
    }

    #[test]
    fn plain_text_has_no_null_character_and_nothing_beyond_ascii_at_any_place() {
        for length in 0..20 {
            assert!(is_plain(&vec![0x01; length]) && is_plain(&vec![0x7F; length]));
            for at in 0..length {
                for byte in [0x00, 0x80, 0xFF] {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    assert!(!is_plain(&text), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn pairs_are_read_up_to_another_byte_and_each_is_validated() {
        let pairs = |bytes: &'static [u8]| Reader::new(bytes).string_pairs(b'&');
        assert_eq!(pairs(b"\0\x01a\0\0&\0\0\0\x01b#&"), Ok((&b"\0\x01a\0\0&\0\0\0\x01b"[..], 2)));
        assert_eq!(pairs(b"\0\0\0\0&"), Err(Cause::EndsEarly));
        assert_eq!(pairs(b"\0\0\0\0&\0\x01\xFF\0\0"), Err(Cause::NotUtf8));
    }

    #[test]
    fn both_strings_of_a_pair_are_validated() {
        let pair = |bytes: &'static [u8]| Reader::new(bytes).string_pair();
        assert_eq!(pair(b"\0\x02\xC3\xA4\0\x01bc"), Ok(&b"\0\x02\xC3\xA4\0\x01b"[..]));
        assert_eq!(pair(b"\0\x01a\0\0"), Ok(&b"\0\x01a\0\0"[..]));
        assert_eq!(pair(b"\0\x01\xFF\0\x01b"), Err(Cause::NotUtf8));
        assert_eq!(pair(b"\0\x01a\0\x01\0"), Err(Cause::NullCharacter));
        assert_eq!(pair(b"\0\x01a\0\x02b"), Err(Cause::EndsEarly));
    }
}
