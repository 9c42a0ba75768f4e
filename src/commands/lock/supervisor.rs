//! Runs a command under a lock, and stops it before the lease ends.

use std::time::{Duration, Instant};

use super::lease::{Lease, LeaseEvent, LockLoss};
use super::record::{LockNote, NoteCause};
use super::request::StopOptions;
use super::sleep::sleep_until_some;
use super::token_file::TokenFile;
use crate::client::lock::{LockEvent, LossReason};
use crate::clock;
use crate::commands::error::{CommandError, Kind};
use crate::commands::output::Emit;
use crate::commands::process::stdout;
use crate::platform::{Group, GroupChange, Signal, Signals};
use crate::protocol::Key;

/// The end of a command.
#[derive(Clone, Debug)]
pub struct CommandEnd {
    /// The exit status.
    pub code: u8,
    pub lost: Option<LockLoss>,
}

/// A command that runs under a lock.
pub struct Supervisor<'a> {
    pub key: &'a Key,
    pub lease: &'a mut Lease,
    pub signals: &'a mut Signals,
    pub token_file: &'a TokenFile,
    pub stop: StopOptions,
}

/// How long to wait for processes that were killed. They are gone at once, unless the system itself hangs.
const GONE_AFTER_KILL: Duration = Duration::from_secs(2);

impl Supervisor<'_> {
    /// Waits for the end of the command and of all processes in its group.
    ///
    /// # Errors
    /// The system does not report the state of the command; it is killed.
    pub async fn run(&mut self, mut group: Group, emit: Emit<'_>) -> Result<CommandEnd, CommandError> {
        let mut ended = None;
        let mut lost = None;
        let mut kill_at = None;
        let mut killed_by = None;
        let mut is_suspension_noted = false;
        // While the lock is held nothing is printed that could block: it would delay the end of the command.
        loop {
            tokio::select! {
                biased;
                event = self.lease.next(), if lost.is_none() => match event {
                    LeaseEvent::Lock(LockEvent::Renewed { token, .. }) => {
                        self.token_file.replace(token);
                    }
                    event => {
                        let loss = loss(event);
                        if self.stop.on_loss {
                            let deadline = self.deadline(loss.end);
                            let deadline = kill_at.map_or(deadline, |kill_at: Instant| kill_at.min(deadline));
                            if deadline <= clock::boottime() {
                                // The command and this process were suspended. Another client may hold the lock, so a
                                // stopped command is not continued for SIGTERM.
                                group.kill();
                                (kill_at, killed_by) = (None, Some(after(GONE_AFTER_KILL)));
                            } else {
                                group.signal(Signal::Terminate);
                                kill_at = Some(deadline);
                            }
                        } else {
                            self.note(emit, NoteCause::Lost { reason: loss.reason });
                        }
                        lost = Some(loss);
                    }
                },
                change = group.next() => match change.map_err(wait_error)? {
                    GroupChange::Ended(code) => {
                        ended = Some(code);
                        group.signal(Signal::Terminate);
                        kill_at = kill_at.or(Some(after(self.stop.kill_after)));
                    }
                    // A suspended command would keep the lock from all others while its lease is renewed.
                    GroupChange::Suspended => {
                        group.resume();
                        if !is_suspension_noted && stdout::stderr_has_room() {
                            is_suspension_noted = true;
                            self.note(emit, NoteCause::NotSuspended { has_command: true });
                        }
                    }
                    GroupChange::Gone => break,
                },
                signal = self.signals.next() => group.signal(signal),
                () = sleep_until_some(kill_at) => {
                    group.kill();
                    kill_at = None;
                    killed_by = Some(after(GONE_AFTER_KILL));
                }
                () = sleep_until_some(killed_by), if ended.is_some() => break,
            }
        }
        if let Some(CommandError { message: cause, .. }) = self.token_file.error() {
            self.note(emit, NoteCause::TokenFile { cause });
        }
        Ok(CommandEnd { code: ended.unwrap_or(u8::MAX), lost })
    }

    /// Emits a warning. If it cannot be printed, the command goes on.
    fn note(&self, emit: Emit<'_>, cause: NoteCause) {
        let _ = emit(&LockNote { key: self.key.clone(), cause });
    }

    /// Returns when to kill a command after the loss of the lock: before the lease ends. It may be in the past.
    fn deadline(&self, end: Instant) -> Instant {
        after(self.stop.kill_after).min(end.checked_sub(self.stop.reserve).unwrap_or(end))
    }
}

fn after(delay: Duration) -> Instant {
    let now = clock::boottime();
    now.checked_add(delay).unwrap_or(now)
}

/// Returns the loss for an event other than a renewal: while the lock is held, all others end the lease.
pub fn loss(event: LeaseEvent) -> LockLoss {
    let cause = match event {
        LeaseEvent::Lost(lost) => return lost,
        LeaseEvent::Failed(error) | LeaseEvent::WatchFailed(error) => Some(error),
        LeaseEvent::Lock(_) | LeaseEvent::Held(_) | LeaseEvent::Unanswered(_) => None,
    };
    LockLoss { reason: LossReason::NotRenewed, end: clock::boottime(), cause }
}

fn wait_error(error: std::io::Error) -> CommandError {
    CommandError::new(Kind::Bug, format!("cannot wait for the command: {error}"))
}
