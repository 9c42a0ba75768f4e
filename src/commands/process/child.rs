//! A command in a process group of its own: started, told signals, waited for, ended whole.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal as Number, kill, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid, getppid, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{self, SignalKind};

use super::signal::Signal;
use crate::commands::error::{CommandError, Kind};

/// A running command, the leader of its group. Whatever of the group is left when this is dropped is killed.
#[derive(Debug)]
pub struct Group {
    leader: Child,
    id: Pid,
    changes: unix::Signal,
    /// It was stopped for reading or writing a terminal that belonged to somebody else.
    wants_terminal: bool,
    code: Option<u8>,
    gone: bool,
    lent: Option<Lent>,
}

/// What a group may tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The command has ended with this code; 128 and the signal's number, if a signal ended it. Told once.
    Ended(u8),
    /// The command was suspended from the terminal (Ctrl-Z).
    Suspended,
    /// The command has ended, and nobody is left in its group. Told last.
    Gone,
}

impl Group {
    /// Starts a command, found as a shell finds it, with these variables and without those. The streams are ours; if
    /// standard input is a terminal and this process is in its foreground, the command is put there in its place.
    ///
    /// # Errors
    /// [`Kind::NotFound`], [`Kind::NotExecutable`].
    pub fn spawn(
        words: &[OsString],
        variables: &[(&str, OsString)],
        without: &[String],
    ) -> Result<Self, CommandError> {
        let (program, arguments) =
            words.split_first().ok_or_else(|| CommandError::usage("a command is missing"))?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for name in without {
            command.env_remove(name);
        }
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let lent = Lent::terminal();
        prepare(&mut command, lent.is_some());
        adopt_orphans();
        let begun = unix::signal(SignalKind::child()).and_then(|changes| Ok((changes, command.spawn()?)));
        let (changes, leader) = begun.map_err(|error| {
            // The command may have come as far as the foreground.
            if lent.is_some() {
                let _ = to_foreground(getpgrp());
            }
            not_started(program, &error)
        })?;
        let id = Pid::from_raw(leader.id().cast_signed());
        Ok(Self { leader, id, changes, wants_terminal: false, code: None, gone: false, lent })
    }

    /// The next change. May be dropped at any time.
    ///
    /// # Errors
    /// The system does not say what has become of the command.
    pub async fn next(&mut self) -> io::Result<Change> {
        /// A member whose parent is none of ours ends without a word to us.
        const GONE_AGAIN: Duration = Duration::from_millis(20);
        /// A shell's `fg` comes without a word to us.
        const FOREGROUND_AGAIN: Duration = Duration::from_millis(200);
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            let again = if self.code.is_some() { GONE_AGAIN } else { FOREGROUND_AGAIN };
            tokio::select! {
                _ = self.changes.recv() => {}
                () = tokio::time::sleep(again), if self.code.is_some() || self.wants_terminal => {}
            }
        }
    }

    fn look(&mut self) -> io::Result<Option<Change>> {
        if self.code.is_none() {
            if let Some(status) = self.leader.try_wait()? {
                let code = code_of(status);
                self.code = Some(code);
                self.take_terminal_back(status.signal().is_some());
                return Ok(Some(Change::Ended(code)));
            }
            let stopped = stopped_by(self.id);
            self.wants_terminal |= matches!(stopped, Some(Number::SIGTTIN | Number::SIGTTOU));
            self.lend_terminal();
            // SIGSTOP is somebody's will.
            return Ok((stopped == Some(Number::SIGTSTP)).then_some(Change::Suspended));
        }
        self.gone = self.gone || is_gone(self.id);
        Ok(self.gone.then_some(Change::Gone))
    }

    /// Sends a signal to the whole group, and wakes those of it that are stopped.
    pub fn tell(&self, signal: Signal) {
        self.send(number_of(signal));
        self.resume();
    }

    /// Lets the group go on.
    pub fn resume(&self) {
        self.send(Number::SIGCONT);
    }

    /// Kills the whole group.
    pub fn kill(&self) {
        self.send(Number::SIGKILL);
    }

    fn send(&self, number: Number) {
        if !self.gone {
            // Whoever has ended needs no signal.
            let _ = killpg(self.id, number);
        }
    }

    /// Puts the command into the foreground if it has asked for that in vain, and this process has come there since.
    fn lend_terminal(&mut self) {
        if self.wants_terminal
            && let Some(lent) = Lent::terminal()
        {
            let _ = to_foreground(self.id);
            self.lent = Some(lent);
            self.wants_terminal = false;
            self.resume();
        }
    }

    fn take_terminal_back(&mut self, killed: bool) {
        // A shell that has stopped this process has its terminal back already.
        if let Some(lent) = self.lent.take()
            && tcgetpgrp(io::stdin()) == Ok(self.id)
            && to_foreground(getpgrp()).is_ok()
            && killed
        {
            lent.restore();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if self.code.is_none() {
            let _ = self.leader.wait();
        }
        self.take_terminal_back(true);
    }
}

/// Sends a signal to a command that leads a group, and to the rest of it.
pub fn tell_group_of(leader: &tokio::process::Child, signal: Signal) {
    // It may have ended just now: then it has no id any more, or nobody has.
    let id = leader.id().map(|id| Pid::from_raw(id.cast_signed()));
    let _ = id.map(|id| killpg(id, number_of(signal)));
}

fn number_of(signal: Signal) -> Number {
    match signal {
        Signal::Interrupt => Number::SIGINT,
        Signal::Terminate => Number::SIGTERM,
        Signal::Hangup => Number::SIGHUP,
        Signal::Quit => Number::SIGQUIT,
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let signal = || status.signal().and_then(|signal| signal.checked_add(128));
    let code = status.code().or_else(signal).unwrap_or(i32::from(u8::MAX));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// Whether nobody is left in the group. Those that this process has inherited are laid to rest on the way.
fn is_gone(group: Pid) -> bool {
    let all = Pid::from_raw(group.as_raw().saturating_neg());
    loop {
        match waitpid(all, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            // A signal that has no name here is `EINVAL`, and has been taken note of all the same.
            Ok(_) | Err(Errno::EINTR | Errno::EINVAL) => {}
            Err(_) => return killpg(group, None) == Err(Errno::ESRCH),
        }
    }
}

/// What has stopped a process, if it was stopped since this was last asked.
#[cfg(target_os = "linux")]
fn stopped_by(id: Pid) -> Option<Number> {
    use nix::sys::wait::{Id, waitid};
    match waitid(Id::Pid(id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, number)) => Some(number),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn stopped_by(_: Pid) -> Option<Number> {
    None
}

/// Orphans of the command come to this process instead of to the first of the system, which may never look after them.
fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Sends SIGINT to this process: it wakes whoever reads the terminal with a handler of its own.
pub fn interrupt_this_process() {
    let _ = kill(getpid(), Number::SIGINT);
}

/// Sends SIGCHLD to this process, which means no more than that somebody should look after the children.
pub fn nudge_this_process() {
    let _ = kill(getpid(), Number::SIGCHLD);
}

/// Has a signal do to this process what it does where nobody listens to it.
#[expect(unsafe_code, reason = "what a signal does cannot be set otherwise")]
pub fn die_of(signal: Signal) {
    let number = number_of(signal);
    // SAFETY: no handler is installed, one is taken away.
    let _ = unsafe { nix::sys::signal::signal(number, SigHandler::SigDfl) };
    let _ = kill(getpid(), number);
}

#[expect(unsafe_code, reason = "what a child does between fork and exec cannot be said otherwise")]
fn prepare(command: &mut Command, foreground: bool) {
    let parent = getpid();
    let prepared = move || -> io::Result<()> {
        die_with(parent)?;
        if foreground {
            // A command in the background is no worse than none at all.
            let _ = to_foreground(getpid());
        }
        Ok(())
    };
    // SAFETY: only system calls that are safe after a fork; nothing is allocated, no lock is taken.
    unsafe { command.pre_exec(prepared) };
}

#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Number::SIGKILL)?;
    // It may have died before it could be said.
    if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

/// Puts a group into the foreground of the terminal at standard input; also from the background.
fn to_foreground(group: Pid) -> nix::Result<()> {
    let mut ttou = SigSet::empty();
    ttou.add(Number::SIGTTOU);
    // Unblocked, the signal would stop whoever does this from the background.
    let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    let done = tcsetpgrp(io::stdin(), group);
    before.thread_set_mask()?;
    done
}

/// A terminal that the command has in this process's place.
#[derive(Debug)]
struct Lent {
    modes: Option<Termios>,
}

impl Lent {
    /// The terminal at standard input, if there is one and this process is in its foreground.
    fn terminal() -> Option<Self> {
        let foreground = tcgetpgrp(io::stdin()).ok()?;
        (foreground == getpgrp()).then(|| Self { modes: tcgetattr(io::stdin()).ok() })
    }

    /// Undoes what an editor that was killed has done to the terminal.
    fn restore(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, modes);
        }
    }
}

/// Whether standard input is a terminal that belongs to somebody else for now: reading it would stop this process.
#[must_use]
pub fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

fn not_started(program: &OsStr, error: &io::Error) -> CommandError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => Kind::NotFound,
        _ => Kind::NotExecutable,
    };
    CommandError::new(kind, format!("cannot run {}: {error}", program.display()))
        .hint("sh -c '...' for pipes, variables and what only a shell knows")
}
