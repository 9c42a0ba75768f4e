//! `store status`: the members, the owner, and the state of etcd.

use serde::Serialize;

use super::cluster::{Cluster, SPACE_HINT};
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind};
use crate::ledger::etcd::operation::{EtcdError, Space};
use crate::render::duration::{rfc3339, rough};
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::table::table;
use crate::render::{Record, Rendered, Style, Widths, counted, negative, warning};
use crate::server::cluster::{Member, Overview};
use crate::server::etcd::{EndpointStatus, has_stale_read_fix};

/// What each endpoint of etcd reports.
pub type Endpoints = Vec<(String, Result<EndpointStatus, EtcdError>)>;

/// The result of `store status`.
#[derive(Debug)]
struct ClusterStatus {
    cluster: String,
    overview: Overview,
    endpoints: Endpoints,
    /// Whether the verb fails because of etcd.
    has_alarm: bool,
    now_ms: u64,
}

#[derive(Serialize)]
#[serde(tag = "op", rename = "store-status")]
struct StatusObject<'a> {
    cluster: &'a str,
    served: bool,
    /// The revision of etcd.
    revision: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(flatten)]
    head: Option<HeadObject>,
    keys: u64,
    members: Vec<MemberObject<'a>>,
    etcd: Vec<EndpointObject<'a>>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct HeadObject {
    epoch: u64,
    seq: u64,
    /// The owner's clock at the last commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
}

#[derive(Serialize)]
struct MemberObject<'a> {
    name: &'a str,
    run: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_ahead_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_behind_ms: Option<u64>,
}

#[derive(Serialize)]
struct EndpointObject<'a> {
    endpoint: &'a str,
    #[serde(flatten)]
    status: EtcdStatus<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EtcdStatus<'a> {
    Failed {
        error: String,
    },
    Answered {
        version: &'a str,
        leader: bool,
        database_bytes: u64,
        used_bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        quota_bytes: Option<u64>,
        alarms: &'a [String],
    },
}

pub fn run(args: &EtcdArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(args).await?;
        let Some(overview) = cluster.overview().await? else {
            return cluster.report_missing("store-status", reporter).await;
        };
        let endpoints = cluster.etcd.status().await;
        let alarm = alarm(&endpoints);
        let exit = if overview.is_served() { Exit::Yes } else { Exit::No };
        let (cluster, now_ms) = (cluster.name, clock::wall_ms());
        reporter.put(&ClusterStatus { cluster, overview, endpoints, has_alarm: alarm.is_some(), now_ms })?;
        alarm.map_or(Ok(exit), Err)
    })
}

/// Returns what the operator should change at etcd.
fn warnings(endpoints: &Endpoints) -> Vec<String> {
    let mut warnings = Vec::new();
    let stale: Vec<_> = endpoints
        .iter()
        .filter_map(|(_, status)| status.as_ref().ok())
        .map(|status| status.version.as_str())
        .filter(|version| !has_stale_read_fix(version))
        .collect();
    if let Some(version) = stale.first() {
        warnings.push(format!(
            "etcd {version} may answer stale reads: the store confirms reads by writes; upgrade to 3.5.28 or 3.6.9"
        ));
    }
    for (endpoint, status) in endpoints {
        match status {
            Err(error) => warnings.push(error.to_string()),
            Ok(status) => {
                if is_nearly_full(status) {
                    warnings.push(format!("etcd at {endpoint} uses over 80 % of its quota"));
                }
            }
        }
    }
    warnings
}

/// Returns the alarms that members of etcd report, or that no more values are written; `None` if there is nothing of that kind.
pub fn alarm(endpoints: &Endpoints) -> Option<CommandError> {
    let answering = || endpoints.iter().filter_map(|(_, status)| status.as_ref().ok());
    let mut alarms: Vec<_> = answering().flat_map(|status| &status.alarms).map(String::as_str).collect();
    alarms.sort_unstable();
    alarms.dedup();
    let space = answering().map(EndpointStatus::space).max().unwrap_or_default();
    let message = match (alarms.is_empty(), space) {
        (true, Space::Enough) => return None,
        (true, _) => "etcd uses over 90 % of its quota".to_owned(),
        (false, _) => format!("etcd reports {}", alarms.join(", ")),
    };
    let hint = if space == Space::Enough { "see the log of etcd" } else { SPACE_HINT };
    Some(CommandError::new(Kind::Refused, message).hint(hint))
}

/// Whether over 80 % of the quota is used; `false` where etcd does not report the quota.
pub fn is_nearly_full(status: &EndpointStatus) -> bool {
    let tenths = |bytes: u64, tenths: u64| bytes.saturating_mul(tenths);
    status.quota_bytes.is_some_and(|quota| tenths(status.database_bytes, 10) > tenths(quota, 8))
}

impl<'a> From<&'a Member> for MemberObject<'a> {
    fn from(Member { name, run, clock_off_ms, .. }: &'a Member) -> Self {
        let off_ms = Some(clock_off_ms.unsigned_abs());
        Self {
            name,
            run: format!("{run:016x}"),
            clock_ahead_ms: off_ms.filter(|_| *clock_off_ms > 0),
            clock_behind_ms: off_ms.filter(|_| *clock_off_ms < 0),
        }
    }
}

impl<'a> EndpointObject<'a> {
    fn of((endpoint, status): &'a (String, Result<EndpointStatus, EtcdError>)) -> Self {
        let status = match status {
            Err(error) => EtcdStatus::Failed { error: error.to_string() },
            Ok(status) => EtcdStatus::Answered {
                version: &status.version,
                leader: status.is_leader,
                database_bytes: status.database_bytes,
                used_bytes: status.used_bytes,
                quota_bytes: status.quota_bytes,
                alarms: &status.alarms,
            },
        };
        Self { endpoint, status }
    }
}

impl Record for ClusterStatus {
    fn json(&self, json: &Json<'_>) -> Rendered {
        let Self { cluster, overview, endpoints, .. } = self;
        json.data(&StatusObject {
            cluster,
            served: overview.is_served(),
            revision: overview.revision,
            owner: overview.owner(),
            head: overview.head.as_ref().map(|head| HeadObject {
                epoch: head.epoch,
                seq: head.seq,
                committed: rfc3339(head.wall_ms),
            }),
            keys: overview.keys,
            members: overview.members.iter().map(MemberObject::from).collect(),
            etcd: endpoints.iter().map(EndpointObject::of).collect(),
            warnings: warnings(endpoints),
        })
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let Self { cluster, overview, endpoints, has_alarm, now_ms } = self;
        let stdout = text(&escape(cluster.as_bytes()), overview, endpoints, *now_ms);
        let mut stderr: String =
            warnings(endpoints).iter().map(|text| warning(&escape(text.as_bytes()), style).stderr).collect();
        if !overview.is_served() && !has_alarm {
            let start = match overview.members[..] {
                [] => ", and no instance is running: start one with mqkv store",
                _ => "",
            };
            stderr.push_str(&negative(&format!("no owner{start}"), style).stderr);
        }
        Rendered { stdout: stdout.into(), stderr }
    }
}

fn text(name: &str, overview: &Overview, endpoints: &Endpoints, now_ms: u64) -> String {
    let members = counted(overview.members.len(), "member");
    let keys = counted(overview.keys, "key");
    let mut out = format!("cluster {name}: {members}, {keys}\n");
    if !overview.members.is_empty() {
        let mut rows = vec![["MEMBER", "ROLE"].map(str::to_owned).to_vec()];
        rows.extend(overview.members.iter().map(|member| {
            let role = match overview.is_owner(member) {
                true => "owner".to_owned(),
                false if member.clock_off_ms != 0 => {
                    format!("follows, and owns nothing: its clock is {}", clock_off(member.clock_off_ms))
                }
                false => "follows".to_owned(),
            };
            vec![escape(member.name.as_bytes()), role]
        }));
        out.push('\n');
        out.push_str(&table(&rows, 1));
    }
    let owner = match overview.owner().map(|owner| escape(owner.as_bytes())) {
        None => "-".to_owned(),
        Some(owner) if overview.is_served() => owner,
        Some(owner) => format!("{owner} (gone)"),
    };
    let (epoch, seq, committed) = match &overview.head {
        None => (0, 0, "never".to_owned()),
        Some(head) => (head.epoch, head.seq, ago(head.wall_ms, now_ms)),
    };
    let names = ["OWNER", "EPOCH", "SEQ", "COMMITTED"].map(str::to_owned).to_vec();
    out.push('\n');
    out.push_str(&table(&[names, vec![owner, epoch.to_string(), seq.to_string(), committed]], 1));
    let mut rows = vec![["ETCD", "ROLE", "VERSION", "SIZE", "USED", "ALARMS"].map(str::to_owned).to_vec()];
    rows.extend(endpoints.iter().map(|(endpoint, status)| {
        let endpoint = escape(endpoint.as_bytes());
        let Ok(status) = status else { return vec![endpoint, "unreachable".to_owned()] };
        let role = if status.is_leader { "leader" } else { "follower" };
        let alarms = status.alarms.iter().map(|alarm| escape(alarm.trim_start_matches("alarm:").as_bytes()));
        let alarms: Vec<_> = alarms.collect();
        vec![
            endpoint,
            role.to_owned(),
            escape(status.version.as_bytes()),
            size(status.database_bytes),
            size(status.used_bytes),
            if alarms.is_empty() { "-".to_owned() } else { alarms.join(" ") },
        ]
    }));
    out.push('\n');
    out.push_str(&table(&rows, 3));
    out
}

/// Returns by how much a clock is off.
pub fn clock_off(off_ms: i64) -> String {
    let seconds = off_ms.unsigned_abs().div_euclid(1_000);
    format!("{seconds} s {}", if off_ms > 0 { "ahead" } else { "behind" })
}

/// Returns how long ago a wall clock had this time, in its greatest unit.
fn ago(at_ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(at_ms) {
        0..1_000 => "now".to_owned(),
        age_ms => format!("{} ago", rough(age_ms)),
    }
}

/// Returns a number of bytes in its greatest unit.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.into_iter().find(|(bits, _)| bytes >> bits > 0);
    match unit {
        None => format!("{bytes} B"),
        Some((bits, name)) => {
            // Tenths of the unit: below 2^64 / 2^10 * 10.
            let tenths = (bytes >> bits.saturating_sub(10)).saturating_mul(10) >> 10;
            let (whole, tenth) = (tenths.div_euclid(10), tenths.rem_euclid(10));
            if whole >= 100 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::{Head, Owner};
    use crate::render::shown;

    const NOW_MS: u64 = 1_763_669_639_958;

    fn overview(owner: Option<&str>, age_ms: u64) -> Overview {
        let owner = owner.map(|owner| Owner { instance: owner.to_owned(), run: 7 });
        let head = Head { owner, epoch: 3, seq: 1_234_567, wall_ms: NOW_MS - age_ms, ..Head::default() };
        let members = ["node1.example", "node2"].map(|name| Member {
            name: name.to_owned(),
            run: 7,
            mod_revision: 1,
            clock_off_ms: 0,
        });
        Overview { revision: 42, members: members.to_vec(), head: Some(head), keys: 1_000 }
    }

    fn endpoints() -> Endpoints {
        let status = EndpointStatus {
            version: "3.4.23".to_owned(),
            is_leader: true,
            has_leader: true,
            database_bytes: 1_800_000_000,
            used_bytes: 20_000,
            quota_bytes: Some(2_147_483_648),
            alarms: vec!["alarm:NOSPACE".to_owned()],
        };
        let reason = "connection refused: etcd2:2379".to_owned();
        vec![
            ("etcd1.example:2379".to_owned(), Ok(status)),
            ("etcd2:2379".to_owned(), Err(EtcdError::Unknown { reason })),
        ]
    }

    #[test]
    fn the_status_has_an_owner_and_followers() {
        let expected = "\
cluster prod: 2 members, 1000 keys

MEMBER         ROLE
node1.example  follows
node2          owner

OWNER  EPOCH      SEQ  COMMITTED
node2      3  1234567  2 s ago

ETCD                ROLE         VERSION     SIZE      USED  ALARMS
etcd1.example:2379  leader       3.4.23   1.6 GiB  19.5 KiB  NOSPACE
etcd2:2379          unreachable
";
        assert_eq!(text("prod", &overview(Some("node2"), 2_500), &endpoints(), NOW_MS), expected);
    }

    #[test]
    fn an_owner_that_is_gone_or_missing_is_marked() {
        let gone = overview(Some("node3"), 7_200_000);
        let never = Overview { head: None, ..gone.clone() };
        for (overview, line) in [
            (gone, "\nnode3 (gone)      3  1234567  2 h ago\n"),
            (overview(None, 60_000), "\n-          3  1234567  1 min ago\n"),
            (never, "\n-          0    0  never\n"),
        ] {
            let text = text("prod", &overview, &Vec::new(), NOW_MS);
            assert!(text.contains(line), "{line}{text}");
            assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        }
    }

    #[test]
    fn the_record_has_the_same() {
        let json = |overview: Overview| {
            let (cluster, endpoints) = ("prod".to_owned(), endpoints());
            let status = ClusterStatus { cluster, overview, endpoints, has_alarm: true, now_ms: NOW_MS };
            shown(&status, &Style::JSON).0
        };
        let status = json(overview(Some("node2"), 0));
        for part in [
            r#""cluster":"prod","served":true,"revision":42,"owner":"node2","epoch":3,"seq":1234567,"#,
            r#""committed":"2025-11-20T20:13:59.958Z","keys":1000,"members":[{"name":"node1.example","run":"0000000000000007"},"#,
            r#""used_bytes":20000,"quota_bytes":2147483648,"alarms":["alarm:NOSPACE"]},{"endpoint":"etcd2:2379","error":"connection refused: etcd2:2379"}]"#,
            r#""warnings":["etcd 3.4.23 may answer"#,
        ] {
            assert!(status.contains(part), "{part}\n{status}");
        }
        let unserved = json(overview(None, 0));
        assert!(unserved.contains(r#""served":false,"revision":42,"epoch":3"#), "{unserved}");
    }

    #[test]
    fn members_of_etcd_that_need_attention_are_warned_of() {
        let warnings = warnings(&endpoints());
        assert!(warnings[0].starts_with("etcd 3.4.23 may answer stale reads"), "{warnings:?}");
        assert_eq!(
            warnings[1..],
            ["etcd at etcd1.example:2379 uses over 80 % of its quota", "connection refused: etcd2:2379"]
        );
    }

    #[test]
    fn sizes_have_their_greatest_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (200 << 20, "200 MiB"),
            (u64::MAX, "17179869183 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
