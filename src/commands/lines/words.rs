//! Splits a line into words, with quotes and escapes, for batches and the prompt (pure).

use std::fmt;

/// The error of a malformed line. Columns count bytes from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// A quote is not closed.
    Unclosed { quote: char, column: usize },
    /// An escape sequence is unknown.
    Escape {
        column: usize,
        /// The escape sequences that are allowed there.
        allowed: &'static str,
    },
    /// A NUL byte outside quotes: the file is no text.
    Nul { column: usize },
}

/// A word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The bytes without quotes and escapes.
    pub bytes: Vec<u8>,
    /// Whether it begins with a quote: then it is data, never an option.
    pub is_quoted: bool,
}

/// The escape sequences in double quotes.
const QUOTED: &str = r#"n r t 0 e \ " xNN (two digits)"#;
/// The escape sequences outside quotes.
const BARE: &str = r"a blank, a quote, # or another backslash (outside quotes)";
/// The escape sequences in a list of keys.
const LISTED: &str = r"another backslash, or xNN (two digits)";

/// Splits a line into words.
///
/// Blanks separate words. Single quotes keep every character; double quotes interpret `\n`, `\r`, `\t`, `\0`, `\e`, `\\`,
/// `\"` and `\xNN`. Outside quotes a backslash escapes a blank, a quote, `#` or a backslash; other escapes are errors,
/// because `C:\temp` could mean two things. A line that begins with `#` has no words; elsewhere `#` is an ordinary
/// character.
///
/// # Errors
/// The line is malformed.
pub fn split(line: &[u8]) -> Result<Vec<Word>, LineError> {
    let mut words = Vec::new();
    let mut rest = Cursor { line, at: 0 };
    loop {
        rest.skip_blanks();
        match rest.peek() {
            None => return Ok(words),
            Some(b'#') if words.is_empty() => return Ok(words),
            Some(first) => {
                let is_quoted = matches!(first, b'"' | b'\'');
                words.push(Word { bytes: word(&mut rest)?, is_quoted });
            }
        }
    }
}

/// Interprets `\\` and `\xNN`, the escapes that `mqkv keys` prints.
///
/// # Errors
/// Another escape sequence.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, LineError> {
    let mut rest = Cursor { line: text, at: 0 };
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = rest.next() {
        let column = rest.at;
        out.push(match byte {
            b'\\' if matches!(rest.peek(), Some(b'\\' | b'x')) => escaped(&mut rest, LISTED)?,
            b'\\' => return Err(LineError::Escape { column, allowed: LISTED }),
            byte => byte,
        });
    }
    Ok(out)
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.at = self.at.saturating_add(1);
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn word(rest: &mut Cursor<'_>) -> Result<Vec<u8>, LineError> {
    let mut out = Vec::new();
    while let Some(byte) = rest.peek().filter(|byte| !is_blank(*byte)) {
        rest.next();
        let column = rest.at;
        match byte {
            b'\'' => loop {
                match rest.next() {
                    Some(b'\'') => break,
                    Some(byte) => out.push(byte),
                    None => return Err(LineError::Unclosed { quote: '\'', column }),
                }
            },
            b'"' => loop {
                match rest.next() {
                    Some(b'"') => break,
                    Some(b'\\') if rest.peek().is_some() => out.push(escaped(rest, QUOTED)?),
                    Some(byte) => out.push(byte),
                    None => return Err(LineError::Unclosed { quote: '"', column }),
                }
            },
            b'\\' => match rest.next() {
                Some(byte @ (b' ' | b'\t' | b'\'' | b'"' | b'\\' | b'#')) => out.push(byte),
                _ => return Err(LineError::Escape { column, allowed: BARE }),
            },
            0 => return Err(LineError::Nul { column }),
            byte => out.push(byte),
        }
    }
    Ok(out)
}

/// Returns the byte of an escape sequence, after its backslash.
fn escaped(rest: &mut Cursor<'_>, allowed: &'static str) -> Result<u8, LineError> {
    let error = LineError::Escape { column: rest.at, allowed };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match rest.next() {
        Some(b'n') => Ok(b'\n'),
        Some(b'r') => Ok(b'\r'),
        Some(b't') => Ok(b'\t'),
        Some(b'0') => Ok(0),
        Some(b'e') => Ok(0x1b),
        Some(byte @ (b'\\' | b'"')) => Ok(byte),
        Some(b'x') => {
            let high = rest.next().and_then(digit).ok_or(error)?;
            let low = rest.next().and_then(digit).ok_or(error)?;
            Ok(high.wrapping_shl(4) | low)
        }
        _ => Err(error),
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed { quote, column } => {
                write!(out, "unclosed quote {quote} at column {column}")
            }
            Self::Escape { column, allowed } => {
                write!(out, "unknown escape at column {column}: a backslash may precede {allowed}")
            }
            Self::Nul { column } => write!(out, "NUL byte at column {column}"),
        }
    }
}

impl std::error::Error for LineError {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).unwrap();
        words.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect()
    }

    #[test]
    fn blanks_separate_words_and_quotes_join_them() {
        assert_eq!(words(" set\tk  v \r"), ["set", "k", "v"]);
        assert_eq!(words(r#"set 'a b' "c d" e"f g"'h'"#), ["set", "a b", "c d", "ef gh"]);
        assert_eq!(words(r#"set k '' """#), ["set", "k", "", ""]);
        assert_eq!(words(r"set a\ b \'q\' \\ \#x"), ["set", "a b", "'q'", "\\", "#x"]);
    }

    #[test]
    fn only_a_whole_line_is_a_comment() {
        assert_eq!(words("  # set k v"), Vec::<String>::new());
        assert_eq!(words(""), Vec::<String>::new());
        assert_eq!(words("set color #ff0000"), ["set", "color", "#ff0000"]);
    }

    #[test]
    fn double_quotes_know_escapes_and_single_quotes_do_not() {
        assert_eq!(split(br#""\x00\xfF\n\r\t\0\e\\\"""#).unwrap()[0].bytes, b"\x00\xff\n\r\t\0\x1b\\\"");
        assert_eq!(words(r"'\x41\n'"), [r"\x41\n"]);
    }

    #[test]
    fn a_list_of_keys_accepts_known_escapes_only() {
        assert_eq!(unescape(br"a b\\\x41\x0a'").unwrap(), b"a b\\A\n'");
        for text in [r"C:\temp", r"a\", r"\x4", r"\q"] {
            assert!(unescape(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_names_its_position() {
        let error = |line: &str| split(line.as_bytes()).unwrap_err();
        assert_eq!(error("set k 'v"), LineError::Unclosed { quote: '\'', column: 7 });
        assert_eq!(error("set k \"v"), LineError::Unclosed { quote: '"', column: 7 });
        assert_eq!(error("set k \"v\\"), LineError::Unclosed { quote: '"', column: 7 });
        assert_eq!(error(r"set k C:\temp"), LineError::Escape { column: 9, allowed: BARE });
        assert_eq!(error(r"set k v\"), LineError::Escape { column: 8, allowed: BARE });
        for line in [r#"set k "\q""#, r#"set k "\x4""#, r#"set k "\xg0""#] {
            assert_eq!(error(line), LineError::Escape { column: 8, allowed: QUOTED }, "{line}");
        }
        assert_eq!(error("set k \0"), LineError::Nul { column: 7 });
    }

    /// A word written in each of the ways there are.
    fn written(word: &[u8], way: u8) -> Vec<u8> {
        let hexed = || word.iter().flat_map(|byte| format!("\\x{byte:02x}").into_bytes());
        match way {
            0 => [b"\"".to_vec(), hexed().collect(), b"\"".to_vec()].concat(),
            1 if !word.contains(&b'\'') => [b"'", word, b"'"].concat(),
            _ => {
                let quoted = word.iter().flat_map(|byte| match byte {
                    b'"' | b'\\' => vec![b'\\', *byte],
                    byte => vec![*byte],
                });
                [b"\"".to_vec(), quoted.collect(), b"\"".to_vec()].concat()
            }
        }
    }

    proptest! {
        #[test]
        fn words_of_any_bytes_survive_however_they_are_written(
            words in vec((vec(any::<u8>(), 0..12), 0..3_u8), 0..6),
        ) {
            let line = words.iter().map(|(word, way)| written(word, *way)).collect::<Vec<_>>().join(&b' ');
            let quoted = |(bytes, _)| Word { bytes, is_quoted: true };
            let expected: Vec<_> = words.into_iter().map(quoted).collect();
            prop_assert_eq!(split(&line), Ok(expected));
        }

        #[test]
        fn any_line_is_split_or_refused(line in vec(any::<u8>(), 0..80)) {
            let _ = split(&line);
            let _ = unescape(&line);
        }
    }
}
