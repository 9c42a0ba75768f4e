//! Types that all systems have.

/// How a file in a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// For writing; created, for its owner only, if it does not exist.
    Create,
    /// Like `Create`; emptied if it exists.
    Truncate,
}

/// A change of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// The command has ended with this status, 128 plus the signal's number if a signal ended it. Returned once.
    Ended(u8),
    /// The command was suspended by SIGTSTP (Ctrl-Z), or this process was asked to suspend itself and the command.
    Suspended,
    /// The command has ended, and no process is left in its group. The last change.
    Gone,
}

/// A signal of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, Ctrl-C.
    Interrupt,
    /// SIGTERM. Windows: Ctrl-Break.
    Terminate,
    /// SIGHUP: the terminal was closed. Windows: also when the user logs off, or the machine stops.
    Hangup,
    /// SIGQUIT. Windows: never received.
    Quit,
    /// Another signal, by its number. Windows: never received.
    Other(i32),
}

/// A request of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSignal {
    /// SIGTSTP: Ctrl-Z.
    Stop,
    /// SIGCONT: `fg` or `bg`.
    Continue,
}

/// Who may use a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// With the bits of set-group-ID and others.
    pub mode: u32,
    pub owner: u32,
    pub group: u32,
}

/// A folder of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFolder {
    /// Variable with its path.
    pub variable: &'static str,
    /// Its path below the home folder, if the variable is not set.
    pub below_home: &'static str,
}
