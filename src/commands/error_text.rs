//! Errors as text and as JSON: message, causes, outcome and hints.

use std::borrow::Cow;

use serde::Serialize;

use super::error::{CommandError, Place};
use crate::client::Outcome;
use crate::render::escape::escape;
use crate::render::style::{Paint, paint};
use crate::render::wrap::wrapped;
use crate::render::{Format, Style, json};

/// The JSON object of an error.
#[derive(Debug, Serialize)]
pub struct ErrorObject<'a> {
    error: Members<'a>,
}

#[derive(Debug, Serialize)]
struct Members<'a> {
    kind: &'static str,
    /// The exit status.
    code: u8,
    message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    causes: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    hints: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    retryable: bool,
}

impl CommandError {
    #[must_use]
    pub fn object(&self) -> ErrorObject<'_> {
        // Programs look for "line N" in the message of a line, which had it before there was a place.
        let message = match &self.place {
            Some(Place { line, .. }) => format!("line {line}: {}", self.message).into(),
            None => Cow::from(&self.message),
        };
        let outcome = self.outcome.map(|outcome| match outcome {
            Outcome::Unchanged => "unchanged",
            Outcome::Unknown => "unknown",
        });
        let error = Members {
            kind: self.kind.name(),
            code: self.kind.code(),
            message,
            file: self.place.as_ref().map(|place| place.file.to_string_lossy()),
            line: self.place.as_ref().map(|place| place.line),
            causes: &self.causes,
            hints: &self.hints,
            outcome,
            retryable: self.is_retryable(),
        };
        ErrorObject { error }
    }

    /// Formats the error for standard error.
    #[must_use]
    pub fn rendered(&self, style: &Style) -> String {
        if style.format == Format::Json {
            return json::text_of(&self.object());
        }
        if self.is_repetition {
            return String::new();
        }
        let (color, columns) = (style.color_stderr, style.stderr_columns());
        let text = |text: &str, indent| wrapped(&escape(text.as_bytes()), columns, indent);
        let mut out =
            format!("{} {}\n", paint("error:", Paint::Error, color), text(&self.placed_message(), 7));
        for cause in &self.causes {
            out.push_str(&format!("  {}\n", text(cause, 2)));
        }
        match self.outcome {
            Some(Outcome::Unknown) => out.push_str("  the write may or may not have happened\n"),
            Some(Outcome::Unchanged) => out.push_str("  nothing was changed\n"),
            None => {}
        }
        for hint in &self.hints {
            out.push_str(&format!("{} {}\n", paint("hint:", Paint::Hint, color), text(hint, 6)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Kind, Place};

    const STYLE: Style = Style::PLAIN;

    #[test]
    fn an_error_shows_the_outcome_and_a_hint() {
        let failure = CommandError {
            outcome: Some(Outcome::Unknown),
            ..CommandError::new(Kind::Timeout, "no answer from h:1 within 10s").hint("mqkv ping")
        };
        assert_eq!(
            failure.rendered(&STYLE),
            "error: no answer from h:1 within 10s\n  the write may or may not have happened\nhint: mqkv ping\n"
        );
    }

    #[test]
    fn an_error_of_a_line_begins_with_its_file_and_number() {
        let at = |file: &str| {
            let place = Place { file: std::path::Path::new(file).into(), line: 3 };
            CommandError::new(Kind::Data, "missing member \"key\"").with_place(place).rendered(&STYLE)
        };
        assert_eq!(at("data.jsonl"), "error: data.jsonl:3: missing member \"key\"\n");
        assert_eq!(at("-"), "error: standard input:3: missing member \"key\"\n");
        assert_eq!(at("a\x1b"), "error: a\\x1B:3: missing member \"key\"\n");
    }

    #[test]
    fn an_error_that_has_been_printed_is_not_repeated_as_text() {
        let failure = CommandError { is_repetition: true, ..CommandError::usage("1 of 3 lines failed") };
        assert_eq!(failure.rendered(&STYLE), "");
        assert!(failure.rendered(&Style { format: Format::Json, ..STYLE }).contains("1 of 3 lines failed"));
    }

    #[test]
    fn an_error_is_broken_at_blanks_on_a_terminal_only() {
        let failure = CommandError::usage("a b".repeat(8)).hint("c d".repeat(8));
        let on_terminal = Style { columns: Some(31), stderr_is_terminal: true, ..STYLE };
        let (a, c) = ("a ba ba ba ba ba ba ba b", "c dc dc dc dc dc dc dc d");
        assert_eq!(failure.rendered(&on_terminal), format!("error: {a}\nhint: {c}\n"));
        let narrower = Style { columns: Some(30), ..on_terminal };
        assert_eq!(failure.rendered(&narrower), format!("error: {a}\nhint: {c}\n"), "too narrow to break");
        let failure = CommandError::usage("word ".repeat(8).trim());
        let shown = failure.rendered(&on_terminal);
        assert_eq!(shown, "error: word word word word word\n       word word word\n");
        let in_a_pipe = Style { stderr_is_terminal: false, ..on_terminal };
        assert_eq!(failure.rendered(&in_a_pipe).lines().count(), 1);
    }

    #[test]
    fn an_error_cannot_control_the_terminal() {
        let failure = CommandError::usage("unknown command \x1b[2J\n").cause("\r");
        assert_eq!(failure.rendered(&STYLE), "error: unknown command \\x1B[2J\\x0A\n  \\x0D\n");
    }

    #[test]
    fn an_error_is_one_object_with_its_exit_code() {
        let failure = CommandError {
            outcome: Some(Outcome::Unknown),
            ..CommandError::new(Kind::Timeout, "no answer from h:1 within 10s")
        };
        assert_eq!(
            failure.rendered(&Style { format: Format::Json, ..STYLE }),
            "{\"v\":1,\"error\":{\"kind\":\"timeout\",\"code\":124,\"message\":\"no answer from h:1 within 10s\",\
             \"outcome\":\"unknown\",\"retryable\":true}}\n"
        );
    }
}
