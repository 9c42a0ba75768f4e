//! Reads of what the operator of a cluster looks at. Nothing is changed.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::client::Etcd;
use crate::clock;
use crate::ledger::etcd::operation::{EtcdError, Pair, RangeRead, key_after, prefix_end};
use crate::ledger::etcd::{Layout, Meta};
use crate::server::cluster::Overview;
use crate::server::cluster::overview::{head_in, members_in};

/// How long an election of etcd takes at most, with its default settings.
const ELECTION_TIME: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The most clusters that are listed.
const NAMES_MAX: usize = 20;
/// The prefix of all clusters.
const PREFIX: &[u8] = b"/mqkv/";

/// Why a cluster cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverviewError {
    /// There is no record of the cluster.
    NotFound,
    /// The state has another format.
    Incompatible(String),
    /// The record of this key is not valid.
    Corrupt(Bytes),
    Etcd(EtcdError),
}

impl From<EtcdError> for OverviewError {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(error)
    }
}

impl fmt::Display for OverviewError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => out.write_str("cluster not found"),
            Self::Incompatible(reason) => write!(out, "incompatible state in etcd: {reason}"),
            Self::Corrupt(key) => write!(out, "invalid record in etcd: {}", key.escape_ascii()),
            Self::Etcd(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for OverviewError {}

/// Reads the members and the head of a cluster, at one revision. While etcd elects a leader, it is asked again for some seconds.
///
/// # Errors
/// The cluster does not exist or has another format, or etcd does not answer.
pub async fn overview(etcd: &Etcd, layout: &Layout) -> Result<Overview, OverviewError> {
    let begun = clock::monotonic();
    loop {
        let read = read_overview(etcd, layout).await;
        let is_unanswered = matches!(read, Err(OverviewError::Etcd(EtcdError::Unknown { .. })));
        if !is_unanswered || clock::monotonic().saturating_duration_since(begun) >= ELECTION_TIME {
            return read;
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn read_overview(etcd: &Etcd, layout: &Layout) -> Result<Overview, OverviewError> {
    let meta = etcd.read(&RangeRead::one(layout.meta(), None)).await?;
    let revision = meta.revision;
    let meta = meta.pairs.first().ok_or(OverviewError::NotFound)?;
    Meta::decode(&meta.value).map_err(OverviewError::Incompatible)?;
    let (from, to) = layout.roster();
    let members = etcd.read(&RangeRead { from, to, limit: 0, revision: Some(revision) }).await?;
    let members = members_in(layout, &members.pairs);
    let head = head_in(read_one(etcd, layout.head(), revision).await?.as_ref());
    let head = head.map_err(OverviewError::Corrupt)?;
    let keys = etcd.count(&layout.rows(), revision).await?;
    Ok(Overview { revision, members, head, keys })
}

/// Returns the names of the first clusters in etcd.
///
/// # Errors
/// etcd does not answer, or does not allow to read all clusters.
pub async fn cluster_names(etcd: &Etcd) -> Result<Vec<String>, EtcdError> {
    let (mut names, to) = (Vec::new(), prefix_end(PREFIX));
    let mut from = Bytes::from_static(PREFIX);
    while names.len() < NAMES_MAX {
        let read = RangeRead { from: from.clone(), to: to.clone(), limit: 1, revision: None };
        let Some(pair) = etcd.read(&read).await?.pairs.into_iter().next() else { break };
        let rest = pair.key.strip_prefix(PREFIX).unwrap_or_default();
        let name = String::from_utf8_lossy(rest.split(|byte| *byte == b'/').next().unwrap_or_default());
        // The next cluster comes after all keys of this one.
        from = Layout::new(&name).all().1.max(key_after(&pair.key));
        names.push(name.into_owned());
    }
    names.dedup();
    Ok(names)
}

/// Reads one key at a revision.
pub(super) async fn read_one(etcd: &Etcd, key: Bytes, revision: u64) -> Result<Option<Pair>, EtcdError> {
    Ok(etcd.read(&RangeRead::one(key, Some(revision))).await?.pairs.into_iter().next())
}
