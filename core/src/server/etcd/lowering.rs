//! Lowers the versions of a store in etcd that are ahead of the clock, while no instance owns it.

use std::fmt;

use bytes::Bytes;

use super::audit::page;
use super::client::Etcd;
use super::overview::{OverviewError, overview};
use crate::ledger::LoweredVersions;
use crate::ledger::etcd::bulk_read::BulkRead;
use crate::ledger::etcd::operation::{EtcdError, RangeRead, Txn, TxnOutcome};
use crate::ledger::etcd::{Head, Layout};
use crate::random;
use crate::server::cluster::lowering::Lowering;

/// A transaction without an answer is sent so often, at one endpoint after another.
const ATTEMPTS: u32 = 5;

/// Why versions were not lowered, or not all of them: then it can be done again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoweringError {
    /// This instance owns the store.
    Owned(String),
    /// An instance has taken the store over meanwhile.
    TakenOver,
    Overview(OverviewError),
}

impl From<EtcdError> for LoweringError {
    fn from(error: EtcdError) -> Self {
        Self::Overview(error.into())
    }
}

impl fmt::Display for LoweringError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned(name) => write!(out, "instance {} owns the store", name.escape_debug()),
            Self::TakenOver => out.write_str("an instance has taken the store over"),
            Self::Overview(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for LoweringError {}

/// Lowers versions and fencing tokens that are more than 60 s ahead of `wall_ms` to that time.
///
/// # Errors
/// An instance owns the store or takes it over, the cluster does not exist or has an invalid record, or etcd does not answer.
pub async fn lower_versions(
    etcd: &Etcd,
    layout: &Layout,
    wall_ms: u64,
) -> Result<LoweredVersions, LoweringError> {
    let found = overview(etcd, layout).await.map_err(LoweringError::Overview)?;
    if let Some(owner) = found.owner().filter(|_| found.is_served()) {
        return Err(LoweringError::Owned(owner.to_owned()));
    }
    let head = etcd.read(&RangeRead::one(layout.head(), None)).await?.pairs.into_iter().next();
    let Some(pair) = head else { return Ok(LoweredVersions::default()) };
    let head = Head::decode(&pair.value).map_err(|_| corrupt(pair.key))?;
    let Some(mut work) = Lowering::new(layout.clone(), (head, pair.mod_revision), wall_ms) else {
        return Ok(LoweredVersions::default());
    };
    let (txn, head) = work.takeover(random::u64(), &found.members);
    let revision = commit(etcd, &txn, &head).await?;
    work.handle_committed(head, revision);
    let mut bulk = BulkRead::new(layout.state(), revision);
    loop {
        let answer = page(etcd, &bulk.next_read()).await?;
        for pair in &answer.pairs {
            if let Some((txn, head)) = work.lower(pair).map_err(|_| corrupt(pair.key.clone()))? {
                let revision = commit(etcd, &txn, &head).await?;
                work.handle_committed(head, revision);
            }
        }
        if bulk.handle_page(&answer) {
            break;
        }
    }
    let (txn, head, lowered) = work.finish();
    commit(etcd, &txn, &head).await?;
    Ok(lowered)
}

fn corrupt(key: Bytes) -> LoweringError {
    LoweringError::Overview(OverviewError::Corrupt(key))
}

/// Commits a transaction that writes this head, and returns its revision.
async fn commit(etcd: &Etcd, txn: &Txn, head: &Head) -> Result<u64, LoweringError> {
    let mut attempt = 1_u32;
    loop {
        let answer = match etcd.txn(txn).await {
            Ok(answer) => answer,
            Err(EtcdError::Unknown { .. }) if attempt < ATTEMPTS => {
                attempt = attempt.saturating_add(1);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        return match answer.outcome {
            TxnOutcome::Applied => Ok(answer.revision),
            // An earlier attempt may have been applied.
            TxnOutcome::NotApplied(pairs) => {
                let found = pairs.into_iter().next().flatten();
                let found = found.filter(|pair| Head::decode(&pair.value).as_ref() == Ok(head));
                found.map(|pair| pair.mod_revision).ok_or(LoweringError::TakenOver)
            }
        };
    }
}
