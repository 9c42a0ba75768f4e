//! Secrets in memory: passwords and tokens, erased when dropped.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::files::text::{self, EncodingError};
use crate::platform;

/// Size of the first buffer for a source of unknown length, such as a pipe.
const PIPE_BYTES: usize = 4096;

/// Secret bytes: erased from memory when dropped, and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of the bytes. Earlier copies of them are not erased.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads to the end, but at most `bytes_max + 1` bytes: a result of that length shows that the source is too long.
    /// `len` is the expected length and may be wrong.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn read(mut from: impl Read, len: u64, bytes_max: usize) -> io::Result<Self> {
        let limit = bytes_max.saturating_add(1);
        let len = usize::try_from(len).unwrap_or(limit);
        let mut bytes = Zeroizing::new(vec![0; len.saturating_add(1).min(limit)]);
        let mut filled = 0;
        while filled < limit {
            if filled == bytes.len() {
                // A `Vec` that grows by itself frees its old buffer without erasing it.
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

    /// Reads a file, at most `bytes_max + 1` bytes of it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn read_file(path: &Path, bytes_max: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Self::read(file, len, bytes_max)
    }

    /// Reads a regular file, at most `bytes_max + 1` bytes of it. Never blocks on a pipe or a device that has replaced the
    /// file.
    ///
    /// # Errors
    /// Errors of the system, or [`ErrorKind::InvalidInput`] for anything else than a regular file.
    pub fn read_regular_file(path: &Path, bytes_max: usize) -> io::Result<Self> {
        let file = platform::open_nonblocking(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "not a regular file"));
        }
        Self::read(file, metadata.len(), bytes_max)
    }

    /// Returns the first line without byte order mark and line end: a password as it was typed or written to a file. Blanks at its
    /// end belong to it.
    ///
    /// # Errors
    /// The bytes are text in another encoding than UTF-8.
    pub fn first_line(&self) -> Result<Self, EncodingError> {
        let line = text::unmarked(self.bytes())?.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Ok(Self::new(line.strip_suffix(b"\r").unwrap_or(line).to_vec()))
    }

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
    use crate::a_watchdog::bounded;

    /// A source that, like a pipe, returns short reads and interruptions.
    struct Pipe<'a> {
        bytes: &'a [u8],
        reads: usize,
    }

    impl Read for Pipe<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            if self.reads.is_multiple_of(3) {
                return Err(ErrorKind::Interrupted.into());
            }
            let room = out.len().min(1_000);
            self.bytes.read(&mut out[..room])
        }
    }

    #[test]
    fn a_secret_is_read_to_its_end_but_no_more_than_one_byte_beyond_the_limit() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|byte| byte as u8).collect();
        for len in [0, 1, 30, 4_095, 4_096, 4_097, 10_000, 10_001, 20_000] {
            for expected in [0, 1, len as u64, u64::MAX] {
                let pipe = Pipe { bytes: &bytes[..len], reads: 0 };
                let secret = Secret::read(pipe, expected, 10_000).unwrap();
                assert!(secret.bytes() == &bytes[..len.min(10_001)], "{len} bytes, {expected} expected");
            }
        }
        assert!(Secret::read(File::open("/").unwrap(), 0, 10).is_err());
    }

    #[test]
    fn only_a_regular_file_is_read_and_nothing_else_blocks() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, "secret").unwrap();
        assert_eq!(Secret::read_regular_file(&path, 10).unwrap().bytes(), b"secret");
        assert_eq!(Secret::read_regular_file(&path, 3).unwrap().bytes(), b"secr");
        std::fs::remove_file(&path).unwrap();
        assert!(bounded(|| std::process::Command::new("mkfifo").arg(&path).status()).unwrap().success());
        for path in [&path, home.path(), Path::new("/dev/zero")] {
            let error = Secret::read_regular_file(path, 10).unwrap_err();
            assert_eq!(error.to_string(), "not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn the_first_line_ends_before_its_line_end() {
        for (text, line) in
            [("p", "p"), ("p\n", "p"), (" p \r\n", " p "), ("p\nq\n", "p"), ("", ""), ("\u{FEFF}p\r\n", "p")]
        {
            let secret = Secret::new(text.into());
            assert_eq!(secret.first_line().unwrap().bytes(), line.as_bytes(), "{text:?}");
        }
        assert!(Secret::new(b"\xFF\xFEp\0\n\0".to_vec()).first_line().is_err());
    }
}
