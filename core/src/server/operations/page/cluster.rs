//! The numbers of an instance of a cluster.

use super::text;
use crate::server::cluster::Role;
use crate::server::metrics::Metrics;
use crate::server::metrics::cluster::InstanceState;

/// Returns the rows of the card; `None` without a cluster.
pub fn rows(metrics: &Metrics) -> Option<Vec<(&'static str, String)>> {
    let InstanceState { status, held, .. } = metrics.cluster.state();
    let status = status?;
    let role = match status.role {
        Role::Loading => "reads the state",
        Role::Follower => "follows",
        Role::Owner => "owner",
        Role::Closed => "has given the store up",
        Role::Incompatible => "incompatible",
    };
    let owner = status.owner.as_ref().map_or_else(|| "–".to_owned(), |owner| text::escape(owner.as_bytes()));
    let role = match status.clock_off_ms {
        0 => role.to_owned(),
        off_ms => format!("{role}; its clock is {off_ms} ms off, so that it owns nothing"),
    };
    Some(vec![
        ("Role", role),
        ("Owner", owner),
        ("Epoch", text::count(status.epoch)),
        ("Sequence", text::count(status.seq)),
        ("Members", status.members.to_string()),
        ("Held requests", text::count(held.requests)),
        ("Takeovers", text::count(metrics.cluster.takeovers.get())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::cluster::Status;

    #[test]
    fn the_card_has_the_role_and_the_owner() {
        let metrics = Metrics::default();
        assert_eq!(rows(&metrics), None);
        let owner = Some("<b>".to_owned());
        let status = Status { owner, epoch: 3, seq: 70_215, members: 2, ..Status::test(Role::Follower) };
        metrics.cluster.set_status(status);
        let rows = rows(&metrics).unwrap();
        for row in [("Role", "follows"), ("Owner", "&lt;b&gt;"), ("Sequence", "70,215"), ("Members", "2")] {
            assert!(rows.contains(&(row.0, row.1.to_owned())), "{rows:?}");
        }
    }
}
