//! What becomes of many lines when some of them fail: stop at the first trouble, or go on and tell the worst.

use crate::client::Outcome;
use crate::commands::Verdict;
use crate::commands::error::CommandError;

/// The troubles so far.
#[derive(Debug)]
pub struct ErrorPolicy {
    keep_going: bool,
    lines: u64,
    noes: u64,
    failed: u64,
    is_unknown: bool,
    /// The first one, with its line; when going on, the first of the worst.
    chief: Option<(u64, CommandError)>,
    behind: Behind,
}

/// What had been sent when the first trouble came.
#[derive(Debug, Default)]
struct Behind {
    lines: Option<(u64, u64)>,
    done: u64,
    noes: u64,
    failed: Vec<u64>,
    unknown: u64,
}

impl ErrorPolicy {
    /// None yet.
    #[must_use]
    pub fn new(keep_going: bool) -> Self {
        Self {
            keep_going,
            lines: 0,
            noes: 0,
            failed: 0,
            is_unknown: false,
            chief: None,
            behind: Behind::default(),
        }
    }

    /// Whether troubles stop nothing.
    #[must_use]
    pub fn keeps_going(&self) -> bool {
        self.keep_going
    }

    /// Whether nothing more is to be sent.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        !self.keep_going && self.chief.is_some()
    }

    /// How many lines have failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Takes note of what became of a line.
    pub fn note(&mut self, line: u64, result: &Result<Verdict, CommandError>) {
        self.lines = self.lines.saturating_add(1);
        if self.is_stopped() {
            return self.behind.note(line, result);
        }
        match result {
            Ok(Verdict::No) => self.noes = self.noes.saturating_add(1),
            Ok(_) => {}
            Err(error) => {
                self.failed = self.failed.saturating_add(1);
                self.is_unknown |= error.outcome == Some(Outcome::Unknown);
                if self.chief.as_ref().is_none_or(|(_, chief)| chief.kind < error.kind) {
                    self.chief = Some((line, error.clone()));
                }
            }
        }
    }

    /// How it all ends.
    ///
    /// # Errors
    /// The first trouble, or how many there were, with the code of the worst.
    pub fn finish(self) -> Result<Verdict, CommandError> {
        let Some((line, chief)) = self.chief else {
            return Ok(if self.noes > 0 { Verdict::No } else { Verdict::Yes });
        };
        if !self.keep_going {
            let CommandError { outcome, .. } = chief;
            let error = chief.at_line(line).cause(self.behind.told());
            // Other lines did change something.
            return Err(CommandError {
                outcome: outcome.filter(|known| *known == Outcome::Unknown),
                ..error
            });
        }
        let message = format!("{} of {} lines failed", self.failed, self.lines);
        let worst = format!("the worst of them: {}", chief.clone().at_line(line).message);
        let outcome = self.is_unknown.then_some(Outcome::Unknown);
        Err(CommandError { outcome, ..CommandError::new(chief.kind, message).cause(worst) })
    }
}

impl Behind {
    fn note(&mut self, line: u64, result: &Result<Verdict, CommandError>) {
        let first = self.lines.map_or(line, |(first, _)| first);
        self.lines = Some((first, line));
        match result {
            Ok(Verdict::No) => self.noes = self.noes.saturating_add(1),
            Ok(_) => self.done = self.done.saturating_add(1),
            Err(error) => {
                self.failed.push(line);
                if error.outcome == Some(Outcome::Unknown) {
                    self.unknown = self.unknown.saturating_add(1);
                }
            }
        }
    }

    fn told(&self) -> String {
        /// More numbers than these help nobody.
        const NUMBERS_MAX: usize = 8;
        let Some((first, last)) = self.lines else {
            return "no line after it was sent".to_owned();
        };
        let lines = if first == last { format!("line {first}") } else { format!("lines {first} to {last}") };
        let mut counts = vec![format!("{} done", self.done)];
        if self.noes > 0 {
            counts.push(format!("{} answered no", self.noes));
        }
        if !self.failed.is_empty() {
            let numbers: Vec<_> = self.failed.iter().take(NUMBERS_MAX).map(u64::to_string).collect();
            let more = if self.failed.len() > NUMBERS_MAX { ", ..." } else { "" };
            counts.push(format!("{} failed ({}{more})", self.failed.len(), numbers.join(", ")));
        }
        if self.unknown > 0 {
            counts.push(format!("of {} the outcome is unknown", self.unknown));
        }
        format!("{lines} had been sent already: {}; nothing after that was sent", counts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Kind;

    fn failure(kind: Kind, outcome: Option<Outcome>) -> Result<Verdict, CommandError> {
        Err(CommandError { outcome, ..CommandError::new(kind, "it went wrong") })
    }

    #[test]
    fn a_no_stops_nothing_and_is_the_end_if_nothing_is_worse() {
        let mut troubles = ErrorPolicy::new(false);
        troubles.note(1, &Ok(Verdict::No));
        troubles.note(2, &Ok(Verdict::Yes));
        assert!(!troubles.is_stopped());
        assert_eq!(troubles.finish(), Ok(Verdict::No));
        assert_eq!(ErrorPolicy::new(false).finish(), Ok(Verdict::Yes));
    }

    #[test]
    fn the_first_trouble_stops_and_tells_what_had_been_sent() {
        let mut troubles = ErrorPolicy::new(false);
        troubles.note(1, &Ok(Verdict::Yes));
        troubles.note(7, &failure(Kind::Refused, Some(Outcome::Unchanged)));
        assert!(troubles.is_stopped());
        troubles.note(8, &Ok(Verdict::Yes));
        troubles.note(9, &failure(Kind::Timeout, Some(Outcome::Unknown)));
        troubles.note(12, &Ok(Verdict::No));
        let error = troubles.finish().unwrap_err();
        assert_eq!((error.kind, error.outcome), (Kind::Refused, None));
        assert_eq!(error.message, "line 7: it went wrong");
        assert_eq!(
            error.causes,
            ["lines 8 to 12 had been sent already: 1 done, 1 answered no, 1 failed (9), \
              of 1 the outcome is unknown; nothing after that was sent"]
        );
    }

    #[test]
    fn going_on_ends_with_the_greatest_code() {
        let mut troubles = ErrorPolicy::new(true);
        troubles.note(1, &failure(Kind::Usage, None));
        troubles.note(2, &failure(Kind::Timeout, Some(Outcome::Unknown)));
        troubles.note(3, &failure(Kind::Refused, None));
        troubles.note(4, &Ok(Verdict::No));
        assert!(!troubles.is_stopped());
        let error = troubles.finish().unwrap_err();
        assert_eq!((error.kind, error.outcome), (Kind::Timeout, Some(Outcome::Unknown)));
        assert_eq!(error.message, "3 of 4 lines failed");
        assert_eq!(error.causes, ["the worst of them: line 2: it went wrong"]);
    }
}
