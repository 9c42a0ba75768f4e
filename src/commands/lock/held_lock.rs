//! Uses a lock that is held: for a command, until the end of input, or for one lease; then gives it back.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::lease::{Lease, LeaseEvent, Lost, Released};
use super::token_file::{self, TokenFile};
use super::{Use, Wanted};
use crate::client::Error;
use crate::client::lock::{LockEvent, LossReason};
use crate::clock;
use crate::commands::error::{CommandError, Kind};
use crate::commands::lock::supervisor;
use crate::commands::lock::supervisor::{Ended, Stopping, Under};
use crate::commands::output::Emit;
use crate::commands::output::{LockNote, Output};
use crate::commands::process::child::{Group, is_in_background};
use crate::commands::process::context::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY};
use crate::commands::process::signal::Signals;
use crate::commands::process::stdin;
use crate::commands::session::Session;
use crate::commands::verdict::Verdict;
use crate::protocol::{Timestamp, Value};

/// A lock that is held.
pub(super) struct Held<'a> {
    pub session: &'a Session,
    pub wanted: &'a Wanted,
    pub holder: Value,
    pub token: Timestamp,
}

impl Held<'_> {
    pub async fn use_up(
        self,
        mut lease: Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<Verdict, CommandError> {
        let result = match &self.wanted.use_for {
            Use::Once => {
                return match self.tell_once(&mut *emit) {
                    Ok(()) => {
                        lease.leave().await;
                        Ok(Verdict::Yes)
                    }
                    Err(error) => {
                        lease.abandon().await;
                        Err(error)
                    }
                };
            }
            Use::Command { words, stopping } => {
                self.run(words, *stopping, &mut lease, signals, &mut *emit).await
            }
            Use::Hold => self.hold(&mut lease, signals, &mut *emit).await,
        };
        match result {
            Ok((verdict, None)) => self.give_back(lease.release().await, verdict, emit),
            Ok((verdict, Some(Lost { reason, cause, .. }))) => {
                // A renewal that lies unread in a stalled store would take the lock for nobody.
                lease.abandon().await;
                Err(self.lost(reason, cause, verdict, false))
            }
            Err(error) => {
                lease.abandon().await;
                Err(error)
            }
        }
    }

    fn record(&self, once: bool) -> Output {
        Output::Locked {
            key: self.wanted.key.clone(),
            holder: self.holder.clone(),
            token: self.token.clone(),
            ttl_ms: self.wanted.ttl_ms,
            once,
        }
    }

    fn tell_once(&self, emit: Emit<'_>) -> Result<(), CommandError> {
        if let Some(path) = &self.wanted.token_file {
            token_file::write(path, &self.token)?;
        }
        emit(self.record(true))?;
        Ok(())
    }

    /// Runs the command. Returns its code, and how the lock was lost meanwhile, if it was.
    async fn run(
        &self,
        words: &[OsString],
        stopping: Stopping,
        lease: &mut Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<(Verdict, Option<Lost>), CommandError> {
        let path = self.wanted.token_file.clone().unwrap_or_else(|| self.session.new_private_file("token"));
        let token_file = TokenFile::create(path, &self.token)?;
        let key = &self.wanted.key;
        let variables = [
            (LOCK_KEY, OsString::from_vec(key.as_bytes().to_vec())),
            (LOCK_HOLDER, OsString::from_vec(self.holder.to_vec())),
            (FENCING_TOKEN, self.token.to_string().into()),
            (FENCING_TOKEN_FILE, absolute(&token_file)?.into()),
        ];
        // The file may have taken its time: nothing is begun under a lock that is over.
        loop {
            tokio::select! {
                biased;
                event = lease.next() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => token_file.replace(token),
                    event => return Ok((Verdict::Yes, Some(supervisor::loss(event, clock::boottime)))),
                },
                () = std::future::ready(()) => break,
            }
        }
        let group = Group::spawn(words, &variables, &[])?;
        let now = clock::boottime;
        let mut under = Under { key, lease, signals, token_file: &token_file, stopping, now };
        let Ended { code, lost } = under.run(group, emit).await?;
        Ok((Verdict::Child(code), lost))
    }

    /// Holds the lock until the end of input or a signal.
    async fn hold(
        &self,
        lease: &mut Lease,
        signals: &mut Signals,
        emit: Emit<'_>,
    ) -> Result<(Verdict, Option<Lost>), CommandError> {
        let path = self.wanted.token_file.clone();
        let token_file = path.map(|path| TokenFile::create(path, &self.token)).transpose()?;
        emit(self.record(false))?;
        let end_of_input = async {
            match is_in_background() {
                true => std::future::pending().await,
                false => stdin::end_of_input().await,
            }
        };
        tokio::pin!(end_of_input);
        loop {
            tokio::select! {
                biased;
                event = lease.next() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                        if let Some(file) = &token_file {
                            file.trouble().map_or(Ok(()), Err)?;
                            file.replace(token);
                        }
                    }
                    event => return Ok((Verdict::Yes, Some(supervisor::loss(event, clock::boottime)))),
                },
                signal = signals.next() => return Ok((signal.verdict(), None)),
                ended = &mut end_of_input => return ended.map(|()| (Verdict::Yes, None)),
            }
        }
    }

    fn give_back(
        &self,
        released: Released,
        verdict: Verdict,
        emit: Emit<'_>,
    ) -> Result<Verdict, CommandError> {
        match released {
            Released::Free | Released::NotHeld => Ok(verdict),
            Released::Lost => Err(self.lost(LossReason::Taken, None, verdict, true)),
            Released::Unconfirmed(error) => {
                let note = LockNote::Unconfirmed { cause: error.to_string(), ttl_ms: self.wanted.ttl_ms };
                // The command has done its work: that nobody reads this is no failure of its.
                let _ = emit(Output::LockNote { key: self.wanted.key.clone(), note });
                Ok(verdict)
            }
        }
    }

    /// `ran_on`: it turned out only when the lock was to be given back.
    fn lost(&self, reason: LossReason, cause: Option<Error>, verdict: Verdict, ran_on: bool) -> CommandError {
        let name = String::from_utf8_lossy(self.wanted.key.as_bytes()).into_owned();
        let why = match reason {
            LossReason::NotRenewed => "its lease could not be renewed in time",
            LossReason::Taken => "the store says that it is not ours any more",
        };
        let error = CommandError::new(Kind::LockLost, format!("the lock {name} was lost: {why}"));
        let error = match (&self.wanted.use_for, verdict) {
            (Use::Command { stopping, .. }, Verdict::Child(code)) => {
                let what = match (ran_on, stopping.when_lost) {
                    (true, _) => "had ended by itself",
                    (false, true) => "was told to stop",
                    (false, false) => "was not stopped (--no-kill)",
                };
                error.cause(format!("the command {what}; its code is {code}"))
            }
            _ => error,
        };
        let error = match cause.map(CommandError::from) {
            Some(CommandError { kind, message, hints, .. }) => {
                // What is to be done about a request that is late is no help for a lease.
                let hints = if kind == Kind::Timeout { Vec::new() } else { hints };
                CommandError { hints, ..error.cause(message) }
            }
            None => error,
        };
        error.hint(
            "`mqkv help locks` says what may have happened meanwhile, and how a fencing token prevents it",
        )
    }
}

/// The command may change its folder.
fn absolute(file: &TokenFile) -> Result<PathBuf, CommandError> {
    std::path::absolute(file.path()).map_err(|error| CommandError::file("find", file.path(), &error))
}
