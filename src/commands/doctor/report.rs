//! Takes down the checks one after the other, with the time that each has taken.

use std::io;
use std::time::Instant;

use super::super::error::{CommandError, DOCTOR, Kind};
use super::check::{Check, CheckResult, Detail, Status, Warning};
use crate::commands::output::{Emit, Output};
use crate::commands::verdict::Verdict;

/// What to do about a failure of which nothing better is known.
const LOOK: &str = "look into the broker's log; --trace shows every packet on this side";

/// All checks so far.
pub(super) struct Report<'a> {
    emit: Emit<'a>,
    clock: fn() -> Instant,
    /// When the last check was done.
    since: Instant,
    has_web_socket: bool,
    checked: Vec<CheckResult>,
}

impl<'a> Report<'a> {
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
    pub(super) fn note(&mut self, check: Check, detail: Detail, advice: Vec<Warning>) -> io::Result<()> {
        self.note_at((self.clock)(), check, detail, advice)
    }

    /// A check was done at this time.
    pub(super) fn note_at(
        &mut self,
        at: Instant,
        check: Check,
        detail: Detail,
        advice: Vec<Warning>,
    ) -> io::Result<()> {
        let status = if advice.is_empty() { Status::Ok } else { Status::Warn(advice) };
        self.take_down(at, check, Some(detail), status)
    }

    /// A check has failed now.
    pub(super) fn fail(
        &mut self,
        check: Check,
        detail: Option<Detail>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        self.fail_at((self.clock)(), check, detail, error)
    }

    /// A check has failed at this time.
    pub(super) fn fail_at(
        &mut self,
        at: Instant,
        check: Check,
        detail: Option<Detail>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        let mut error = error.into();
        // That is what runs here.
        error.hints.retain(|hint| hint != DOCTOR);
        if error.hints.is_empty() && check != Check::Settings {
            error.hints.push(LOOK.to_owned());
        }
        self.take_down(at, check, detail, Status::Fail(Box::new(error)))
    }

    /// A check is not made.
    pub(super) fn skip(&mut self, check: Check, why: &str) -> io::Result<()> {
        self.put(CheckResult { check, elapsed: None, detail: None, status: Status::Skipped(why.to_owned()) })
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
        let failure: Option<Kind> = self.checked.iter().find_map(CheckResult::failure);
        (self.emit)(Output::CheckSummary(self.checked))?;
        Ok(failure.map_or(Verdict::Yes, Verdict::Failed))
    }

    fn take_down(
        &mut self,
        at: Instant,
        check: Check,
        detail: Option<Detail>,
        status: Status,
    ) -> io::Result<()> {
        let elapsed = Some(at.saturating_duration_since(self.since));
        self.since = at.max(self.since);
        self.put(CheckResult { check, elapsed, detail, status })
    }

    fn put(&mut self, checked: CheckResult) -> io::Result<()> {
        (self.emit)(Output::Checked(Box::new(checked.clone())))?;
        self.checked.push(checked);
        Ok(())
    }
}
