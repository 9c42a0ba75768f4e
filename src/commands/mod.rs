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
pub mod number;
pub mod output;
mod ping;
mod pipelined;
mod preparation;
pub mod process;
mod raw;
mod scan;
pub mod seed;
pub mod session;
mod set;
pub mod similarity;
pub mod size;
mod stop_condition;
mod token_text;
pub mod trace;
mod unlock;
pub mod url_secret;
pub mod usage_error;
mod vdel;
mod watch;

use std::future::ready;
use std::pin::Pin;

use crate::client::Access;
use pipelined::about;

pub use batch_args::BatchMode;
pub use command::{Command, HELP_GROUPS};
pub use error::{CommandError, Kind, Place, limit_hint};
pub use exit::Exit;
pub use lock::{BackgroundLock, LockArgs, Released, acquire_in_background, loss_message};
pub use output::{Emit, Hint};
pub use preparation::{Preparation, PreparationStep, Prepared};
pub use process::context::{FENCING_TOKEN, FENCING_TOKEN_FILE, LOCK_HOLDER, LOCK_KEY, ProcessContext};
pub use scan::{COMPLETION_NAMES_MAX, COMPLETION_WAIT_MAX, first_keys};
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
        // Boxed: otherwise this future contains those of all verbs, and itself, because a batch runs verbs.
        let run: Pin<Box<dyn Future<Output = Result<Exit, CommandError>> + '_>> = match self {
            Self::Get(args) => Box::pin(get::run(args, session, emit)),
            Self::Set(args) => Box::pin(set::run(args, session, emit)),
            Self::Del(args) => Box::pin(del::run(args, session, emit)),
            Self::Vdel(args) => Box::pin(vdel::run(args, session, emit)),
            Self::Edit(args) => Box::pin(edit::run(args, session, emit)),
            Self::Watch(args) => Box::pin(watch::run(args, session, emit)),
            Self::Lock(args) => Box::pin(lock::run(args, session, emit)),
            Self::Unlock(args) => Box::pin(unlock::run(args, session, emit)),
            Self::Holder(args) => Box::pin(holder::run(args, session, emit)),
            Self::Keys(args) => Box::pin(keys::run(args, session, emit)),
            Self::Export(args) => Box::pin(export::run(args, session, emit)),
            Self::Import(args) => Box::pin(import::run(args, session, emit)),
            Self::Batch(args) => Box::pin(batch::run(args, session, emit)),
            Self::Ping(args) => Box::pin(ping::run(args, session, emit)),
            Self::Doctor(args) => Box::pin(doctor::run(args, session, emit)),
            Self::Bench(args) => Box::pin(bench::run(args, session, emit)),
            Self::Raw(args) => Box::pin(raw::run(args, session, emit)),
            Self::Monitor(args) => Box::pin(monitor::run(args, session, emit)),
            Self::Exchange(args) => Box::pin(exchange::run(args, session, emit)),
            Self::Decode(args) => Box::pin(ready(decode::run(args, session, emit))),
        };
        run.await.map_err(|error| match access {
            Access::Write if output_failed => error.cause("the store has answered; only the output failed"),
            access => about(access, error),
        })
    }
}
