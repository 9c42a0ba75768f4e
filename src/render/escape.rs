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

/// Returns whether a terminal shows a character as it is.
///
/// It does not if the character controls the terminal, breaks the line, reorders the text around it (bidirectional controls),
/// or is invisible (Unicode's `Default_Ignorable_Code_Point`): two keys that differ must not look alike.
#[must_use]
pub fn is_safe(c: char) -> bool {
    !c.is_control()
        && !matches!(u32::from(c),
            0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F
            | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0x3164
            | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB
            | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
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
    fn characters_that_are_invisible_or_reorder_text_are_escaped() {
        let ranges = [
            '\u{AD}'..='\u{AD}',
            '\u{61C}'..='\u{61C}',
            '\u{200B}'..='\u{200F}',
            '\u{2028}'..='\u{202E}',
            '\u{2060}'..='\u{206F}',
            '\u{FE00}'..='\u{FE0F}',
            '\u{FEFF}'..='\u{FEFF}',
            '\u{FFF9}'..='\u{FFFB}',
            '\u{E0000}'..='\u{E0FFF}',
        ];
        for c in ranges.into_iter().flatten() {
            let text = c.to_string();
            let escaped: String = text.bytes().map(|byte| format!("\\x{byte:02X}")).collect();
            assert_eq!(escape(text.as_bytes()), escaped, "{}", c.escape_unicode());
        }
        let visible = "a\u{A0}\u{301}\u{2010}\u{2030}\u{3000}\u{FFFD}\u{1F600}";
        assert_eq!(escape(visible.as_bytes()), visible);
    }

    #[test]
    fn invalid_utf_8_is_escaped_byte_by_byte() {
        assert_eq!(escape(b"a\xff\xc3(\xe2\x82"), "a\\xFF\\xC3(\\xE2\\x82");
    }

    #[test]
    fn spelled_text_has_its_backslashes_doubled() {
        assert_eq!(spell(b"a\"b\\x41\n\\"), "a\"b\\\\x41\\x0A\\\\");
    }

    #[test]
    fn quoted_text_can_be_read_back() {
        assert_eq!(quote(b"a\"b\\x41\n"), "\"a\\\"b\\\\x41\\x0A\"");
    }
}
