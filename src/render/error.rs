//! Errors as text: message, causes, outcome and hints.

use super::escape::escape;
use super::style::{Paint, paint};
use super::{Format, Style, json};
use crate::commands::CommandError;
use crate::commands::output::Outcome;

/// Formats an error; `code` is the exit status.
#[must_use]
pub fn error(error: &CommandError, code: u8, style: &Style) -> String {
    if style.format == Format::Json {
        return json::error(error, code);
    }
    if error.is_repetition {
        return String::new();
    }
    let color = style.color_stderr;
    let message = escaped(&error.placed_message());
    let mut out = format!("{} {message}\n", paint("error:", Paint::Error, color));
    for cause in &error.causes {
        out.push_str(&format!("  {}\n", escaped(cause)));
    }
    match error.outcome {
        Some(Outcome::Unknown) => out.push_str("  the write may or may not have happened\n"),
        Some(Outcome::Unchanged) => out.push_str("  nothing was changed\n"),
        None => {}
    }
    for hint in &error.hints {
        out.push_str(&format!("{} {}\n", paint("hint:", Paint::Hint, color), escaped(hint)));
    }
    out
}

fn escaped(text: &str) -> String {
    escape(text.as_bytes())
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
            error(&failure, 124, &STYLE),
            "error: no answer from h:1 within 10s\n  the write may or may not have happened\nhint: mqkv ping\n"
        );
    }

    #[test]
    fn an_error_of_a_line_begins_with_its_file_and_number() {
        let at = |file: &str| {
            let place = Place { file: std::path::Path::new(file).into(), line: 3 };
            error(&CommandError::new(Kind::Data, "missing member \"key\"").at(place), 65, &STYLE)
        };
        assert_eq!(at("data.jsonl"), "error: data.jsonl:3: missing member \"key\"\n");
        assert_eq!(at("-"), "error: standard input:3: missing member \"key\"\n");
        assert_eq!(at("a\x1b"), "error: a\\x1B:3: missing member \"key\"\n");
    }

    #[test]
    fn an_error_that_has_been_printed_is_not_repeated_as_text() {
        let failure = CommandError { is_repetition: true, ..CommandError::usage("1 of 3 lines failed") };
        assert_eq!(error(&failure, 2, &STYLE), "");
        assert!(error(&failure, 2, &Style { format: Format::Json, ..STYLE }).contains("1 of 3 lines failed"));
    }

    #[test]
    fn an_error_cannot_control_the_terminal() {
        let failure = CommandError::usage("unknown command \x1b[2J\n").cause("\r");
        assert_eq!(error(&failure, 2, &STYLE), "error: unknown command \\x1B[2J\\x0A\n  \\x0D\n");
    }
}
