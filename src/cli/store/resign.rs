//! `store resign`: makes the owner give the store up, and waits until another instance owns it.

use std::time::Duration;

use serde::Serialize;
use tokio::time::sleep;

use super::action::ResignArgs;
use super::cluster::{Cluster, SPACE_HINT};
use crate::cli::report::Reporter;
use crate::cli::runtime;
use crate::clock;
use crate::commands::args::etcd::EtcdArgs;
use crate::commands::{CommandError, Exit, Kind, duration};
use crate::ledger::etcd::operation::{EtcdError, Space};
use crate::ledger::etcd::{Owner, encode_request};
use crate::render::escape::escape;
use crate::render::json::Json;
use crate::render::{Record, Rendered, Style, Widths, negative, notice};
use crate::server::cluster::Overview;
use crate::server::etcd::{EndpointStatus, Member};

/// Between two looks at the owner.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// The lease of a request: it disappears with this process, in so many seconds.
const REQUEST_LEASE_S: u32 = 5;

/// The ownership that is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ownership {
    owner: Owner,
    epoch: u64,
}

/// The result of `store resign`.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename = "store-resign")]
struct Resigned {
    cluster: String,
    /// The instance that gave the store up; `None`: none owned it.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// The instance that owns it now; `None`: none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// The instance of --instance.
    #[serde(skip)]
    instance: Option<String>,
}

/// Asks the owner, and waits.
///
/// # Errors
/// etcd cannot be used, no other instance could take over, or none has done so in time.
pub fn run(etcd: &EtcdArgs, args: &ResignArgs, reporter: &mut Reporter) -> Result<Exit, CommandError> {
    runtime::here()?.block_on(async {
        let cluster = Cluster::connect(etcd).await?;
        let Some(overview) = cluster.overview().await? else {
            return cluster.report_missing("store-resign", reporter).await;
        };
        let Some(ownership) = ownership(&overview, args.instance.as_deref()) else {
            let instance = args.instance.clone();
            reporter.put(&Resigned { cluster: cluster.name, from: None, to: None, instance })?;
            return Ok(Exit::No);
        };
        if !args.force {
            check_others(&overview, &ownership.owner)?;
        }
        check_space(&cluster).await?;
        let value = encode_request(ownership.epoch);
        let request = Member::start(&cluster.etcd, cluster.layout.request(), value, REQUEST_LEASE_S);
        // Without another member, none could take over.
        let is_alone = overview.members.iter().all(|member| member.name == ownership.owner.instance);
        let waited = wait(&cluster, &ownership, &request, args.force && is_alone, args.wait).await;
        request.close().await;
        let (from, to, instance) = (Some(ownership.owner.instance), waited?, args.instance.clone());
        reporter.put(&Resigned { cluster: cluster.name, from, to, instance })?;
        Ok(Exit::Yes)
    })
}

/// Returns the ownership, if there is one, and if it is that of the instance that is given.
fn ownership(overview: &Overview, instance: Option<&str>) -> Option<Ownership> {
    let head = overview.head.as_ref()?;
    let owner = head.owner.clone().filter(|owner| instance.is_none_or(|name| owner.instance == name))?;
    Some(Ownership { owner, epoch: head.epoch })
}

/// Checks that the owner is there, and another instance too.
fn check_others(overview: &Overview, owner: &Owner) -> Result<(), CommandError> {
    let name = escape(owner.instance.as_bytes());
    if !overview.is_served() {
        let error = CommandError::new(Kind::Unavailable, format!("the owner {name} is gone"));
        return Err(error.hint("another instance takes over without being asked: mqkv store status"));
    }
    if overview.members.iter().all(|member| member.name == owner.instance) {
        let message = format!("no other instance could take over from {name}");
        let error = CommandError::new(Kind::Unavailable, message);
        return Err(error.hint("start another one, or --force: then no instance answers for some seconds"));
    }
    Ok(())
}

/// Checks that etcd has space: otherwise no other instance could take over, and the owner does not give up.
async fn check_space(cluster: &Cluster) -> Result<(), CommandError> {
    let status = cluster.etcd.status().await;
    let spaces = status.iter().filter_map(|(_, status)| status.as_ref().ok()).map(EndpointStatus::space);
    if spaces.max() == Some(Space::Exhausted) {
        let error =
            CommandError::new(Kind::Refused, "etcd has reached its quota: no instance could take over");
        return Err(error.hint(SPACE_HINT));
    }
    Ok(())
}

/// Waits until another instance owns the store or, with `may_stay_free`, none; returns it.
async fn wait(
    cluster: &Cluster,
    ownership: &Ownership,
    request: &Member,
    may_stay_free: bool,
    within: Duration,
) -> Result<Option<String>, CommandError> {
    let begun = clock::monotonic();
    loop {
        // What etcd refuses now, it refuses for good.
        if let Some(error @ EtcdError::Refused { .. }) = request.failure() {
            return Err(cluster.etcd_error(&error));
        }
        match cluster.head().await {
            Ok(head) => {
                let owner = head.as_ref().and_then(|head| head.owner.as_ref());
                let is_given_up =
                    head.as_ref().is_none_or(|head| head.epoch > ownership.epoch || owner.is_none());
                match owner {
                    Some(owner)
                        if is_given_up && owner.instance == ownership.owner.instance && !may_stay_free =>
                    {
                        let name = escape(owner.instance.as_bytes());
                        let message = format!("instance {name} owns the store again: no other one took over");
                        return Err(CommandError::new(Kind::Unavailable, message).hint("mqkv store status"));
                    }
                    Some(owner) if is_given_up => return Ok(Some(owner.instance.clone())),
                    None if may_stay_free => return Ok(None),
                    Some(_) | None => {}
                }
            }
            // The request may be granted nevertheless.
            Err(EtcdError::Unknown { .. }) => {}
            Err(error) => return Err(cluster.etcd_error(&error)),
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

impl Record for Resigned {
    fn json(&self, json: &Json<'_>) -> Rendered {
        json.data(self)
    }

    fn text(&self, style: &Style, _: &mut Widths) -> Rendered {
        let shown = |name: &String| escape(name.as_bytes());
        let [from, to, instance] =
            [&self.from, &self.to, &self.instance].map(|name| name.as_ref().map(shown));
        match (from, to, instance) {
            (Some(from), Some(to), _) => notice(&format!("{to} owns the store now, after {from}"), style),
            (Some(from), None, _) => {
                let free = "has given the store up; no other instance has taken over yet";
                notice(&format!("{from} {free}"), style)
            }
            (None, _, Some(instance)) => negative(&format!("instance {instance} is not the owner"), style),
            (None, _, None) => negative("no owner at present: mqkv store status", style),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::etcd::Head;
    use crate::server::cluster::Member as ClusterMember;

    fn overview(owner: Option<&str>, members: &[&str]) -> Overview {
        let owner = owner.map(|owner| Owner { instance: owner.to_owned(), run: 7 });
        let member = |name: &&str| ClusterMember {
            name: (*name).to_owned(),
            run: 7,
            mod_revision: 1,
            clock_off_ms: 0,
        };
        Overview {
            head: Some(Head { owner, epoch: 3, ..Head::default() }),
            members: members.iter().map(member).collect(),
            ..Overview::default()
        }
    }

    #[test]
    fn an_instance_that_is_not_the_owner_gives_nothing_up() {
        let epoch =
            |owner, instance| ownership(&overview(owner, &[]), instance).map(|ownership| ownership.epoch);
        assert_eq!(epoch(Some("a"), None), Some(3));
        assert_eq!(epoch(Some("a"), Some("a")), Some(3));
        assert_eq!((epoch(Some("a"), Some("b")), epoch(None, None)), (None, None));
    }

    #[test]
    fn an_owner_without_another_member_is_not_asked() {
        let check = |members: &[&str]| {
            let overview = overview(Some("a"), members);
            check_others(&overview, &ownership(&overview, None).unwrap().owner)
        };
        assert!(check(&["a", "b"]).is_ok());
        assert_eq!(check(&["a"]).unwrap_err().message, "no other instance could take over from a");
        assert_eq!(check(&["b"]).unwrap_err().message, "the owner a is gone");
    }
}
