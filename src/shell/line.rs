//! Parser of a line of the prompt: statements, words and output redirection (pure).
//!
//! `commands::lines::words` splits the words. A `|` or `>` outside quotes is an operator only where a word could begin:
//! `a|b` and `a>b` are words, so that a line means the same here as in a batch.

use crate::commands::CommandError;
use crate::commands::lines::operators::{ONE_VERB, Scan, operator, redirection, refuse, unsupported};
use crate::commands::lines::words::{Word, is_blank, split};
use crate::render::escape::{self, is_safe};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The verb and its arguments; empty for an empty line or a comment.
    pub words: Vec<Word>,
    pub target: OutputTarget,
}

/// The destination of a statement's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputTarget {
    Screen,
    /// The standard input of a shell command.
    Command(Vec<u8>),
    /// The file with this path.
    File(Vec<u8>),
}

/// Parses one statement.
///
/// # Errors
/// A usage error; for quotes and escapes it names the column.
pub fn parse(statement: &[u8]) -> Result<Statement, CommandError> {
    let Some((operator, at)) = redirection(statement) else {
        let words = words(statement)?;
        refuse(statement)?;
        return Ok(Statement { words, target: OutputTarget::Screen });
    };
    let (left, rest) = statement.split_at_checked(at).unwrap_or((statement, b""));
    let rest = rest.get(1..).unwrap_or_default();
    let words = words(left)?;
    if words.is_empty() {
        let message = format!("missing verb before {}", char::from(operator));
        return Err(CommandError::usage(message));
    }
    refuse(left)?;
    let target = if operator == b'|' {
        OutputTarget::Command(command(rest)?)
    } else {
        OutputTarget::File(file(rest)?)
    };
    Ok(Statement { words, target })
}

/// Splits a text into statements: one for each line, except that quotes may span lines.
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

/// Returns whether the text ends within quotes, so that the next line continues it.
#[must_use]
pub fn is_open(text: &[u8]) -> bool {
    let last = statements(text).pop().unwrap_or_default();
    let mut scan = Scan::new(last);
    while scan.next().is_some() {}
    scan.is_open
}

/// A line up to the cursor: its complete words and the word at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialLine {
    /// The `|` or `>` in front of the word at the cursor.
    pub operator: Option<u8>,
    /// The words in front of the operator, or of the word at the cursor; the verb in lower case, and what `help` explains.
    pub words: Vec<Vec<u8>>,
    /// Where the word at the cursor begins, in bytes of the whole text.
    pub start: usize,
    /// The word at the cursor, without quotes; empty behind a blank.
    pub prefix: Vec<u8>,
}

/// Parses a text that ends at the cursor. Returns `None` if it is malformed.
#[must_use]
pub fn split_partial(text: &[u8]) -> Option<PartialLine> {
    let statement = statements(text).pop()?;
    let offset = text.len().saturating_sub(statement.len());
    let mut start = 0;
    for found in Scan::new(statement) {
        if is_blank(found.byte) {
            start = found.at.saturating_add(1);
        }
    }
    let operator = redirection(statement);
    if let Some((_, at)) = operator
        && start <= at
    {
        // The file may follow the operator without a blank.
        start = at.saturating_add(1);
    }
    let (before, last) = statement.split_at_checked(start)?;
    let before = operator.and_then(|(_, at)| before.get(..at)).unwrap_or(before);
    let closed = |quote: &str| split(&[last, quote.as_bytes()].concat()).ok();
    let last_words = closed("").or_else(|| closed("'")).or_else(|| closed("\""))?;
    let mut words: Vec<_> = split(before).ok()?.into_iter().map(|word| word.bytes).collect();
    words.iter_mut().take(1).for_each(|verb| verb.make_ascii_lowercase());
    if words.first().is_some_and(|verb| verb == b"help") {
        words.iter_mut().for_each(|name| name.make_ascii_lowercase());
    }
    Some(PartialLine {
        operator: operator.map(|(operator, _)| operator),
        words,
        start: offset.saturating_add(start),
        prefix: last_words.into_iter().next().map(|word| word.bytes).unwrap_or_default(),
    })
}

/// Quotes a word for the prompt, if it needs quotes. The terminal shows every character of it.
#[must_use]
pub fn quote(word: &[u8]) -> String {
    let is_plain = |byte: &u8| !byte.is_ascii_control() && !b" '\"\\".contains(byte);
    let text = std::str::from_utf8(word).ok().filter(|text| text.chars().all(is_safe));
    match text {
        Some(text)
            if !word.is_empty()
                && word.iter().all(is_plain)
                && operator(word).is_none()
                && !matches!(word.first(), Some(b'|' | b'>' | b'#')) =>
        {
            text.to_owned()
        }
        Some(text) if !text.contains('\'') => format!("'{text}'"),
        _ => escape::quote(word),
    }
}

fn words(text: &[u8]) -> Result<Vec<Word>, CommandError> {
    split(text).map_err(|error| CommandError::usage(error.to_string()))
}

fn command(rest: &[u8]) -> Result<Vec<u8>, CommandError> {
    if rest.starts_with(b"|") {
        return Err(unsupported("||").hint(ONE_VERB));
    }
    if rest.starts_with(b"&") {
        return Err(unsupported("|&").hint("get KEY | jq ."));
    }
    let command = rest.trim_ascii();
    if command.is_empty() {
        return Err(CommandError::usage("missing command after |").hint("get KEY | jq ."));
    }
    Ok(command.to_owned())
}

fn file(rest: &[u8]) -> Result<Vec<u8>, CommandError> {
    if rest.starts_with(b">") {
        let message = ">> is not supported: a file is written as a whole";
        return Err(CommandError::usage(message).hint("get KEY | cat >> FILE"));
    }
    if rest.starts_with(b"&") || rest.starts_with(b"|") {
        return Err(unsupported(">& or >|").hint("get KEY > FILE"));
    }
    let mut words = words(rest)?;
    match (words.pop(), words.is_empty()) {
        (Some(file), true) => Ok(file.bytes),
        (None, _) => Err(CommandError::usage("missing file name after >")),
        (Some(_), false) => Err(CommandError::usage("only one file name can follow >")
            .hint("quote a file name with blanks, and a literal >")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Vec<String>, OutputTarget) {
        let Statement { words, target } = parse(text.as_bytes()).unwrap();
        (words.into_iter().map(|word| String::from_utf8(word.bytes).unwrap()).collect(), target)
    }

    fn to_screen(text: &str) -> Vec<String> {
        let (words, target) = parsed(text);
        assert_eq!(target, OutputTarget::Screen, "{text}");
        words
    }

    fn fails(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().message
    }

    #[test]
    fn operators_of_a_shell_are_not_taken_for_arguments() {
        let error = |line: &str| parse(line.as_bytes()).unwrap_err();
        for (line, operator, hint) in [
            ("set a b &", "&", "a watch runs in the background without it"),
            ("del a && del b", "&&", "a line has one verb"),
            ("get a ; get b", ";", "a line has one verb"),
            ("set a < file", "<", "set KEY -f FILE"),
            ("set a <file", "<", "set KEY -f FILE"),
            ("set a <'a file'", "<", "set KEY -f FILE"),
            ("get a 2> file", "2>", "only the output is redirected: get KEY > FILE"),
            ("get a 2>/dev/null", "2>", "only the output is redirected: get KEY > FILE"),
            ("get a &>file", "&>", "only the output is redirected: get KEY > FILE"),
            ("del a; del b", ";", "a line has one verb"),
            ("del a ;del b", ";", "a line has one verb"),
            ("del a &&del b", "&&", "a line has one verb"),
            ("get a; | cat", ";", "a line has one verb"),
            ("get a & | cat", "&", "a watch runs in the background without it"),
            ("get a || get b", "||", "a line has one verb"),
            ("get a |& cat", "|&", "get KEY | jq ."),
            ("get a >& file", ">& or >|", "get KEY > FILE"),
        ] {
            let error = error(line);
            assert_eq!(error.message, format!("{operator} is not supported in a line"), "{line}");
            assert_eq!(error.hints[0], hint, "{line}");
        }
        assert_eq!(error("set a &").hints[1], "as text: '&'");
        assert_eq!(error("get a;").hints[1], "as text: 'a;'");
        let of_text = ["set a '&'", "set a \"&&\"", "get '<'", "get 'a;'", "set -f='a;'", "set a '<b>'"];
        for line in of_text.into_iter().chain(["set a b&", "set a b;c", "set a a<b", "set a 2", "# a; b"]) {
            assert!(parse(line.as_bytes()).is_ok(), "{line}");
        }
    }

    #[test]
    fn output_goes_to_the_screen_a_command_or_a_file() {
        assert_eq!(to_screen("get k"), ["get", "k"]);
        let (words, target) = parsed("get 'a b' | jq '.x | .y' > out");
        assert_eq!(words, ["get", "a b"]);
        assert_eq!(target, OutputTarget::Command(b"jq '.x | .y' > out".to_vec()));
        let (words, target) = parsed("get k > 'a file'");
        assert_eq!((words.len(), target), (2, OutputTarget::File(b"a file".to_vec())));
        assert_eq!(parsed("get k >file").1, OutputTarget::File(b"file".to_vec()));
        assert_eq!(parsed("get k >'a > b'").1, OutputTarget::File(b"a > b".to_vec()));
    }

    #[test]
    fn an_operator_within_quotes_or_within_a_word_is_literal() {
        assert_eq!(to_screen("set k 'a | b'"), ["set", "k", "a | b"]);
        assert_eq!(to_screen(r#"set k "a \" | b""#), ["set", "k", "a \" | b"]);
        assert_eq!(to_screen("set k a|b"), ["set", "k", "a|b"]);
        assert_eq!(to_screen(r#"set k {"a":"|"}"#), ["set", "k", r#"{"a":"|"}"#]);
        assert_eq!(to_screen("set k a>b"), ["set", "k", "a>b"]);
        assert_eq!(to_screen("set k '|'"), ["set", "k", "|"]);
        assert_eq!(to_screen(r"set k \| \>"), ["set", "k", "|", ">"]);
        assert_eq!(to_screen(r"set k C:\temp\"), ["set", "k", r"C:\temp\"]);
    }

    #[test]
    fn missing_and_superfluous_words_around_an_operator_are_errors() {
        assert_eq!(fails("| jq"), "missing verb before |");
        assert_eq!(fails("> f"), "missing verb before >");
        assert_eq!(fails("get k |"), "missing command after |");
        assert_eq!(fails("get k >"), "missing file name after >");
        assert_eq!(fails("get k > a b"), "only one file name can follow >");
        assert_eq!(fails("get k >> a"), ">> is not supported: a file is written as a whole");
        assert_eq!(fails("set k 'v"), "unclosed quote ' at column 7");
    }

    #[test]
    fn a_comment_has_no_words_and_its_quotes_are_literal() {
        assert_eq!(to_screen("# don't | do > this"), Vec::<String>::new());
        assert_eq!(statements(b"# don't\nget k"), [b"# don't".as_slice(), b"get k"]);
        assert!(!is_open(b"# don't"));
    }

    #[test]
    fn a_pasted_text_has_a_statement_per_line_unless_quotes_span_lines() {
        assert_eq!(statements(b"get a\nget b\n"), [b"get a".as_slice(), b"get b", b""]);
        assert_eq!(statements(b"set k 'one\ntwo'\nget k"), [b"set k 'one\ntwo'".as_slice(), b"get k"]);
        assert_eq!(statements(b"get k | sed s'/a\n/b/'\n"), [b"get k | sed s'/a\n/b/'".as_slice(), b""]);
        assert_eq!(statements(b"\\! echo a'\n'b"), [b"\\! echo a'\n'b"]);
        assert_eq!(statements(b"set k C:\\\nget k"), [b"set k C:\\".as_slice(), b"get k"]);
        assert_eq!(statements(b""), [b"".as_slice()]);
    }

    #[test]
    fn a_line_with_an_open_quote_is_continued() {
        for open in ["set k 'v", "set k \"v\\\"", "get a\nset k '"] {
            assert!(is_open(open.as_bytes()), "{open}");
        }
        for closed in ["", "set k v", "set k 'v'", r"set k \'", "set k 'a\nb'", "set k don't", "set k {\"a"] {
            assert!(!is_open(closed.as_bytes()), "{closed}");
        }
    }

    #[test]
    fn a_word_is_quoted_only_if_it_needs_quotes() {
        assert_eq!(quote(b"line1/temp"), "line1/temp");
        assert_eq!(quote(b"a b"), "'a b'");
        assert_eq!(quote(b"don't"), "\"don't\"");
        assert_eq!(quote(b""), "''");
        assert_eq!(quote(b"|"), "'|'");
        for operator in ["&", "&&b", ";b", "b;", "<b", "2>b", "&>b"] {
            assert_eq!(quote(operator.as_bytes()), format!("'{operator}'"));
        }
        assert_eq!(quote(b"a\xff\n"), "\"a\\xFF\\x0A\"");
    }

    proptest! {
        #[test]
        fn any_quoted_word_is_parsed_back(word in vec(any::<u8>(), 0..16)) {
            let line = format!("get {}", quote(&word));
            let statement = parse(line.as_bytes()).unwrap();
            let words: Vec<_> = statement.words.into_iter().map(|word| word.bytes).collect();
            prop_assert_eq!((words, statement.target), (vec![b"get".to_vec(), word], OutputTarget::Screen));
            prop_assert!(!is_open(line.as_bytes()));
            prop_assert_eq!(statements(line.as_bytes()).len(), 1);
        }

        #[test]
        fn the_joined_statements_are_the_text(text in "[a '\"\\\\#|>\n]{0,40}") {
            let joined = statements(text.as_bytes()).join(&b'\n');
            prop_assert_eq!(joined, text.into_bytes());
        }

        #[test]
        fn a_line_that_can_be_parsed_is_not_open(text in "[a '\"\\\\#|>]{0,20}") {
            if parse(text.as_bytes()).is_ok_and(|statement| statement.target == OutputTarget::Screen) {
                prop_assert!(!is_open(text.as_bytes()));
            }
        }
    }
}
