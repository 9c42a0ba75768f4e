//! A cluster on etcd, as the verbs below `store` reach it.

use serde::Serialize;

use crate::cli::etcd;
use crate::cli::report::Reporter;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::etcd::operation::{EtcdError, RangeRead};
use crate::ledger::etcd::{Head, Layout};
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, negative};
use crate::server::cluster::Overview;
use crate::server::etcd::{Etcd, OverviewError, cluster_names, is_access_refusal, overview};

/// What an operator does about an etcd without space.
pub const SPACE_HINT: &str =
    "compact and defragment etcd, then etcdctl alarm disarm: until then keys can only be deleted";

/// A cluster and the client of its etcd.
pub struct Cluster {
    pub etcd: Etcd,
    pub layout: Layout,
    /// The name, not escaped.
    pub name: String,
}

/// The cluster does not exist: the result of any verb.
#[derive(Debug, Serialize)]
struct NoCluster {
    op: &'static str,
    cluster: String,
    found: bool,
    /// What exists instead.
    #[serde(skip)]
    text: String,
}

impl Record for NoCluster {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        negative(&self.text, style)
    }
}

impl Cluster {
    pub async fn connect(args: &EtcdArgs) -> Result<Self, CommandError> {
        let etcd = etcd::connect(args).await?;
        Ok(Self { etcd, layout: Layout::new(args.cluster()), name: args.cluster().to_owned() })
    }

    /// Returns the cluster's members and head; `None` if it does not exist.
    pub async fn overview(&self) -> Result<Option<Overview>, CommandError> {
        match overview(&self.etcd, &self.layout).await {
            Ok(overview) => Ok(Some(overview)),
            Err(OverviewError::NotFound) => Ok(None),
            Err(error) => Err(self.overview_error(&error)),
        }
    }

    /// Returns the head; `None` if there is no valid one.
    pub async fn head(&self) -> Result<Option<Head>, EtcdError> {
        let key = self.layout.head();
        let answer = self.etcd.read(&RangeRead::one(key, None)).await?;
        Ok(answer.pairs.first().and_then(|pair| Head::decode(&pair.value).ok()))
    }

    /// Reports that the cluster does not exist, as the result of the verb `op`.
    pub async fn report_missing(
        &self,
        op: &'static str,
        reporter: &mut Reporter,
    ) -> Result<Exit, CommandError> {
        let text = self.not_found().await;
        reporter.put(&NoCluster { op, cluster: self.name.clone(), found: false, text })?;
        Ok(Exit::No)
    }

    /// Returns that the cluster does not exist, and what exists instead.
    pub async fn not_found(&self) -> String {
        let names = cluster_names(&self.etcd).await.unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| escape(name.as_bytes())).collect();
        let instead = match &names[..] {
            [] => "this etcd has none; mqkv store -b BROKER --etcd URLS creates it".to_owned(),
            names => format!("this etcd has {}", names.join(", ")),
        };
        format!("cluster not found: {}; {instead}", escape(self.name.as_bytes()))
    }

    /// Returns why the cluster cannot be shown, with its exit code and hint.
    pub fn overview_error(&self, error: &OverviewError) -> CommandError {
        let invalid = || CommandError::new(Kind::Data, error.to_string());
        match error {
            OverviewError::Etcd(error) => self.etcd_error(error),
            OverviewError::NotFound => invalid(),
            OverviewError::Incompatible(_) => {
                invalid().hint("use the version of mqkv that has written it, or another name: --cluster NAME")
            }
            OverviewError::Corrupt(_) => invalid().hint("mqkv store check"),
        }
    }

    /// Returns an error of etcd with its exit code and hint.
    pub fn etcd_error(&self, error: &EtcdError) -> CommandError {
        let message = error.to_string();
        match error {
            EtcdError::Unknown { .. } => {
                let hint = "check that a majority of the members of etcd runs: mqkv doctor --etcd URLS";
                CommandError::new(Kind::Unavailable, message).hint(hint)
            }
            EtcdError::Compacted { .. } => CommandError::new(Kind::Unavailable, message).hint("try again"),
            EtcdError::NoSpace => CommandError::new(Kind::Refused, message).hint(SPACE_HINT),
            EtcdError::Refused { .. } if error.is_denied() => {
                CommandError::new(Kind::Authorization, message).hint(self.layout.grant_command())
            }
            EtcdError::Refused { reason } if is_access_refusal(reason) => {
                CommandError::new(Kind::Authorization, message).hint("check --etcd-user and its password")
            }
            EtcdError::Refused { .. } => CommandError::new(Kind::Refused, message),
        }
    }
}
