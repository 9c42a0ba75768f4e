//! A line of a trace as data.

/// The value of a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Field {
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
pub(super) struct Row {
    /// The event.
    pub(super) what: &'static str,
    /// The packet type, if it is a packet.
    pub(super) packet: Option<String>,
    /// Names and values.
    pub(super) fields: Vec<(&'static str, Field)>,
    /// The text of an event other than a packet.
    pub(super) text: String,
}

/// Returns the replacement of a secret.
pub(super) fn redacted(bytes: Option<usize>) -> String {
    match bytes {
        Some(bytes) => format!("<{bytes} bytes redacted>"),
        None => "<redacted>".to_owned(),
    }
}
