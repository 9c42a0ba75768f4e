//! Operators of a shell in a line of a batch or of the prompt (pure).

use super::words::{self, is_blank, is_quote, opens_quote};
use crate::commands::error::CommandError;

/// The hint where another verb follows.
pub const ONE_VERB: &str = "a line has one verb";

/// Rejects operators of a shell behind the verb: as arguments they would be keys, and `del a && del b` would delete three more.
///
/// # Errors
/// [`Kind::Usage`](crate::commands::error::Kind).
pub fn refuse(line: &[u8]) -> Result<(), CommandError> {
    refuse_with(line, |operator| match operator {
        "&" => "a watch runs in the background without it",
        "<" => "set KEY -f FILE",
        "2>" | "&>" => "only the output is redirected: get KEY > FILE",
        _ => ONE_VERB,
    })
}

/// Rejects the redirection of the output too, which only the prompt has.
///
/// # Errors
/// [`Kind::Usage`](crate::commands::error::Kind).
pub fn refuse_all(line: &[u8]) -> Result<(), CommandError> {
    const ONLY_PROMPT: &str = "only the prompt redirects output";
    // Nearly all lines have none of these. Without an end at the first match the compiler compares many bytes at a time.
    let is_operator = |byte: &u8| matches!(byte, b'&' | b';' | b'<' | b'>' | b'|');
    if !line.iter().fold(false, |found, byte| found | is_operator(byte)) {
        return Ok(());
    }
    refuse_with(line, |operator| match operator {
        "<" => "set KEY -f FILE",
        "2>" | "&>" => ONLY_PROMPT,
        _ => ONE_VERB,
    })?;
    let Some((operator, at)) = redirection(line) else { return Ok(()) };
    let operator = if operator == b'|' { "|" } else { ">" };
    let word = raw_words(line.get(at..).unwrap_or_default()).next().unwrap_or_default();
    Err(with_text(unsupported(operator).hint(ONLY_PROMPT), word))
}

fn refuse_with(line: &[u8], hint: fn(&str) -> &'static str) -> Result<(), CommandError> {
    match raw_words(line).skip(1).find_map(|word| Some((operator(word)?, word))) {
        None => Ok(()),
        Some((operator, word)) => Err(with_text(unsupported(operator).hint(hint(operator)), word)),
    }
}

/// Returns the error about an operator.
#[must_use]
pub fn unsupported(operator: &str) -> CommandError {
    CommandError::usage(format!("{operator} is not supported in a line"))
}

/// Adds how to write a word that begins or ends with an operator.
fn with_text(error: CommandError, word: &[u8]) -> CommandError {
    let words = words::split(word).unwrap_or_default();
    let text: Vec<u8> = words.into_iter().flat_map(|word| word.bytes).collect();
    match String::from_utf8(text) {
        Ok(text) if !text.contains(|c: char| c == '\'' || c.is_control()) => {
            error.hint(format!("as text: '{text}'"))
        }
        _ => error,
    }
}

/// Returns the operator of a shell that a word with its quotes begins or ends with.
#[must_use]
pub fn operator(word: &[u8]) -> Option<&'static str> {
    Some(match word {
        b"&" => "&",
        [b'&', b'&', ..] => "&&",
        [b';', ..] | [.., b';'] => ";",
        [b'<', ..] => "<",
        [b'2', b'>', ..] => "2>",
        [b'&', b'>', ..] => "&>",
        _ => return None,
    })
}

/// Finds the first `|` or `>` that redirects the output, and its place.
#[must_use]
pub fn redirection(line: &[u8]) -> Option<(u8, usize)> {
    let mut found = Scan::new(line).filter(|found| found.begins_word);
    found.find(|found| matches!(found.byte, b'|' | b'>')).map(|found| (found.byte, found.at))
}

/// Returns the words of a line with their quotes.
fn raw_words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let blanks = Scan::new(line).filter(|found| is_blank(found.byte));
    let ends = blanks.map(|found| found.at).chain([line.len()]);
    let starts_and_ends = ends.scan(0, |start, end| {
        let word = line.get(*start..end);
        *start = end.saturating_add(1);
        Some(word)
    });
    starts_and_ends.flatten().filter(|word| !word.is_empty())
}

/// A byte outside quotes and comments.
#[derive(Debug)]
pub struct Unquoted {
    pub byte: u8,
    pub at: usize,
    pub begins_word: bool,
}

/// The bytes of a text that are outside quotes and comments.
#[derive(Debug)]
pub struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    word_start: usize,
    /// Whether the word has had a literal quote.
    is_literal: bool,
    /// Whether the rest is for the shell of the system, in which every quote opens.
    is_shell: bool,
    is_comment: bool,
    /// Whether the text ends within quotes, once all bytes were read.
    pub is_open: bool,
}

impl<'a> Scan<'a> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'a [u8]) -> Self {
        let begins_with = |start: &[u8]| text.trim_ascii_start().starts_with(start);
        let (is_shell, is_comment) = (begins_with(b"\\!"), begins_with(b"#"));
        Self { text, at: 0, word_start: 0, is_literal: false, is_shell, is_comment, is_open: false }
    }

    fn step(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    /// Skips to behind the closing quote.
    fn skip_quoted(&mut self, quote: u8) {
        while let Some(byte) = self.step() {
            if byte == quote {
                return;
            }
            if byte == b'\\' && quote == b'"' {
                self.step();
            }
        }
        self.is_open = true;
    }
}

impl Iterator for Scan<'_> {
    type Item = Unquoted;

    fn next(&mut self) -> Option<Unquoted> {
        loop {
            let at = self.at;
            let byte = self.step()?;
            if self.is_comment {
                // A line feed ends a comment.
                if byte == b'\n' {
                    self.is_comment = false;
                    return Some(Unquoted { byte, at, begins_word: true });
                }
                continue;
            }
            let before = self.text.get(self.word_start..at).unwrap_or_default();
            let begins_word = before.is_empty();
            match byte {
                b'\'' | b'"' if self.is_shell || !self.is_literal && opens_quote(before) => {
                    self.skip_quoted(byte);
                    continue;
                }
                // A line feed ends the statement all the same.
                b'\\' if !self.is_literal => {
                    if self.text.get(self.at) != Some(&b'\n') {
                        self.step();
                    }
                    continue;
                }
                b'|' | b'>' if begins_word => {
                    self.is_shell |= byte == b'|';
                    self.word_start = self.at;
                }
                _ if is_blank(byte) => {
                    self.word_start = self.at;
                    self.is_literal = false;
                }
                _ => self.is_literal |= is_quote(byte) && !self.is_shell,
            }
            return Some(Unquoted { byte, at, begins_word });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_batch_has_no_operators_of_a_shell() {
        for (line, operator) in [
            ("del a && del b", "&&"),
            ("get a; get b", ";"),
            ("set a < file", "<"),
            ("get a 2>/dev/null", "2>"),
            ("get a | jq .", "|"),
            ("get a >file", ">"),
            ("del a > log", ">"),
        ] {
            let error = refuse_all(line.as_bytes()).unwrap_err();
            assert_eq!(error.message, format!("{operator} is not supported in a line"), "{line}");
        }
        assert_eq!(refuse_all(b"get a >file").unwrap_err().hints[1], "as text: '>file'");
        for line in [
            "set k a|b",
            r#"set k {"a":";"} {"b"|c}"#,
            "set k '|'",
            r"set k \|",
            "set k \"a; b\"",
            "set k a->b",
            "# a | b; c",
            "get k",
        ] {
            assert!(refuse_all(line.as_bytes()).is_ok(), "{line}");
        }
    }
}
