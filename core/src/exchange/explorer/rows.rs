//! Rows of nodes after random histories: what is on disk, what is in memory, and what loading makes of it.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::Exchange;
use super::super::row::{Row, RowId};
use super::Model;
use super::world::{Bounds, World, new_leaf, new_root};

const BOUNDS: Bounds = Bounds {
    leaves: 2,
    root_sets: 5,
    root_deletes: 3,
    leaf_sets: 5,
    leaf_deletes: 3,
    losses: 3,
    leaf_crashes: 1,
    root_crashes: 1,
    failed_commits: 3,
    leaf_restores: 1,
    root_restores: 1,
    is_lazy: true,
    ..Bounds::NONE
};

/// Performs random actions, and commits what they have left.
fn after(choices: &[Index]) -> World {
    let mut world = World::new(BOUNDS);
    for choice in choices {
        let actions = world.actions();
        if !actions.is_empty() {
            world.perform(choice.get(&actions)).unwrap();
        }
    }
    world.commit_all();
    world
}

/// Reads all rows in portions.
fn portions(node: &Exchange, size: usize) -> Vec<(RowId, Row)> {
    let mut rows: Vec<(RowId, Row)> = Vec::new();
    loop {
        let portion = node.rows_from(rows.last().map(|(id, _)| id), size);
        if portion.is_empty() {
            return rows;
        }
        rows.extend(portion);
    }
}

fn restore(mut node: Exchange, rows: &[(RowId, Row)]) -> Exchange {
    for (id, row) in rows {
        node.restore(id.clone(), Some(row.clone()));
    }
    node
}

proptest! {
    #[test]
    fn all_rows_in_portions_are_those_on_disk_and_make_the_same_node(
        choices in vec(any::<Index>(), 0..60), size in 1..5_usize
    ) {
        let world = after(&choices);
        let root = Exchange::Root(Box::new(world.root));
        let leaves = world.leaves.into_iter().enumerate();
        let leaves = leaves.map(|(at, (leaf, site))| (Exchange::Leaf(Box::new(leaf)), site, new_leaf(at, 9)));
        let leaves = leaves.map(|(node, site, new)| (node, site, Exchange::Leaf(Box::new(new))));
        let root = (root, world.root_site, Exchange::Root(Box::new(new_root(9))));
        for (node, site, new) in std::iter::once(root).chain(leaves) {
            let rows = portions(&node, size);
            prop_assert_eq!(&rows, &site.rows());
            for (id, row) in &rows {
                prop_assert_eq!(node.row(id), Some(row.clone()));
            }
            let restored = restore(new, &rows);
            prop_assert_eq!(&restored.rows_from(None, usize::MAX), &rows);
            prop_assert!(restored.is_same_on_disk(&node), "{restored:?} is not {node:?}");
        }
    }
}
