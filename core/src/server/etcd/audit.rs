//! Reads all records of a cluster at one revision, in pages. Nothing is changed.

use super::client::Etcd;
use super::overview::{OverviewError, read_one};
use crate::ledger::etcd::bulk_read::BulkRead;
use crate::ledger::etcd::operation::{EtcdError, RangeAnswer, RangeRead};
use crate::ledger::etcd::{Layout, Meta};
use crate::server::cluster::audit::{Audit, Counts, Finding};
use crate::store::Now;

/// A page without an answer is asked for so often, at one endpoint after another.
const ATTEMPTS: u32 = 3;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// The revision of etcd.
    pub revision: u64,
    pub counts: Counts,
    /// The number of findings.
    pub findings: u64,
}

/// Verifies all records of a cluster, and passes on what is wrong with them.
///
/// # Errors
/// The cluster does not exist or has another format, etcd does not answer, or a finding cannot be passed on.
pub async fn audit<E: From<OverviewError>>(
    etcd: &Etcd,
    layout: &Layout,
    now: Now,
    mut found: impl FnMut(Finding) -> Result<(), E>,
) -> Result<AuditReport, E> {
    let meta = etcd.read(&RangeRead::one(layout.meta(), None)).await.map_err(OverviewError::from)?;
    let revision = meta.revision;
    let meta = meta.pairs.first().ok_or(OverviewError::NotFound)?;
    Meta::decode(&meta.value).map_err(OverviewError::Incompatible)?;
    let head = read_one(etcd, layout.head(), revision).await.map_err(OverviewError::from)?;
    let mut audit = Audit::new(layout.clone(), head.as_ref());
    let mut findings = 0_u64;
    let mut bulk = BulkRead::new(layout.all(), revision);
    loop {
        let answer = page(etcd, &bulk.next_read()).await.map_err(OverviewError::from)?;
        for pair in &answer.pairs {
            if let Some(finding) = audit.verify(pair, now) {
                findings = findings.saturating_add(1);
                found(finding)?;
            }
        }
        if bulk.handle_page(&answer) {
            break;
        }
    }
    Ok(AuditReport { revision, counts: audit.counts(), findings })
}

pub(super) async fn page(etcd: &Etcd, read: &RangeRead) -> Result<RangeAnswer, EtcdError> {
    let mut attempt = 1_u32;
    loop {
        match etcd.read(read).await {
            Err(EtcdError::Unknown { .. }) if attempt < ATTEMPTS => attempt = attempt.saturating_add(1),
            other => return other,
        }
    }
}
