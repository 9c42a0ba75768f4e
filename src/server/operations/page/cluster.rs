//! The numbers of an instance of a cluster.

use super::text;
use crate::server::cluster::Role;
use crate::server::operations::metrics::Metrics;

/// Returns the rows of the card; `None` without a cluster.
pub fn rows(metrics: &Metrics) -> Option<Vec<(&'static str, String)>> {
    let shards = metrics.cluster.shards();
    let (_, first) = shards.first()?;
    let status = first.status.as_ref()?;
    let mut rows = if shards.len() == 1 {
        let role = match status.role {
            Role::Loading => "reads the state",
            Role::Follower => "follows",
            Role::Owner => "owner",
            Role::Closed => "has given the store up",
            Role::Incompatible => "incompatible",
        };
        let owner =
            status.owner.as_ref().map_or_else(|| "–".to_owned(), |owner| text::escape(owner.as_bytes()));
        vec![
            ("Role", role.to_owned()),
            ("Owner", owner),
            ("Epoch", text::count(status.epoch)),
            ("Sequence", text::count(status.seq)),
        ]
    } else {
        let owned = shards.iter().filter(|(_, state)| state.is_owner()).count();
        vec![("Shards owned", format!("{owned} of {}", shards.len()))]
    };
    rows.push(("Members", status.members.to_string()));
    let held = shards.iter().fold(0_u64, |sum, (_, state)| sum.saturating_add(state.held.requests));
    rows.push(("Held requests", text::count(held)));
    rows.push(("Takeovers", text::count(metrics.cluster.takeovers.get())));
    Some(rows)
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
        let status = Status { role: Role::Follower, owner, epoch: 3, seq: 70_215, members: 2 };
        metrics.cluster.set_status(0, status.clone());
        let rows_of_one = rows(&metrics).unwrap();
        for row in [("Role", "follows"), ("Owner", "&lt;b&gt;"), ("Sequence", "70,215"), ("Members", "2")] {
            assert!(rows_of_one.contains(&(row.0, row.1.to_owned())), "{rows_of_one:?}");
        }
        metrics.cluster.set_status(1, Status { role: Role::Owner, ..status });
        assert!(rows(&metrics).unwrap().contains(&("Shards owned", "1 of 2".to_owned())));
    }
}
