//! `doctor --etcd`: checks of etcd for a cluster.

use std::time::Instant;

use bytes::Bytes;

use super::cluster::Cluster;
use super::status::{Endpoints, alarm, clock_off, is_nearly_full, size};
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::doctor::check::{Check, CheckResult, Detail, Status, Warning};
use crate::commands::doctor::record::CheckSummary;
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::etcd::operation::{Condition, OPERATIONS_MAX, Operation, RangeRead, TXN_BYTES_MAX, Txn};
use crate::render::duration::ms_text;
use crate::render::escape::escape;
use crate::server::cluster::Overview;
use crate::server::etcd::{EndpointStatus, has_stale_read_fix, is_supported};

/// The reads of one check, of which the median counts.
const READS: usize = 5;
const ALL: [Check; 7] = [
    Check::EtcdMembers,
    Check::EtcdVersion,
    Check::EtcdAlarms,
    Check::EtcdSize,
    Check::EtcdRead,
    Check::EtcdCommit,
    Check::Cluster,
];

/// Prints one line for each check.
pub fn run(args: &EtcdArgs, is_read_only: bool, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let mut report = EtcdReport { reporter, since: clock::monotonic(), results: Vec::new() };
        check(args, is_read_only, &mut report).await?;
        let EtcdReport { reporter, results, .. } = report;
        let failure = results.iter().find_map(CheckResult::failure);
        reporter.put(&CheckSummary(results))?;
        Ok(failure.map_or(Exit::Yes, Exit::Failed))
    })
}

async fn check(args: &EtcdArgs, is_read_only: bool, report: &mut EtcdReport<'_>) -> Result<(), CommandError> {
    let cluster = match Cluster::connect(args).await {
        Ok(cluster) => cluster,
        Err(error) => return report.end_with(Check::EtcdMembers, error),
    };
    let endpoints = cluster.etcd.status().await;
    let result = members(&endpoints);
    if result.is_err() {
        report.add(Check::EtcdMembers, result)?;
        return report.skip_rest();
    }
    report.add(Check::EtcdMembers, result)?;
    report.add(Check::EtcdVersion, version(&endpoints))?;
    report.add(Check::EtcdAlarms, alarms(&endpoints))?;
    report.add(Check::EtcdSize, database_size(&endpoints))?;
    let read = read(&cluster).await;
    let has_failed = read.is_err();
    report.add(Check::EtcdRead, read)?;
    if has_failed {
        return report.skip_rest();
    }
    if is_read_only {
        report.skip(Check::EtcdCommit, "it goes through etcd's log, and --read-only is given")?;
    } else {
        let committed = commit(&cluster).await;
        report.add(Check::EtcdCommit, committed)?;
    }
    let owners = owners(&cluster).await;
    report.add(Check::Cluster, owners)
}

/// What a check has found, and what to change; or why it failed.
type Found = Result<(String, Vec<Warning>), CommandError>;

struct EtcdReport<'a> {
    reporter: &'a mut Reporter,
    since: Instant,
    results: Vec<CheckResult>,
}

impl EtcdReport<'_> {
    fn add(&mut self, check: Check, found: Found) -> Result<(), CommandError> {
        let now = clock::monotonic();
        let elapsed = Some(now.saturating_duration_since(self.since));
        self.since = now;
        let (detail, status) = match found {
            Err(error) => (None, Status::Fail(Box::new(error))),
            Ok((text, warnings)) if warnings.is_empty() => (Some(Detail::Etcd { text }), Status::Ok),
            Ok((text, warnings)) => (Some(Detail::Etcd { text }), Status::Warn(warnings)),
        };
        self.put(CheckResult { check, elapsed, detail, status })
    }

    fn skip(&mut self, check: Check, why: &str) -> Result<(), CommandError> {
        self.put(CheckResult { check, elapsed: None, detail: None, status: Status::Skipped(why.to_owned()) })
    }

    fn put(&mut self, result: CheckResult) -> Result<(), CommandError> {
        self.reporter.put(&result)?;
        self.results.push(result);
        Ok(())
    }

    fn end_with(&mut self, check: Check, error: CommandError) -> Result<(), CommandError> {
        self.add(check, Err(error))?;
        self.skip_rest()
    }

    /// Skips the checks after the last one, which has failed.
    fn skip_rest(&mut self) -> Result<(), CommandError> {
        let why = self.results.last().map(|last| format!("{} failed", last.check.name())).unwrap_or_default();
        ALL.into_iter().skip(self.results.len()).try_for_each(|check| self.skip(check, &why))
    }
}

fn warning(message: impl Into<String>, hint: &str) -> Warning {
    Warning { message: message.into(), hint: hint.to_owned() }
}

fn answering(endpoints: &Endpoints) -> impl Iterator<Item = (&String, &EndpointStatus)> {
    endpoints.iter().filter_map(|(endpoint, status)| Some((endpoint, status.as_ref().ok()?)))
}

fn members(endpoints: &Endpoints) -> Found {
    let (count, all) = (answering(endpoints).count(), endpoints.len());
    let text = format!("{count} of {all} answer");
    if !answering(endpoints).any(|(_, status)| status.has_leader) {
        let error = CommandError::new(Kind::Unavailable, format!("{text}, and have no leader"));
        return Err(error.hint("start the members of etcd: a majority is required"));
    }
    let failed = endpoints.iter().filter_map(|(_, status)| status.as_ref().err());
    let mut warnings: Vec<_> = failed
        .map(|error| warning(error.to_string(), "start this member of etcd, or remove its URL"))
        .collect();
    if all < 3 {
        let message = format!("{all} {} given", if all == 1 { "URL is" } else { "URLs are" });
        warnings.push(warning(message, "give the URLs of all members; three survive the loss of one"));
    }
    Ok((text, warnings))
}

fn version(endpoints: &Endpoints) -> Found {
    let mut versions: Vec<_> = answering(endpoints).map(|(_, status)| status.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    if let Some(version) = versions.iter().find(|version| !is_supported(version)) {
        let error = CommandError::new(Kind::Refused, format!("version {version} is not supported"));
        return Err(error.hint("upgrade etcd: 3.4 or later is required, 3.5.28 or 3.6.9 advised"));
    }
    let mut warnings = Vec::new();
    if versions.iter().any(|version| !has_stale_read_fix(version)) {
        let message = "reads may be stale after a pause of etcd, so the store confirms them by writes";
        warnings.push(warning(message, "upgrade etcd to 3.5.28, 3.6.9 or later, then restart the instances"));
    }
    if versions.len() > 1 {
        warnings.push(warning("the versions differ", "upgrade all members"));
    }
    Ok((versions.join(", "), warnings))
}

fn alarms(endpoints: &Endpoints) -> Found {
    alarm(endpoints).map_or_else(|| Ok(("none".to_owned(), Vec::new())), Err)
}

fn database_size(endpoints: &Endpoints) -> Found {
    let largest = answering(endpoints).max_by_key(|(_, status)| status.database_bytes);
    let Some((_, largest)) = largest else { return Ok((String::new(), Vec::new())) };
    let quota = largest.quota_bytes.map_or_else(|| "not reported".to_owned(), size);
    let text =
        format!("{}, {} in use, quota {quota}", size(largest.database_bytes), size(largest.used_bytes));
    let hint = "raise --quota-backend-bytes of etcd, or compact and defragment it";
    let near = is_nearly_full(largest).then(|| warning("over 80 % of the quota is used", hint));
    Ok((text, near.into_iter().collect()))
}

async fn read(cluster: &Cluster) -> Found {
    let mut times = Vec::new();
    let read = RangeRead::one(cluster.layout.meta(), None);
    for _ in 0..READS {
        let begun = clock::monotonic();
        cluster.etcd.read(&read).await.map_err(|error| cluster.etcd_error(&error))?;
        times.push(clock::monotonic().saturating_duration_since(begun));
    }
    times.sort_unstable();
    let median = times.get(READS / 2).copied().unwrap_or_default();
    Ok((format!("{} for a linearizable read (median of {READS})", ms_text(median)), Vec::new()))
}

/// Asks for a transaction as long as the longest commit, under a condition that never holds.
async fn commit(cluster: &Cluster) -> Found {
    let key = |number: usize| -> Bytes {
        [&cluster.layout.meta()[..], format!("/doctor/{number}").as_bytes()].concat().into()
    };
    let mut operations: Vec<_> =
        (1..OPERATIONS_MAX).map(|number| Operation::Delete { key: key(number) }).collect();
    let value = vec![0; TXN_BYTES_MAX].into();
    operations.push(Operation::Put { key: key(0), value, lease: None });
    let never = Condition { key: key(0), mod_revision: u64::from(u32::MAX) };
    let txn = Txn { conditions: vec![never], operations, otherwise: Vec::new() };
    let begun = clock::monotonic();
    let answer = cluster.etcd.txn(&txn).await;
    let took = clock::monotonic().saturating_duration_since(begun);
    match answer {
        Ok(_) => {
            let text = format!("{OPERATIONS_MAX} operations and 1 MiB are accepted, after {}", ms_text(took));
            Ok((text, Vec::new()))
        }
        Err(error) => {
            let error = cluster.etcd_error(&error);
            let limits = "the limits of etcd: --max-txn-ops 128, --max-request-bytes 1572864 or more";
            Err(if error.hints.is_empty() { error.hint(limits) } else { error })
        }
    }
}

/// Returns the instances that own nothing because of their clocks.
fn clock_warnings(overview: &Overview) -> Vec<Warning> {
    let off = overview.members.iter().filter(|member| member.clock_off_ms != 0);
    let warned = off.map(|member| {
        let (name, off) = (escape(member.name.as_bytes()), clock_off(member.clock_off_ms));
        let message = format!("the clock of instance {name} is {off}: it owns nothing");
        warning(message, "set its clock; if the store is ahead of all clocks: mqkv store lower-versions")
    });
    warned.collect()
}

async fn owners(cluster: &Cluster) -> Found {
    let Some(overview) = cluster.overview().await? else {
        let missing =
            warning(cluster.not_found().await, "the first instance creates it; --cluster names another");
        return Ok((String::new(), vec![missing]));
    };
    let members = overview.members.len();
    let Some(owner) = overview.owner().filter(|_| overview.is_served()) else {
        let message = format!("no owner, instances: {members}: no request is answered");
        let error = CommandError::new(Kind::Unavailable, message);
        if let Some(clock) = clock_warnings(&overview).into_iter().next() {
            return Err(error.hint(format!("{}: {}", clock.message, clock.hint)));
        }
        return Err(error.hint("mqkv store status; start an instance: mqkv store -b BROKER --etcd URLS"));
    };
    let text = format!("owner {}, instances: {members}", escape(owner.as_bytes()));
    let mut warnings = clock_warnings(&overview);
    if members < 2 {
        warnings.push(warning("no other instance could take over", "start another instance"));
    }
    Ok((text, warnings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::operation::EtcdError;

    fn status(version: &str) -> EndpointStatus {
        EndpointStatus {
            version: version.to_owned(),
            is_leader: true,
            has_leader: true,
            database_bytes: 900,
            used_bytes: 500,
            quota_bytes: Some(1_000),
            alarms: Vec::new(),
        }
    }

    fn endpoints(all: Vec<Result<EndpointStatus, EtcdError>>) -> Endpoints {
        all.into_iter().zip(0..).map(|(status, number)| (format!("etcd{number}:2379"), status)).collect()
    }

    fn hints(found: Found) -> Vec<String> {
        found.unwrap().1.into_iter().map(|warning| warning.hint).collect()
    }

    #[test]
    fn members_that_do_not_answer_are_a_warning_and_a_missing_leader_is_a_failure() {
        let lost = || Err(EtcdError::Unknown { reason: "connection refused".to_owned() });
        let all = endpoints(vec![Ok(status("3.6.9")), Ok(status("3.6.9")), lost()]);
        assert_eq!(hints(members(&all)), ["start this member of etcd, or remove its URL"]);
        let headless =
            endpoints(vec![Ok(EndpointStatus { has_leader: false, ..status("3.6.9") }), lost(), lost()]);
        assert_eq!(members(&headless).unwrap_err().message, "1 of 3 answer, and have no leader");
    }

    #[test]
    fn versions_with_stale_reads_and_different_ones_are_warnings() {
        assert!(hints(version(&endpoints(vec![Ok(status("3.6.9"))]))).is_empty());
        let old = endpoints(vec![Ok(status("3.4.23")), Ok(status("3.6.9"))]);
        let expected =
            ["upgrade etcd to 3.5.28, 3.6.9 or later, then restart the instances", "upgrade all members"];
        assert_eq!(hints(version(&old)), expected);
        assert_eq!(version(&endpoints(vec![Ok(status("3.3.1"))])).unwrap_err().kind, Kind::Refused);
    }

    #[test]
    fn alarms_are_failures_and_a_nearly_full_database_is_a_warning() {
        let all = endpoints(vec![Ok(status("3.6.9"))]);
        assert!(alarms(&all).unwrap().1.is_empty());
        assert_eq!(database_size(&all).unwrap().0, "900 B, 500 B in use, quota 1000 B");
        assert_eq!(hints(database_size(&all)).len(), 1);
        let full = EndpointStatus { alarms: vec!["alarm:NOSPACE".to_owned()], ..status("3.6.9") };
        let error = alarms(&endpoints(vec![Ok(full)])).unwrap_err();
        assert!(
            error.message == "etcd reports alarm:NOSPACE" && error.hints[0].contains("disarm"),
            "{error:?}"
        );
        let low = |used_bytes| EndpointStatus { used_bytes, ..status("3.6.9") };
        assert!(alarms(&endpoints(vec![Ok(low(899))])).is_ok());
        let error = alarms(&endpoints(vec![Ok(low(100)), Ok(low(900))])).unwrap_err();
        assert!(error.message == "etcd uses over 90 % of its quota" && error.hints[0].contains("compact"));
        let corrupt = EndpointStatus { alarms: vec!["alarm:CORRUPT".to_owned()], ..status("3.6.9") };
        let error = alarms(&endpoints(vec![Ok(corrupt)])).unwrap_err();
        assert_eq!((error.kind, &error.hints[..]), (Kind::Refused, &["see the log of etcd".to_owned()][..]));
    }
}
