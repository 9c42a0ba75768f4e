//! Keys and values, with their limits.

use std::fmt;

use bytes::Bytes;

/// The longest key in bytes. Keys above about 32 KB cannot be watched (protocol §3).
pub const KEY_BYTES_MAX: usize = 65_535;
/// The longest value in bytes that client and store handle. The packet limit of a broker may be lower.
pub const VALUE_BYTES_MAX: usize = 256 * 1024 * 1024 - 256 * 1024;

/// A key: 1 to [`KEY_BYTES_MAX`] bytes of any content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

/// A value: any bytes, or none.
pub type Value = Bytes;

/// Error of making a key from bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    Empty,
    /// The length of the bytes, which is above [`KEY_BYTES_MAX`].
    TooLong(usize),
}

impl Key {
    /// # Errors
    /// [`KeyError`] if there are no bytes, or too many.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, KeyError> {
        let bytes = bytes.into();
        match bytes.len() {
            0 => Err(KeyError::Empty),
            len if len > KEY_BYTES_MAX => Err(KeyError::TooLong(len)),
            _ => Ok(Self(bytes)),
        }
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes of the key, sharing their memory.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({})", self.0.escape_ascii())
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => out.write_str("the key is empty"),
            Self::TooLong(len) => write!(out, "the key has {len} bytes; the limit is {KEY_BYTES_MAX}"),
        }
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_byte_to_the_limit() {
        assert_eq!(Key::new(Bytes::new()), Err(KeyError::Empty));
        assert!(Key::new(vec![0]).is_ok());
        assert!(Key::new(vec![b'k'; KEY_BYTES_MAX]).is_ok());
        assert_eq!(Key::new(vec![b'k'; KEY_BYTES_MAX + 1]), Err(KeyError::TooLong(KEY_BYTES_MAX + 1)));
    }
}
