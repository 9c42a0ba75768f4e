//! Controls: worlds in which one rule of the protocol is broken, which the explorer must find (§5.2).

use super::super::fingerprint::unbound;
use super::super::frame::{Flags, Item, LinkFrame, Records};
use super::explore;
use super::world::{Bounds, World};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// The numbers of frames are not checked.
    NoNumbers,
    /// Tombstones are purged before a leaf has received them, and the horizon of the purge is not kept.
    EarlyPurge,
    /// The leaf does not compare the root's history of its stream with its own.
    NoStreamCheck,
    /// The flag `again` is not sent.
    NoAgain,
    /// Frames leave before the commit.
    EarlyAck,
    /// A change that the broker has acknowledged is taken out of the outbox.
    BrokerAck,
    /// An id is the serial alone, without the leaf and the content of the change.
    UnboundIds,
}

impl Control {
    /// Changes a frame before the root receives it.
    pub fn up(world: &World, at: usize, mut frame: LinkFrame) -> LinkFrame {
        if let LinkFrame::Changes(changes) = &mut frame {
            match world.left.control {
                Some(Control::NoNumbers) => changes.n = world.root.next_n(&super::world::name(at)),
                Some(Control::NoAgain) => {
                    for item in &mut changes.items {
                        item.flags = Flags { is_again: false, ..item.flags };
                    }
                }
                _ => {}
            }
        }
        frame
    }

    /// Changes a frame before a leaf receives it.
    pub fn down(world: &World, at: usize, mut frame: LinkFrame) -> LinkFrame {
        match (&mut frame, world.left.control) {
            (LinkFrame::Records(records), Some(Control::NoNumbers)) => {
                records.n = world.leaves[at].0.next_n();
            }
            (LinkFrame::Welcome(welcome), Some(Control::NoStreamCheck)) => {
                let row = world.leaves[at].0.row();
                (welcome.pruned, welcome.change_id) = (0, row.acked_change_id);
                welcome.applied = row.acked;
            }
            _ => {}
        }
        frame
    }

    /// Takes a frame that a leaf has sent for delivered.
    pub fn sent(world: &mut World, at: usize, frame: &LinkFrame) {
        if world.left.control != Some(Control::BrokerAck) {
            return;
        }
        let LinkFrame::Changes(changes) = frame else { return };
        let (leaf, site) = &mut world.leaves[at];
        let items = changes.items.iter().map(|item| Item::Accepted { seq: item.seq, ver: 0 });
        let records = Records {
            link: changes.link,
            n: leaf.next_n(),
            to: leaf.row().cursor,
            term: leaf.row().term,
            digest: None,
            items: items.collect(),
            purged: 0,
            last_ver: leaf.row().last_ver,
        };
        let effects = leaf.handle_frame(LinkFrame::Records(records), 0, site);
        world.take_leaf(at, &effects, None);
    }
}

fn fails(control: Control, bounds: Bounds) {
    let result = explore(World::new(Bounds { control: Some(control), ..bounds }), 1_000_000);
    let broken = result.expect_err(&format!("{control:?} must be found"));
    println!("{control:?}: {broken}");
}

#[test]
fn without_numbers_of_frames_the_explorer_finds_an_error() {
    fails(Control::NoNumbers, Bounds { leaf_sets: 2, reorders: 1, ..Bounds::NONE });
}

#[test]
fn with_an_early_purge_the_explorer_finds_an_error() {
    let bounds = Bounds { root_sets: 1, root_deletes: 1, losses: 1, ..Bounds::NONE };
    fails(Control::EarlyPurge, bounds);
}

#[test]
fn without_the_check_of_streams_the_explorer_finds_an_error() {
    fails(Control::NoStreamCheck, Bounds { leaf_sets: 2, leaf_restores: 1, ..Bounds::NONE });
}

#[test]
fn without_the_flag_again_a_deleted_key_comes_back() {
    let bounds = Bounds { root_deletes: 1, leaf_sets: 1, leaf_restores: 1, ..Bounds::NONE };
    fails(Control::NoAgain, bounds);
}

#[test]
fn with_frames_before_the_commit_the_explorer_finds_an_error() {
    let bounds = Bounds { leaf_sets: 1, root_crashes: 1, is_lazy: true, ..Bounds::NONE };
    fails(Control::EarlyAck, bounds);
}

#[test]
fn with_the_brokers_acknowledgement_for_a_decision_the_explorer_finds_an_error() {
    fails(Control::BrokerAck, Bounds { leaf_sets: 1, losses: 1, ..Bounds::NONE });
}

#[test]
fn with_ids_that_are_not_bound_to_their_content_the_explorer_finds_an_error() {
    let bounds = Bounds { leaf_sets: 2, leaf_restores: 1, repeats_runs: true, ..Bounds::NONE };
    unbound::with(|| fails(Control::UnboundIds, bounds));
}

#[test]
fn with_ids_that_are_not_bound_to_their_leaf_the_explorer_finds_an_error() {
    unbound::with(|| fails(Control::UnboundIds, Bounds { leaf_sets: 1, forgeries: 1, ..Bounds::NONE }));
}
