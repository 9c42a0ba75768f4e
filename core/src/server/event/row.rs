//! Row of the log: all that the log shows of one event.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::shown::{Shown, beginning, shortened};

/// What an event is about. One subject can cause any number of events, so they are limited per subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A client, by its id.
    Client(Arc<str>),
    /// The address of a client that was not accepted: such a client can choose any client id.
    Address(Arc<str>),
    /// The machine, in words: without room or descriptors, every attempt fails.
    Machine(&'static str),
    /// Anything else, in words.
    Other(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(text) | Self::Address(text) => out.write_str(text),
            Self::Machine(text) | Self::Other(text) => out.write_str(text),
        }
    }
}

/// The value of a field of the JSON log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Text(Cow<'a, str>),
    Number(u64),
    Signed(i64),
}

type Text<'a> = Box<dyn Fn(&mut fmt::Formatter<'_>) -> fmt::Result + 'a>;

/// The row of one event. It borrows from the event, and is displayed as the line of text, which is not formatted for an event
/// that the limits leave out.
pub struct Row<'a> {
    /// The name of the kind of event in the JSON log.
    pub name: &'static str,
    pub is_failure: bool,
    /// `None`: there are few of these events, and all are logged.
    pub subject: Option<Subject>,
    /// The fields of the JSON log. Values from the network are not escaped.
    pub fields: Vec<(&'static str, Value<'a>)>,
    text: Text<'a>,
}

/// Returns the row of an event that is no failure.
pub(super) fn note(name: &'static str) -> Row<'static> {
    Row { name, is_failure: false, subject: None, fields: Vec::new(), text: Box::new(|_| Ok(())) }
}

/// Returns the row of an event that reports a failure.
pub(super) fn failure(name: &'static str) -> Row<'static> {
    Row { is_failure: true, ..note(name) }
}

impl<'a> Row<'a> {
    pub(super) fn failure_if(self, is_failure: bool) -> Self {
        Self { is_failure, ..self }
    }

    /// Limits the number of events about this.
    pub(super) fn about(self, subject: Subject) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// Limits the number of events about this client, and adds its id.
    pub(super) fn about_client(self, client_id: &'a Arc<str>) -> Self {
        // Clients whose long ids have the same beginning share a limit, so that thousands of subjects take little memory.
        let id = beginning(client_id).map_or_else(|| Arc::clone(client_id), Into::into);
        self.about(Subject::Client(id)).shown("client_id", client_id)
    }

    pub(super) fn with(mut self, name: &'static str, value: Value<'a>) -> Self {
        self.fields.push((name, value));
        self
    }

    pub(super) fn text(self, name: &'static str, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(name, Value::Text(text.into()))
    }

    /// Adds a value in the form of its text.
    pub(super) fn display(self, name: &'static str, value: impl fmt::Display) -> Self {
        self.text(name, value.to_string())
    }

    /// Adds a text from the network: the beginning of a long one.
    pub(super) fn shown(self, name: &'static str, text: &'a str) -> Self {
        self.text(name, shortened(text))
    }

    /// Adds the user and certificate of a client that has authenticated.
    pub(super) fn principal(self, principal: Option<&'a str>) -> Self {
        match principal {
            Some(principal) => self.shown("principal", principal),
            None => self,
        }
    }

    /// Sets the line of text.
    pub(super) fn line(self, text: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result + 'a) -> Self {
        Self { text: Box::new(text), ..self }
    }

    /// Sets the line of text to a cause and what follows from it.
    pub(super) fn line_of(self, cause: &'a str, consequence: &'static str) -> Self {
        self.line(move |out| write!(out, "{cause}; {consequence}"))
    }

    /// Sets the line of text to a text from the network behind an introduction.
    pub(super) fn line_with(self, introduction: &'static str, shown: &'a str) -> Self {
        self.line(move |out| write!(out, "{introduction}: {}", Shown(shown)))
    }

    /// Sets the line of text to these words.
    pub(super) fn words(self, words: &'static str) -> Self {
        self.line(move |out| out.write_str(words))
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.text)(out)
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {self}", self.name)
    }
}
