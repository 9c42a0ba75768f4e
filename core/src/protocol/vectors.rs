//! Reader of the test vectors in `tests/vectors`: input, `----`, expected output, with prose between the
//! cases.
//!
//! A case consists of a line with an operation and its arguments, lines with operands, `----`, and the
//! expected lines. It ends with a blank line. Lines outside of a case that begin with `# ` are prose.

use bytes::Bytes;

const RULE: &str = "----";

/// One test case.
pub(crate) struct Case<'a> {
    line: usize,
    operation: Vec<&'a str>,
    operands: Vec<&'a str>,
    expected: Vec<&'a str>,
}

impl Case<'_> {
    /// Returns the operation and its arguments.
    pub(crate) fn operation(&self) -> &[&str] {
        &self.operation
    }

    /// Returns the operands; panics unless there are `N`.
    pub(crate) fn operands<const N: usize>(&self) -> [&str; N] {
        let found = self.operands.as_slice();
        found
            .try_into()
            .unwrap_or_else(|_| panic!("line {}: {N} operands wanted, {found:?} found", self.line))
    }

    /// Returns the bytes of all operand lines.
    pub(crate) fn bytes(&self) -> Bytes {
        self.operands.iter().flat_map(|line| unescape(line)).collect()
    }

    /// Fails the test at an operation that the caller does not know, so that a misspelt case does not pass.
    pub(crate) fn unknown(&self) -> ! {
        panic!("line {}: unknown operation {:?}", self.line, self.operation)
    }
}

/// Runs all cases of a file and reports those that differ.
pub(crate) fn check(text: &str, run: impl Fn(&Case<'_>) -> String) {
    let mut differences = Vec::new();
    for case in read(text) {
        let (found, expected) = (run(&case), case.expected.join("\n"));
        if found != expected {
            let input = [&case.operation[..], &case.operands[..]].concat().join(" ");
            differences
                .push(format!("line {}: {input}\n  expected: {expected}\n  found:    {found}", case.line));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn read(text: &str) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    let mut lines = text.lines().zip(1..).peekable();
    while let Some((first, line)) = lines.next() {
        assert_eq!(first, first.trim_end(), "line {line}: a blank at the end; write \\x20");
        if first.is_empty() || first == "#" || first.starts_with("# ") {
            continue;
        }
        let mut block = vec![first];
        while let Some((next, line)) = lines.next_if(|(next, _)| !next.is_empty()) {
            assert_eq!(next, next.trim_end(), "line {line}: a blank at the end; write \\x20");
            block.push(next);
        }
        let rules = block.iter().filter(|line| **line == RULE).count();
        assert_eq!(rules, 1, "line {line}: a case has one {RULE}");
        let (input, expected) = block.split_at(block.iter().position(|line| *line == RULE).unwrap());
        assert!(!input.is_empty(), "line {line}: no operation before {RULE}");
        assert!(expected.len() > 1, "line {line}: nothing expected after {RULE}");
        cases.push(Case {
            line,
            operation: input[0].split(' ').collect(),
            operands: input[1..].to_vec(),
            expected: expected[1..].to_vec(),
        });
    }
    assert!(!cases.is_empty(), "no case in the file");
    cases
}

/// Decodes escaped text: `\r`, `\n`, `\\`, `\xNN`, and printable ASCII unchanged.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (byte, len) = match first {
            '\\' if rest.starts_with("\\r") => (b'\r', 2),
            '\\' if rest.starts_with("\\n") => (b'\n', 2),
            '\\' if rest.starts_with("\\\\") => (b'\\', 2),
            '\\' if rest.starts_with("\\x") => {
                let hex = rest.get(2..4).filter(|hex| !hex.starts_with('+'));
                let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                (byte.unwrap_or_else(|| panic!("no byte: {rest}")), 4)
            }
            ' '..='~' if first != '\\' => (first as u8, 1),
            _ => panic!("write this byte escaped: {rest}"),
        };
        bytes.push(byte);
        rest = &rest[len..];
    }
    bytes
}

/// Encodes bytes as escaped text.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let escaped = |byte: &u8| match byte {
        b'\r' => "\\r".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02X}"),
    };
    bytes.iter().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn echo(case: &Case<'_>) -> String {
        [case.operation(), &case.operands].concat().join("|")
    }

    /// Returns the panic message of `check`, if it fails.
    fn complaint(text: &'static str) -> Option<String> {
        let panic = catch_unwind(|| check(text, echo)).err()?;
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|message| (*message).to_owned()))
    }

    #[test]
    fn a_case_has_an_operation_operands_and_an_expectation() {
        check("# prose\n\nadd 1\na\nb\n----\nadd|1|a|b\n\n# more\nx\n----\nx\n", echo);
    }

    #[test]
    fn a_difference_is_reported_with_its_line() {
        let complaint = complaint("# prose\nx\n----\ny\n").unwrap();
        assert!(complaint.starts_with("line 2: x\n"), "{complaint}");
    }

    #[test]
    fn a_file_without_cases_does_not_pass() {
        assert_eq!(complaint("").unwrap(), "no case in the file");
        assert_eq!(complaint("# prose only\n\n").unwrap(), "no case in the file");
    }

    #[test]
    fn a_misspelt_case_does_not_pass() {
        for text in [
            "x\n---\nx\n",
            "x\n",
            "x\n\n----\nx\n",
            "x\n----\n\nx\n",
            "x\n----\nx\ny\n----\ny\n",
            "----\nx\n",
            "x \n----\nx\n",
            "#prose\n",
        ] {
            assert!(complaint(text).is_some(), "{text:?} passed");
        }
    }

    #[test]
    fn escapes_stand_for_every_byte_and_nothing_else() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
        assert_eq!(unescape(r"a\r\n\\\x00\xfF"), b"a\r\n\\\0\xff");
        for text in [r"\", r"\q", r"\x1", r"\x+1", r"\xg0", "é", "\t"] {
            assert!(catch_unwind(|| unescape(text)).is_err(), "{text:?} passed");
        }
    }
}
