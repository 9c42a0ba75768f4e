//! The encoding of a text file (pure). Editors and shells of other systems write byte order marks and UTF-16.

use std::fmt;

const MARK: &[u8] = b"\xEF\xBB\xBF";
/// How texts in other encodings begin. UTF-32 is first: its mark begins with the one of UTF-16.
const OTHER_MARKS: [(&[u8], &str); 4] = [
    (b"\xFF\xFE\0\0", "UTF-32"),
    (b"\0\0\xFE\xFF", "UTF-32"),
    (b"\xFF\xFE", "UTF-16"),
    (b"\xFE\xFF", "UTF-16"),
];

/// The encoding of a text that cannot be read. As text, a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingError(&'static str);

impl EncodingError {
    /// Returns a command that converts the text, as a hint.
    #[must_use]
    pub fn hint(self) -> String {
        match self.0 {
            MARKED => "remove its first three bytes: tail -c +4".to_owned(),
            encoding => format!("convert it: iconv -f {encoding} -t UTF-8"),
        }
    }
}

impl fmt::Display for EncodingError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "is encoded in {}; UTF-8 is required", self.0)
    }
}

const MARKED: &str = "UTF-8 with a byte order mark";

/// Returns the text without its byte order mark.
///
/// # Errors
/// The first bytes show that it is UTF-16 or UTF-32.
pub fn unmarked(bytes: &[u8]) -> Result<&[u8], EncodingError> {
    let encoding = match bytes {
        // Without a mark: two characters of ASCII, which no text in UTF-8 has beside NUL bytes.
        [1..=0x7F, 0, 1..=0x7F, 0, ..] => Some("UTF-16LE"),
        [0, 1..=0x7F, 0, 1..=0x7F, ..] => Some("UTF-16BE"),
        _ => OTHER_MARKS.iter().find(|(mark, _)| bytes.starts_with(mark)).map(|(_, encoding)| *encoding),
    };
    match encoding {
        Some(encoding) => Err(EncodingError(encoding)),
        None => Ok(bytes.strip_prefix(MARK).unwrap_or(bytes)),
    }
}

/// Checks bytes that are used unchanged, byte order mark included.
///
/// # Errors
/// They begin with a byte order mark, or are UTF-16 or UTF-32.
pub fn check_unmarked(bytes: &[u8]) -> Result<(), EncodingError> {
    if unmarked(bytes)?.len() == bytes.len() { Ok(()) } else { Err(EncodingError(MARKED)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_utf_8_is_skipped_and_other_encodings_are_named() {
        for text in ["", "a", "a\0b", "\u{E4}\u{FEFF}", "\0a"] {
            assert_eq!(unmarked(text.as_bytes()), Ok(text.as_bytes()), "{text:?}");
            assert_eq!(check_unmarked(text.as_bytes()), Ok(()), "{text:?}");
            let marked = format!("\u{FEFF}{text}");
            assert_eq!(unmarked(marked.as_bytes()), Ok(text.as_bytes()), "{text:?}");
            assert_eq!(check_unmarked(marked.as_bytes()), Err(EncodingError(MARKED)), "{text:?}");
        }
        let units = || "\u{FEFF}ab".encode_utf16();
        let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        let wide: Vec<u8> = "\u{FEFF}a".chars().flat_map(|char| u32::from(char).to_le_bytes()).collect();
        for (bytes, encoding) in [
            (&little[..], "UTF-16"),
            (&little[..2], "UTF-16"),
            (&little[2..], "UTF-16LE"),
            (&big, "UTF-16"),
            (&big[2..], "UTF-16BE"),
            (&wide, "UTF-32"),
        ] {
            assert_eq!(unmarked(bytes), Err(EncodingError(encoding)), "{bytes:?}");
            assert_eq!(check_unmarked(bytes), Err(EncodingError(encoding)), "{bytes:?}");
        }
    }
}
