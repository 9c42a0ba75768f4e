//! A child process in its own process group: started, signaled, waited for, killed together with its descendants.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal as Number, killpg};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};
use tokio::signal::unix::{self, SignalKind};

use super::job_control::{BackgroundStops, stop_this_job, stop_this_process};
use super::signal::{Signals, is_ignored};
use crate::platform::types::{GroupChange, Signal};

/// A running command, the leader of its process group. Dropping it kills what is left of the group.
#[derive(Debug)]
pub struct Group {
    leader: Child,
    id: Pid,
    child_signals: unix::Signal,
    /// Signals of the terminal that are for the command as well: SIGTSTP and SIGWINCH.
    job_signals: Signals,
    /// This process has received SIGTSTP.
    is_asked_to_stop: bool,
    /// The command is stopped until it can have the terminal: it used it while in the background, or was suspended.
    wants_terminal: bool,
    status: Option<u8>,
    gone: bool,
    terminal: Option<LentTerminal>,
    /// Dropped last: the terminal is taken back from the background.
    _background_stops: BackgroundStops,
}

impl Group {
    /// Starts a command. If standard input is a terminal and this process is in its foreground, the command gets the foreground.
    ///
    /// # Errors
    /// Those of the system, among them [`io::ErrorKind::NotFound`].
    pub fn spawn(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        let terminal = LentTerminal::in_foreground();
        prepare(&mut command, terminal.is_some());
        let background_stops = BackgroundStops::ignore();
        let spawned = unix::signal(SignalKind::child()).and_then(|signals| {
            let job_signals = Signals::of([Signal::SUSPEND, Signal::WINDOW_CHANGE])?;
            Ok((signals, job_signals, command.spawn()?))
        });
        let (child_signals, job_signals, leader) = spawned.inspect_err(|_| {
            // The child may have taken the foreground before exec failed.
            if terminal.is_some() {
                let _ = set_foreground(getpgrp());
            }
        })?;
        let id = Pid::from_raw(leader.id().cast_signed());
        Ok(Self {
            leader,
            id,
            child_signals,
            job_signals,
            is_asked_to_stop: false,
            wants_terminal: false,
            status: None,
            gone: false,
            terminal,
            _background_stops: background_stops,
        })
    }

    /// Returns the next change. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<GroupChange> {
        // A member of the group whose parent is another process ends without a SIGCHLD for this one.
        const GONE_POLL: Duration = Duration::from_millis(20);
        // There is no signal for a change of the foreground, as by a shell's `fg`.
        const FOREGROUND_POLL: Duration = Duration::from_millis(200);
        loop {
            if let Some(change) = self.poll()? {
                return Ok(change);
            }
            let interval = if self.status.is_some() { GONE_POLL } else { FOREGROUND_POLL };
            tokio::select! {
                _ = self.child_signals.recv() => {}
                signal = self.job_signals.next() => match signal {
                    Signal::SUSPEND => {
                        self.is_asked_to_stop = true;
                        return Ok(GroupChange::Suspended);
                    }
                    signal => self.send(signal),
                },
                () = tokio::time::sleep(interval), if self.status.is_some() || self.wants_terminal => {}
            }
        }
    }

    fn poll(&mut self) -> io::Result<Option<GroupChange>> {
        reap_orphans(self.id);
        if self.status.is_none() {
            if let Some(status) = self.leader.try_wait()? {
                let code = shell_status(status);
                self.status = Some(code);
                self.take_terminal_back(status.signal().is_some());
                return Ok(Some(GroupChange::Ended(code)));
            }
            let stopped = stopped_by(self.id);
            self.wants_terminal |= matches!(stopped, Some(Number::SIGTTIN | Number::SIGTTOU));
            self.lend_terminal();
            // SIGSTOP is left alone: it was sent on purpose, as with `kill -STOP`.
            return Ok((stopped == Some(Number::SIGTSTP)).then_some(GroupChange::Suspended));
        }
        self.gone = self.gone || killpg(self.id, None) == Err(Errno::ESRCH);
        Ok(self.gone.then_some(GroupChange::Gone))
    }

    /// Sends a signal to the whole group, and continues stopped members so that they receive it.
    pub fn signal(&self, signal: Signal) {
        self.send(signal);
        self.resume();
    }

    /// Continues stopped members of the group.
    pub fn resume(&self) {
        self.send(Signal::CONTINUE);
    }

    /// Stops this process too, so that its shell takes the terminal. When the shell has continued this process in the
    /// foreground, the command gets the terminal and continues. Without job control it continues at once.
    pub fn suspend(&mut self) {
        if std::mem::take(&mut self.is_asked_to_stop) {
            // Its stop is not waited for: a shell that starts a program does not stop while that one is stopped. The other
            // processes of the job have received the signal too, if it came from the terminal.
            self.send(Signal::SUSPEND);
            stop_this_process();
        } else if self.terminal.is_some() && !is_ignored(Signal::SUSPEND) {
            stop_this_job();
        }
        if self.terminal.is_some() && tcgetpgrp(io::stdin()) != Ok(self.id) {
            self.wants_terminal = true;
        } else {
            self.resume();
        }
    }

    /// Kills the whole group.
    pub fn kill(&self) {
        self.send(Signal::Other(Number::SIGKILL as i32));
    }

    /// Leaves the processes running that are left in the group, after the command has ended.
    pub fn leave(mut self) {
        self.gone = true;
    }

    fn send(&self, signal: Signal) {
        if !self.gone {
            // Fails if the last member has ended meanwhile.
            let _ = signal.send_to_group(self.id);
        }
    }

    /// Gives the terminal to a command that was stopped for using it, once this process is in the foreground.
    fn lend_terminal(&mut self) {
        if self.wants_terminal
            && let Some(terminal) = LentTerminal::in_foreground()
        {
            let _ = set_foreground(self.id);
            // The modes of a suspended command are not the ones to restore.
            self.terminal.get_or_insert(terminal);
            self.wants_terminal = false;
            self.resume();
        }
    }

    fn take_terminal_back(&mut self, killed: bool) {
        // After Ctrl-Z in a shell the foreground belongs to the shell, and must not be taken from it.
        if let Some(terminal) = self.terminal.take()
            && tcgetpgrp(io::stdin()) == Ok(self.id)
            && set_foreground(getpgrp()).is_ok()
            && killed
        {
            terminal.restore();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if self.status.is_none() {
            let _ = self.leader.wait();
        }
        self.take_terminal_back(true);
    }
}

fn shell_status(status: ExitStatus) -> u8 {
    let signal = || status.signal().and_then(|signal| signal.checked_add(128));
    let code = status.code().or_else(signal);
    // Exit statuses and signal numbers of Unix are below 256 and 128.
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Returns the signal that has stopped a process since the last call.
#[cfg(target_os = "linux")]
fn stopped_by(id: Pid) -> Option<Number> {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    match waitid(Id::Pid(id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
        Ok(WaitStatus::Stopped(_, number)) => Some(number),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn stopped_by(_: Pid) -> Option<Number> {
    None
}

/// Makes this process the parent of the orphans of its commands; a [`Group`] waits for them. In a container, process 1 may
/// never do so. For a verb whose only child is the leader of a group: the exit status of another one would be lost.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Waits for the adopted orphans that have ended, so that they do not stay as zombies.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "nix has no type for a process that a real-time signal has ended")]
fn reap_orphans(leader: Pid) {
    use nix::libc;
    use nix::sys::wait::{WaitPidFlag, waitpid};
    if !nix::sys::prctl::get_child_subreaper().unwrap_or(false) {
        return;
    }
    loop {
        // SAFETY: all-zero is a valid `siginfo_t`.
        let mut ended: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the pointer is valid.
        let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut ended, options) };
        // SAFETY: waitid has filled in the id of a child; 0 if none has ended.
        let id = Pid::from_raw(unsafe { ended.si_pid() });
        if result != 0 || id.as_raw() == 0 || id == leader {
            return;
        }
        let _ = waitpid(id, Some(WaitPidFlag::WNOHANG));
    }
}

#[cfg(not(target_os = "linux"))]
fn reap_orphans(_: Pid) {}

/// Lets the program of this command be killed when the thread that starts it ends, where the system can do that.
#[expect(unsafe_code, reason = "no safe function runs code between fork and exec")]
pub(super) fn end_with_this_process(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure makes only async-signal-safe system calls; it does not allocate and takes no lock.
    unsafe { command.pre_exec(move || die_with_parent(parent)) };
}

#[expect(unsafe_code, reason = "no safe function runs code between fork and exec")]
fn prepare(command: &mut Command, foreground: bool) {
    end_with_this_process(command);
    let prepare = move || -> io::Result<()> {
        if foreground {
            // If this fails the command runs in the background, which is better than not at all.
            let _ = set_foreground(getpid());
        }
        BackgroundStops::restore_defaults();
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe system calls; it does not allocate and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Number::SIGKILL)?;
    // The parent may have died before the call: then the signal never comes.
    if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: Pid) -> io::Result<()> {
    Ok(())
}

/// Puts a group into the foreground of the terminal at standard input. In the background this needs [`BackgroundStops`].
fn set_foreground(group: Pid) -> nix::Result<()> {
    tcsetpgrp(io::stdin(), group)
}

/// The terminal at standard input, while a child has its foreground.
#[derive(Debug)]
struct LentTerminal {
    modes: Option<Termios>,
}

impl LentTerminal {
    /// Returns the terminal, if this process is in its foreground.
    fn in_foreground() -> Option<Self> {
        let foreground = tcgetpgrp(io::stdin()).ok()?;
        (foreground == getpgrp()).then(|| Self { modes: tcgetattr(io::stdin()).ok() })
    }

    /// Restores the modes: an editor that was killed leaves the terminal in raw mode.
    fn restore(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, modes);
        }
    }
}

/// Returns whether standard input is a terminal and this process is in its background: a read would stop it.
#[must_use]
pub fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground != getpgrp())
}

/// Starts a process as the leader of a group of its own, to which [`Signal::send_to_group_of`] sends signals. It is killed when this
/// process ends, where the system can do that.
///
/// # Errors
/// Those of the system, among them [`io::ErrorKind::NotFound`].
pub fn spawn_in_group(command: &mut tokio::process::Command) -> io::Result<tokio::process::Child> {
    command.process_group(0);
    end_with_this_process(command.as_std_mut());
    command.spawn()
}
