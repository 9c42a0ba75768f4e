//! Takes down the checks one after the other, with the time that each has taken.

use std::io;
use std::time::Instant;

use super::super::error::{CommandError, DOCTOR, Kind};
use super::super::{Emit, Output, Verdict};
use super::check::{Advice, Check, Checked, Seen, Status};

/// What to do about a failure of which nothing better is known.
const LOOK: &str = "look into the broker's log; --trace shows every packet on this side";

/// All checks so far.
pub(super) struct Chart<'a> {
    emit: Emit<'a>,
    clock: fn() -> Instant,
    /// When the last check was done.
    since: Instant,
    has_web_socket: bool,
    checked: Vec<Checked>,
}

impl<'a> Chart<'a> {
    pub(super) fn new(clock: fn() -> Instant, emit: Emit<'a>) -> Self {
        Self { emit, clock, since: clock(), has_web_socket: false, checked: Vec::new() }
    }

    /// Whether a WebSocket is to be spoken.
    pub(super) fn expect_web_socket(&mut self, has_web_socket: bool) {
        self.has_web_socket = has_web_socket;
    }

    /// The next check begins now.
    pub(super) fn begin(&mut self) {
        self.since = (self.clock)();
    }

    /// A check is done now; advice makes it a warning.
    pub(super) fn note(&mut self, check: Check, seen: Seen, advice: Vec<Advice>) -> io::Result<()> {
        self.note_at((self.clock)(), check, seen, advice)
    }

    /// A check was done at this time.
    pub(super) fn note_at(
        &mut self,
        at: Instant,
        check: Check,
        seen: Seen,
        advice: Vec<Advice>,
    ) -> io::Result<()> {
        let status = if advice.is_empty() { Status::Ok } else { Status::Warn(advice) };
        self.take_down(at, check, Some(seen), status)
    }

    /// A check has failed now.
    pub(super) fn fail(
        &mut self,
        check: Check,
        seen: Option<Seen>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        self.fail_at((self.clock)(), check, seen, error)
    }

    /// A check has failed at this time.
    pub(super) fn fail_at(
        &mut self,
        at: Instant,
        check: Check,
        seen: Option<Seen>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        let mut error = error.into();
        // That is what runs here.
        error.hints.retain(|hint| hint != DOCTOR);
        if error.hints.is_empty() && check != Check::Settings {
            error.hints.push(LOOK.to_owned());
        }
        self.take_down(at, check, seen, Status::Fail(Box::new(error)))
    }

    /// A check is not made.
    pub(super) fn skip(&mut self, check: Check, why: &str) -> io::Result<()> {
        self.put(Checked { check, elapsed: None, seen: None, status: Status::Skipped(why.to_owned()) })
    }

    /// What is left cannot be checked, because of the last failure.
    pub(super) fn skip_rest(&mut self) -> io::Result<()> {
        let failed = self.checked.iter().rev().find(|checked| checked.failure().is_some());
        let why = failed.map_or_else(String::new, |failed| format!("{} has failed", failed.check.name()));
        let last = self.checked.last().map(|checked| checked.check);
        for check in Check::all(self.has_web_socket).filter(|check| last.is_none_or(|last| *check > last)) {
            self.skip(check, &why)?;
        }
        Ok(())
    }

    /// Puts out the whole; it ends as its first failure does.
    pub(super) fn end(self) -> io::Result<Verdict> {
        let failure: Option<Kind> = self.checked.iter().find_map(Checked::failure);
        (self.emit)(Output::Examined(self.checked))?;
        Ok(failure.map_or(Verdict::Yes, Verdict::Failed))
    }

    fn take_down(&mut self, at: Instant, check: Check, seen: Option<Seen>, status: Status) -> io::Result<()> {
        let elapsed = Some(at.saturating_duration_since(self.since));
        self.since = at.max(self.since);
        self.put(Checked { check, elapsed, seen, status })
    }

    fn put(&mut self, checked: Checked) -> io::Result<()> {
        (self.emit)(Output::Checked(Box::new(checked.clone())))?;
        self.checked.push(checked);
        Ok(())
    }
}
