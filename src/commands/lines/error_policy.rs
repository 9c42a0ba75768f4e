//! What errors do to the lines of a file: the first one stops them, or all run and the worst one counts (pure).

use crate::client::Outcome;
use crate::commands::error::{CommandError, Place};
use crate::commands::exit::Exit;

/// The errors and the negative answers so far.
#[derive(Debug)]
pub struct ErrorPolicy {
    keep_going: bool,
    lines: u64,
    noes: u64,
    failed: u64,
    is_unknown: bool,
    /// The first error, with its line; with `keep_going`, the first of the greatest kind.
    worst: Option<CommandError>,
    after_error: AfterError,
}

/// The lines that had already been sent when the first error was returned.
#[derive(Debug, Default)]
struct AfterError {
    /// The first and the last one.
    lines: Option<(u64, u64)>,
    done: u64,
    noes: u64,
    failed: Vec<u64>,
    unknown: u64,
}

impl ErrorPolicy {
    /// Creates a policy without errors.
    #[must_use]
    pub fn new(keep_going: bool) -> Self {
        Self {
            keep_going,
            lines: 0,
            noes: 0,
            failed: 0,
            is_unknown: false,
            worst: None,
            after_error: AfterError::default(),
        }
    }

    /// Returns whether lines run after an error.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.keep_going
    }

    /// Returns whether an error has stopped the lines.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        !self.keep_going && self.worst.is_some()
    }

    /// Returns the number of failed lines.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.saturating_add(self.after_error.failed.len() as u64)
    }

    pub fn record(&mut self, place: &Place, result: &Result<Exit, CommandError>) {
        self.lines = self.lines.saturating_add(1);
        if self.is_stopped() {
            return self.after_error.record(place.line, result);
        }
        match result {
            Ok(Exit::No) => self.noes = self.noes.saturating_add(1),
            Ok(_) => {}
            Err(error) => {
                self.failed = self.failed.saturating_add(1);
                self.is_unknown |= error.outcome == Some(Outcome::Unknown);
                if self.worst.as_ref().is_none_or(|worst| worst.kind < error.kind) {
                    self.worst = Some(error.clone().with_place(place.clone()));
                }
            }
        }
    }

    /// Returns the result of all lines.
    ///
    /// # Errors
    /// The first error; with `keep_going`, the number of errors, of the greatest kind. A single one is a repetition: it was printed
    /// at its line.
    pub fn finish(self) -> Result<Exit, CommandError> {
        let Some(worst) = self.worst else {
            return Ok(if self.noes > 0 { Exit::No } else { Exit::Yes });
        };
        if !self.keep_going {
            let CommandError { outcome, .. } = worst;
            let error = worst.cause(self.after_error.summary());
            // "Unchanged" would be wrong: other lines may have changed something.
            return Err(CommandError {
                outcome: outcome.filter(|known| *known == Outcome::Unknown),
                ..error
            });
        }
        let message = format!("{} of {} lines failed", self.failed, self.lines);
        let cause = format!("worst error: {}", worst.placed_message());
        let outcome = self.is_unknown.then_some(Outcome::Unknown);
        let is_repetition = self.failed == 1;
        Err(CommandError { outcome, is_repetition, ..CommandError::new(worst.kind, message).cause(cause) })
    }
}

impl AfterError {
    fn record(&mut self, line: u64, result: &Result<Exit, CommandError>) {
        let first = self.lines.map_or(line, |(first, _)| first);
        self.lines = Some((first, line));
        match result {
            Ok(Exit::No) => self.noes = self.noes.saturating_add(1),
            Ok(_) => self.done = self.done.saturating_add(1),
            Err(error) => {
                self.failed.push(line);
                if error.outcome == Some(Outcome::Unknown) {
                    self.unknown = self.unknown.saturating_add(1);
                }
            }
        }
    }

    fn summary(&self) -> String {
        const NUMBERS_MAX: usize = 8;
        let Some((first, last)) = self.lines else {
            return "no later line was sent".to_owned();
        };
        let lines = if first == last { format!("line {first}") } else { format!("lines {first} to {last}") };
        let mut counts = vec![format!("{} succeeded", self.done)];
        if self.noes > 0 {
            counts.push(format!("{} with a negative answer", self.noes));
        }
        if !self.failed.is_empty() {
            let numbers: Vec<_> = self.failed.iter().take(NUMBERS_MAX).map(u64::to_string).collect();
            let more = if self.failed.len() > NUMBERS_MAX { ", ..." } else { "" };
            let noun = if self.failed.len() == 1 { "line" } else { "lines" };
            counts.push(format!("{} failed ({noun} {}{more})", self.failed.len(), numbers.join(", ")));
        }
        if self.unknown > 0 {
            counts.push(format!("{} with unknown outcome", self.unknown));
        }
        let sent = if first == last { "was" } else { "were" };
        format!("{lines} {sent} sent: {}; no later line was sent", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;

    fn place(line: u64) -> Place {
        Place { file: std::path::Path::new("f").into(), line }
    }

    fn failure(kind: Kind, outcome: Option<Outcome>) -> Result<Exit, CommandError> {
        Err(CommandError { outcome, ..CommandError::new(kind, "it failed") })
    }

    #[test]
    fn a_no_stops_nothing_and_is_the_result_if_there_is_no_error() {
        let mut errors = ErrorPolicy::new(false);
        errors.record(&place(1), &Ok(Exit::No));
        errors.record(&place(2), &Ok(Exit::Yes));
        assert!(!errors.is_stopped());
        assert_eq!(errors.finish(), Ok(Exit::No));
        assert_eq!(ErrorPolicy::new(false).finish(), Ok(Exit::Yes));
    }

    #[test]
    fn the_first_error_stops_and_lists_the_lines_already_sent() {
        let mut errors = ErrorPolicy::new(false);
        errors.record(&place(1), &Ok(Exit::Yes));
        errors.record(&place(7), &failure(Kind::Refused, Some(Outcome::Unchanged)));
        assert!(errors.is_stopped());
        errors.record(&place(8), &Ok(Exit::Yes));
        errors.record(&place(9), &failure(Kind::Timeout, Some(Outcome::Unknown)));
        errors.record(&place(12), &Ok(Exit::No));
        assert_eq!(errors.failed(), 2);
        let error = errors.finish().unwrap_err();
        assert_eq!((error.kind, error.outcome), (Kind::Refused, None));
        assert_eq!(error.placed_message(), "f:7: it failed");
        assert_eq!(
            error.causes,
            [
                "lines 8 to 12 were sent: 1 succeeded, 1 with a negative answer, 1 failed (line 9), 1 with unknown outcome; \
              no later line was sent"
            ]
        );
    }

    #[test]
    fn with_keep_going_the_greatest_status_is_the_result() {
        let mut errors = ErrorPolicy::new(true);
        errors.record(&place(1), &failure(Kind::Usage, None));
        errors.record(&place(2), &failure(Kind::Timeout, Some(Outcome::Unknown)));
        errors.record(&place(3), &failure(Kind::Refused, None));
        errors.record(&place(4), &Ok(Exit::No));
        assert!(!errors.is_stopped());
        let error = errors.finish().unwrap_err();
        assert_eq!((error.kind, error.outcome), (Kind::Timeout, Some(Outcome::Unknown)));
        assert_eq!((error.message.as_str(), error.is_repetition), ("3 of 4 lines failed", false));
        assert_eq!(error.causes, ["worst error: f:2: it failed"]);
    }

    #[test]
    fn a_single_error_with_keep_going_is_a_repetition() {
        let mut errors = ErrorPolicy::new(true);
        errors.record(&place(1), &failure(Kind::Usage, None));
        errors.record(&place(2), &Ok(Exit::Yes));
        let error = errors.finish().unwrap_err();
        assert_eq!((error.kind, error.is_repetition), (Kind::Usage, true));
    }
}
