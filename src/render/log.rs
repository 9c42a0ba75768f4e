//! Lines of a server's log, and what `serve` answers when it does not serve, as JSON.

/// What a line says of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A number that may be less than nothing.
    Signed(i64),
    /// Texts.
    List(Vec<String>),
    /// Yes or no.
    Switch(bool),
    /// Bytes, which are told as text where they are text.
    Bytes(Vec<u8>),
}

/// An answer: one object, and the end of its line.
#[must_use]
pub fn answer(op: &str, fields: impl IntoIterator<Item = (&'static str, Field)>) -> String {
    super::json::answer(op, fields)
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
    fn an_answer_is_one_object_and_its_bytes_are_text_where_they_are_text() {
        let fields = |bytes: &[u8]| [("key", Field::Bytes(bytes.to_vec())), ("found", Field::Switch(true))];
        assert_eq!(answer("o", fields(b"k")), "{\"v\":1,\"op\":\"o\",\"key\":\"k\",\"found\":true}\n");
        assert_eq!(
            answer("o", fields(b"\xff")),
            "{\"v\":1,\"op\":\"o\",\"key\":\"/w==\",\"key_encoding\":\"base64\",\"found\":true}\n"
        );
    }

    #[test]
    fn whatever_a_client_says_it_stays_one_line_that_drives_no_terminal() {
        let hostile = Field::Text("a\"\n\x1b[31m\u{9b}\u{202e}".to_owned());
        let list = Field::List(vec!["x".to_owned()]);
        let line = json(
            0,
            "gone",
            [
                ("client_id", hostile),
                ("list", list),
                ("count", Field::Number(3)),
                ("left", Field::Signed(-1)),
            ],
        );
        assert_eq!(
            line,
            r#"{"v":1,"event":"gone","time":"1970-01-01T00:00:00.000Z","client_id":"a\"\n\u001b[31m\u009b\u202e","list":["x"],"count":3,"left":-1}"#
        );
    }
}
