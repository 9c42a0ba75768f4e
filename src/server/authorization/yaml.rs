//! YAML with the lines it stands on, as much of it as rules need: the only file that names the YAML crate.

use saphyr_parser::{Event, Parser, ScanError, Span};

use super::Mistake;

/// How deep lists and maps may lie within each other; rules need seven.
const DEPTH_MAX: usize = 32;

/// A value, and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

/// What stands there. A number and a word are texts as well: what they mean is for who reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; each name comes once.
    Map(Vec<Field>),
}

/// A name in a map, the line that it is on, from 1, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

impl Node {
    /// What it is, for a person.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

/// Reads the one document of a file; JSON is YAML as well. None: there is nothing in it.
pub(super) fn parse(text: &str) -> Result<Option<Node>, Mistake> {
    let mut reader = Reader { parser: Parser::new_from_str(text) };
    let mut document = None;
    loop {
        match reader.next()? {
            (Event::StreamEnd, _) => return Ok(document),
            (Event::DocumentStart(_), span) => {
                let (event, span) = match document {
                    None => reader.next()?,
                    Some(_) => return Err(mistake(span, "there is more than one document")),
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
    fn next(&mut self) -> Result<(Event<'a>, Span), Mistake> {
        match self.parser.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(scan_mistake(&error)),
            None => Err(Mistake { line: 0, what: "the file ends too early".to_owned() }),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Mistake> {
        if depth > DEPTH_MAX {
            return Err(mistake(span, "this lies too deep"));
        }
        let line = span.start.line();
        let value = match event {
            Event::Scalar(text, ..) => Value::Text(text.into_owned()),
            Event::SequenceStart(..) => Value::List(self.list(depth)?),
            Event::MappingStart(..) => Value::Map(self.map(depth)?),
            Event::Alias(_) => return Err(mistake(span, "an alias (*name) is not taken here: write it out")),
            _ => return Err(mistake(span, "a value is missing")),
        };
        Ok(Node { line, value })
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Mistake> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, span) => list.push(self.node(event, span, depth.saturating_add(1))?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Field>, Mistake> {
        let mut map: Vec<Field> = Vec::new();
        loop {
            let (name, span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(map),
                (Event::Scalar(name, ..), span) => (name.into_owned(), span),
                (_, span) => return Err(mistake(span, "a name that is no text")),
            };
            if map.iter().any(|field| field.name == name) {
                return Err(mistake(span, &format!("{name} comes a second time")));
            }
            let line = span.start.line();
            let (event, span) = self.next()?;
            map.push(Field { name, line, node: self.node(event, span, depth.saturating_add(1))? });
        }
    }
}

fn mistake(span: Span, what: &str) -> Mistake {
    Mistake { line: span.start.line(), what: what.to_owned() }
}

fn scan_mistake(error: &ScanError) -> Mistake {
    Mistake { line: error.marker().line(), what: format!("no YAML: {}", error.info()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_lines_and_their_spelling() {
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
    fn what_is_no_plain_yaml_is_told_with_its_line() {
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
        assert_eq!(parse(&deep).unwrap_err().what, "this lies too deep");
    }
}
