//! Runs a command under a lock: the command ends before the lock does.

use std::time::{Duration, Instant};

use super::lease::{Lease, LeaseEvent, Lost};
use super::token_file::TokenFile;
use crate::client::lock::{LockEvent, LossReason};
use crate::commands::error::CommandError;
use crate::commands::lock::sleep::until;
use crate::commands::output::Emit;
use crate::commands::output::{LockNote, Output};
use crate::commands::process::child::{Change, Group};
use crate::commands::process::signal::{Signal, Signals};
use crate::protocol::Key;

/// How a command is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Stopping {
    /// How long it may take to end when told to.
    pub kill_after: Duration,
    /// How long before the lease's end nothing of it may be left.
    pub spare: Duration,
    /// Whether it is stopped when the lock is lost.
    pub when_lost: bool,
}

/// How a command has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its code.
    pub code: u8,
    /// How the lock was lost, if it was.
    pub lost: Option<Lost>,
}

/// A command that runs under a lock.
pub struct Under<'a> {
    /// The lock.
    pub key: &'a Key,
    /// Keeps it.
    pub lease: &'a mut Lease,
    /// What this process is asked for.
    pub signals: &'a mut Signals,
    /// Tells the command the newest token.
    pub token_file: &'a TokenFile,
    /// How the command is stopped.
    pub stopping: Stopping,
    /// Reads the clock of leases.
    pub now: fn() -> Instant,
}

/// Killed processes are gone in no time, unless the system itself is stuck with them.
const GONE_AFTER_KILL: Duration = Duration::from_secs(2);

impl Under<'_> {
    /// Sees a command to its end, and whatever it has left in its group.
    ///
    /// # Errors
    /// The system does not say what has become of the command; it is dropped, and so killed.
    pub async fn run(&mut self, mut group: Group, emit: Emit<'_>) -> Result<Ended, CommandError> {
        let mut ended = None;
        let mut lost = None;
        let mut kill_at = None;
        let mut killed_by = None;
        // Nothing is written while the command has to be watched: whoever reads may stall, and with them the renewals.
        loop {
            tokio::select! {
                biased;
                event = self.lease.next(), if lost.is_none() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                        self.token_file.replace(token);
                    }
                    event => {
                        let loss = loss(event, self.now);
                        if self.stopping.when_lost {
                            group.signal(Signal::Terminate);
                            let deadline = self.deadline(loss.end);
                            kill_at = Some(kill_at.map_or(deadline, |kill_at: Instant| kill_at.min(deadline)));
                        } else {
                            self.note(emit, LockNote::Lost { reason: loss.reason });
                        }
                        lost = Some(loss);
                    }
                },
                change = group.next() => match change.map_err(of_system)? {
                    Change::Ended(code) => {
                        ended = Some(code);
                        group.signal(Signal::Terminate);
                        kill_at = kill_at.or(Some(self.later(self.stopping.kill_after)));
                    }
                    // Whoever is suspended keeps the others waiting for as long as the lease is renewed.
                    Change::Suspended => group.resume(),
                    Change::Gone => break,
                },
                signal = self.signals.next() => group.signal(signal),
                () = at(kill_at, self.now) => {
                    group.kill();
                    kill_at = None;
                    killed_by = Some(self.later(GONE_AFTER_KILL));
                }
                () = at(killed_by, self.now), if ended.is_some() => break,
            }
        }
        if let Some(CommandError { message: cause, .. }) = self.token_file.trouble() {
            self.note(emit, LockNote::TokenFile { cause });
        }
        Ok(Ended { code: ended.unwrap_or(u8::MAX), lost })
    }

    /// Says something beside the matter; where nobody listens, the command goes on all the same.
    fn note(&self, emit: Emit<'_>, note: LockNote) {
        let _ = emit(Output::LockNote { key: self.key.clone(), note });
    }

    /// When a command is to be killed that was told to end: while the lease lasts, if it still does.
    fn deadline(&self, end: Instant) -> Instant {
        let patient = self.later(self.stopping.kill_after);
        if end <= (self.now)() {
            patient
        } else {
            patient.min(end.checked_sub(self.stopping.spare).unwrap_or(end))
        }
    }

    fn later(&self, by: Duration) -> Instant {
        let now = (self.now)();
        now.checked_add(by).unwrap_or(now)
    }
}

/// A lease that says anything else while it is held is lost.
pub fn loss(event: LeaseEvent, now: fn() -> Instant) -> Lost {
    let cause = match event {
        LeaseEvent::Lost(lost) => return lost,
        LeaseEvent::Failed(error) | LeaseEvent::Unwatched(error) => Some(error),
        LeaseEvent::Lock(_) | LeaseEvent::Held { .. } => None,
    };
    Lost { reason: LossReason::NotRenewed, end: now(), cause }
}

fn of_system(error: std::io::Error) -> CommandError {
    CommandError::new(crate::commands::Kind::Bug, format!("cannot wait for the command: {error}"))
}

async fn at(when: Option<Instant>, now: fn() -> Instant) {
    match when {
        Some(when) => until(when, now).await,
        None => std::future::pending().await,
    }
}
