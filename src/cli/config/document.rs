//! TOML text of the configuration file: parsing with line numbers, and changes that preserve comments and layout.

use std::ops::Range;

use toml_edit::{Document, DocumentMut, Item, RawString, Table, TableLike, TomlError, Value, value};

/// A key with its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub key: String,
    pub at: Position,
    pub value_at: Position,
    pub content: Content,
}

impl Node {
    /// Returns the place of the first text with a control character.
    #[must_use]
    pub fn control_character(&self) -> Option<Position> {
        let is_bad =
            |content: &Content| matches!(content, Content::Text(text) if text.contains(char::is_control));
        match &self.content {
            Content::List(elements) => {
                elements.iter().find(|element| is_bad(&element.content)).map(|element| element.at)
            }
            content => is_bad(content).then_some(self.value_at),
        }
    }
}

/// An element of an array, or a table of an array of tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    pub at: Position,
    pub content: Content,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// Content of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    Number(i64),
    Switch(bool),
    Table(Vec<Node>),
    /// An array, or an array of tables.
    List(Vec<Element>),
    /// A type that no setting has, by its name.
    Other(&'static str),
}

impl Content {
    /// Returns the name of the type, with its article.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Number(_) => "a number",
            Self::Switch(_) => "true or false",
            Self::Table(_) => "a table",
            Self::List(_) => "an array",
            Self::Other(name) => name,
        }
    }
}

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syntax {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub message: String,
    /// Text of the line.
    pub text: String,
}

/// Parses a text.
///
/// # Errors
/// The first syntax error.
pub fn read(text: &str) -> Result<Vec<Node>, Syntax> {
    let document = Document::parse(text).map_err(|error| of_parser(text, &error))?;
    let feeds = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    Ok(nodes(document.as_table(), &Lines { text, feeds }))
}

/// A text with the offsets of its line feeds.
struct Lines<'a> {
    text: &'a str,
    feeds: Vec<usize>,
}

impl Lines<'_> {
    fn position(&self, at: usize) -> Position {
        let above = self.feeds.partition_point(|feed| *feed < at);
        let begin = above.checked_sub(1).and_then(|last| self.feeds.get(last));
        let begin = begin.map_or(0, |feed| feed.saturating_add(1));
        let before = self.text.get(begin..at).unwrap_or_default();
        Position { line: above.saturating_add(1), column: before.chars().count().saturating_add(1) }
    }
}

fn syntax(text: &str, at: usize, message: &str) -> Syntax {
    let before = text.get(..at).unwrap_or(text);
    let begin = before.rfind('\n').map_or(0, |feed| feed.saturating_add(1));
    let line = text.get(begin..).unwrap_or_default().lines().next().unwrap_or_default();
    Syntax {
        line: line_of(text, at),
        column: before.get(begin..).unwrap_or_default().chars().count().saturating_add(1),
        message: message.lines().collect::<Vec<_>>().join(" "),
        text: line.to_owned(),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count().saturating_add(1)
}

fn nodes(table: &dyn TableLike, lines: &Lines<'_>) -> Vec<Node> {
    let node = |(key, item): (&str, &Item)| {
        let value_at = begin(item.span());
        // A table without a key of its own has the position of its header, if it has one.
        let at = begin(table.key(key).and_then(|key| key.span())).or(value_at).unwrap_or(0);
        Node {
            key: key.to_owned(),
            at: lines.position(at),
            value_at: lines.position(value_at.unwrap_or(at)),
            content: content(item, lines),
        }
    };
    table.iter().map(node).collect()
}

fn begin(span: Option<Range<usize>>) -> Option<usize> {
    span.map(|span| span.start)
}

fn content(item: &Item, lines: &Lines<'_>) -> Content {
    if let Some(table) = item.as_table_like() {
        return Content::Table(nodes(table, lines));
    }
    if let Some(tables) = item.as_array_of_tables() {
        let element = |table: &Table| Element {
            at: lines.position(begin(table.span()).unwrap_or(0)),
            content: Content::Table(nodes(table, lines)),
        };
        return Content::List(tables.iter().map(element).collect());
    }
    item.as_value().map_or(Content::Other("nothing"), |value| content_of_value(value, lines))
}

fn content_of_value(value: &Value, lines: &Lines<'_>) -> Content {
    match value {
        Value::String(text) => Content::Text(text.value().clone()),
        Value::Integer(number) => Content::Number(*number.value()),
        Value::Boolean(switch) => Content::Switch(*switch.value()),
        Value::Float(_) => Content::Other("a fraction"),
        Value::Datetime(_) => Content::Other("a date"),
        Value::InlineTable(table) => Content::Table(nodes(table, lines)),
        Value::Array(array) => {
            let element = |value: &Value| Element {
                at: lines.position(begin(value.span()).unwrap_or(0)),
                content: content_of_value(value, lines),
            };
            Content::List(array.iter().map(element).collect())
        }
    }
}

/// Key of the default context.
const DEFAULT: &str = "default_context";
/// Key of the table of contexts.
const CONTEXTS: &str = "context";

/// Writes a context: replaces the one of this name, or appends it.
pub fn put_context(text: &str, name: &str, settings: &[(String, Content)]) -> Result<String, Syntax> {
    let mut document = parse(text)?;
    let mut context = Table::new();
    for (key, content) in settings {
        let item = match content {
            Content::Text(text) => value(text),
            Content::Number(number) => value(*number),
            Content::Switch(switch) => value(*switch),
            Content::Table(_) | Content::List(_) | Content::Other(_) => continue,
        };
        context.insert(key, item);
    }
    // Comments at the end of the text stay above the new context.
    let mut above = document.trailing().as_str().unwrap_or_default().to_owned();
    if !document.is_empty() || !above.is_empty() {
        above.push('\n');
    }
    let contexts = document.entry(CONTEXTS).or_insert_with(|| {
        let mut contexts = Table::new();
        contexts.set_implicit(true);
        Item::Table(contexts)
    });
    let Some(contexts) = contexts.as_table_like_mut() else {
        return Err(syntax(text, 0, "context is not a table"));
    };
    let is_new = match contexts.get(name) {
        Some(Item::Table(before)) => {
            *context.decor_mut() = before.decor().clone();
            context.set_position(before.position());
            false
        }
        Some(_) => false,
        None => true,
    };
    if is_new {
        context.decor_mut().set_prefix(above);
    }
    contexts.insert(name, Item::Table(context));
    if is_new {
        document.set_trailing("");
    }
    Ok(document.to_string())
}

/// Removes a context and the comment directly above it.
pub fn remove_context(text: &str, name: &str) -> Result<String, Syntax> {
    let mut document = parse(text)?;
    let contexts = document.get_mut(CONTEXTS).and_then(Item::as_table_like_mut);
    let removed = contexts.and_then(|contexts| contexts.remove(name));
    if let Some(Item::Table(removed)) = removed {
        let prefix = removed.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
        let kept = prefix.rfind("\n\n").and_then(|end| prefix.get(..=end)).unwrap_or_default();
        if !kept.trim().is_empty() {
            put_comment(&mut document, kept, removed.position());
        }
    }
    Ok(document.to_string())
}

/// Renames a context, in its place.
pub fn rename_context(text: &str, name: &str, new: &str) -> Result<String, Syntax> {
    let mut document = parse(text)?;
    let contexts = document.get_mut(CONTEXTS).and_then(Item::as_table_like_mut);
    if let Some(contexts) = contexts
        && let Some(context) = contexts.remove(name)
    {
        contexts.insert(new, context);
    }
    Ok(document.to_string())
}

/// Puts a comment above the first context after a position, or at the end.
fn put_comment(document: &mut DocumentMut, comment: &str, position: Option<isize>) {
    let contexts = document.get_mut(CONTEXTS).and_then(Item::as_table_mut);
    let tables = contexts.into_iter().flat_map(|contexts| contexts.iter_mut());
    let behind =
        tables.filter_map(|(_, item)| item.as_table_mut().filter(|table| table.position() > position));
    if let Some(next) = behind.min_by_key(|table| table.position()) {
        let prefix = next.decor().prefix().and_then(RawString::as_str).unwrap_or_default().to_owned();
        next.decor_mut().set_prefix(format!("{comment}{prefix}"));
    } else {
        let trailing = document.trailing().as_str().unwrap_or_default().to_owned();
        document.set_trailing(format!("{comment}{trailing}"));
    }
}

/// Sets or removes the default context.
pub fn set_default(text: &str, name: Option<&str>) -> Result<String, Syntax> {
    let Some(name) = name else {
        return without_default(text);
    };
    let mut document = parse(text)?;
    if let Some(Item::Value(known)) = document.get_mut(DEFAULT) {
        // Preserves a comment after it.
        let decor = known.decor().clone();
        *known = name.into();
        *known.decor_mut() = decor;
    } else {
        let mut item = value(name);
        if let Some(value) = item.as_value_mut().filter(|_| !text.trim().is_empty()) {
            value.decor_mut().set_suffix("\n");
        }
        document.insert(DEFAULT, item);
    }
    Ok(document.to_string())
}

/// Removes the line of the default context, not the comments above it.
fn without_default(text: &str) -> Result<String, Syntax> {
    let document = Document::parse(text).map_err(|error| of_parser(text, &error))?;
    let key = document.key(DEFAULT).and_then(|key| key.span());
    let value = document.get(DEFAULT).and_then(Item::span);
    let (Some(key), Some(value)) = (key, value) else {
        return Ok(text.to_owned());
    };
    let (first, last) = (line_of(text, key.start), line_of(text, value.end));
    let lines = text.split_inclusive('\n').zip(1..);
    let kept: String =
        lines.filter(|(_, number)| *number < first || *number > last).map(|(line, _)| line).collect();
    // Avoids a blank line at the top.
    Ok(if first == 1 { kept.trim_start_matches('\n').to_owned() } else { kept })
}

fn parse(text: &str) -> Result<DocumentMut, Syntax> {
    Document::parse(text).map(Document::into_mut).map_err(|error| of_parser(text, &error))
}

fn of_parser(text: &str, error: &TomlError) -> Syntax {
    syntax(text, error.span().map_or(0, |span| span.start).min(text.len()), error.message())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Brokers of the plant.
default_context = \"lab\" # for now

# The one on the desk.
[context.lab]
broker = \"mqtt://lab\" # plain

[context.prod]
port = 8883
notls = false
";

    #[test]
    fn settings_are_parsed_with_their_lines() {
        let nodes = read(TEXT).unwrap();
        assert_eq!((nodes[0].key.as_str(), nodes[0].at.line), (DEFAULT, 2));
        let Content::Table(contexts) = &nodes[1].content else { panic!("{nodes:?}") };
        assert_eq!((contexts[0].key.as_str(), contexts[0].at.line), ("lab", 5));
        let Content::Table(prod) = &contexts[1].content else { panic!("{nodes:?}") };
        let lines: Vec<_> =
            prod.iter().map(|node| (node.key.as_str(), node.at.line, node.content.clone())).collect();
        assert_eq!(lines, [("port", 9, Content::Number(8883)), ("notls", 10, Content::Switch(false))]);
    }

    #[test]
    fn a_syntax_error_has_its_line_and_column() {
        let Syntax { line, column, text, .. } = read("a = 1\nbroker = mqtt://h\n").unwrap_err();
        assert_eq!((line, column, text.as_str()), (2, 10, "broker = mqtt://h"));
        for bad in ["[", "a = ", "a = 1\na = 2", "é = 1", "a = \"\u{0}\"", "[context]\n[context]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn elements_of_arrays_have_their_positions() {
        let text = "e = [\"ü\", 5,\n  [true]]\n[[rule]]\na = 1\n\n[[rule]]\nb.c = { d = 1 }\n";
        let nodes = read(text).unwrap();
        let position = |line, column| Position { line, column };
        assert_eq!((nodes[0].at, nodes[0].value_at), (position(1, 1), position(1, 5)));
        let Content::List(elements) = &nodes[0].content else { panic!("{nodes:?}") };
        let places: Vec<_> = elements.iter().map(|element| element.at).collect();
        assert_eq!(places, [position(1, 6), position(1, 11), position(2, 3)]);
        assert_eq!(elements[0].content, Content::Text("ü".to_owned()));
        let Content::List(tables) = &nodes[1].content else { panic!("{nodes:?}") };
        assert_eq!(tables.iter().map(|table| table.at.line).collect::<Vec<_>>(), [3, 6]);
        let Content::Table(rule) = &tables[0].content else { panic!("{nodes:?}") };
        assert_eq!((rule[0].at, rule[0].value_at), (position(4, 1), position(4, 5)));
    }

    #[test]
    fn a_new_context_is_appended() {
        let settings = [("broker".to_owned(), Content::Text("mqtt://new".to_owned()))];
        let added = put_context(&format!("{TEXT}# The end.\n"), "a b", &settings).unwrap();
        assert_eq!(added, format!("{TEXT}# The end.\n\n[context.\"a b\"]\nbroker = \"mqtt://new\"\n"));
        assert_eq!(put_context("", "new", &settings).unwrap(), "[context.new]\nbroker = \"mqtt://new\"\n");
    }

    #[test]
    fn a_context_is_replaced_in_place() {
        let settings = [("port".to_owned(), Content::Number(1)), ("notls".to_owned(), Content::Switch(true))];
        let changed = put_context(TEXT, "lab", &settings).unwrap();
        assert_eq!(changed, TEXT.replace("broker = \"mqtt://lab\" # plain", "port = 1\nnotls = true"));
        let inline = "context = { lab = { port = 2 }, prod = {} }\n";
        let changed = put_context(inline, "lab", &settings).unwrap();
        let Content::Table(contexts) = &read(&changed).unwrap()[0].content else { panic!("{changed}") };
        assert_eq!(contexts.len(), 2, "{changed}");
    }

    #[test]
    fn a_context_is_removed_with_its_own_comment_only() {
        let gone = remove_context(TEXT, "lab").unwrap();
        assert!(
            !gone.contains("desk") && gone.contains("plant") && gone.contains("[context.prod]"),
            "{gone}"
        );
        let headed = "# All of them.\n\n# The desk.\n[context.lab]\n[context.prod]\n";
        assert_eq!(remove_context(headed, "lab").unwrap(), "# All of them.\n[context.prod]\n");
        assert_eq!(remove_context(headed, "none").unwrap(), headed);
    }

    #[test]
    fn changing_the_default_context_preserves_comments() {
        assert_eq!(set_default(TEXT, Some("prod")).unwrap(), TEXT.replace("\"lab\" #", "\"prod\" #"));
        let without = set_default(TEXT, None).unwrap();
        assert_eq!(without, TEXT.replace("default_context = \"lab\" # for now\n", ""));
        assert_eq!(set_default(&without, None).unwrap(), without);
        let with = set_default("[context.lab]\n", Some("lab")).unwrap();
        assert_eq!(with, "default_context = \"lab\"\n\n[context.lab]\n");
        assert_eq!(set_default(&with, None).unwrap(), "[context.lab]\n");
    }
}
