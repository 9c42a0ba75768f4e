//! YAML parser that records line numbers.

use saphyr_parser::{Event, Parser, ScanError, Span};

use super::error::RuleError;

/// The deepest nesting of lists and maps. Rules need seven levels.
const DEPTH_MAX: usize = 32;

/// A value and its first line, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// A value. Scalars of every type are strings, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<Node>),
    /// In the order of the file, without duplicate names.
    Map(Vec<Field>),
}

/// An entry of a map, and the line of its name, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

impl Node {
    /// Returns the type for a message.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Parses a file with one document. JSON is YAML, too. None: the file is empty.
pub(super) fn parse(text: &str) -> Result<Option<Node>, RuleError> {
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(document),
            (Event::DocumentStart(_), span) => {
                let (event, span) = match document {
                    None => reader.next()?,
                    Some(_) => return Err(error_at(span, "more than one document")),
                };
                document = Some(reader.node(event, span, 0)?);
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), RuleError> {
        match self.parser.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(scan_error(&error)),
            None => Err(RuleError::new(0, "unexpected end of file")),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, RuleError> {
        if depth > DEPTH_MAX {
            return Err(error_at(span, "nested too deeply"));
        }
        let line = span.start.line();
        let value = match event {
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => Value::List(self.list(depth)?),
            Event::MappingStart(..) => Value::Map(self.map(depth)?),
            Event::Alias(_) => return Err(error_at(span, "aliases (*name) are not supported")),
            _ => return Err(error_at(span, "missing value")),
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, RuleError> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, span) => list.push(self.node(event, span, depth.saturating_add(1))?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Field>, RuleError> {
        let mut map: Vec<Field> = Vec::new();
        loop {
            let (name, span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(map),
                (Event::Scalar(name, ..), span) => (name.into_owned(), span),
                (_, span) => return Err(error_at(span, "name is not a string")),
            };
            if map.iter().any(|field| field.name == name) {
                return Err(error_at(span, &format!("duplicate name {name}")));
            }
            let line = span.start.line();
            let (event, span) = self.next()?;
            map.push(Field { name, line, node: self.node(event, span, depth.saturating_add(1))? });
        }
    }
}

fn error_at(span: Span, what: &str) -> RuleError {
    RuleError::new(span.start.line(), what)
}

fn scan_error(error: &ScanError) -> RuleError {
    RuleError::new(error.marker().line(), format!("invalid YAML: {}", error.info()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_lines_and_are_strings_as_written() {
        let node = parse("a:\n  - 007\n  - {b: \"x y\"}\n").unwrap().unwrap();
        let text = |line, text: &str| Node { line, value: Value::Text(text.to_owned()) };
        let map = |name: &str, line, node| Value::Map(vec![Field { name: name.to_owned(), line, node }]);
        let inner = Node { line: 3, value: map("b", 3, text(3, "x y")) };
        let list = Node { line: 2, value: Value::List(vec![text(2, "007"), inner]) };
        assert_eq!(node.value, map("a", 1, list));
        assert_eq!(parse("").unwrap(), None);
        assert!(parse(r#"{"a": [1, {"b": null}]}"#).unwrap().is_some(), "JSON");
    }

    #[test]
    fn unsupported_yaml_is_an_error_with_its_line() {
        for (text, line) in [
            ("a: [1,\n", 2),
            ("a: 1\na: 2\n", 2),
            ("a: &x 1\nb: *x\n", 2),
            ("a: 1\n---\nb: 2\n", 2),
            ("[a]: 1\n", 1),
            ("a:\n\t- b\n", 2),
        ] {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
        let deep = "[".repeat(10_000);
        assert!(parse(&deep).is_err());
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(parse(&deep).unwrap_err().what, "nested too deeply");
    }
}
