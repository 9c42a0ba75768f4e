//! Log lines of the server as text and JSON (pure).

use serde::Serialize;

use super::duration::rfc3339;
use super::escape::escape;
use super::json::text_of;
use super::wrap::wrapped;
use super::{Style, time};

/// Returns a log line of text without a line feed, for standard error: its time comes first. The message cannot control the
/// terminal, whatever names are in it.
#[must_use]
pub fn text(at_ms: u64, message: &str, style: &Style) -> String {
    let message = escape(message.as_bytes());
    format!("{}  {message}", time::of_stream(at_ms, style.stderr_is_terminal, style))
}

/// Returns a warning as [`text`] does, broken at blanks on a terminal. Events are one line each.
#[must_use]
pub fn sentence(at_ms: u64, message: &str, style: &Style) -> String {
    let time = time::of_stream(at_ms, style.stderr_is_terminal, style);
    let message = wrapped(&escape(message.as_bytes()), style.stderr_columns(), time.len().saturating_add(2));
    format!("{time}  {message}")
}

/// Returns a log line without a line feed; schema, event and time come before the fields.
#[must_use]
pub fn json(at_ms: u64, event: &str, fields: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Line<'a, F> {
        event: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        time: Option<String>,
        #[serde(flatten)]
        fields: &'a F,
    }
    let mut line = text_of(&Line { event, time: rfc3339(at_ms), fields });
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_begins_with_its_time() {
        let at_ms = 1_763_669_639_958;
        let terminal = Style { stderr_is_terminal: true, ..Style::PLAIN };
        assert_eq!(text(at_ms, "ready", &terminal), "20:13:59.958  ready");
        assert_eq!(text(at_ms, "ready", &Style::PLAIN), "2025-11-20T20:13:59.958Z  ready");
    }

    #[test]
    fn a_sentence_is_broken_at_blanks_on_a_terminal_and_an_event_is_one_line() {
        let on_terminal = Style { columns: Some(40), stderr_is_terminal: true, ..Style::PLAIN };
        let message = "warning: clients need no password on 0.0.0.0:1883";
        let broken = "00:00:00.000  warning: clients need no\n              password on 0.0.0.0:1883";
        assert_eq!(sentence(0, message, &on_terminal), broken);
        assert_eq!(text(0, message, &on_terminal), format!("00:00:00.000  {message}"));
        assert_eq!(sentence(0, message, &Style::PLAIN), text(0, message, &Style::PLAIN));
    }

    #[test]
    fn a_line_of_text_cannot_control_the_terminal() {
        let line = text(0, "data in x\x1b[2J\ny", &Style::PLAIN);
        assert_eq!(line, "1970-01-01T00:00:00.000Z  data in x\\x1B[2J\\x0Ay");
    }

    #[test]
    fn control_characters_of_a_client_are_escaped() {
        #[derive(Serialize)]
        struct Fields {
            client_id: &'static str,
            count: u64,
        }
        let fields = Fields { client_id: "a\"\n\x1b[31m\u{9b}\u{202e}", count: 3 };
        assert_eq!(
            json(0, "gone", &fields),
            r#"{"v":1,"event":"gone","time":"1970-01-01T00:00:00.000Z","client_id":"a\"\n\u001b[31m\u009b\u202e","count":3}"#
        );
    }
}
