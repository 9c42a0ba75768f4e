//! Splits a line into words, with quotes and escapes, for batches and the prompt (pure).

use std::fmt;

/// The error of a malformed line. Columns count bytes from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// A quote is not closed.
    Unclosed { quote: char, column: usize },
    /// A word continues behind its closing quote.
    Joined { column: usize },
    /// `\x` in double quotes without two hexadecimal digits.
    Hex { column: usize },
    /// A backslash in a list of keys that begins neither `\\` nor `\xNN`.
    Escape { column: usize },
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

/// Splits a line into words.
///
/// Blanks separate words. A quote opens where a word begins, or behind `--name=`, and its closing quote ends the word. Single
/// quotes keep every character; double quotes interpret `\n`, `\r`, `\t`, `\0`, `\e`, `\\`, `\"` and `\xNN`. Elsewhere a quote
/// is literal, and so is the rest of its word: `{"a":"\\"}` is JSON. Before it a backslash escapes a blank, a quote, `#`, `|`,
/// `>` or a backslash. Before any other character a backslash is literal, so that `C:\temp` keeps it. A line that begins with
/// `#` has no words; elsewhere `#` is an ordinary character.
pub fn split(line: &[u8]) -> Result<Vec<Word>, LineError> {
    words_of(&mut Cursor::new(line))
}

/// Returns whether double quotes of the line interpret an escape in what begins like a Windows path: `"C:\temp"` has a tab.
#[must_use]
pub fn has_escape_in_path(line: &[u8]) -> bool {
    let mut rest = Cursor::new(line);
    words_of(&mut rest).is_ok() && rest.has_escape_in_path
}

fn words_of(rest: &mut Cursor<'_>) -> Result<Vec<Word>, LineError> {
    let mut words = Vec::new();
    loop {
        rest.skip_blanks();
        match rest.peek() {
            None => return Ok(words),
            Some(b'#') if words.is_empty() => return Ok(words),
            Some(first) => {
                let is_quoted = is_quote(first);
                words.push(Word { bytes: word(rest)?, is_quoted });
            }
        }
    }
}

/// Interprets `\\` and `\xNN`, the escapes that `mqkv keys` prints.
///
/// # Errors
/// Another escape sequence.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, LineError> {
    let mut rest = Cursor::new(text);
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = rest.next() {
        let column = rest.at;
        out.push(match byte {
            b'\\' => match rest.next() {
                Some(b'\\') => b'\\',
                Some(b'x') => rest.hex().ok_or(LineError::Escape { column })?,
                _ => return Err(LineError::Escape { column }),
            },
            byte => byte,
        });
    }
    Ok(out)
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
    has_escape_in_path: bool,
}

impl<'a> Cursor<'a> {
    fn new(line: &'a [u8]) -> Self {
        Self { line, at: 0, has_escape_in_path: false }
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    /// Returns the byte that the next two hexadecimal digits spell.
    fn hex(&mut self) -> Option<u8> {
        let mut digit = || char::from(self.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit()?, digit()?);
        Some(high.wrapping_shl(4) | low)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.at = self.at.saturating_add(1);
        }
    }
}

/// Returns whether a byte separates words.
#[must_use]
pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns whether a byte is a quote, which opens only where [`opens_quote`] says.
#[must_use]
pub fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Returns whether a quote behind this part of a word opens: at the beginning of the word, or of the value of an option.
#[must_use]
pub fn opens_quote(before: &[u8]) -> bool {
    let is_option =
        |(last, name): (&u8, &[u8])| *last == b'=' && name.starts_with(b"-") && !name.contains(&b'=');
    before.is_empty() || before.split_last().is_some_and(is_option)
}

/// Returns the next word if it has no quote, escape or NUL: most words have none, and are copied at once.
fn plain_word(rest: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let line = rest.line.get(rest.at..)?;
    // All of them are below the letters, but for the backslash: most bytes need these two comparisons only.
    let is_special =
        |byte: u8| byte == b'\\' || (byte <= b'\'' && (is_blank(byte) || matches!(byte, b'\'' | b'"' | 0)));
    let len = line.iter().position(|byte| is_special(*byte)).unwrap_or(line.len());
    if line.get(len).is_some_and(|byte| !is_blank(*byte)) {
        return None;
    }
    rest.at = rest.at.saturating_add(len);
    line.get(..len).map(<[u8]>::to_vec)
}

fn word(rest: &mut Cursor<'_>) -> Result<Vec<u8>, LineError> {
    if let Some(word) = plain_word(rest) {
        return Ok(word);
    }
    let start = rest.at;
    let mut out = Vec::new();
    let mut is_literal = false;
    while let Some(byte) = rest.peek().filter(|byte| !is_blank(*byte)) {
        let before = rest.line.get(start..rest.at).unwrap_or_default();
        let opens = is_quote(byte) && !is_literal && opens_quote(before);
        rest.next();
        let column = rest.at;
        match byte {
            quote if opens => {
                put_quoted(&mut out, rest, quote)?;
                if rest.peek().is_some_and(|byte| !is_blank(byte)) {
                    return Err(LineError::Joined { column: rest.at.saturating_add(1) });
                }
            }
            b'\\' if !is_literal => match rest.peek() {
                Some(byte @ (b' ' | b'\t' | b'\'' | b'"' | b'\\' | b'#' | b'|' | b'>')) => {
                    rest.next();
                    out.push(byte);
                }
                _ => out.push(b'\\'),
            },
            0 => return Err(LineError::Nul { column }),
            byte => {
                is_literal |= is_quote(byte);
                out.push(byte);
            }
        }
    }
    Ok(out)
}

/// Appends what is in quotes; the cursor is behind the opening one.
fn put_quoted(out: &mut Vec<u8>, rest: &mut Cursor<'_>, quote: u8) -> Result<(), LineError> {
    let column = rest.at;
    loop {
        match rest.next() {
            Some(byte) if byte == quote => return Ok(()),
            Some(b'\\') if quote == b'"' => put_escaped(out, rest)?,
            Some(byte) => out.push(byte),
            None => return Err(LineError::Unclosed { quote: quote.into(), column }),
        }
    }
}

/// Appends what an escape sequence in double quotes stands for; the cursor is behind its backslash.
fn put_escaped(out: &mut Vec<u8>, rest: &mut Cursor<'_>) -> Result<(), LineError> {
    let column = rest.at;
    let begins_path =
        matches!(out.as_slice(), [drive, b':'] | [drive, b':', b'\\', ..] if drive.is_ascii_alphabetic());
    rest.has_escape_in_path |=
        begins_path && matches!(rest.peek(), Some(b'n' | b'r' | b't' | b'0' | b'e' | b'x'));
    let byte = match rest.peek() {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(b'e') => 0x1b,
        Some(byte @ (b'\\' | b'"')) => byte,
        Some(b'x') => {
            rest.next();
            out.push(rest.hex().ok_or(LineError::Hex { column })?);
            return Ok(());
        }
        // The character itself is next, or the missing quote.
        _ => {
            out.push(b'\\');
            return Ok(());
        }
    };
    rest.next();
    out.push(byte);
    Ok(())
}

impl fmt::Display for LineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed { quote, column } => {
                write!(out, "unclosed quote {quote} at column {column}")
            }
            Self::Joined { column } => {
                write!(out, "unexpected text behind a quote at column {column}: quotes enclose a whole word")
            }
            Self::Hex { column } => {
                let cause =
                    "\\x in double quotes requires two hexadecimal digits; single quotes keep a backslash";
                write!(out, "invalid escape at column {column}: {cause}")
            }
            Self::Escape { column } => {
                let cause = "a backslash is written \\\\, a byte \\xNN";
                write!(out, "unknown escape at column {column}: {cause}")
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
    use crate::render::escape::spell;

    fn words(line: &str) -> Vec<String> {
        let words = split(line.as_bytes()).unwrap();
        words.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect()
    }

    #[test]
    fn spelled_text_can_be_read_back() {
        for bytes in [&b"\\"[..], b"\\x0A", b"\xff\\\\n\0", b"plain"] {
            assert_eq!(unescape(spell(bytes).as_bytes()).unwrap(), bytes);
        }
    }

    #[test]
    fn blanks_separate_words_and_quotes_join_them() {
        assert_eq!(words(" set\tk  v \r"), ["set", "k", "v"]);
        assert_eq!(
            words(r#"set 'a b' "c d" --key="e f" -k='g h'"#),
            ["set", "a b", "c d", "--key=e f", "-k=g h"]
        );
        assert_eq!(words(r#"set k '' """#), ["set", "k", "", ""]);
        assert_eq!(words(r"set a\ b \'q\' \\ \#x \| \>f"), ["set", "a b", "'q'", "\\", "#x", "|", ">f"]);
    }

    #[test]
    fn a_quote_within_a_word_is_literal_and_so_is_what_follows() {
        for json in [r#"{"a":1}"#, r#"{"a":"x\"y\\"}"#, r#"["it's",""]"#, r#"-{"a"="b"}"#] {
            assert_eq!(words(&format!("set k {json}")), ["set", "k", json]);
        }
        assert_eq!(words("set k don't"), ["set", "k", "don't"]);
        assert_eq!(words(r#"set k don\'t {\"a\":1} a\ "b"#), ["set", "k", "don't", r#"{"a":1}"#, "a \"b"]);
        assert_eq!(words(r#"set k {"a": 1}"#), ["set", "k", r#"{"a":"#, "1}"]);
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
    fn a_backslash_that_escapes_nothing_is_literal() {
        assert_eq!(words(r"set k C:\temp"), ["set", "k", r"C:\temp"]);
        assert_eq!(words(r"set k C:\new\ folder\"), ["set", "k", r"C:\new folder\"]);
        assert_eq!(words(r#"set k "C:\Windows\q" '\d+'"#), ["set", "k", r"C:\Windows\q", r"\d+"]);
        assert_eq!(words("set k a\\\n"), ["set", "k", "a\\"]);
    }

    #[test]
    fn an_escape_in_a_quoted_windows_path_is_noticed() {
        for line in [r#"set k "C:\temp""#, r#"set k "C:\Windows\new""#, r#"set k "d:\x41""#] {
            assert!(has_escape_in_path(line.as_bytes()), "{line}");
        }
        for line in [
            r"set k C:\temp",
            r"set k 'C:\temp'",
            r#"set k "C:\\temp""#,
            r#"set k "C:\Windows""#,
            r#"set k '{"a":"C:\temp"}'"#,
            r#"set k "a b:\n""#,
            r#"set k "C:\temp"#,
        ] {
            assert!(!has_escape_in_path(line.as_bytes()), "{line}");
        }
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
        assert_eq!(error("set k 'v'w"), LineError::Joined { column: 10 });
        assert_eq!(error(r#"set k --value=""'w'"#), LineError::Joined { column: 17 });
        for line in [r#"set k "\x4""#, r#"set k "\xg0""#] {
            assert_eq!(error(line), LineError::Hex { column: 8 }, "{line}");
        }
        assert_eq!(unescape(br"ab\q").unwrap_err(), LineError::Escape { column: 3 });
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
