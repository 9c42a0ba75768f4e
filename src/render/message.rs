//! Parts of the text of records: lines of data, confirmations, and messages on standard error.

use std::fmt::Display;

use super::duration::of_ms;
use super::escape::escape;
use super::style::{Paint, paint};
use super::wrap::wrapped;
use super::{Format, Rendered, Style};
use crate::protocol::{Details, Key, Timestamp};

/// Formats data; with --verbose, its version too.
#[must_use]
pub fn line(text: &str, version: Option<&Timestamp>, style: &Style) -> Rendered {
    detailed_line(text, version, None, style)
}

/// Formats data; with --verbose, its version, time to live and fencing token too.
#[must_use]
pub fn detailed_line(
    text: &str,
    version: Option<&Timestamp>,
    details: Option<&Details>,
    style: &Style,
) -> Rendered {
    let mut line = text.to_owned();
    if style.verbose {
        for note in notes(version, details) {
            line.extend(["  ", &paint(&note, Paint::Dim, style.color_stdout)]);
        }
    }
    line.push('\n');
    Rendered::stdout(line)
}

/// Returns what --verbose adds to a value.
#[must_use]
pub fn notes(version: Option<&Timestamp>, details: Option<&Details>) -> Vec<String> {
    let text = |timestamp: &Timestamp| escape(timestamp.to_text().as_bytes());
    let ttl = details.and_then(|details| details.ttl_ms).map(|ms| format!("expires in {}", of_ms(ms.get())));
    let fence = details.and_then(|details| details.fence.as_ref());
    let fence = fence.map(|fence| format!("fence {}", text(fence)));
    version.map(text).into_iter().chain(ttl).chain(fence).collect()
}

/// Formats the confirmation of a success, for a terminal only: for a program the exit status is enough. The text is made only if
/// it is wanted, because a batch has many.
#[must_use]
pub fn confirmation(text: impl FnOnce() -> String, version: Option<&Timestamp>, style: &Style) -> Rendered {
    match style.format == Format::Text && !style.quiet {
        true => line(&text(), version, style),
        false => Rendered::default(),
    }
}

/// Formats a negative result, such as a missing key, on standard error.
#[must_use]
pub fn negative(text: &str, style: &Style) -> Rendered {
    labeled("error:", Paint::Error, text, style)
}

/// Formats a warning on standard error.
#[must_use]
pub fn warning(text: &str, style: &Style) -> Rendered {
    labeled("warning:", Paint::Warning, text, style)
}

/// Formats a hint on standard error.
#[must_use]
pub fn hint(text: &str, style: &Style) -> Rendered {
    labeled("hint:", Paint::Hint, text, style)
}

/// Formats a message on standard error.
#[must_use]
pub fn notice(text: &str, style: &Style) -> Rendered {
    if style.quiet { Rendered::default() } else { Rendered::stderr(format!("{}\n", lines(text, style, 0))) }
}

fn labeled(label: &str, how: Paint, text: &str, style: &Style) -> Rendered {
    if style.quiet {
        return Rendered::default();
    }
    let text = lines(text, style, label.len().saturating_add(1));
    Rendered::stderr(format!("{} {text}\n", paint(label, how, style.color_stderr)))
}

/// Breaks the lines of a message at blanks, on a terminal.
fn lines(text: &str, style: &Style, indent: usize) -> String {
    let lines: Vec<_> = text.split('\n').map(|line| wrapped(line, style.stderr_columns(), indent)).collect();
    lines.join("\n")
}

/// Formats the message that a key does not exist.
#[must_use]
pub fn not_found(key: &Key, style: &Style) -> Rendered {
    negative(&format!("key not found: {}", name(key)), style)
}

/// Returns a key as a name in a message.
#[must_use]
pub fn name(key: &Key) -> String {
    escape(key.as_bytes())
}

/// Returns a number with its noun.
#[must_use]
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    match (&*count, noun) {
        ("1", noun) => format!("1 {noun}"),
        (count, "leaf") => format!("{count} leaves"),
        (count, noun) => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_broken_at_blanks_on_a_terminal_only() {
        let on_terminal = Style { columns: Some(40), stderr_is_terminal: true, ..Style::PLAIN };
        let text = "listening at localhost:1883 to a/topic/that/has/more/characters/than/the/terminal";
        assert_eq!(
            notice(text, &on_terminal).stderr,
            "listening at localhost:1883 to\na/topic/that/has/more/characters/than/the/terminal\n"
        );
        assert_eq!(notice(text, &Style::PLAIN).stderr, format!("{text}\n"));
        let text = "the lease could not be renewed\n  the command keeps running, and has no lock";
        assert_eq!(
            warning(text, &on_terminal).stderr,
            "warning: the lease could not be renewed\n  the command keeps running,\n         and has no lock\n"
        );
        let command = "mqkv unlock deploy --holder a-rather-long-name";
        assert_eq!(hint(command, &on_terminal).stderr, format!("hint: {command}\n"));
    }
}
