//! A line of the prompt taken apart: statements, words, and where the output goes (pure).
//!
//! The words are those of `commands::line`. A `|` or `>` outside quotes counts where a word could begin: `a|b` and
//! `a>b` are words, so that a line means the same here as in a batch.

use crate::commands::CommandError;
use crate::commands::lines::words::{Word, split};

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The verb and its arguments; none in an empty line or a comment.
    pub words: Vec<Word>,
    /// Where the output goes.
    pub target: Target,
}

/// Where the output of a statement goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To the terminal.
    Screen,
    /// To the standard input of a command, as a shell reads it.
    Command(Vec<u8>),
    /// To a file.
    File(Vec<u8>),
}

/// Takes one statement apart.
///
/// # Errors
/// A usage error with the place of what is wrong.
pub fn parse(statement: &[u8]) -> Result<Statement, CommandError> {
    let Some((sign, at)) = turning_point(statement) else {
        return Ok(Statement { words: words(statement)?, target: Target::Screen });
    };
    let (left, rest) = statement.split_at_checked(at).unwrap_or((statement, b""));
    let rest = rest.get(1..).unwrap_or_default();
    let words = words(left)?;
    if words.is_empty() {
        let message = format!("there is nothing before the {}", char::from(sign));
        return Err(CommandError::usage(message));
    }
    let target = if sign == b'|' { Target::Command(command(rest)?) } else { Target::File(file(rest)?) };
    Ok(Statement { words, target })
}

/// The statements of a text: lines, but for those that end within quotes.
#[must_use]
pub fn statements(text: &[u8]) -> Vec<&[u8]> {
    let mut statements = Vec::new();
    let mut rest = text;
    loop {
        let end = Scan::new(rest).find(|found| found.byte == b'\n').map(|found| found.at);
        let Some((statement, after)) = end.and_then(|end| rest.split_at_checked(end)) else {
            statements.push(rest);
            return statements;
        };
        statements.push(statement);
        rest = after.get(1..).unwrap_or_default();
    }
}

/// Whether the text ends within quotes: the line goes on.
#[must_use]
pub fn is_open(text: &[u8]) -> bool {
    let last = statements(text).pop().unwrap_or_default();
    let mut scan = Scan::new(last);
    while scan.next().is_some() {}
    scan.is_open
}

/// A line up to the cursor: its whole words, and what there is of the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The `|` or `>` that comes before the last word, if one does.
    pub target: Option<u8>,
    /// The words before it and, without a sign, before the last one.
    pub words: Vec<Vec<u8>>,
    /// Where the last word begins, in bytes of the whole text.
    pub start: usize,
    /// What there is of the last word; empty behind a blank.
    pub prefix: Vec<u8>,
}

/// Takes apart a text that ends at the cursor; none where it makes no sense.
#[must_use]
pub fn split_open(text: &[u8]) -> Option<Open> {
    let statement = statements(text).pop()?;
    let offset = text.len().saturating_sub(statement.len());
    let mut start = 0;
    for found in Scan::new(statement) {
        if found.byte.is_ascii_whitespace() {
            start = found.at.saturating_add(1);
        }
    }
    let turn = turning_point(statement);
    if let Some((_, at)) = turn
        && start <= at
    {
        // The file may follow at once.
        start = at.saturating_add(1);
    }
    let (before, last) = statement.split_at_checked(start)?;
    let before = turn.and_then(|(_, at)| before.get(..at)).unwrap_or(before);
    let closed = |quote: &str| split(&[last, quote.as_bytes()].concat()).ok();
    let last_words = closed("").or_else(|| closed("'")).or_else(|| closed("\""))?;
    Some(Open {
        target: turn.map(|(sign, _)| sign),
        words: split(before).ok()?.into_iter().map(|word| word.bytes).collect(),
        start: offset.saturating_add(start),
        prefix: last_words.into_iter().next().map(|word| word.bytes).unwrap_or_default(),
    })
}

/// Writes a word so that it is read back as it is: as it is where that will do.
#[must_use]
pub fn quote(word: &[u8]) -> String {
    let is_plain = |byte: &u8| !byte.is_ascii_control() && !b" '\"\\".contains(byte);
    let text = std::str::from_utf8(word).ok().filter(|text| !text.chars().any(char::is_control));
    match text {
        Some(text)
            if !word.is_empty()
                && word.iter().all(is_plain)
                && !matches!(word.first(), Some(b'|' | b'>' | b'#')) =>
        {
            text.to_owned()
        }
        Some(text) if !text.contains('\'') => format!("'{text}'"),
        _ => {
            let escaped: Vec<String> = word.utf8_chunks().map(escape_chunk).collect();
            format!("\"{}\"", escaped.concat())
        }
    }
}

fn escape_chunk(chunk: std::str::Utf8Chunk<'_>) -> String {
    let mut out = String::new();
    for c in chunk.valid().chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                out.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\x{byte:02X}")));
            }
            c => out.push(c),
        }
    }
    out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02X}")));
    out
}

fn words(text: &[u8]) -> Result<Vec<Word>, CommandError> {
    split(text).map_err(|error| CommandError::usage(error.to_string()))
}

fn command(rest: &[u8]) -> Result<Vec<u8>, CommandError> {
    let command = rest.trim_ascii();
    if command.is_empty() {
        return Err(CommandError::usage("a command is missing after the |").hint("get KEY | jq ."));
    }
    Ok(command.to_owned())
}

fn file(rest: &[u8]) -> Result<Vec<u8>, CommandError> {
    if rest.starts_with(b">") {
        let message = "there is no >>: a file is written whole, or not at all";
        return Err(CommandError::usage(message).hint("get KEY | cat >> FILE"));
    }
    let mut words = words(rest)?;
    match (words.pop(), words.is_empty()) {
        (Some(file), true) => Ok(file.bytes),
        (None, _) => Err(CommandError::usage("the name of a file is missing after the >")),
        (Some(_), false) => Err(CommandError::usage("after the > stands one file, and nothing else")
            .hint("quotes around a name with blanks, and around a > that is meant as it is")),
    }
}

/// The first `|` or `>` that counts.
fn turning_point(statement: &[u8]) -> Option<(u8, usize)> {
    Scan::new(statement)
        .find(|found| found.begins_word && matches!(found.byte, b'|' | b'>'))
        .map(|found| (found.byte, found.at))
}

/// What stands outside quotes and comments.
struct Found {
    byte: u8,
    at: usize,
    begins_word: bool,
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    begins_word: bool,
    is_comment: bool,
    is_open: bool,
}

impl<'a> Scan<'a> {
    fn new(text: &'a [u8]) -> Self {
        let is_comment = text.trim_ascii_start().starts_with(b"#");
        Self { text, at: 0, begins_word: true, is_comment, is_open: false }
    }

    fn step(&mut self) -> Option<u8> {
        let byte = self.text.get(self.at).copied()?;
        self.at = self.at.saturating_add(1);
        Some(byte)
    }

    /// Goes behind the quote that closes what has just been opened.
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
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let at = self.at;
            let byte = self.step()?;
            if self.is_comment {
                // Within a comment nothing counts but its end.
                if byte == b'\n' {
                    self.is_comment = false;
                    return Some(Found { byte, at, begins_word: true });
                }
                continue;
            }
            let begins_word = self.begins_word;
            self.begins_word = byte.is_ascii_whitespace();
            match byte {
                b'\'' | b'"' => self.skip_quoted(byte),
                b'\\' => drop(self.step()),
                _ => return Some(Found { byte, at, begins_word }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Vec<String>, Target) {
        let Statement { words, target } = parse(text.as_bytes()).unwrap();
        (words.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect(), target)
    }

    fn to_screen(text: &str) -> Vec<String> {
        let (words, target) = parsed(text);
        assert_eq!(target, Target::Screen, "{text}");
        words
    }

    fn fails(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().message
    }

    #[test]
    fn output_goes_to_the_screen_a_command_or_a_file() {
        assert_eq!(to_screen("get k"), ["get", "k"]);
        let (words, target) = parsed("get 'a b' | jq '.x | .y' > out");
        assert_eq!(words, ["get", "a b"]);
        assert_eq!(target, Target::Command(b"jq '.x | .y' > out".to_vec()));
        let (words, target) = parsed("get k > 'a file'");
        assert_eq!((words.len(), target), (2, Target::File(b"a file".to_vec())));
        assert_eq!(parsed("get k >file").1, Target::File(b"file".to_vec()));
    }

    #[test]
    fn a_sign_within_quotes_or_within_a_word_is_itself() {
        assert_eq!(to_screen("set k 'a | b'"), ["set", "k", "a | b"]);
        assert_eq!(to_screen(r#"set k "a \" | b""#), ["set", "k", "a \" | b"]);
        assert_eq!(to_screen("set k a|b"), ["set", "k", "a|b"]);
        assert_eq!(to_screen("set k a>b"), ["set", "k", "a>b"]);
        assert_eq!(to_screen("set k '|'"), ["set", "k", "|"]);
    }

    #[test]
    fn what_is_missing_or_too_much_around_a_sign_is_told() {
        assert_eq!(fails("| jq"), "there is nothing before the |");
        assert_eq!(fails("> f"), "there is nothing before the >");
        assert_eq!(fails("get k |"), "a command is missing after the |");
        assert_eq!(fails("get k >"), "the name of a file is missing after the >");
        assert_eq!(fails("get k > a b"), "after the > stands one file, and nothing else");
        assert_eq!(fails("get k >> a"), "there is no >>: a file is written whole, or not at all");
        assert_eq!(fails("set k 'v"), "the quote ' at column 7 is not closed");
    }

    #[test]
    fn a_comment_is_no_statement_and_its_quotes_mean_nothing() {
        assert_eq!(to_screen("# don't | do > this"), Vec::<String>::new());
        assert_eq!(statements(b"# don't\nget k"), [b"# don't".as_slice(), b"get k"]);
        assert!(!is_open(b"# don't"));
    }

    #[test]
    fn a_pasted_text_is_many_statements_but_quotes_hold_lines_together() {
        assert_eq!(statements(b"get a\nget b\n"), [b"get a".as_slice(), b"get b", b""]);
        assert_eq!(statements(b"set k 'one\ntwo'\nget k"), [b"set k 'one\ntwo'".as_slice(), b"get k"]);
        assert_eq!(statements(b""), [b"".as_slice()]);
    }

    #[test]
    fn a_line_with_an_open_quote_goes_on() {
        for open in ["set k 'v", "set k \"v\\\"", "get a\nset k '"] {
            assert!(is_open(open.as_bytes()), "{open}");
        }
        for closed in ["", "set k v", "set k 'v'", r"set k \'", "set k 'a\nb'"] {
            assert!(!is_open(closed.as_bytes()), "{closed}");
        }
    }

    #[test]
    fn a_word_is_quoted_only_where_it_must_be() {
        assert_eq!(quote(b"line1/temp"), "line1/temp");
        assert_eq!(quote(b"a b"), "'a b'");
        assert_eq!(quote(b"don't"), "\"don't\"");
        assert_eq!(quote(b""), "''");
        assert_eq!(quote(b"|"), "'|'");
        assert_eq!(quote(b"a\xff\n"), "\"a\\xFF\\x0A\"");
    }

    proptest! {
        #[test]
        fn a_quoted_word_is_read_back_whatever_it_is(word in vec(any::<u8>(), 0..16)) {
            let line = format!("get {}", quote(&word));
            let statement = parse(line.as_bytes()).unwrap();
            let words: Vec<_> = statement.words.into_iter().map(|word| word.bytes).collect();
            prop_assert_eq!((words, statement.target), (vec![b"get".to_vec(), word], Target::Screen));
            prop_assert!(!is_open(line.as_bytes()));
            prop_assert_eq!(statements(line.as_bytes()).len(), 1);
        }

        #[test]
        fn statements_together_are_the_text(text in "[a '\"\\\\#|>\n]{0,40}") {
            let joined = statements(text.as_bytes()).join(&b'\n');
            prop_assert_eq!(joined, text.into_bytes());
        }

        #[test]
        fn a_line_that_can_be_read_is_not_open(text in "[a '\"\\\\#|>]{0,20}") {
            if parse(text.as_bytes()).is_ok_and(|statement| statement.target == Target::Screen) {
                prop_assert!(!is_open(text.as_bytes()));
            }
        }
    }
}
