//! The verbs: one file each, with its arguments, its help and its execution.
//!
//! A verb returns records and prints nothing. The command line, a batch and the prompt run the same verbs, by [`Command::run`].

pub mod args;
mod batch;
mod batch_args;
pub mod bench;
mod command;
pub mod config_record;
mod decode;
mod del;
pub mod doctor;
pub mod duration;
mod edit;
pub mod error;
mod error_text;
pub mod exchange;
pub mod exit;
mod export;
mod get;
pub mod grammar;
mod holder;
mod import;
mod json_request;
mod keys;
pub mod lines;
mod lock;
pub mod monitor;
pub mod output;
mod ping;
mod pipelined;
pub mod process;
mod raw;
mod scan;
pub mod seed;
pub mod session;
mod set;
pub mod similarity;
pub mod size;
mod stop_condition;
pub mod trace;
mod unlock;
pub mod url_secret;
pub mod usage_error;
mod vdel;
mod watch;

use crate::client::Access;
use pipelined::about;

pub use batch_args::BatchMode;
pub use command::{Command, HELP_GROUPS};
pub use error::{CommandError, Kind, Place, limit_hint};
pub use exit::Exit;
pub use lock::{BackgroundLock, LockArgs, Released, acquire_in_background, loss_message};
pub use output::{Emit, Hint};
pub use process::context::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY, ProcessContext};
pub use process::signal::interrupt_this_process;
pub use scan::{COMPLETION_NAMES_MAX, COMPLETION_WAIT_MAX, first_keys, prefix_pattern};
pub use session::{Session, SettingsFuture};

impl Command {
    /// Runs the verb; `emit` takes its records.
    ///
    /// # Errors
    /// The verb failed; the records so far have been emitted.
    pub async fn run(self, session: &Session, emit: Emit<'_>) -> Result<Exit, CommandError> {
        let access = self.access();
        if self.writes() {
            session.check_write()?;
        }
        let mut output_failed = false;
        let emit: Emit<'_> = &mut |output| emit(output).inspect_err(|_| output_failed = true);
        let result = match self {
            Self::Get(args) => get::run(args, session, emit).await,
            Self::Set(args) => set::run(args, session, emit).await,
            Self::Del(args) => del::run(args, session, emit).await,
            Self::Vdel(args) => vdel::run(args, session, emit).await,
            Self::Edit(args) => edit::run(args, session, emit).await,
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
            Self::Bench(args) => bench::run(args, session, emit).await,
            Self::Raw(args) => raw::run(args, session, emit).await,
            Self::Monitor(args) => monitor::run(args, session, emit).await,
            Self::Exchange(args) => exchange::run(args, session, emit).await,
            Self::Decode(args) => decode::run(args, session, emit),
        };
        result.map_err(|error| match access {
            Access::Write if output_failed => error.cause("the store has answered; only the output failed"),
            access => about(access, error),
        })
    }
}
