//! The verbs: one file each, with its arguments, its help and what it does. A verb returns data and prints
//! nothing; the command line, and whatever else parses a line, runs the same.

mod child;
mod decode;
mod del;
pub mod duration;
pub mod encoding;
pub mod error;
mod fence;
pub mod file;
mod get;
pub mod grammar;
mod holder;
mod key;
pub mod line;
mod lock;
pub mod output;
mod ping;
mod raw;
pub mod session;
mod set;
pub mod signal;
mod unlock;
pub mod usage;
mod value;
mod vdel;
mod watch;

use std::io;

use clap::Subcommand;

pub use error::{CommandError, Kind};
pub use fence::{FENCING_TOKEN, FENCING_TOKEN_FILE};
pub use child::interrupt_this_process;
pub use lock::{Holding, LOCK_HOLDER, LOCK_KEY, LockArgs, Released, Taking, take};
pub use output::Output;
pub use session::{Connecting, Session, Surroundings};

use crate::client::Access;

/// Where a verb puts its records, one at a time and as soon as there is one.
pub type Emit<'a> = &'a mut dyn FnMut(Output) -> io::Result<()>;

/// What a verb ends with when nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done, found, deleted.
    Yes,
    /// The store says no: no such key, or a condition does not hold.
    No,
    /// The same, with a code that the caller has chosen for it.
    NoAs(u8),
    /// SIGINT ended it.
    Interrupted,
    /// SIGTERM ended it.
    Terminated,
    /// A command that it ran ended with this code; 128 and the signal's number, if a signal ended it.
    Child(u8),
}

/// The verbs that work with a store, or with no more than their arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    Get(get::GetArgs),
    Set(set::SetArgs),
    Del(del::DelArgs),
    Vdel(vdel::VdelArgs),
    Lock(LockArgs),
    Unlock(unlock::UnlockArgs),
    Holder(holder::HolderArgs),
    Watch(watch::WatchArgs),
    Ping(ping::PingArgs),
    Raw(raw::RawArgs),
    Decode(decode::DecodeArgs),
}

impl Command {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why it could not do what it was asked for; its records so far have been put out.
    pub async fn run(self, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let access = self.access();
        let result = match self {
            Self::Get(args) => get::run(args, session, emit).await,
            Self::Set(args) => set::run(args, session, emit).await,
            Self::Del(args) => del::run(args, session, emit).await,
            Self::Vdel(args) => vdel::run(args, session, emit).await,
            Self::Lock(args) => lock::run(args, session, emit).await,
            Self::Unlock(args) => unlock::run(args, session, emit).await,
            Self::Holder(args) => holder::run(args, session, emit).await,
            Self::Watch(args) => watch::run(args, session, emit).await,
            Self::Ping(args) => ping::run(args, session, emit).await,
            Self::Raw(args) => raw::run(args, session, emit).await,
            Self::Decode(args) => decode::run(args, session, emit),
        };
        result.map_err(|error| match access {
            // Nobody asks what a failed read has changed.
            Access::Read => CommandError { outcome: None, ..error },
            Access::Write => error,
        })
    }

    /// Whether the verb needs no store.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        matches!(self, Self::Decode(_))
    }

    /// Whether the session must be served while the verb is held up by whoever reads its records.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Watch(_))
    }

    /// Whether the verb is a watch whose records are its output, so that it can run in the background.
    #[must_use]
    pub fn is_watch_of_records(&self) -> bool {
        matches!(self, Self::Watch(args) if !args.runs_commands())
    }

    /// Whether the verb listens to signals itself, and has something to put in order before it ends.
    #[must_use]
    pub fn minds_signals(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Lock(_))
    }

    /// Whether the verb may change something.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Get(_) | Self::Watch(_) | Self::Holder(_) | Self::Ping(_) | Self::Decode(_) => Access::Read,
            Self::Set(_) | Self::Del(_) | Self::Vdel(_) | Self::Lock(_) | Self::Unlock(_) => Access::Write,
            Self::Raw(args) => args.access(),
        }
    }
}
