//! Errors as text: message, causes, outcome and hints.

use super::escape::escape;
use super::style::{Paint, paint};
use super::wrap::wrapped;
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
    let (color, columns) = (style.color_stderr, style.stderr_columns());
    let text = |text: &str, indent| wrapped(&escape(text.as_bytes()), columns, indent);
    let mut out = format!("{} {}\n", paint("error:", Paint::Error, color), text(&error.placed_message(), 7));
    for cause in &error.causes {
        out.push_str(&format!("  {}\n", text(cause, 2)));
    }
    match error.outcome {
        Some(Outcome::Unknown) => out.push_str("  the write may or may not have happened\n"),
        Some(Outcome::Unchanged) => out.push_str("  nothing was changed\n"),
        None => {}
    }
    for hint in &error.hints {
        out.push_str(&format!("{} {}\n", paint("hint:", Paint::Hint, color), text(hint, 6)));
    }
    out
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
    fn an_error_is_broken_at_blanks_on_a_terminal_only() {
        let failure = CommandError::usage("a b".repeat(8)).hint("c d".repeat(8));
        let on_terminal = Style { columns: Some(31), stderr_is_terminal: true, ..STYLE };
        let (a, c) = ("a ba ba ba ba ba ba ba b", "c dc dc dc dc dc dc dc d");
        assert_eq!(error(&failure, 2, &on_terminal), format!("error: {a}\nhint: {c}\n"));
        let narrower = Style { columns: Some(30), ..on_terminal };
        assert_eq!(error(&failure, 2, &narrower), format!("error: {a}\nhint: {c}\n"), "too narrow to break");
        let failure = CommandError::usage("word ".repeat(8).trim());
        let shown = error(&failure, 2, &on_terminal);
        assert_eq!(shown, "error: word word word word word\n       word word word\n");
        let in_a_pipe = Style { stderr_is_terminal: false, ..on_terminal };
        assert_eq!(error(&failure, 2, &in_a_pipe).lines().count(), 1);
    }

    #[test]
    fn an_error_cannot_control_the_terminal() {
        let failure = CommandError::usage("unknown command \x1b[2J\n").cause("\r");
        assert_eq!(error(&failure, 2, &STYLE), "error: unknown command \\x1B[2J\\x0A\n  \\x0D\n");
    }
}
