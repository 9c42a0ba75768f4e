//! Collects the results of the checks, each with its duration.

use std::io;
use std::time::{Duration, Instant};

use super::check::{Check, CheckResult, Detail, Status, Warning};
use super::record::CheckSummary;
use crate::clock;
use crate::commands::error::{CommandError, DOCTOR_HINT, Kind};
use crate::commands::exit::Exit;
use crate::commands::output::Emit;
use crate::commands::preparation::{PreparationStep, Prepared};

/// The hint for a failure that has none.
const DEFAULT_HINT: &str = "see the broker's log, and every packet of this client with --trace";

/// The results so far.
pub(super) struct Report<'a> {
    emit: Emit<'a>,
    /// The end of the last check.
    since: Instant,
    has_web_socket: bool,
    /// How long it took to get a token whose check follows.
    token_elapsed: Option<Duration>,
    results: Vec<CheckResult>,
}

impl<'a> Report<'a> {
    pub(super) fn new(emit: Emit<'a>) -> Self {
        Self {
            emit,
            since: clock::monotonic(),
            has_web_socket: false,
            token_elapsed: None,
            results: Vec::new(),
        }
    }

    /// Sets whether the check of the WebSocket is expected.
    pub(super) fn expect_web_socket(&mut self, has_web_socket: bool) {
        self.has_web_socket = has_web_socket;
    }

    /// Starts the clock of the next check.
    pub(super) fn start(&mut self) {
        self.since = clock::monotonic();
    }

    /// Adds a check that has passed now, or has warnings.
    pub(super) fn pass(&mut self, check: Check, detail: Detail, warnings: Vec<Warning>) -> io::Result<()> {
        self.pass_at(clock::monotonic(), check, detail, warnings)
    }

    /// Adds a check that has passed at `at`, or has warnings.
    pub(super) fn pass_at(
        &mut self,
        at: Instant,
        check: Check,
        detail: Detail,
        warnings: Vec<Warning>,
    ) -> io::Result<()> {
        let status = if warnings.is_empty() { Status::Ok } else { Status::Warn(warnings) };
        self.add_timed(at, check, Some(detail), status)
    }

    /// Adds a check that has failed now.
    pub(super) fn fail(
        &mut self,
        check: Check,
        detail: Option<Detail>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        self.fail_at(clock::monotonic(), check, detail, error)
    }

    /// Adds a check that has failed at `at`.
    pub(super) fn fail_at(
        &mut self,
        at: Instant,
        check: Check,
        detail: Option<Detail>,
        error: impl Into<CommandError>,
    ) -> io::Result<()> {
        let mut error = error.into();
        // The hint to run `doctor` is of no use here.
        error.hints.retain(|hint| hint != DOCTOR_HINT);
        if error.hints.is_empty() && check != Check::Settings {
            error.hints.push(DEFAULT_HINT.to_owned());
        }
        self.add_timed(at, check, detail, Status::Fail(Box::new(error)))
    }

    /// Adds a step before the connection. They are made at the same time. With `is_complete` a connection follows, which shows what a
    /// token states about itself.
    pub(super) fn prepared(&mut self, prepared: Prepared, is_complete: bool) -> io::Result<()> {
        let Prepared { step, elapsed, result } = prepared;
        if is_complete && step == PreparationStep::Token {
            self.token_elapsed = Some(elapsed);
            return Ok(());
        }
        let (detail, status) = match result {
            Ok(text) => (Some(Detail::Prepared { text }), Status::Ok),
            Err(error) => (None, Status::Fail(Box::new(error))),
        };
        self.add(CheckResult { check: step.into(), elapsed: Some(elapsed), detail, status })
    }

    /// Adds a check that is not made.
    pub(super) fn skip(&mut self, check: Check, why: &str) -> io::Result<()> {
        self.add(CheckResult { check, elapsed: None, detail: None, status: Status::Skipped(why.to_owned()) })
    }

    /// Returns whether a check has failed.
    pub(super) fn has_failure(&self) -> bool {
        self.results.iter().any(|result| result.failure().is_some())
    }

    /// Returns whether a check has been made or skipped.
    pub(super) fn has(&self, check: Check) -> bool {
        self.results.iter().any(|result| result.check == check)
    }

    /// Skips the checks after the last one, because of the last failure.
    pub(super) fn skip_rest(&mut self) -> io::Result<()> {
        let failed = self.results.iter().rev().find(|result| result.failure().is_some());
        let why = failed.map_or_else(String::new, |failed| format!("{} failed", failed.check.name()));
        let last = self.results.last().map(|result| result.check);
        for check in Check::all(self.has_web_socket).filter(|check| last.is_none_or(|last| *check > last)) {
            self.skip(check, &why)?;
        }
        Ok(())
    }

    /// Emits all results. It exits as the first failure demands.
    pub(super) fn finish(self) -> io::Result<Exit> {
        let failure: Option<Kind> = self.results.iter().find_map(CheckResult::failure);
        (self.emit)(&CheckSummary(self.results))?;
        Ok(failure.map_or(Exit::Yes, Exit::Failed))
    }

    fn add_timed(
        &mut self,
        at: Instant,
        check: Check,
        detail: Option<Detail>,
        status: Status,
    ) -> io::Result<()> {
        let of_token = self.token_elapsed.take_if(|_| check == Check::Token);
        let elapsed = of_token.or(Some(at.saturating_duration_since(self.since)));
        self.since = at.max(self.since);
        self.add(CheckResult { check, elapsed, detail, status })
    }

    fn add(&mut self, result: CheckResult) -> io::Result<()> {
        (self.emit)(&result)?;
        self.results.push(result);
        Ok(())
    }
}
