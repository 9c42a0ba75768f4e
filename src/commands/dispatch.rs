//! Runs a verb.

use super::command::Command;
use super::error::CommandError;
use super::exit::Exit;
use super::output::Emit;
use super::pipelined::about;
use super::session::Session;
use super::{
    batch, bench, decode, del, doctor, edit, exchange, export, get, holder, import, keys, lock, monitor,
    ping, raw, set, unlock, vdel, watch,
};
use crate::client::Access;

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
