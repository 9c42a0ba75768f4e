//! Lines of a server's log, as JSON.

/// What a line says of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// Texts.
    List(Vec<String>),
}

/// A line, without its end: schema, event and time first.
#[must_use]
pub fn json(at_ms: u64, event: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    let mut line = super::json::log(at_ms, event, fields);
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_client_says_it_stays_one_line_that_drives_no_terminal() {
        let hostile = Field::Text("a\"\n\x1b[31m\u{9b}\u{202e}".to_owned());
        let list = Field::List(vec!["x".to_owned()]);
        let line = json(0, "gone", [("client_id", hostile), ("list", list), ("count", Field::Number(3))]);
        assert_eq!(
            line,
            r#"{"v":1,"event":"gone","time":"1970-01-01T00:00:00.000Z","client_id":"a\"\n\u001b[31m\u009b\u202e","list":["x"],"count":3}"#
        );
    }
}
