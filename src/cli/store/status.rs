//! `store status`: the members, the owner of each shard, and the state of etcd.

use super::cluster::Cluster;
use crate::cli::exit::Exit;
use crate::cli::report::{self, Reporter, takes_warnings};
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, duration};
use crate::render::escape::escape;
use crate::render::log::{Field, answer};
use crate::render::table::table;
use crate::server::cluster::operation::EtcdError;
use crate::server::cluster::{Member, Overview, ShardOverview};
use crate::server::etcd::{EndpointStatus, has_stale_read_fix};

/// What each endpoint of etcd reports.
pub type Endpoints = Vec<(String, Result<EndpointStatus, EtcdError>)>;

/// The most shards that are listed for one member.
const LISTED_MAX: usize = 4;

/// Prints the status.
///
/// # Errors
/// etcd cannot be used, or its content is not valid.
pub fn run(args: &EtcdArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(args).await?;
        let Some(overview) = cluster.overview().await? else {
            return cluster.report_missing("store-status", reporter).await;
        };
        let endpoints = cluster.etcd.status().await;
        let warnings = warnings(&endpoints);
        if reporter.is_json() {
            let fields = fields(args.cluster(), &overview, &endpoints, &warnings);
            reporter.data(answer("store-status", fields).as_bytes())?;
        } else {
            let text = text(&escape(cluster.name.as_bytes()), &overview, &endpoints, clock::wall_ms());
            reporter.data(text.as_bytes())?;
        }
        if takes_warnings(&reporter.style()) {
            warnings
                .iter()
                .for_each(|warning| report::log(&format!("warning: {}", escape(warning.as_bytes()))));
        }
        let unserved: Vec<_> = overview.unserved().collect();
        if unserved.is_empty() {
            return Ok(Exit::Yes);
        }
        let shards =
            if overview.shards.len() == 1 { String::new() } else { format!(": {}", listed(&unserved)) };
        let members = if overview.members.is_empty() {
            ", and no instance is running: start one with mqkv store"
        } else {
            ""
        };
        if !reporter.is_json() {
            reporter.negative(&format!("no owner{shards}{members}"));
        }
        Ok(Exit::No)
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
                for alarm in &status.alarms {
                    warnings.push(format!("etcd at {endpoint} reports {alarm}"));
                }
                if is_nearly_full(status) {
                    warnings.push(format!("etcd at {endpoint} uses over 80 % of its quota"));
                }
            }
        }
    }
    warnings
}

/// Whether over 80 % of the quota is used; `false` where etcd does not report the quota.
pub fn is_nearly_full(status: &EndpointStatus) -> bool {
    let tenths = |bytes: u64, tenths: u64| bytes.saturating_mul(tenths);
    status.quota_bytes.is_some_and(|quota| tenths(status.database_bytes, 10) > tenths(quota, 8))
}

fn fields(
    cluster: &str,
    overview: &Overview,
    endpoints: &Endpoints,
    warnings: &[String],
) -> Vec<(&'static str, Field)> {
    let text = |text: &str| Field::Text(text.to_owned());
    let member = |member: &Member| {
        vec![("name", text(&member.name)), ("run", Field::Text(format!("{:016x}", member.run)))]
    };
    let shard = |shard: &ShardOverview| {
        let mut fields = vec![("shard", Field::Number(shard.shard.into()))];
        fields.extend(shard.owner().map(|owner| ("owner", text(owner))));
        fields.push(("present", Field::Switch(overview.is_present(shard))));
        if let Some(head) = &shard.head {
            fields.extend([("epoch", Field::Number(head.epoch)), ("seq", Field::Number(head.seq))]);
            fields.extend(duration::rfc3339(head.wall_ms).map(|time| ("committed", Field::Text(time))));
        }
        fields.push(("keys", Field::Number(shard.keys)));
        fields
    };
    let endpoint = |(endpoint, status): &(String, Result<EndpointStatus, EtcdError>)| {
        let mut fields = vec![("endpoint", text(endpoint))];
        match status {
            Err(error) => fields.push(("error", Field::Text(error.to_string()))),
            Ok(status) => {
                fields.push(("version", text(&status.version)));
                fields.push(("leader", Field::Switch(status.is_leader)));
                fields.push(("database_bytes", Field::Number(status.database_bytes)));
                fields.push(("used_bytes", Field::Number(status.used_bytes)));
                fields.extend(status.quota_bytes.map(|quota| ("quota_bytes", Field::Number(quota))));
                fields.push(("alarms", Field::List(status.alarms.clone())));
            }
        }
        fields
    };
    vec![
        ("cluster", text(cluster)),
        ("served", Field::Switch(overview.unserved().next().is_none())),
        ("revision", Field::Number(overview.revision)),
        ("members", Field::Records(overview.members.iter().map(member).collect())),
        ("shards", Field::Records(overview.shards.iter().map(shard).collect())),
        ("etcd", Field::Records(endpoints.iter().map(endpoint).collect())),
        ("warnings", Field::List(warnings.to_vec())),
    ]
}

fn text(name: &str, overview: &Overview, endpoints: &Endpoints, now_ms: u64) -> String {
    let keys = overview.shards.iter().fold(0_u64, |sum, shard| sum.saturating_add(shard.keys));
    let (members, shards) = (overview.members.len(), overview.shards.len());
    let mut out = format!(
        "cluster {name}: {}, {}, {}\n",
        counted(members, "member"),
        counted(shards, "shard"),
        counted(usize::try_from(keys).unwrap_or(usize::MAX), "key")
    );
    if !overview.members.is_empty() {
        let mut rows = vec![["MEMBER", "ROLE"].map(str::to_owned).to_vec()];
        rows.extend(overview.members.iter().map(|member| {
            let owned: Vec<_> = overview.owned_by(member).collect();
            let role = match &owned[..] {
                [] => "follows".to_owned(),
                _ if shards == 1 => "owner".to_owned(),
                owned => format!("owns {}", listed(owned)),
            };
            vec![escape(member.name.as_bytes()), role]
        }));
        out.push('\n');
        out.push_str(&table(&rows, 1));
    }
    let mut rows = vec![["SHARD", "OWNER", "EPOCH", "SEQ", "KEYS", "COMMITTED"].map(str::to_owned).to_vec()];
    rows.extend(overview.shards.iter().map(|shard| {
        let owner = match shard.owner().map(|owner| escape(owner.as_bytes())) {
            None => "-".to_owned(),
            Some(owner) if overview.is_present(shard) => owner,
            Some(owner) => format!("{owner} (gone)"),
        };
        let (epoch, seq, committed) = match &shard.head {
            None => (0, 0, "never".to_owned()),
            Some(head) => (head.epoch, head.seq, ago(head.wall_ms, now_ms)),
        };
        let numbers = [epoch, seq, shard.keys].map(|number| number.to_string());
        [vec![shard.shard.to_string(), owner], numbers.to_vec(), vec![committed]].concat()
    }));
    out.push('\n');
    out.push_str(&table(&rows, 2));
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

/// Returns the numbers of shards, the first ones of many.
fn listed(shards: &[&ShardOverview]) -> String {
    let numbers: Vec<_> = shards.iter().take(LISTED_MAX).map(|shard| shard.shard.to_string()).collect();
    let name = if shards.len() == 1 { "shard" } else { "shards" };
    let more = match shards.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{name} {}{more}", numbers.join(", "))
}

fn counted(count: usize, name: &str) -> String {
    if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") }
}

/// Returns how long ago a wall clock had this time, in its greatest unit.
fn ago(at_ms: u64, now_ms: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min")];
    let age_ms = now_ms.saturating_sub(at_ms);
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| age_ms >= *unit).unwrap_or((1_000, "s"));
    match age_ms.checked_div(unit).unwrap_or(0) {
        0 => "now".to_owned(),
        count => format!("{count} {name} ago"),
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
    use crate::server::cluster::{Head, Owner};

    const NOW_MS: u64 = 1_763_669_639_958;

    fn shard(shard: u32, owner: Option<&str>, age_ms: u64) -> ShardOverview {
        let owner = owner.map(|owner| Owner { instance: owner.to_owned(), run: 7 });
        let head = Head { owner, epoch: 3, seq: 1_234_567, wall_ms: NOW_MS - age_ms, ..Head::default() };
        ShardOverview { shard, head: Some(head), keys: 1_000 }
    }

    fn overview(shards: Vec<ShardOverview>) -> Overview {
        let members = ["node1.example", "node2"].map(|name| Member { name: name.to_owned(), run: 7 });
        Overview { revision: 42, members: members.to_vec(), shards }
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
    fn the_status_of_one_shard_has_an_owner_and_followers() {
        let overview = overview(vec![shard(0, Some("node2"), 2_500)]);
        let expected = "\
cluster prod: 2 members, 1 shard, 1000 keys

MEMBER         ROLE
node1.example  follows
node2          owner

SHARD  OWNER  EPOCH      SEQ  KEYS  COMMITTED
0      node2      3  1234567  1000  2 s ago

ETCD                ROLE         VERSION     SIZE      USED  ALARMS
etcd1.example:2379  leader       3.4.23   1.6 GiB  19.5 KiB  NOSPACE
etcd2:2379          unreachable
";
        assert_eq!(text("prod", &overview, &endpoints(), NOW_MS), expected);
    }

    #[test]
    fn owners_that_are_gone_and_shards_without_one_are_marked() {
        let mut shards: Vec<_> = (0..6).map(|number| shard(number, Some("node2"), 0)).collect();
        shards.extend([shard(6, Some("node3"), 7_200_000), shard(7, None, 60_000)]);
        shards.push(ShardOverview { shard: 8, head: None, keys: 0 });
        let text = text("prod", &overview(shards), &Vec::new(), NOW_MS);
        for line in [
            "node1.example  follows\n",
            "node2          owns shards 0, 1, 2, 3 and 2 more\n",
            "0      node2             3  1234567  1000  now\n",
            "6      node3 (gone)      3  1234567  1000  2 h ago\n",
            "7      -                 3  1234567  1000  1 min ago\n",
            "8      -                 0        0     0  never\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn the_record_has_the_same() {
        let overview = overview(vec![shard(0, Some("node2"), 0), shard(1, None, 0)]);
        let json = answer("store-status", fields("prod", &overview, &endpoints(), &["w".to_owned()]));
        for part in [
            r#""cluster":"prod","served":false,"revision":42,"members":[{"name":"node1.example","run":"0000000000000007"},"#,
            r#"{"shard":0,"owner":"node2","present":true,"epoch":3,"seq":1234567,"committed":"2025-11-20T20:13:59.958Z","keys":1000}"#,
            r#"{"shard":1,"present":false,"#,
            r#""used_bytes":20000,"quota_bytes":2147483648,"alarms":["alarm:NOSPACE"]},{"endpoint":"etcd2:2379","error":"connection refused: etcd2:2379"}]"#,
            r#""warnings":["w"]}"#,
        ] {
            assert!(json.contains(part), "{part}\n{json}");
        }
    }

    #[test]
    fn members_of_etcd_that_need_attention_are_warned_of() {
        let warnings = warnings(&endpoints());
        assert!(warnings[0].starts_with("etcd 3.4.23 may answer stale reads"), "{warnings:?}");
        assert_eq!(
            warnings[1..],
            [
                "etcd at etcd1.example:2379 reports alarm:NOSPACE",
                "etcd at etcd1.example:2379 uses over 80 % of its quota",
                "connection refused: etcd2:2379"
            ]
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
