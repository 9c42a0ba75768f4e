//! User properties of a message.

use std::fmt;

use super::timestamp::Timestamp;

/// The identifier of a user property (MQTT 5, 2.2.2.2).
const IDENTIFIER: u8 = 0x26;

/// User properties of a message: names and values, in their order. Names may repeat.
///
/// They are stored as in a packet (MQTT 5, 3.3.2.3.7), so that they take one allocation, however many they are, and are
/// received and forwarded with one copy.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::protocol::UserProperties;
///
/// let properties: UserProperties = [("__stat", "200"), ("__protVer", "1.0")].into_iter().collect();
/// assert_eq!(properties.get("__protVer"), Some("1.0"));
/// assert_eq!(properties.len(), 2);
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserProperties {
    /// For each: the identifier, then name and value, each with a length of two bytes before it.
    encoded: Vec<u8>,
    len: u32,
    has_too_long: bool,
}

impl UserProperties {
    /// Returns no properties, with room for some that take `bytes` in a packet.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { encoded: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Returns the number of properties.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the allocated memory in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.encoded.capacity()
    }

    /// Returns the bytes in a packet; `None` if a text is longer than 65,535 bytes, so that it cannot be in a packet.
    #[must_use]
    pub fn encoded(&self) -> Option<&[u8]> {
        (!self.has_too_long).then_some(&self.encoded)
    }

    /// Appends a property.
    pub fn push(&mut self, name: &str, value: &str) {
        self.encoded.push(IDENTIFIER);
        self.push_text(name);
        self.push_text(value);
        self.len = self.len.saturating_add(1);
    }

    /// Appends a property with a timestamp as in [`Timestamp::to_text`].
    pub fn push_timestamp(&mut self, name: &str, timestamp: &Timestamp) {
        self.encoded.push(IDENTIFIER);
        self.push_text(name);
        let length_at = self.encoded.len();
        self.encoded.extend_from_slice(&[0; 2]);
        let start = self.encoded.len();
        timestamp.put_text(&mut self.encoded);
        let length = self.length(self.encoded.len().saturating_sub(start));
        if let Some(place) = self.encoded.get_mut(length_at..start) {
            place.copy_from_slice(&length);
        }
        self.len = self.len.saturating_add(1);
    }

    /// Appends other properties.
    pub fn extend(&mut self, others: &Self) {
        self.encoded.extend_from_slice(&others.encoded);
        self.len = self.len.saturating_add(others.len);
        self.has_too_long |= others.has_too_long;
    }

    /// Appends `count` properties from a packet, without the identifier of the first one: names and values, each UTF-8 with
    /// its length before it.
    pub fn push_encoded(&mut self, encoded: &[u8], count: usize) {
        let bytes = encoded.len().saturating_add(1);
        if self.is_empty() {
            // Nearly always. To grow a vector takes longer than to allocate one.
            self.encoded = Vec::with_capacity(bytes);
        } else {
            self.encoded.reserve(bytes);
        }
        self.encoded.push(IDENTIFIER);
        self.encoded.extend_from_slice(encoded);
        // Cannot overflow: each takes at least five bytes.
        self.len = self.len.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Returns the value of the first property with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.encoded_texts().find(|(known, _)| *known == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        // All texts are UTF-8.
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        let mut texts = self.encoded_texts();
        (0..self.len())
            .map(move |_| texts.next().map(|(name, value)| (text(name), text(value))).unwrap_or_default())
    }

    fn encoded_texts(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.encoded[..];
        std::iter::from_fn(move || {
            let (name, after) = split_text(rest.get(1..)?)?;
            let (value, after) = split_text(after)?;
            rest = after;
            Some((name, value))
        })
    }

    fn push_text(&mut self, text: &str) {
        let length = self.length(text.len());
        self.encoded.extend_from_slice(&length);
        if !self.has_too_long {
            self.encoded.extend_from_slice(text.as_bytes());
        }
    }

    /// Returns the two bytes of a length. With one that has no two bytes, the properties cannot be encoded.
    fn length(&mut self, length: usize) -> [u8; 2] {
        u16::try_from(length).map(u16::to_be_bytes).unwrap_or_else(|_| {
            self.has_too_long = true;
            [0; 2]
        })
    }
}

fn split_text(encoded: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = encoded.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for UserProperties {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(properties: I) -> Self {
        let mut collected = Self::default();
        for (name, value) in properties {
            collected.push(name.as_ref(), value.as_ref());
        }
        collected
    }
}

impl fmt::Debug for UserProperties {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT_BYTES_MAX: usize = 65_535;

    proptest! {
        #[test]
        fn names_and_values_are_read_back_in_their_order(
            pairs in prop::collection::vec((".{0,5}", ".{0,200}"), 0..5),
        ) {
            let properties: UserProperties = pairs.iter().cloned().collect();
            let read: Vec<_> = properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            prop_assert_eq!(&read, &pairs);
            prop_assert_eq!(properties.len(), pairs.len());
            for (name, _) in &pairs {
                let first = pairs.iter().find(|(other, _)| other == name);
                prop_assert_eq!(properties.get(name), first.map(|(_, value)| value.as_str()));
            }
        }
    }

    #[test]
    fn a_timestamp_is_written_like_its_text() {
        for timestamp in [Timestamp::of_store(1, 2), Timestamp::of_store(u64::MAX, u32::MAX)] {
            let mut properties = UserProperties::default();
            properties.push_timestamp("__ts", &timestamp);
            properties.push("b", "c");
            let text = timestamp.to_text();
            assert_eq!(properties.iter().collect::<Vec<_>>(), [("__ts", &*text), ("b", "c")]);
        }
    }

    #[test]
    fn properties_with_a_text_that_is_too_long_have_no_encoding() {
        let longest = "x".repeat(TEXT_BYTES_MAX);
        for (text, is_sendable) in [(longest.clone(), true), (longest + "x", false)] {
            for (name, value) in [(&*text, ""), ("", &*text)] {
                let properties: UserProperties = [(name, value)].into_iter().collect();
                assert_eq!(properties.encoded().is_some(), is_sendable);
            }
        }
    }
}
