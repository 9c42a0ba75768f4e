//! The order of all rows of a node, for those that return them in portions.

use std::cmp::Ordering;
use std::ops::Bound;

use super::row::RowId;

/// The kinds of [`RowId`], in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Single,
    Key,
    Entry,
    Leaf,
    Decision,
    Conflict,
}

/// Returns where the rows of a kind go on after `last`, or `None` if all of them come before it. `part` returns the
/// part of an address of this kind.
pub(super) fn rest<'a, T>(
    last: Option<&'a RowId>,
    kind: Kind,
    part: impl Fn(&'a RowId) -> Option<T>,
) -> Option<Bound<T>> {
    let Some(last) = last else { return Some(Bound::Unbounded) };
    match Kind::of(last).cmp(&kind) {
        Ordering::Less => Some(Bound::Unbounded),
        Ordering::Equal => part(last).map(Bound::Excluded),
        Ordering::Greater => None,
    }
}

impl Kind {
    fn of(id: &RowId) -> Self {
        match id {
            RowId::Node | RowId::Rules | RowId::Terms => Self::Single,
            RowId::Key(_) => Self::Key,
            RowId::Entry(_) => Self::Entry,
            RowId::Leaf(_) => Self::Leaf,
            RowId::Decision(..) => Self::Decision,
            RowId::Conflict(_) => Self::Conflict,
        }
    }
}
