//! `store lower-versions`: lowers versions in etcd that are ahead of the clock.

use super::cluster::Cluster;
use crate::cli::data::Lowered;
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind};
use crate::server::etcd::{LoweringError, OverviewError, lower_versions};

/// The name of the verb in JSON.
const OP: &str = "store-lower-versions";

/// Lowers the versions, and prints how many.
///
/// # Errors
/// etcd cannot be used, a record is not valid, or an instance owns the store.
pub fn run(args: &EtcdArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(args).await?;
        match lower_versions(&cluster.etcd, &cluster.layout, clock::wall_ms()).await {
            Ok(lowered) => {
                reporter.put(&Lowered::new(OP, lowered))?;
                Ok(Exit::Yes)
            }
            Err(LoweringError::Overview(OverviewError::NotFound)) => {
                cluster.report_missing(OP, reporter).await
            }
            Err(LoweringError::Overview(error)) => Err(cluster.overview_error(&error)),
            Err(error @ (LoweringError::Owned(_) | LoweringError::TakenOver)) => {
                let error = CommandError::new(Kind::Unavailable, error.to_string());
                Err(error.hint("stop all instances first, and run it again: mqkv store status lists them"))
            }
        }
    })
}
