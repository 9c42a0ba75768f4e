//! Bytes that nobody shall see: a password, a token; gone from memory when they are dropped.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use zeroize::Zeroizing;

/// How much is taken first from what does not know how long it is.
const PIPE_BYTES: usize = 4096;

/// A secret; it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over; copies of them elsewhere are whoever made them's.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads to the end, or one byte more than so many: by that one what is too long is known. `len` is how many there
    /// probably are.
    ///
    /// # Errors
    /// The system's.
    pub fn read(mut from: impl Read, len: u64, bytes_max: usize) -> io::Result<Self> {
        let limit = bytes_max.saturating_add(1);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut bytes = Zeroizing::new(vec![0; len.saturating_add(1).min(limit)]);
        let mut filled = 0;
        while filled < limit {
            if filled == bytes.len() {
                // A buffer that grows by itself leaves its content behind.
                let mut larger = Zeroizing::new(vec![0; filled.saturating_mul(2).max(PIPE_BYTES).min(limit)]);
                if let Some(start) = larger.get_mut(..filled) {
                    start.copy_from_slice(&bytes);
                }
                bytes = larger;
            }
            match from.read(bytes.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(more) => filled = filled.saturating_add(more),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(Self(bytes))
    }

    /// The same of a file.
    ///
    /// # Errors
    /// The system's.
    pub fn read_file(path: &Path, bytes_max: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Self::read(file, len, bytes_max)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe: it gives what it likes, and does not know how much there is.
    struct Drops<'a>(&'a [u8], usize);

    impl Read for Drops<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            let room = out.len().min(1_000);
            self.0.read(&mut out[..room])
        }
    }

    #[test]
    fn a_secret_is_read_whole_and_no_further_than_shows_that_it_is_too_long() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|byte| byte as u8).collect();
        for len in [0, 1, 30, 4_095, 4_096, 4_097, 10_000, 10_001, 20_000] {
            for told in [0, 1, len as u64, u64::MAX] {
                let secret = Secret::read(Drops(&bytes[..len], 0), told, 10_000).unwrap();
                assert!(secret.bytes() == &bytes[..len.min(10_001)], "{len} of which {told} were told");
            }
        }
        assert!(Secret::read(File::open("/").unwrap(), 0, 10).is_err());
    }
}
