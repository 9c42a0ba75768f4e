//! Field of a log line or of a record of the server.

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    Text(String),
    Number(u64),
    Signed(i64),
    List(Vec<String>),
    Switch(bool),
    /// Bytes: a string if they are UTF-8, else base64.
    Bytes(Vec<u8>),
    /// A list of objects.
    Records(Vec<Vec<(&'static str, Field)>>),
}
