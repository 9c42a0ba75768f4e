//! `store check`: verifies all records of a cluster in etcd.

use bytes::Bytes;
use serde::Serialize;

use super::cluster::Cluster;
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind};
use crate::render::escape::escape;
use crate::render::json::{self, Json};
use crate::render::table::properties;
use crate::render::{Record, Rendered, Style, Widths, counted};
use crate::server::cluster::audit::{Counts, Finding};
use crate::server::etcd::{AuditReport, OverviewError, audit};
use crate::store::Now;

/// Why the check ended.
enum Failure {
    Overview(OverviewError),
    Output(CommandError),
}

impl From<OverviewError> for Failure {
    fn from(error: OverviewError) -> Self {
        Self::Overview(error)
    }
}

/// A record in etcd that is not valid.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "finding")]
struct InvalidRecord {
    /// The key in etcd.
    #[serde(flatten, serialize_with = "json::key")]
    key: Bytes,
    problem: String,
}

/// The result of `store check`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "store-check")]
struct Checked {
    cluster: String,
    /// The revision of etcd.
    revision: u64,
    keys: u64,
    registrations: u64,
    responses: u64,
    members: u64,
    unknown: u64,
    /// The number of invalid records.
    findings: u64,
}

/// Prints what is wrong, then what there is.
///
/// # Errors
/// etcd cannot be used, or a record is not valid.
pub fn run(args: &EtcdArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(args).await?;
        let now = Now { wall_ms: clock::wall_ms(), monotonic_ms: 0 };
        let found = |Finding { key, problem }| {
            reporter.put(&InvalidRecord { key, problem }).map_err(|error| Failure::Output(error.into()))
        };
        let report = match audit(&cluster.etcd, &cluster.layout, now, found).await {
            Ok(report) => report,
            Err(Failure::Output(error)) => return Err(error),
            Err(Failure::Overview(OverviewError::NotFound)) => {
                return cluster.report_missing("store-check", reporter).await;
            }
            Err(Failure::Overview(error)) => return Err(cluster.overview_error(&error)),
        };
        let findings = report.findings;
        reporter.put(&Checked::new(cluster.name.clone(), report))?;
        if findings == 0 {
            return Ok(Exit::Yes);
        }
        let records = counted(findings, "invalid record");
        let error = CommandError::new(Kind::Data, format!("the cluster {} has {records}", cluster.name));
        Err(error.hint(
            "no instance serves the store with one: restore the keys above with etcdctl, or delete them",
        ))
    })
}

impl Record for InvalidRecord {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        Rendered::stdout(format!("{}\t{}\n", escape(&self.key), self.problem))
    }
}

impl Checked {
    fn new(cluster: String, AuditReport { revision, counts, findings }: AuditReport) -> Self {
        let Counts { keys, registrations, responses, members, unknown } = counts;
        Self { cluster, revision, keys, registrations, responses, members, unknown, findings }
    }
}

impl Record for Checked {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, _: &Style, _: &mut Widths) -> Rendered {
        let condition = match self.findings {
            0 => "intact".to_owned(),
            findings => format!("corrupt, {findings} invalid"),
        };
        let mut lines = vec![
            ("cluster", format!("{}, at revision {} of etcd", self.cluster, self.revision)),
            ("condition", condition),
            ("members", self.members.to_string()),
            ("keys", self.keys.to_string()),
            ("watches", self.registrations.to_string()),
            ("responses", format!("{}, one for each commit with writes", self.responses)),
        ];
        if self.unknown > 0 {
            lines.push(("unknown", format!("{}, which instances ignore", self.unknown)));
        }
        Rendered::stdout(properties(&lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::shown;

    #[test]
    fn the_report_has_one_property_in_a_line() {
        let counts = Counts { keys: 5, registrations: 1, responses: 3, members: 2, unknown: 0 };
        let intact = AuditReport { revision: 42, counts, findings: 0 };
        let expected = "\
cluster:   prod, at revision 42 of etcd
condition: intact
members:   2
keys:      5
watches:   1
responses: 3, one for each commit with writes
";
        let shown = |report, style| shown(&Checked::new("prod".to_owned(), report), &style).0;
        assert_eq!(shown(intact, Style::PLAIN), expected);
        let corrupt = AuditReport { findings: 2, counts: Counts { unknown: 1, ..counts }, ..intact };
        let text = shown(corrupt, Style::PLAIN);
        assert!(text.contains("condition: corrupt, 2 invalid\n"), "{text}");
        assert!(text.ends_with("unknown:   1, which instances ignore\n"), "{text}");
        let json = shown(corrupt, Style::JSON);
        assert!(json.contains(r#""op":"store-check","cluster":"prod","revision":42,"keys":5"#), "{json}");
        assert!(json.ends_with("\"unknown\":1,\"findings\":2}\n"), "{json}");
    }
}
