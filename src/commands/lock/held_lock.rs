//! Uses a lock that is held: for a command, until a signal or the end of input, or for one lease.

use std::ffi::OsString;
use std::path::PathBuf;

use super::lease::{Lease, LeaseEvent, LockLoss, Released};
use super::record::{HeldUntil, LockNote, Locked, NoteCause};
use super::request::{LockRequest, LockUsage, StopOptions};
use super::supervisor::{self, CommandEnd, Supervisor};
use super::token_file::{self, TokenFile};
use crate::client::Error;
use crate::client::lock::{LockEvent, LossReason};
use crate::commands::error::{CommandError, Kind};
use crate::commands::exit::Exit;
use crate::commands::output::Emit;
use crate::commands::process::child;
use crate::commands::process::context::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY};
use crate::commands::process::signal::exit_of;
use crate::commands::process::{stdin, stdout};
use crate::commands::session::Session;
use crate::platform::{BackgroundStops, Signal, Signals, is_in_background, os_string};
use crate::protocol::{Timestamp, Value};

/// A lock that is held.
pub(super) struct HeldLock<'a> {
    pub session: &'a Session,
    pub request: &'a LockRequest,
    pub holder: Value,
    pub token: Timestamp,
}

impl HeldLock<'_> {
    /// Uses the lock as requested, and releases it.
    pub async fn run(
        self,
        mut lease: Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<Exit, CommandError> {
        let result = match &self.request.usage {
            LockUsage::Once => {
                return match self.report_once(&mut *emit) {
                    Ok(()) => {
                        lease.leave().await;
                        Ok(Exit::Yes)
                    }
                    Err(error) => {
                        lease.abandon().await;
                        Err(error)
                    }
                };
            }
            LockUsage::Command { words, stop } => {
                self.run_command(words, *stop, &mut lease, signals, &mut *emit).await
            }
            LockUsage::Hold { until_eof } => self.hold(*until_eof, &mut lease, signals, &mut *emit).await,
        };
        match result {
            Ok((exit, None)) => self.report_release(lease.release().await, exit, emit),
            Ok((exit, Some(LockLoss { reason, cause, .. }))) => {
                // A renewal that the store has received but not handled yet would acquire the lock again.
                lease.abandon().await;
                Err(self.loss_error(reason, cause, exit, false))
            }
            Err(error) => {
                lease.abandon().await;
                Err(error)
            }
        }
    }

    fn record(&self, held_until: HeldUntil) -> Locked {
        Locked {
            key: self.request.key.clone(),
            acquired: true,
            holder: self.holder.clone(),
            token: self.token.clone(),
            ttl_ms: self.request.ttl_ms,
            held_until,
        }
    }

    fn report_once(&self, emit: Emit<'_>) -> Result<(), CommandError> {
        if let Some(path) = &self.request.token_file {
            token_file::write(path, &self.token)?;
        }
        emit(&self.record(HeldUntil::LeaseEnd))?;
        Ok(())
    }

    /// Runs the command. Returns its exit status, and how the lock was lost meanwhile.
    async fn run_command(
        &self,
        words: &[OsString],
        stop: StopOptions,
        lease: &mut Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<(Exit, Option<LockLoss>), CommandError> {
        let path = self.request.token_file.clone().unwrap_or_else(|| self.session.new_private_file("token"));
        let token_file = TokenFile::create(path, &self.token)?;
        let key = &self.request.key;
        let variables = [
            (LOCK_KEY, os_string(key.as_bytes().to_vec())),
            (LOCK_HOLDER, os_string(self.holder.to_vec())),
            (FENCING_TOKEN, self.token.to_string().into()),
            (FENCING_TOKEN_FILE, absolute(&token_file)?.into()),
        ];
        // The file may have blocked for longer than the lease: the command must not start without the lock.
        loop {
            tokio::select! {
                biased;
                event = lease.next() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => token_file.replace(token),
                    event => return Ok((Exit::Yes, Some(supervisor::loss(event)))),
                },
                () = std::future::ready(()) => break,
            }
        }
        let group = child::spawn(words, &variables, &[])?;
        let mut supervisor = Supervisor { key, lease, signals, token_file: &token_file, stop };
        let CommandEnd { code, lost } = supervisor.run(group, emit).await?;
        Ok((Exit::Child(code), lost))
    }

    /// Holds the lock until a signal or, with `until_eof` or on a terminal, until the end of input.
    async fn hold(
        &self,
        until_eof: bool,
        lease: &mut Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<(Exit, Option<LockLoss>), CommandError> {
        let path = self.request.token_file.clone();
        let token_file = path.map(|path| TokenFile::create(path, &self.token)).transpose()?;
        // A holder that is stopped renews nothing, and loses the lock.
        let failed = |error| CommandError::system("listen to signals", &error);
        let mut suspensions = Signals::of([Signal::SUSPEND]).map_err(failed)?;
        let _background_stops = BackgroundStops::ignore();
        let mut is_suspension_noted = false;
        // Elsewhere the input may be at its end from the beginning (cron, nohup, `&` in a script), and the lock would be
        // released at once. In the background a read of the terminal would suspend this process, and its renewals.
        let reads_input = (until_eof || stdin::is_terminal()) && !is_in_background();
        emit(&self.record(if reads_input { HeldUntil::InputEnd } else { HeldUntil::Signal }))?;
        let end_of_input = async {
            match reads_input {
                true => stdin::end_of_input().await,
                false => std::future::pending().await,
            }
        };
        tokio::pin!(end_of_input);
        loop {
            tokio::select! {
                biased;
                event = lease.next() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                        if let Some(file) = &token_file {
                            file.error().map_or(Ok(()), Err)?;
                            file.replace(token);
                        }
                    }
                    event => return Ok((Exit::Yes, Some(supervisor::loss(event)))),
                },
                signal = signals.next() => return Ok((exit_of(signal), None)),
                _ = suspensions.next() => {
                    if !is_suspension_noted && stdout::stderr_has_room() {
                        is_suspension_noted = true;
                        let cause = NoteCause::NotSuspended { has_command: false };
                        let _ = emit(&LockNote { key: self.request.key.clone(), cause });
                    }
                }
                ended = &mut end_of_input => return ended.map(|()| (Exit::Yes, None)),
            }
        }
    }

    fn report_release(&self, released: Released, exit: Exit, emit: Emit<'_>) -> Result<Exit, CommandError> {
        match released {
            Released::Free | Released::NotHeld => Ok(exit),
            Released::Lost => Err(self.loss_error(LossReason::Taken, None, exit, true)),
            Released::Unconfirmed(error) => {
                let cause = NoteCause::Unconfirmed { cause: error.to_string(), ttl_ms: self.request.ttl_ms };
                // The command has succeeded: a warning that cannot be printed does not change its status.
                let _ = emit(&LockNote { key: self.request.key.clone(), cause });
                Ok(exit)
            }
        }
    }

    /// `at_release`: the loss was detected only when the lock was released.
    fn loss_error(
        &self,
        reason: LossReason,
        cause: Option<Error>,
        exit: Exit,
        at_release: bool,
    ) -> CommandError {
        let name = String::from_utf8_lossy(self.request.key.as_bytes()).into_owned();
        let error = CommandError::new(Kind::LockLost, loss_message(&name, reason));
        let error = match (&self.request.usage, exit) {
            (LockUsage::Command { stop, .. }, Exit::Child(code)) => {
                let end = match (at_release, stop.on_loss) {
                    (true, _) => "had ended by itself",
                    (false, true) => "was stopped",
                    (false, false) => "was not stopped (--no-kill)",
                };
                error.cause(format!("the command {end}; its exit status is {code}"))
            }
            _ => error,
        };
        let error = match cause.map(CommandError::from) {
            Some(CommandError { kind, message, hints, .. }) => {
                // The hint for a timeout is a longer --timeout, which does not help a lease.
                let hints = if kind == Kind::Timeout { Vec::new() } else { hints };
                CommandError { hints, ..error.cause(message) }
            }
            None => error,
        };
        error.hint(
            "`mqkv help locks` explains what may have happened, and how a fencing token prevents damage",
        )
    }
}

/// Returns the message of a lost lock.
#[must_use]
pub fn loss_message(key: &str, reason: LossReason) -> String {
    let why = match reason {
        LossReason::NotRenewed => "the lease could not be renewed in time",
        LossReason::Taken => "the store reports that it has another holder or none",
    };
    format!("lock lost: {key}: {why}")
}

/// Returns an absolute path, because the command may change its working directory.
fn absolute(file: &TokenFile) -> Result<PathBuf, CommandError> {
    std::path::absolute(file.path()).map_err(|error| CommandError::file("find", file.path(), &error))
}
