//! Names and identities of an exchange: nodes, changes, links.

use std::fmt;
use std::sync::Arc;

/// The longest name of an exchange or a node in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// The name of an exchange or a node: 1 to [`NAME_BYTES_MAX`] of `a-z 0-9 . _ -`.
///
/// These are safe in a topic, a client id and a file name.
///
/// ```
/// # extern crate mqkv_core as mqkv;
/// use mqkv::exchange::names::Name;
///
/// assert_eq!(Name::new("press-7")?.as_str(), "press-7");
/// assert!(Name::new("line/2").is_err());
/// # Ok::<(), mqkv::exchange::names::InvalidName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// The text is no [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidName;

impl Name {
    /// # Errors
    /// [`InvalidName`] if the text is empty, too long, or has other characters.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        let is_valid = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_valid { Ok(Self(text.into())) } else { Err(InvalidName) }
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for InvalidName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a name has 1 to {NAME_BYTES_MAX} of the characters a-z 0-9 . _ -")
    }
}

impl std::error::Error for InvalidName {}

/// The identity of one change: a digest of who made it, of its number there, and of what it does ([`ChangeId::of`]).
///
/// It is pending in an outbox, shared in a record, and obsolete once a record has replaced it (S11). Changes with the same id
/// have the same key and the same content, and no node can make the id of a change of another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ChangeId([u8; 16]);

impl ChangeId {
    /// The base of a change that is based on nothing.
    pub const NIL: Self = Self([0; 16]);

    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns `None` unless there are exactly 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Returns an id that no change has; `run` is random.
    pub(super) fn of_no_change(run: u64) -> Self {
        Self(Serial { run, counter: 0 }.to_bytes())
    }
}

impl fmt::Debug for ChangeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl fmt::Display for ChangeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// The number of a change at the node that made it: the random number of the process, and a counter of that process.
///
/// It distinguishes changes that do the same. It repeats if a machine goes on from an earlier state of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Serial {
    pub run: u64,
    pub counter: u64,
}

impl Serial {
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.run) << 64 | u128::from(self.counter)).to_be_bytes()
    }

    /// Returns `None` unless there are exactly 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (run, counter) = bytes.split_first_chunk()?;
        Some(Self { run: u64::from_be_bytes(*run), counter: u64::from_be_bytes(counter.try_into().ok()?) })
    }
}

/// Makes the serials of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SerialSource {
    run: u64,
    counter: u64,
}

impl SerialSource {
    /// `run` is random, different for each start of each process.
    #[must_use]
    pub fn new(run: u64) -> Self {
        Self { run, counter: 0 }
    }

    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn next(&mut self) -> Serial {
        // A process does not count to the end of 64 bits.
        self.counter = self.counter.saturating_add(1);
        Serial { run: self.run, counter: self.counter }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_in_a_topic_and_a_file_name() {
        let longest = "n".repeat(NAME_BYTES_MAX);
        assert!(["a", "press-7", "0.9_b", &longest].iter().all(|text| Name::new(text).is_ok()));
        let too_long = "n".repeat(NAME_BYTES_MAX + 1);
        let invalid = ["", &too_long, "A", "a b", "a/b", "a+", "#", "é", "a\0"];
        assert!(invalid.iter().all(|text| Name::new(text) == Err(InvalidName)));
    }

    #[test]
    fn a_serial_has_16_bytes_and_is_never_given_twice() {
        let mut source = SerialSource::new(7);
        let (first, second) = (source.next(), source.next());
        assert_ne!(first, second);
        assert_eq!(Serial::from_bytes(&second.to_bytes()), Some(second));
        assert_eq!(Serial::from_bytes(&[0; 15]).or(Serial::from_bytes(&[0; 17])), None);
    }

    #[test]
    fn a_change_id_has_16_bytes() {
        let change_id = ChangeId::from_bytes(&[0x1b; 16]).unwrap();
        assert_eq!(ChangeId::from_bytes(&change_id.to_bytes()), Some(change_id));
        assert_eq!(ChangeId::from_bytes(&[0; 15]).or(ChangeId::from_bytes(&[0; 17])), None);
        assert_eq!(change_id.to_string(), "1b".repeat(16));
    }
}
