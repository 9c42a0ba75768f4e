//! `store check`: verifies all records of a cluster in etcd.

use super::cluster::Cluster;
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind};
use crate::render::escape::escape;
use crate::render::log::{Field, answer};
use crate::server::cluster::audit::Finding;
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

/// Prints what is wrong, then what there is.
///
/// # Errors
/// etcd cannot be used, or a record is not valid.
pub fn run(args: &EtcdArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(args).await?;
        let now = Now { wall_ms: clock::wall_ms(), monotonic_ms: 0 };
        let found = |finding: Finding| print(&finding, reporter).map_err(Failure::Output);
        let report = match audit(&cluster.etcd, &cluster.layout, now, found).await {
            Ok(report) => report,
            Err(Failure::Output(error)) => return Err(error),
            Err(Failure::Overview(OverviewError::NotFound)) => {
                return cluster.report_missing("store-check", reporter).await;
            }
            Err(Failure::Overview(error)) => return Err(cluster.overview_error(&error)),
        };
        if reporter.is_json() {
            reporter.data(answer("store-check", fields(args.cluster(), &report)).as_bytes())?;
        } else {
            reporter.data(text(&cluster.name, &report).as_bytes())?;
        }
        let records = match report.findings {
            0 => return Ok(Exit::Yes),
            1 => "1 invalid record".to_owned(),
            many => format!("{many} invalid records"),
        };
        let error = CommandError::new(Kind::Data, format!("the cluster {} has {records}", cluster.name));
        Err(error.hint(
            "no instance serves the store with one: restore the keys above with etcdctl, or delete them",
        ))
    })
}

fn print(Finding { key, problem }: &Finding, reporter: &mut Reporter) -> Result<(), CommandError> {
    let line = if reporter.is_json() {
        let fields = [("key", Field::Bytes(key.to_vec())), ("problem", Field::Text(problem.clone()))];
        answer("finding", fields)
    } else {
        format!("{}\t{problem}\n", escape(key))
    };
    Ok(reporter.data(line.as_bytes())?)
}

fn fields(cluster: &str, report: &AuditReport) -> Vec<(&'static str, Field)> {
    let AuditReport { revision, counts, findings } = report;
    vec![
        ("cluster", Field::Text(cluster.to_owned())),
        ("revision", Field::Number(*revision)),
        ("keys", Field::Number(counts.keys)),
        ("registrations", Field::Number(counts.registrations)),
        ("responses", Field::Number(counts.responses)),
        ("members", Field::Number(counts.members)),
        ("unknown", Field::Number(counts.unknown)),
        ("findings", Field::Number(*findings)),
    ]
}

fn text(name: &str, report: &AuditReport) -> String {
    let AuditReport { revision, counts, findings } = report;
    let mut lines = vec![
        ("cluster", format!("{name}, at revision {revision} of etcd")),
        (
            "condition",
            if *findings == 0 { "intact".to_owned() } else { format!("corrupt, {findings} invalid") },
        ),
        ("members", counts.members.to_string()),
        ("keys", counts.keys.to_string()),
        ("watches", counts.registrations.to_string()),
        ("responses", format!("{}, one for each commit with writes", counts.responses)),
    ];
    if counts.unknown > 0 {
        lines.push(("unknown", format!("{}, which instances ignore", counts.unknown)));
    }
    lines.into_iter().map(|(name, value)| format!("{:11}{value}\n", format!("{name}:"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::audit::Counts;

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
        assert_eq!(text("prod", &intact), expected);
        let corrupt = AuditReport { findings: 2, counts: Counts { unknown: 1, ..counts }, ..intact };
        let text = text("prod", &corrupt);
        assert!(text.contains("condition: corrupt, 2 invalid\n"), "{text}");
        assert!(text.ends_with("unknown:   1, which instances ignore\n"), "{text}");
        let json = answer("store-check", fields("prod", &corrupt));
        assert!(json.contains(r#""op":"store-check","cluster":"prod","revision":42,"keys":5"#), "{json}");
        assert!(json.ends_with("\"unknown\":1,\"findings\":2}\n"), "{json}");
    }
}
