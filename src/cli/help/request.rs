//! Requests for help, as clap reports them.
//!
//! Clap parses `-h` and `--help`, but its help cannot begin with examples or omit options that verbs share. So its template
//! contains only what was asked for, and this program writes the help.

use clap::{Command, Error};

/// The first word is the display name of the verb, `mqkv-context-add`.
const TEMPLATE: &str = "{name} {before-help}";

/// The part of the template that clap writes for `--help` only.
const LONG: &str = "long";

/// A request for the help of a verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpRequest {
    /// The display name of the verb.
    pub name: String,
    /// Whether all of the help is requested, not the summary.
    pub is_long: bool,
}

/// Makes a command report requests for its help in the form that [`HelpRequest::of`] reads.
#[must_use]
pub fn report_requests(command: Command) -> Command {
    // The longest name fits into one line.
    command.help_template(TEMPLATE).before_long_help(LONG).term_width(usize::MAX)
}

impl HelpRequest {
    /// Reads the request from the error by which clap reports it.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        let text = error.render().to_string();
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        Self { name, is_long: words.next() == Some(LONG) }
    }
}
