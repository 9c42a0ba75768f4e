//! YAML documents as values: scalars of every type are text, as written.

use std::iter::Peekable;

use saphyr_parser::{Event, Parser, StrInput};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Yaml {
    Text(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

type Events<'a> = Peekable<Box<dyn Iterator<Item = Event<'a>> + 'a>>;

impl Yaml {
    /// Parses all documents of a file. Panics if it is invalid, or has aliases.
    pub fn documents(text: &str) -> Vec<Self> {
        let parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
        let events: Box<dyn Iterator<Item = Event<'_>>> = Box::new(parser.map(|event| event.unwrap().0));
        let mut events = events.peekable();
        let mut documents = Vec::new();
        while let Some(event) = events.next() {
            if matches!(event, Event::DocumentStart(_)) {
                documents.push(Self::read(&mut events));
            }
        }
        documents
    }

    fn read(events: &mut Events<'_>) -> Self {
        match events.next().unwrap() {
            Event::Scalar(text, ..) => Self::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut list = Vec::new();
                while !matches!(events.peek(), Some(Event::SequenceEnd)) {
                    list.push(Self::read(events));
                }
                events.next();
                Self::List(list)
            }
            Event::MappingStart(..) => {
                let mut map = Vec::new();
                while !matches!(events.peek(), Some(Event::MappingEnd)) {
                    let name = Self::read(events).text().to_owned();
                    map.push((name, Self::read(events)));
                }
                events.next();
                Self::Map(map)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns what is at a path of names and numbers, such as `["spec", "containers", "0"]`.
    #[track_caller]
    pub fn at(&self, path: &[&str]) -> &Self {
        path.iter()
            .fold(self, |node, step| node.get(step).unwrap_or_else(|| panic!("{step} of {path:?}: {node:?}")))
    }

    pub fn get(&self, step: &str) -> Option<&Self> {
        match self {
            Self::Text(_) => None,
            Self::List(list) => list.get(step.parse::<usize>().ok()?),
            Self::Map(map) => map.iter().find(|(name, _)| name == step).map(|(_, node)| node),
        }
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }

    #[track_caller]
    pub fn texts(&self) -> Vec<&str> {
        self.list().iter().map(Self::text).collect()
    }

    #[track_caller]
    pub fn map(&self) -> &[(String, Self)] {
        match self {
            Self::Map(map) => map,
            other => panic!("not a map: {other:?}"),
        }
    }
}
