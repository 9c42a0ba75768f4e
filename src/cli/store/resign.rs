//! `store resign`: makes the owner of a shard give it up, and waits until another instance owns it.

use std::time::Duration;

use tokio::time::sleep;

use super::action::ResignArgs;
use super::cluster::{Cluster, etcd_error};
use crate::cli::exit::Exit;
use crate::cli::report::{self, Reporter};
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Kind, duration};
use crate::render::escape::escape;
use crate::render::log::{Field, answer};
use crate::server::cluster::operation::EtcdError;
use crate::server::cluster::{Overview, Owner, ShardOverview, encode_request};
use crate::server::etcd::Member;

/// Between two looks at the owner.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The lease of a request: it disappears with this process, in so many seconds.
const REQUEST_LEASE_S: u32 = 5;

/// A shard whose owner is to give it up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    shard: u32,
    owner: Owner,
    epoch: u64,
}

/// Asks the owners, and waits.
///
/// # Errors
/// etcd cannot be used, no other instance could take over, or none has done so in time.
pub fn run(etcd: &EtcdArgs, args: &ResignArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(etcd).await?;
        let Some(overview) = cluster.overview().await? else {
            return cluster.report_missing("store-resign", reporter).await;
        };
        let targets = targets(&overview, args)?;
        if targets.is_empty() {
            if reporter.is_json() {
                let fields = [("cluster", Field::Text(cluster.name)), ("shards", Field::Records(Vec::new()))];
                reporter.data(answer("store-resign", fields).as_bytes())?;
            } else {
                reporter.negative(&nothing(args));
            }
            return Ok(Exit::No);
        }
        if !args.force {
            check_others(&overview, &targets)?;
        }
        check_space(&cluster).await?;
        let requests: Vec<_> = targets
            .iter()
            .map(|target| {
                let key = cluster.layout.request(target.shard);
                Member::start(&cluster.etcd, key, encode_request(target.epoch), REQUEST_LEASE_S)
            })
            .collect();
        // Without another member, nobody could take over.
        let is_alone =
            |target: &Target| overview.members.iter().all(|member| member.name == target.owner.instance);
        let may_stay_free = args.force && targets.iter().any(is_alone);
        let waited = wait(&cluster, &targets, &requests, may_stay_free, args.wait).await;
        for request in requests {
            request.close().await;
        }
        let done = waited?;
        if reporter.is_json() {
            let records = targets.iter().zip(&done).map(|(target, owner)| {
                let mut fields = vec![
                    ("shard", Field::Number(target.shard.into())),
                    ("from", Field::Text(target.owner.instance.clone())),
                ];
                fields.extend(owner.clone().map(|owner| ("to", Field::Text(owner))));
                fields
            });
            let fields = [
                ("cluster", Field::Text(etcd.cluster().to_owned())),
                ("shards", Field::Records(records.collect())),
            ];
            reporter.data(answer("store-resign", fields).as_bytes())?;
        } else if !reporter.style().quiet {
            for (target, owner) in targets.iter().zip(&done) {
                report::log(&line(overview.shards.len(), target, owner.as_deref()));
            }
        }
        Ok(Exit::Yes)
    })
}

/// Returns the shards that the options choose, as far as they have an owner.
fn targets(overview: &Overview, args: &ResignArgs) -> Result<Vec<Target>, CommandError> {
    let target = |shard: &ShardOverview| {
        let head = shard.head.as_ref()?;
        Some(Target { shard: shard.shard, owner: head.owner.clone()?, epoch: head.epoch })
    };
    let count = overview.shards.len();
    if let Some(number) = args.shard
        && overview.shards.iter().all(|shard| shard.shard != number)
    {
        let last = count.saturating_sub(1);
        return Err(CommandError::usage(format!("--shard {number}: the cluster has shards 0 to {last}")));
    }
    let is_chosen = |shard: &&ShardOverview| match (args.shard, &args.instance) {
        (Some(number), _) => shard.shard == number,
        (None, Some(instance)) => shard.owner() == Some(instance),
        (None, None) => true,
    };
    let targets: Vec<_> = overview.shards.iter().filter(is_chosen).filter_map(target).collect();
    let is_of_one =
        targets.iter().all(|target| Some(&target.owner) == targets.first().map(|first| &first.owner));
    if args.shard.is_none() && args.instance.is_none() && !is_of_one {
        let error = CommandError::usage("the shards have several owners");
        return Err(error.hint("choose with --shard N or --instance NAME; mqkv store status lists them"));
    }
    Ok(targets)
}

/// Returns why there is nothing to give up.
fn nothing(args: &ResignArgs) -> String {
    match (args.shard, &args.instance) {
        (Some(shard), _) => format!("shard {shard} has no owner"),
        (None, Some(instance)) => format!("instance {} owns nothing", escape(instance.as_bytes())),
        (None, None) => "no owner at present: mqkv store status".to_owned(),
    }
}

/// Checks that each owner is there, and another instance too.
fn check_others(overview: &Overview, targets: &[Target]) -> Result<(), CommandError> {
    for Target { owner, .. } in targets {
        let name = escape(owner.instance.as_bytes());
        if !overview.members.iter().any(|member| member.name == owner.instance && member.run == owner.run) {
            let error = CommandError::new(Kind::Unavailable, format!("the owner {name} is gone"));
            return Err(error.hint("another instance takes over without being asked: mqkv store status"));
        }
        if !overview.members.iter().any(|member| member.name != owner.instance) {
            let message = format!("no other instance could take over from {name}");
            let error = CommandError::new(Kind::Unavailable, message);
            return Err(
                error.hint("start another one, or --force: then no instance answers for some seconds")
            );
        }
    }
    Ok(())
}

/// Checks that etcd has space: otherwise no other instance could take over, and the owner does not give up.
async fn check_space(cluster: &Cluster) -> Result<(), CommandError> {
    let status = cluster.etcd.status().await;
    let is_full = status
        .iter()
        .filter_map(|(_, status)| status.as_ref().ok())
        .any(|status| status.alarms.iter().any(|alarm| alarm.contains("NOSPACE")));
    if is_full {
        let error =
            CommandError::new(Kind::Refused, "etcd has reached its quota: no instance could take over");
        return Err(error.hint("compact and defragment etcd, then etcdctl alarm disarm"));
    }
    Ok(())
}

/// Waits until all shards have other owners or, with `may_stay_free`, none; returns these.
async fn wait(
    cluster: &Cluster,
    targets: &[Target],
    requests: &[Member],
    may_stay_free: bool,
    within: Duration,
) -> Result<Vec<Option<String>>, CommandError> {
    let begun = clock::monotonic();
    loop {
        // What etcd refuses now, it refuses for good.
        if let Some(error @ EtcdError::Refused { .. }) = requests.iter().find_map(Member::failure) {
            return Err(etcd_error(&error));
        }
        let mut owners = Vec::new();
        for target in targets {
            let head = match cluster.head(target.shard).await {
                Ok(head) => head,
                // The request may be granted nevertheless.
                Err(EtcdError::Unknown { .. }) => break,
                Err(error) => return Err(etcd_error(&error)),
            };
            let owner = head.as_ref().and_then(|head| head.owner.as_ref());
            let is_given_up = head.as_ref().is_none_or(|head| head.epoch > target.epoch || owner.is_none());
            match owner {
                Some(owner) if is_given_up && owner.instance == target.owner.instance && !may_stay_free => {
                    let name = escape(owner.instance.as_bytes());
                    let message =
                        format!("instance {name} owns {} again: no other one took over", shown(target));
                    return Err(CommandError::new(Kind::Unavailable, message).hint("mqkv store status"));
                }
                Some(owner) if is_given_up => owners.push(Some(owner.instance.clone())),
                None if may_stay_free => owners.push(None),
                Some(_) | None => {}
            }
        }
        if owners.len() == targets.len() {
            return Ok(owners);
        }
        if clock::monotonic().saturating_duration_since(begun) >= within {
            let error = format!("no other instance has taken over within {}", duration::text(within));
            return Err(
                CommandError::new(Kind::Timeout, error).hint("mqkv store status, and the log of the owner")
            );
        }
        sleep(LOOK_PAUSE).await;
    }
}

fn shown(target: &Target) -> String {
    format!("shard {}", target.shard)
}

fn line(shards: usize, target: &Target, owner: Option<&str>) -> String {
    let what = if shards == 1 { "the store".to_owned() } else { shown(target) };
    let from = escape(target.owner.instance.as_bytes());
    match owner {
        Some(owner) => format!("{} owns {what} now, after {from}", escape(owner.as_bytes())),
        None => format!("{from} has given {what} up; no other instance has taken over yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::{Head, Member as ClusterMember};

    fn overview(owners: &[Option<&str>], members: &[&str]) -> Overview {
        let shard = |(owner, shard): (&Option<&str>, u32)| {
            let owner = owner.map(|owner| Owner { instance: owner.to_owned(), run: 7 });
            ShardOverview { shard, head: Some(Head { owner, epoch: 3, ..Head::default() }), keys: 0 }
        };
        let member = |name: &&str| ClusterMember { name: (*name).to_owned(), run: 7 };
        Overview {
            revision: 9,
            members: members.iter().map(member).collect(),
            shards: owners.iter().zip(0..).map(shard).collect(),
        }
    }

    fn args(shard: Option<u32>, instance: Option<&str>) -> ResignArgs {
        ResignArgs {
            etcd: EtcdArgs::default(),
            shard,
            instance: instance.map(str::to_owned),
            force: false,
            wait: Duration::from_secs(1),
        }
    }

    fn chosen(owners: &[Option<&str>], args: &ResignArgs) -> Result<Vec<u32>, Kind> {
        let targets = targets(&overview(owners, &[]), args).map_err(|error| error.kind)?;
        Ok(targets.iter().map(|target| target.shard).collect())
    }

    #[test]
    fn the_options_choose_the_shards() {
        let owners = [Some("a"), Some("b"), None, Some("a")];
        assert_eq!(chosen(&owners, &args(None, Some("a"))), Ok(vec![0, 3]));
        assert_eq!(chosen(&owners, &args(Some(1), None)), Ok(vec![1]));
        assert_eq!(chosen(&owners, &args(Some(2), None)), Ok(vec![]));
        assert_eq!(chosen(&owners, &args(None, Some("c"))), Ok(vec![]));
        assert_eq!(chosen(&owners, &args(Some(4), None)), Err(Kind::Usage));
        assert_eq!(chosen(&owners, &args(None, None)), Err(Kind::Usage), "several owners");
        assert_eq!(chosen(&[Some("a"), Some("a")], &args(None, None)), Ok(vec![0, 1]));
    }

    #[test]
    fn an_owner_without_another_member_is_not_asked() {
        let check = |members: &[&str]| {
            let overview = overview(&[Some("a")], members);
            check_others(&overview, &targets(&overview, &args(None, None)).unwrap())
        };
        assert!(check(&["a", "b"]).is_ok());
        assert_eq!(check(&["a"]).unwrap_err().message, "no other instance could take over from a");
        assert_eq!(check(&["b"]).unwrap_err().message, "the owner a is gone");
    }
}
