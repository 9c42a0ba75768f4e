//! Bytes as text that is safe for a terminal: control characters and invalid UTF-8 become `\xNN`.

use std::fmt::Write;

/// Returns bytes as text that cannot control a terminal. Backslashes are not escaped, so it cannot be read back.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_safe(c) {
                out.push(c);
            } else {
                let mut buffer = [0; 4];
                put_hex(&mut out, c.encode_utf8(&mut buffer).as_bytes());
            }
        }
        put_hex(&mut out, chunk.invalid());
    }
    out
}

/// Returns bytes as [`escape`] does, but line feeds and tabs as they are: a value of several lines stays readable.
#[must_use]
pub fn escape_lines(bytes: &[u8]) -> String {
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| line.split(|byte| *byte == b'\t').map(escape).collect::<Vec<_>>().join("\t"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns bytes as [`escape`] does, with backslashes doubled, so that the text can be read back.
#[must_use]
pub fn spell(bytes: &[u8]) -> String {
    if !bytes.contains(&b'\\') {
        return escape(bytes);
    }
    escape(&bytes.split(|byte| *byte == b'\\').collect::<Vec<_>>().join(&b"\\\\"[..]))
}

/// Returns bytes in double quotes, with quotes and backslashes escaped, so that the text can be read back.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    let marked: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| match byte {
            b'"' | b'\\' => vec![b'\\', *byte],
            byte => vec![*byte],
        })
        .collect();
    format!("\"{}\"", escape(&marked))
}

/// Returns whether a character neither controls the terminal nor reorders text, as direction marks do.
pub(super) fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn put_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String does not fail.
        let _ = write!(out, "\\x{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lines::words::unescape;

    #[test]
    fn printable_text_is_unchanged() {
        assert_eq!(escape("21.5 °C 温度 \\x".as_bytes()), "21.5 °C 温度 \\x");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape(b"\x1b[2J\r\n\t\x07\x7f"), "\\x1B[2J\\x0D\\x0A\\x09\\x07\\x7F");
        assert_eq!(escape("\u{9b}31m".as_bytes()), "\\xC2\\x9B31m");
        assert_eq!(escape("a\u{202e}b".as_bytes()), "a\\xE2\\x80\\xAEb");
    }

    #[test]
    fn invalid_utf_8_is_escaped_byte_by_byte() {
        assert_eq!(escape(b"a\xff\xc3(\xe2\x82"), "a\\xFF\\xC3(\\xE2\\x82");
    }

    #[test]
    fn spelled_text_can_be_read_back() {
        assert_eq!(spell(b"a\"b\\x41\n\\"), "a\"b\\\\x41\\x0A\\\\");
        for bytes in [&b"\\"[..], b"\\x0A", b"\xff\\\\n\0", b"plain"] {
            assert_eq!(unescape(spell(bytes).as_bytes()).unwrap(), bytes);
        }
    }

    #[test]
    fn quoted_text_can_be_read_back() {
        assert_eq!(quote(b"a\"b\\x41\n"), "\"a\\\"b\\\\x41\\x0A\"");
    }
}
