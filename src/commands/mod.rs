//! The verbs: one file each, with its arguments, its help and what it does. A verb returns data and prints
//! nothing; the command line, and whatever else parses a line, runs the same.

mod args;
mod batch;
pub mod configured;
mod decode;
mod del;
pub mod doctor;
pub mod duration;
pub mod encoding;
pub mod error;
mod export;
mod get;
pub mod grammar;
mod holder;
mod import;
mod keys;
pub mod lines;
mod lock;
pub mod monitor;
pub mod output;
mod ping;
pub mod process;
mod raw;
mod scan;
pub mod seed;
pub mod session;
mod set;
mod stop_condition;
pub mod trace;
mod unlock;
pub mod usage;
mod vdel;
mod watch;

use std::io;

use clap::Subcommand;

pub use args::fence::{FENCING_TOKEN, FENCING_TOKEN_FILE};
pub use error::{CommandError, Kind, more_of};
pub use lock::{Holding, LOCK_HOLDER, LOCK_KEY, LockArgs, Released, Taking, take};
pub use output::Output;
pub use process::child::interrupt_this_process;
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
    /// It has failed in this way, and its records have said so.
    Failed(Kind),
    /// SIGINT ended it.
    Interrupted,
    /// SIGTERM ended it.
    Terminated,
    /// A command that it ran ended with this code; 128 and the signal's number, if a signal ended it.
    Child(u8),
}

/// With what a verb goes together, as a line among many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It makes one request: others may be in flight before and behind it.
    Shared,
    /// It makes several, or holds much in memory: it waits until all before it is done, and is waited for.
    Alone,
    /// It has no place there.
    None,
}

/// The verbs that work with a store, or with no more than their arguments.
#[derive(Debug, Subcommand)]
pub enum Command {
    Get(get::GetArgs),
    Set(set::SetArgs),
    Del(del::DelArgs),
    Vdel(vdel::VdelArgs),
    Watch(watch::WatchArgs),
    Lock(LockArgs),
    Unlock(unlock::UnlockArgs),
    Holder(holder::HolderArgs),
    Keys(keys::KeysArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Batch(batch::BatchArgs),
    Ping(ping::PingArgs),
    Doctor(doctor::DoctorArgs),
    Raw(raw::RawArgs),
    Monitor(monitor::MonitorArgs),
    Decode(decode::DecodeArgs),
}

impl Command {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why it could not do what it was asked for; its records so far have been put out.
    pub async fn run(self, session: &Session, emit: Emit<'_>) -> Result<Verdict, CommandError> {
        let access = self.access();
        if self.writes() {
            session.check_write()?;
        }
        let mut untold = false;
        let emit: Emit<'_> = &mut |output| emit(output).inspect_err(|_| untold = true);
        let result = match self {
            Self::Get(args) => get::run(args, session, emit).await,
            Self::Set(args) => set::run(args, session, emit).await,
            Self::Del(args) => del::run(args, session, emit).await,
            Self::Vdel(args) => vdel::run(args, session, emit).await,
            Self::Watch(args) => watch::run(args, session, emit).await,
            Self::Lock(args) => lock::run(args, session, emit).await,
            Self::Unlock(args) => unlock::run(args, session, emit).await,
            Self::Holder(args) => holder::run(args, session, emit).await,
            Self::Keys(args) => keys::run(args, session, emit).await,
            Self::Export(args) => export::run(args, session, emit).await,
            Self::Import(args) => import::run(args, session, emit).await,
            Self::Batch(args) => batch::run(args, session, emit).await,
            Self::Ping(args) => ping::run(args, session, emit).await,
            Self::Doctor(args) => doctor::run(args, session, emit).await,
            Self::Raw(args) => raw::run(args, session, emit).await,
            Self::Monitor(args) => monitor::run(args, session, emit).await,
            Self::Decode(args) => decode::run(args, session, emit),
        };
        result.map_err(|error| match access {
            // Nobody asks what a failed read has changed.
            Access::Read => CommandError { outcome: None, ..error },
            Access::Write if untold => error.cause("the store has answered; only saying so failed"),
            Access::Write => error,
        })
    }

    /// Whether the verb needs no store.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        match self {
            Self::Decode(_) => true,
            Self::Import(args) => args.is_offline(),
            _ => false,
        }
    }

    /// Whether the session must be served while the verb is held up by whoever reads its records.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.is_bulk() || matches!(self, Self::Watch(_) | Self::Monitor(_) | Self::Lock(_))
    }

    /// Whether there are so many records that they go out together, as many as are there.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        matches!(self, Self::Keys(_) | Self::Export(_) | Self::Import(_) | Self::Batch(_))
    }

    /// Whether the records are JSON unless another format is asked for.
    #[must_use]
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Batch(args) if args.is_json())
    }

    /// With what the verb goes together, as a line among many.
    #[must_use]
    pub fn room(&self) -> Room {
        match self {
            Self::Get(_) | Self::Vdel(_) | Self::Raw(_) => Room::Shared,
            Self::Set(args) if !args.reads_file() => Room::Shared,
            Self::Del(args) if args.count() == 1 => Room::Shared,
            Self::Set(_) | Self::Del(_) | Self::Keys(_) => Room::Alone,
            Self::Unlock(_) | Self::Holder(_) | Self::Ping(_) | Self::Decode(_) => Room::Alone,
            Self::Doctor(_) => Room::None,
            Self::Watch(_) | Self::Monitor(_) | Self::Lock(_) => Room::None,
            Self::Export(_) | Self::Import(_) | Self::Batch(_) => Room::None,
        }
    }

    /// Whether the verb is a watch whose records are its output, so that it can run in the background.
    #[must_use]
    pub fn is_watch_of_records(&self) -> bool {
        matches!(self, Self::Watch(args) if !args.runs_commands())
    }

    /// Whether the verb listens to signals itself, and has something to put in order before it ends.
    #[must_use]
    pub fn minds_signals(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Lock(_) | Self::Monitor(_))
    }

    /// Whether the verb itself writes; a batch does not, but lines of it may.
    #[must_use]
    fn writes(&self) -> bool {
        self.access() == Access::Write && !self.is_offline() && !matches!(self, Self::Batch(_))
    }

    /// Whether the verb may change something.
    #[must_use]
    pub fn access(&self) -> Access {
        match self {
            Self::Get(_) | Self::Watch(_) | Self::Monitor(_) | Self::Keys(_) | Self::Export(_) => {
                Access::Read
            }
            // What the doctor writes it takes away again.
            Self::Holder(_) | Self::Ping(_) | Self::Doctor(_) | Self::Decode(_) => Access::Read,
            Self::Set(_) | Self::Del(_) | Self::Vdel(_) | Self::Lock(_) | Self::Unlock(_) => Access::Write,
            Self::Import(_) | Self::Batch(_) => Access::Write,
            Self::Raw(args) => args.access(),
        }
    }
}
