//! A line of a trace as data.

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::render) enum Field {
    /// A flag: only its name is shown.
    Word(&'static str),
    Number(u64),
    /// A string, not escaped.
    Text(String),
    /// Escaped bytes, which can be read back if they are not cut.
    Escaped(String),
    /// Several of them.
    Words(Vec<String>),
    /// The length of a secret.
    Secret(Option<usize>),
    User(Vec<(String, String)>),
}

/// The parts of a line.
#[derive(Debug)]
pub(in crate::render) struct Row {
    /// The event.
    pub(in crate::render) what: &'static str,
    /// The packet type, if it is a packet.
    pub(in crate::render) packet: Option<String>,
    /// Names and values.
    pub(in crate::render) fields: Vec<(&'static str, Field)>,
    /// The text of an event other than a packet.
    pub(in crate::render) text: String,
}

/// Returns the replacement of a secret.
pub(in crate::render) fn redacted(bytes: Option<usize>) -> String {
    match bytes {
        Some(bytes) => format!("<{bytes} bytes redacted>"),
        None => "<redacted>".to_owned(),
    }
}
